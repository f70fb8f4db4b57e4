//! Exactly once: a replica executes only what a client asked for, and each of a client's numbers
//! at most once in the life of its state.

use super::{Violation, demand};
use crate::witness::Done;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tercio_types::{ClientId, ReplicaId, RequestSeq};

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct ExactlyOnce {
    /// A client that lies asks for several things under one number; any one of them may be done.
    asked: BTreeMap<(ClientId, RequestSeq), BTreeSet<Bytes>>,
}

impl ExactlyOnce {
    /// A client asked for this.
    pub fn asked(&mut self, client: ClientId, seq: RequestSeq, op: Bytes) {
        self.asked.entry((client, seq)).or_default().insert(op);
    }

    /// A correct replica executed this.
    ///
    /// # Errors
    /// When nobody asked for it, or it was executed before.
    pub fn executed(&self, by: ReplicaId, done: &Done) -> Result<(), Violation> {
        let Done { client, seq, op, place, before } = done;
        demand(before.is_none(), "exactly once", || {
            format!(
                "{by:?} executed request {seq} of client {client} at places {before:?} and {place}"
            )
        })?;
        let asked = self.asked.get(&(*client, *seq));
        demand(asked.is_some_and(|asked| asked.contains(op)), "exactly once", || {
            format!(
                "{by:?} executed request {seq} of client {client} as {op:?}; asked was {asked:?}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_and_inventions_are_caught() {
        let mut check = ExactlyOnce::default();
        let (client, seq, op) = (ClientId(1), RequestSeq(5), Bytes::from_static(b"op"));
        check.asked(client, seq, op.clone());
        let done = Done { client, seq, op, place: 1, before: None };
        check.executed(ReplicaId(0), &done).unwrap();
        let twice = Done { before: Some(1), place: 2, ..done.clone() };
        assert!(check.executed(ReplicaId(0), &twice).is_err());
        let other = Done { op: Bytes::from_static(b"another"), ..done.clone() };
        assert!(check.executed(ReplicaId(0), &other).is_err());
        let invented = Done { seq: RequestSeq(6), ..done };
        assert!(check.executed(ReplicaId(0), &invented).is_err());
    }
}
