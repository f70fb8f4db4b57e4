//! Resting orders in numbered slots. A new order takes the lowest free slot, so where an order
//! lies follows from the state alone (no free list to agree on), and slots stay dense.

use crate::Side;
use crate::dirty::DirtyPages;

/// How many slots make a chunk of the state.
pub(crate) const ORDERS_PER_PAGE: u32 = 32;
/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// A resting order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) account: u32,
    pub(crate) side: Side,
    pub(crate) price: u64,
    pub(crate) remaining: u64,
    /// Its arrival in the market: time priority.
    pub(crate) seq: u64,
    /// The neighbours in the queue of its price. They follow from price and `seq`.
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    orders: Vec<Order>,
    /// A bit a slot: taken.
    taken: Vec<u64>,
    /// A bit a word of `taken`: all 64 taken.
    full: Vec<u64>,
    len: u32,
    pub(crate) dirty: DirtyPages,
}

impl Slots {
    /// How many orders there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// How many pages there are, empty ones included.
    pub(crate) fn pages(&self) -> u32 {
        (self.orders.len() as u32).div_ceil(ORDERS_PER_PAGE)
    }

    fn lowest_free(&self) -> usize {
        let Some(outer) = self.full.iter().position(|&word| word != u64::MAX) else {
            return self.taken.len() * 64;
        };
        let word = outer * 64 + self.full[outer].trailing_ones() as usize;
        // The bit behind the last word is clear: no such word yet.
        self.taken.get(word).map_or(word * 64, |bits| word * 64 + bits.trailing_ones() as usize)
    }

    /// Puts an order into the lowest free slot.
    pub(crate) fn insert(&mut self, order: Order) -> u32 {
        let slot = self.lowest_free();
        self.put(slot as u32, order);
        slot as u32
    }

    /// Puts an order into a free slot.
    pub(crate) fn put(&mut self, slot: u32, order: Order) {
        let i = slot as usize;
        let word = i / 64;
        if i >= self.orders.len() {
            self.orders.resize(i + 1, order);
        }
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
            self.full.resize(self.taken.len().div_ceil(64), 0);
        }
        assert!(self.taken[word] >> (i % 64) & 1 == 0, "the slot is free");
        self.taken[word] |= 1 << (i % 64);
        if self.taken[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.orders[i] = order;
        self.len += 1;
        self.dirty.mark(slot / ORDERS_PER_PAGE);
    }

    /// Frees a slot and gives the order that was in it.
    pub(crate) fn remove(&mut self, slot: u32) -> Order {
        let i = slot as usize;
        let word = i / 64;
        assert!(self.is_taken(slot), "the slot is taken");
        self.taken[word] &= !(1 << (i % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.len -= 1;
        self.dirty.mark(slot / ORDERS_PER_PAGE);
        self.orders[i]
    }

    pub(crate) fn is_taken(&self, slot: u32) -> bool {
        let i = slot as usize;
        self.taken.get(i / 64).is_some_and(|bits| bits >> (i % 64) & 1 == 1)
    }

    pub(crate) fn get(&self, slot: u32) -> &Order {
        &self.orders[slot as usize]
    }

    /// Changes what is left of an order.
    pub(crate) fn set_remaining(&mut self, slot: u32, remaining: u64) {
        self.orders[slot as usize].remaining = remaining;
        self.dirty.mark(slot / ORDERS_PER_PAGE);
    }

    pub(crate) fn set_prev(&mut self, slot: u32, prev: u32) {
        self.orders[slot as usize].prev = prev;
    }

    pub(crate) fn set_next(&mut self, slot: u32, next: u32) {
        self.orders[slot as usize].next = next;
    }

    /// The taken slots of a page in ascending order.
    pub(crate) fn page(&self, page: u32) -> impl Iterator<Item = (u32, &Order)> {
        let first = page * ORDERS_PER_PAGE;
        (first..first + ORDERS_PER_PAGE)
            .filter(|&slot| self.is_taken(slot))
            .map(|slot| (slot, self.get(slot)))
    }

    /// All taken slots in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Order)> {
        (0..self.pages()).flat_map(|page| self.page(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: u64) -> Order {
        let (side, prev, next) = (Side::Bid, NIL, NIL);
        Order { id, account: 0, side, price: 1, remaining: 1, seq: id, prev, next }
    }

    /// Across the borders of both levels of the bitmap.
    #[test]
    fn the_lowest_free_slot_is_taken_next() {
        let mut slots = Slots::default();
        let count = 64 * 64 * 2 + 3;
        for i in 0..count {
            assert_eq!(slots.insert(order(i)), i as u32);
        }
        for slot in [8000, 4095, 64, 63, 4096, 0] {
            assert_eq!(slots.remove(slot).id, u64::from(slot));
        }
        for slot in [0, 63, 64, 4095, 4096, 8000, count as u32] {
            assert_eq!(slots.insert(order(1)), slot);
        }
        assert_eq!(slots.len() as usize, slots.iter().count());
    }
}
