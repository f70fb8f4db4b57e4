//! One package in flight.

use crate::tally::Tally;
use crate::{ClientAuth, Failure, Nanos, Ticket};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_crypto::Keyring;
use tercio_types::{Membership, ReplicaId, ReplicaSet, RequestSeq};
use tercio_wire::{Frame, Key, reject::Reason};

/// Authenticates what the client says and makes a frame of it.
pub(crate) fn seal(keys: &Keyring, auth: ClientAuth, key: Key, body: Bytes) -> Bytes {
    let said = key.to_array();
    let auth = match auth {
        ClientAuth::Mac => keys.mac_vector(&said),
        ClientAuth::Signature => keys.sign(&said).into(),
    };
    Frame { key, auth, body }.to_bytes()
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) ticket: Ticket,
    pub(crate) first: RequestSeq,
    pub(crate) ops: usize,
    pub(crate) replier: ReplicaId,
    /// What the authenticator covers; kept to authenticate again.
    pub(crate) key: Key,
    /// The package's content.
    pub(crate) content: Bytes,
    /// The whole frame.
    pub(crate) frame: Bytes,
    pub(crate) tally: Tally,
    pub(crate) rejects: Vec<Option<Reason>>,
    /// Whether all replicas are asked, not the primary alone.
    pub(crate) everybody: bool,
    /// Who was asked for the bytes of the result since all were asked last.
    pub(crate) asked: ReplicaSet,
    /// Whether it is held back ([`crate::pace`]).
    pub(crate) held: bool,
    /// When the primary turned it away first.
    pub(crate) turned_away: Option<Nanos>,
    /// When a replica said first that it is beyond the window.
    pub(crate) beyond: Option<Nanos>,
    /// Retransmissions on time-out.
    pub(crate) resent: u32,
    /// When it was sent first, or again after it was held back.
    pub(crate) sent_at: Nanos,
    /// When to ask again which of those that were busy.
    pub(crate) busy: BTreeMap<ReplicaId, Nanos>,
    /// When the bytes are asked for elsewhere.
    pub(crate) body_at: Option<Nanos>,
    /// When all are asked, and how long after that again.
    pub(crate) retry_at: Nanos,
    pub(crate) pause: Duration,
    /// When the caller is told; `None` when it has been.
    pub(crate) deadline: Option<Nanos>,
    /// How long that is after the package was taken.
    pub(crate) within: Duration,
    /// Whether it only uses numbers up.
    pub(crate) filler: bool,
    /// The time under which it stands among the timers.
    pub(crate) wake: Nanos,
}

impl Pending {
    /// A package of `ops` operations of a network of these replicas, without its bytes and times yet.
    pub(crate) fn new(
        of: ReplicaSet,
        ticket: Ticket,
        ops: usize,
        replier: ReplicaId,
        key: Key,
    ) -> Self {
        Self {
            ticket,
            first: RequestSeq(key.seq),
            ops,
            replier,
            key,
            content: Bytes::new(),
            frame: Bytes::new(),
            tally: Tally::new(of),
            rejects: vec![None; of.bound()],
            everybody: false,
            asked: ReplicaSet::EMPTY,
            held: false,
            turned_away: None,
            beyond: None,
            resent: 0,
            sent_at: Nanos(0),
            busy: BTreeMap::new(),
            body_at: None,
            retry_at: Nanos(0),
            pause: Duration::ZERO,
            deadline: None,
            within: Duration::ZERO,
            filler: false,
            wake: Nanos(0),
        }
    }

    /// When something is to be done about it.
    pub(crate) fn due(&self) -> Nanos {
        let times = [self.body_at, self.deadline].into_iter().flatten();
        times.chain(self.busy.values().copied()).fold(self.retry_at, Nanos::min)
    }

    /// Who declined for `reason`.
    pub(crate) fn refused_for(&self, reason: Reason) -> Vec<ReplicaId> {
        let same = self.rejects.iter().enumerate().filter(|(_, r)| **r == Some(reason));
        same.map(|(i, _)| ReplicaId(i as u16)).collect()
    }

    /// What to tell the caller when the deadline is over.
    pub(crate) fn timed_out(&self, membership: &Membership) -> Failure {
        let within = self.within;
        let spoke = self.tally.speakers();
        let refusal = |r: ReplicaId| self.rejects[r.index()].map(|reason| (r, reason));
        let refused: Vec<_> =
            (membership.replicas()).filter(|r| !spoke.contains(*r)).filter_map(refusal).collect();
        let silent = membership
            .replicas()
            .filter(|r| !spoke.contains(*r) && refusal(*r).is_none())
            .collect();
        let last = RequestSeq(self.first.0 + self.ops as u64 - 1);
        let numbers = Some(Box::new((self.first, last)));
        Failure::TimedOut { numbers, within, silent, refused, split: spoke.iter().collect() }
    }
}
