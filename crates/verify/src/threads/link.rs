//! One lane's frames that are with the workers, and their order.

use crate::{Dropped, Inbound};
use std::collections::VecDeque;

/// One lane's frames that are with the workers, in order: an outcome waits for those before it.
pub(super) struct Link<M> {
    /// The place of the first.
    first: u64,
    slots: VecDeque<Option<Result<Inbound<M>, Dropped>>>,
}

/// Slots that a lane keeps when it has no frames here.
const KEPT: usize = 64;

impl<M> Link<M> {
    pub(super) const EMPTY: Self = Self { first: 0, slots: VecDeque::new() };

    /// The place of a new frame.
    pub(super) fn push(&mut self) -> u64 {
        self.slots.push_back(None);
        self.first + self.slots.len() as u64 - 1
    }

    pub(super) fn set(&mut self, place: u64, result: Result<Inbound<M>, Dropped>) {
        let at = usize::try_from(place - self.first).expect("as many as are bounded");
        self.slots[at] = Some(result);
    }

    /// The next outcome.
    pub(super) fn pop(&mut self) -> Option<Result<Inbound<M>, Dropped>> {
        let result = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first += 1;
        if self.slots.is_empty() {
            self.slots.shrink_to(KEPT);
        }
        Some(result)
    }
}
