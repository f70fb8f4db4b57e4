//! The stage on the thread that calls it.

use crate::decoder::{Decoder, Held, Step};
use crate::lanes::{Job, Lanes, Load, refusal};
use crate::meter::Meters;
use crate::{Bounds, Dropped, Filter, Filtered, Inbound, Lane, Outcome, VerifyStage, cost};
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
/// with those of other links (decision 0018); so does whatever comes behind it in its lane, so that a
/// lane's frames keep their order. What is checked together are all of replicas' messages, and of the
/// other lanes as much as fills a batch, by turns (decision 0043).
///
/// A batch is due when replicas' messages fill it, at once; and once all that is at hand was submitted,
/// so that it can be shared out: when it is full, when no more frames come, and when the first frame
/// has waited for `company`.
#[derive(Debug)]
pub struct HostVerify<M> {
    decoder: Decoder,
    gather: Gather,
    /// How long a frame waits for company, and until when the first that waits does.
    company: Duration,
    due: Option<Duration>,
    /// Whether all that was at hand was submitted.
    flushed: bool,
    lanes: Lanes<Held<M>>,
    /// How many signatures all that waits has, and replicas' messages of it.
    signatures: [usize; 2],
    meters: Meters,
    ready: VecDeque<Outcome<M>>,
    dropped: BTreeMap<&'static str, u64>,
}

const ALL: usize = 0;
const URGENT: usize = 1;

impl<M: Message> HostVerify<M> {
    /// Verifies with the keys of `keyring`, in the name of its owner.
    #[must_use]
    pub fn new(keyring: Keyring, gather: Gather, company: Duration) -> Self {
        Self {
            decoder: Decoder::new(keyring),
            gather,
            company,
            due: None,
            flushed: false,
            lanes: Lanes::new(Bounds::default()),
            signatures: [0; 2],
            meters: Meters::default(),
            ready: VecDeque::new(),
            dropped: BTreeMap::new(),
        }
    }

    fn done(&mut self, from: Principal, result: Result<Inbound<M>, Dropped>) {
        if let Err(dropped) = &result {
            dropped.count(&mut self.dropped);
        }
        self.ready.push_back((from, result));
    }

    fn refuse(&mut self, lane: Lane, why: Filtered) {
        self.done(lane.from(), Err(Dropped::Filtered(why)));
    }

    /// Puts a frame with those that wait.
    fn wait(&mut self, lane: Lane, mut held: Held<M>, bytes: &Bytes, now: Duration) {
        let refusal = refusal(lane.from(), bytes);
        if !self.lanes.has_room(lane) {
            return self.refuse(lane, refusal);
        }
        self.count(lane, &mut held, |count, more| *count += more);
        let cost = held.cost() + cost::FRAME;
        let job = Job { lane, cost, bytes: bytes.len(), refusal, what: held };
        for mut out in self.lanes.push(job) {
            self.count(out.lane, &mut out.what, |count, fewer| *count -= fewer);
            self.refuse(out.lane, out.refusal);
        }
        self.due.get_or_insert(now + self.company);
    }

    /// Counts the signatures of what comes or goes.
    fn count(&mut self, lane: Lane, held: &mut Held<M>, change: fn(&mut usize, usize)) {
        let signatures = held.signatures().map_or(0, |signatures| signatures.len());
        change(&mut self.signatures[ALL], signatures);
        if let Lane::Replica(_) = lane {
            change(&mut self.signatures[URGENT], signatures);
        }
    }

    /// What is checked next: replicas' messages, and others as long as there is room in the batch.
    fn batch(&mut self) -> Vec<Job<Held<M>>> {
        let (mut batch, mut signatures, mut bytes) = (vec![], 0, 0);
        while let Some(mut job) = self.lanes.next_urgent().or_else(|| {
            let full = self.gather.is_full(signatures, batch.len(), bytes);
            if full { None } else { self.lanes.next_fair() }
        }) {
            self.count(job.lane, &mut job.what, |count, fewer| *count -= fewer);
            // What came before it may have cost its link the rest.
            if let (Lane::Client(_), Err(floods)) = (job.lane, self.meters.may(job.lane)) {
                self.refuse(job.lane, floods);
                continue;
            }
            signatures += job.what.signatures().map_or(0, |signatures| signatures.len());
            bytes += job.bytes;
            batch.push(job);
        }
        batch
    }
}

impl<M: Message + Send> VerifyStage<M> for HostVerify<M> {
    fn set_membership(&mut self, membership: Arc<Membership>) {
        self.decoder.set_membership(membership);
    }

    fn set_filter(&mut self, filter: &Filter) {
        self.decoder.set_filter(filter);
    }

    fn hears(&mut self, from: Principal, now: Duration) -> bool {
        match from {
            Principal::Client(client) => self.meters.hear(Lane::Client(client), now).is_ok(),
            Principal::Replica(_) => true,
        }
    }

    fn silence(&self, from: Principal) -> Duration {
        match from {
            Principal::Client(client) => self.meters.silence(Lane::Client(client)),
            Principal::Replica(_) => Duration::ZERO,
        }
    }

    fn charge(&mut self, lane: Lane, bytes: usize) {
        self.meters.charge(lane, cost::of_answer(bytes));
    }

    fn submit(&mut self, from: Principal, bytes: &Bytes, now: Duration) {
        self.flushed = false;
        let lane = Lane::of(from, bytes);
        let heard = self.meters.hear(lane, now);
        if let (Lane::Client(_) | Lane::Forwards(_), Err(floods)) = (lane, heard) {
            return self.refuse(lane, floods);
        }
        let mut held = match self.decoder.admit(from, bytes) {
            Ok(Step::Done(inbound)) if self.lanes.holds(lane) => Held::Done(Box::new(inbound)),
            Ok(Step::Held(held)) => held,
            done => {
                let result = done.map(|step| match step {
                    Step::Done(inbound) => inbound,
                    Step::Held(_) => unreachable!("it waits"),
                });
                self.meters.settle(lane, &result, bytes.len(), 0);
                return self.done(from, result);
            }
        };
        if let (Err(floods), Some(_)) = (heard, held.signatures()) {
            return self.refuse(lane, floods);
        }
        self.wait(lane, held, bytes, now);
    }

    fn poll(&mut self) -> Option<Outcome<M>> {
        self.ready.pop_front()
    }

    fn flush(&mut self) {
        self.flushed = true;
    }

    fn is_due(&self, drained: bool, now: Duration) -> bool {
        let Some(due) = self.due else { return false };
        let (urgent, all) = (self.lanes.urgent(), self.lanes.load());
        let full = |of: usize, load: Load| {
            self.gather.is_full(self.signatures[of], load.frames, load.bytes)
        };
        drained || full(URGENT, urgent) || self.flushed && (due <= now || full(ALL, all))
    }

    fn gathers(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Checks the signatures of a batch. A bad signature costs no frame but its own.
    fn work(&mut self) {
        let mut batch = self.batch();
        // What is left has waited long enough for the next batch.
        self.due = self.gathers().then_some(Duration::ZERO);
        self.decoder.decide(batch.iter_mut().map(|job| &mut job.what));
        for Job { lane, bytes, what: mut held, .. } in batch {
            let spent = held.spent();
            let result = held.finish();
            self.meters.settle(lane, &result, bytes, spent);
            self.done(lane.from(), result);
        }
    }

    fn has_room_for(&self, from: Principal) -> bool {
        match from {
            Principal::Client(client) => self.lanes.has_room(Lane::Client(client)),
            Principal::Replica(_) => true,
        }
    }

    fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    fn checked(&self) -> Checked {
        self.decoder.checked()
    }
}
