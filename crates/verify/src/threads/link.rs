//! One link's frames that are with the workers, and their order.

use super::{Load, Ticket};
use crate::{Dropped, Inbound};
use std::collections::VecDeque;

/// A frame's bytes, and what came of it.
pub(super) type Settled<M> = (usize, Result<Inbound<M>, Dropped>);

/// One link's frames that are with the workers, in order: an outcome waits for those before it.
pub(super) struct Link<M> {
    /// The place of the first.
    first: u64,
    slots: VecDeque<Option<Settled<M>>>,
    pub(super) load: Load,
}

/// Slots that a link keeps when it has no frames here.
const KEPT: usize = 64;

impl<M> Link<M> {
    pub(super) const EMPTY: Self =
        Self { first: 0, slots: VecDeque::new(), load: Load { frames: 0, bytes: 0 } };

    /// The place of a new frame.
    pub(super) fn push(&mut self, bytes: usize) -> u64 {
        self.slots.push_back(None);
        self.load.add(bytes);
        self.first + self.slots.len() as u64 - 1
    }

    pub(super) fn set(&mut self, ticket: Ticket, result: Result<Inbound<M>, Dropped>) {
        let at = usize::try_from(ticket.place - self.first).expect("as many as are bounded");
        self.slots[at] = Some((ticket.bytes, result));
    }

    /// The next outcome, and its frame's bytes.
    pub(super) fn pop(&mut self) -> Option<Settled<M>> {
        let (bytes, result) = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first += 1;
        self.load.remove(bytes);
        if self.slots.is_empty() {
            self.slots.shrink_to(KEPT);
        }
        Some((bytes, result))
    }
}
