//! Where the stages can be looked at: what passes their borders, without a clock.
//!
//! A stage tells its [`Probe`] what came, what it handed on, and what came back. What that took is
//! for the probe to say: a stage has no clock, and none of its decisions depends on a probe
//! (decision 0040). The probe of a replica on threads is in `threads/watch.rs`; a
//! [`Node`](crate::Node) has [`NoProbe`].

use tercio_consensus::{BatchStep, Delivery, Instant, PersistId, ViewStep};
use tercio_types::{Package, Principal, SeqNum};

/// What is told of what passes the borders of the stages. Each does nothing unless it is written.
pub trait Probe: Send {
    /// A frame came on the link of `from`, at the time that the stage was given with it.
    fn frame(&mut self, from: Principal, bytes: &[u8], now: Instant) {
        let _ = (from, bytes, now);
    }

    /// A client's package is verified and goes to the protocol.
    fn request(&mut self, package: &Package) {
        let _ = package;
    }

    /// This replica says that a batch came this far.
    fn step(&mut self, step: BatchStep, seq: SeqNum) {
        let _ = (step, seq);
    }

    /// A batch is ordered and goes to execution.
    fn delivered(&mut self, delivery: &Delivery) {
        let _ = delivery;
    }

    /// It was executed, and its replies are on their way.
    fn executed(&mut self, seq: SeqNum) {
        let _ = seq;
    }

    /// A record goes to the log.
    fn persist(&mut self, id: PersistId) {
        let _ = id;
    }

    /// All records up to this one are durable.
    fn persisted(&mut self, id: PersistId) {
        let _ = id;
    }

    /// The replica left a view or entered one.
    fn view(&mut self, step: ViewStep) {
        let _ = step;
    }
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {}
