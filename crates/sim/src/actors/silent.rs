//! Silent: says nothing to some replicas, or to anybody.

use super::{Actor, Stage, as_replica};
use crate::Rng;
use bytes::Bytes;
use tercio_types::{Principal, ReplicaId, ReplicaSet};

/// Keeps silent towards some.
#[derive(Clone, Copy, Debug)]
pub struct Silent {
    towards: ReplicaSet,
}

impl Silent {
    /// Silent towards a random set of replicas.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let everybody = rng.chance(300);
        Self { towards: ReplicaSet(if everybody { u128::MAX } else { u128::from(rng.bits()) }) }
    }

    /// Silent towards these.
    #[must_use]
    pub fn towards(replicas: impl IntoIterator<Item = ReplicaId>) -> Self {
        Self { towards: replicas.into_iter().collect() }
    }
}

impl Actor for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        if as_replica(to).is_none_or(|id| !self.towards.contains(id)) {
            stage.send(to, bytes);
        }
    }
}
