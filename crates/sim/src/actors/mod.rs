//! Byzantine replicas by name. Each runs a real replica underneath and changes what goes in and
//! out of it, with the real keys of that replica and of nobody else. At most f of a network are
//! such, so whatever they do, the checkers must find nothing.

mod amnesiac;
mod censor;
mod corrupter;
mod double_voter;
mod equivocator;
mod fabricator;
mod false_source;
mod flooder;
mod mutator;
mod silent;
mod usurper;
mod view_jumper;

pub use amnesiac::Amnesiac;
pub use censor::Censor;
pub use corrupter::Corrupter;
pub use double_voter::DoubleVoter;
pub use equivocator::Equivocator;
pub use fabricator::Fabricator;
pub use false_source::{FalseSource, Falsehood};
pub use flooder::Flooder;
pub use mutator::Mutator;
pub use silent::Silent;
pub use usurper::Usurper;
pub use view_jumper::ViewJumper;

use crate::{Forger, Rng};
use bytes::Bytes;
use tercio_types::{Principal, ReplicaId};

/// A faulty replica's will.
pub trait Actor: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// A frame for the replica came in. Whether the replica underneath gets to see it.
    fn receive(&mut self, _from: Principal, _bytes: &Bytes, _stage: &mut Stage<'_>) -> bool {
        true
    }

    /// The replica underneath wants to send a frame; what is sent goes to `stage`.
    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        stage.send(to, bytes);
    }

    /// Whether the replica loses its disk when it restarts.
    fn forgets(&self) -> bool {
        false
    }
}

/// What an actor has at hand.
pub struct Stage<'a> {
    /// Makes frames in the name of this replica.
    pub forger: &'a mut Forger,
    /// Chooses.
    pub rng: &'a mut Rng,
    /// What is sent, in order.
    pub out: &'a mut Vec<(Principal, Bytes)>,
}

impl Stage<'_> {
    /// Sends a frame to one.
    pub fn send(&mut self, to: Principal, bytes: Bytes) {
        self.out.push((to, bytes));
    }

    /// Sends a frame to all other replicas.
    pub fn broadcast(&mut self, bytes: &Bytes) {
        for to in self.others() {
            self.send(to, bytes.clone());
        }
    }

    /// All other replicas.
    #[must_use]
    pub fn others(&self) -> Vec<Principal> {
        let me = self.forger.me();
        let all = self.forger.membership().replicas();
        all.filter(|r| *r != me).map(Principal::Replica).collect()
    }
}

/// The actors that random runs choose from, the equivocator more often than the others.
#[must_use]
pub fn cast_one(rng: &mut Rng) -> Box<dyn Actor> {
    match rng.below(17) {
        0..=3 => Box::new(Equivocator::new(rng.fork())),
        4 => Box::new(Censor::new(rng.between(1, 3))),
        5 => Box::new(Silent::new(rng)),
        6 => Box::new(Amnesiac),
        7 => Box::new(DoubleVoter),
        8 => Box::new(Flooder::new()),
        9 => Box::new(ViewJumper),
        10 => Box::new(Fabricator),
        11 | 12 => Box::new(Usurper::new()),
        13 | 14 => Box::new(FalseSource::new()),
        15 => Box::new(Corrupter),
        _ => Box::new(Mutator),
    }
}

fn as_replica(to: Principal) -> Option<ReplicaId> {
    match to {
        Principal::Replica(id) => Some(id),
        Principal::Client(_) => None,
    }
}
