//! The half of the stage that decodes and verifies, on a thread of its own.

use super::{Command, Done, Outcomes, Shared, Ticket};
use crate::decoder::{Decoder, Held, Step};
use crate::{Dropped, Filtered, Gather};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, PoisonError};
use tercio_wire::Message;

/// A worker of [`Threads`](super::Threads), to be run on a thread of its own.
pub struct Worker<M> {
    pub(super) id: usize,
    pub(super) decoder: Decoder,
    pub(super) gather: Gather,
    pub(super) queue: Receiver<Command>,
    pub(super) done: Sender<Done<M>>,
    pub(super) shared: Arc<Shared>,
    /// Which filter it has.
    pub(super) filters: u64,
}

/// What a worker gathers.
struct Batch<M> {
    waiting: Vec<(Ticket, Held<M>)>,
    outcomes: Outcomes<M>,
    signatures: usize,
    frames: usize,
    bytes: usize,
}

impl<M> Default for Batch<M> {
    fn default() -> Self {
        Self { waiting: vec![], outcomes: vec![], signatures: 0, frames: 0, bytes: 0 }
    }
}

impl<M: Message + Send> Worker<M> {
    /// Verifies until the stage is dropped.
    pub fn run(mut self) {
        while let Ok(first) = self.queue.recv() {
            let mut batch = Batch::default();
            self.admit(first, &mut batch);
            while !self.gather.is_full(batch.signatures, batch.frames, batch.bytes) {
                match self.queue.try_recv() {
                    Ok(command) => self.admit(command, &mut batch),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.hand_back(&mut batch.outcomes);
            self.decoder.decide(batch.waiting.iter_mut().map(|(_, held)| held));
            let finish = |(ticket, mut held): (Ticket, Held<M>)| {
                let spent = held.spent();
                (ticket, held.finish(), spent)
            };
            batch.outcomes.extend(batch.waiting.into_iter().map(finish));
            self.hand_back(&mut batch.outcomes);
        }
    }

    fn admit(&mut self, command: Command, batch: &mut Batch<M>) {
        let frames = match command {
            Command::Verify(frames) => frames,
            Command::Membership(membership) => return self.decoder.set_membership(membership),
        };
        for (ticket, bytes) in frames {
            self.take_filter();
            batch.frames += 1;
            batch.bytes += ticket.bytes;
            match self.decoder.admit(ticket.lane.from(), &bytes) {
                Err(dropped) => batch.outcomes.push((ticket, Err(dropped), 0)),
                Ok(Step::Done(inbound)) => batch.outcomes.push((ticket, Ok(inbound), 0)),
                Ok(Step::Held(_)) if ticket.spent => {
                    let floods = Filtered::Floods(ticket.lane);
                    batch.outcomes.push((ticket, Err(Dropped::Filtered(floods)), 0));
                }
                Ok(Step::Held(mut held)) => {
                    batch.signatures += held.signatures().map_or(0, |signatures| signatures.len());
                    batch.waiting.push((ticket, held));
                }
            }
        }
    }

    /// Takes the filter that is published, when it is another one.
    fn take_filter(&mut self) {
        let filters = self.shared.filters.load(Ordering::Acquire);
        if filters != self.filters {
            self.filters = filters;
            let published = self.shared.filter.lock().unwrap_or_else(PoisonError::into_inner);
            self.decoder.set_filter(&published);
        }
    }

    /// Gives outcomes to the loop, and wakes it unless it was told already.
    fn hand_back(&mut self, outcomes: &mut Outcomes<M>) {
        if outcomes.is_empty() {
            return;
        }
        let outcomes = std::mem::take(outcomes);
        let (worker, checked) = (self.id, self.decoder.checked());
        // When the stage is gone, so will be the queue.
        if self.done.send(Done { outcomes, worker, checked }).is_ok()
            && !self.shared.told.swap(true, Ordering::AcqRel)
        {
            (self.shared.wake)();
        }
    }
}
