//! Durability: what f+1 replicas acknowledged to a client is in the chain of every correct
//! replica in the end, at the place that the client was told, whatever crashed in between.

use super::{Violation, demand};
use crate::witness::Done;
use std::collections::BTreeMap;
use tercio_types::{ClientId, ReplicaId, RequestSeq};

type Places = BTreeMap<(ClientId, RequestSeq), u64>;

/// What was acknowledged, and what each correct replica's state holds.
#[derive(Clone, Debug, Default)]
pub struct Durability {
    acknowledged: Places,
    held: BTreeMap<ReplicaId, Places>,
}

impl Durability {
    /// A client has its result: the place that the operation got.
    ///
    /// # Errors
    /// When the client was told another place before.
    pub fn acknowledged(
        &mut self,
        client: ClientId,
        seq: RequestSeq,
        place: u64,
    ) -> Result<(), Violation> {
        let first = *self.acknowledged.entry((client, seq)).or_insert(place);
        demand(first == place, "durability", || {
            format!("client {client} got two results for request {seq}: {first} and {place}")
        })
    }

    /// A replica starts with an empty state and rebuilds it.
    pub fn restarted(&mut self, by: ReplicaId) {
        self.held.remove(&by);
    }

    /// A replica's state is this now.
    pub fn restored(&mut self, by: ReplicaId, places: Places) {
        self.held.insert(by, places);
    }

    /// A replica executed this.
    pub fn executed(&mut self, by: ReplicaId, done: &Done) {
        self.held.entry(by).or_default().insert((done.client, done.seq), done.place);
    }

    /// Whether a replica's state has this.
    #[must_use]
    pub fn holds(&self, replica: ReplicaId, client: ClientId, seq: RequestSeq) -> bool {
        self.held.get(&replica).is_some_and(|held| held.contains_key(&(client, seq)))
    }

    /// How many operations were acknowledged.
    #[must_use]
    pub fn count(&self) -> usize {
        self.acknowledged.len()
    }

    /// The run is over, and these are the correct replicas.
    ///
    /// # Errors
    /// When one of them lacks something that was acknowledged, or has it elsewhere.
    pub fn finish(&self, correct: impl IntoIterator<Item = ReplicaId>) -> Result<(), Violation> {
        let none = Places::new();
        for replica in correct {
            let held = self.held.get(&replica).unwrap_or(&none);
            for ((client, seq), place) in &self.acknowledged {
                let found = held.get(&(*client, *seq));
                demand(found == Some(place), "durability", || {
                    format!(
                        "request {seq} of client {client} was acknowledged at place {place}; \
                         {replica:?} has it at {found:?}"
                    )
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_moved_operation_is_caught() {
        let (client, seq, a) = (ClientId(1), RequestSeq(1), ReplicaId(0));
        let mut check = Durability::default();
        check.acknowledged(client, seq, 3).unwrap();
        assert!(check.acknowledged(client, seq, 4).is_err());
        assert!(check.finish([a]).is_err(), "never executed");
        let done = Done { client, seq, op: bytes::Bytes::new(), place: 3, before: None };
        check.executed(a, &done);
        assert!(check.holds(a, client, seq) && !check.holds(ReplicaId(1), client, seq));
        check.finish([a]).unwrap();
        check.restarted(a);
        assert!(check.finish([a]).is_err(), "lost in a restart");
        check.restored(a, [((client, seq), 4)].into());
        assert!(check.finish([a]).is_err(), "moved");
        check.finish([]).unwrap();
    }
}
