//! The stage on the thread that calls it.

use crate::decoder::{Decoder, Held, Step};
use crate::{Dropped, Filter, Inbound, Outcome, VerifyStage};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::{Checked, Keyring};
use tercio_types::{Membership, Principal};
use tercio_wire::Message;

/// How much may wait for its signatures to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Signatures that fill a batch; at most as many frames wait.
    pub signatures: usize,
    /// Bytes of frames that fill a batch.
    pub bytes: usize,
}

impl Gather {
    /// Whether this many signatures, frames and bytes fill a batch.
    pub(crate) fn is_full(&self, signatures: usize, frames: usize, bytes: usize) -> bool {
        signatures.max(frames) >= self.signatures || bytes >= self.bytes
    }
}

impl Default for Gather {
    /// 64 signatures (eight groups of eight lanes), 1 MiB.
    fn default() -> Self {
        Self { signatures: 64, bytes: 1 << 20 }
    }
}

/// Verifies frames on the thread that calls it.
///
/// A frame under MACs alone is done at once. One with signatures, its sender's or others', waits
/// with those of other links until all that gathered are checked as one batch (decision 0018); so
/// does whatever comes behind it on its link, so that a link's frames keep their order. A batch is
/// due when it is full, which bounds what waits, when no more frames are at hand, and when its
/// first frame has waited for `company`.
#[derive(Debug)]
pub struct HostVerify<M> {
    decoder: Decoder,
    gather: Gather,
    /// How long a frame waits for company, and until when the first that waits does.
    company: Duration,
    due: Option<Duration>,
    waiting: Vec<(Principal, Held<M>)>,
    /// Of what waits: signatures, and bytes of frames.
    signatures: usize,
    bytes: usize,
    ready: VecDeque<Outcome<M>>,
    dropped: BTreeMap<&'static str, u64>,
}

impl<M: Message> HostVerify<M> {
    /// Verifies with the keys of `keyring`, in the name of its owner.
    #[must_use]
    pub fn new(keyring: Keyring, gather: Gather, company: Duration) -> Self {
        Self {
            decoder: Decoder::new(keyring),
            gather,
            company,
            due: None,
            waiting: Vec::new(),
            signatures: 0,
            bytes: 0,
            ready: VecDeque::new(),
            dropped: BTreeMap::new(),
        }
    }

    /// Whether frames of this link wait.
    fn waits_for(&self, link: Principal) -> bool {
        self.waiting.iter().any(|(from, _)| *from == link)
    }

    /// Whether as much waits as a batch should hold.
    fn is_batch(&self) -> bool {
        self.gather.is_full(self.signatures, self.waiting.len(), self.bytes)
    }

    fn done(&mut self, from: Principal, result: Result<Inbound<M>, Dropped>) {
        if let Err(dropped) = &result {
            dropped.count(&mut self.dropped);
        }
        self.ready.push_back((from, result));
    }
}

impl<M: Message + Send> VerifyStage<M> for HostVerify<M> {
    fn set_membership(&mut self, membership: Arc<Membership>) {
        self.decoder.set_membership(membership);
    }

    fn set_filter(&mut self, filter: &Filter) {
        self.decoder.set_filter(filter);
    }

    fn submit(&mut self, from: Principal, bytes: &Bytes, now: Duration) {
        let mut held = match self.decoder.admit(from, bytes) {
            Err(dropped) => return self.done(from, Err(dropped)),
            Ok(Step::Done(inbound)) if !self.waits_for(from) => {
                return self.done(from, Ok(inbound));
            }
            Ok(Step::Done(inbound)) => Held::Done(Box::new(inbound)),
            Ok(Step::Held(held)) => held,
        };
        self.signatures += held.signatures().map_or(0, |signatures| signatures.len());
        self.bytes += bytes.len();
        self.waiting.push((from, held));
        self.due.get_or_insert(now + self.company);
    }

    fn poll(&mut self) -> Option<Outcome<M>> {
        self.ready.pop_front()
    }

    fn is_due(&self, drained: bool, now: Duration) -> bool {
        self.due.is_some_and(|due| drained || due <= now || self.is_batch())
    }

    fn gathers(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Checks the signatures of all that waits, as one batch. A bad signature costs no frame but
    /// its own.
    fn work(&mut self) {
        (self.signatures, self.bytes, self.due) = (0, 0, None);
        let mut waiting = std::mem::take(&mut self.waiting);
        self.decoder.decide(waiting.iter_mut().map(|(_, held)| held));
        for (from, held) in waiting {
            self.done(from, held.finish());
        }
    }

    fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    fn checked(&self) -> Checked {
        self.decoder.checked()
    }
}
