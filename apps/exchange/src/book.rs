//! One market's book: price levels, a first-in-first-out queue at each, and the last trades.

use crate::query::Trade;
use crate::slots::{NIL, Order, Slots};
use crate::{Side, SymbolSpec};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// How many of the last trades the state keeps for each market.
pub(crate) const RECENT_TRADES: usize = 64;

/// The orders of one price.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// The oldest order.
    pub(crate) head: u32,
    /// The youngest order.
    tail: u32,
    pub(crate) orders: u32,
    /// The sum of what remains.
    pub(crate) quantity: u128,
}

type Levels = BTreeMap<u64, Level>;

#[derive(Clone, Debug)]
pub(crate) struct Book {
    pub(crate) base: u16,
    pub(crate) quote: u16,
    pub(crate) slots: Slots,
    by_id: BTreeMap<u64, u32>,
    bids: Levels,
    asks: Levels,
    pub(crate) next_seq: u64,
    /// How many commands this market accepted.
    pub(crate) revision: u64,
    /// How many trades it had.
    pub(crate) trades: u64,
    pub(crate) recent: VecDeque<Trade>,
    /// Whether one of the four above changed since the last digest.
    pub(crate) meta_dirty: bool,
}

impl Book {
    pub(crate) fn new(spec: &SymbolSpec) -> Self {
        Self {
            base: spec.base,
            quote: spec.quote,
            slots: Slots::default(),
            by_id: BTreeMap::new(),
            bids: BTreeMap::new(),
            asks: BTreeMap::new(),
            next_seq: 0,
            revision: 0,
            trades: 0,
            recent: VecDeque::new(),
            meta_dirty: true,
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn levels(&self, side: Side) -> &Levels {
        match side {
            Side::Bid => &self.bids,
            Side::Ask => &self.asks,
        }
    }

    fn levels_mut(&mut self, side: Side) -> &mut Levels {
        match side {
            Side::Bid => &mut self.bids,
            Side::Ask => &mut self.asks,
        }
    }

    /// The best price of a side and the order that is first there.
    pub(crate) fn best(&self, side: Side) -> Option<(u64, u32)> {
        let best = match side {
            Side::Bid => self.bids.last_key_value(),
            Side::Ask => self.asks.first_key_value(),
        };
        best.map(|(&price, level)| (price, level.head))
    }

    /// The asset that an order of `side` holds, and how much of it for `quantity` at `price`.
    pub(crate) fn cost(&self, side: Side, price: u64, quantity: u64) -> (u16, u128) {
        match side {
            Side::Bid => (self.quote, u128::from(price) * u128::from(quantity)),
            Side::Ask => (self.base, quantity.into()),
        }
    }

    /// How much an order of `side` would trade at once at `price` or better in at most `most`
    /// trades, at most `quantity`, and what that comes to in the quote asset.
    pub(crate) fn reach(&self, side: Side, price: u64, quantity: u64, most: u32) -> (u64, u128) {
        let (mut left, mut value, mut trades) = (quantity, 0, 0);
        // Whether the order goes on beyond a level.
        let mut take = |(&price, level): (&u64, &Level)| {
            for maker in self.queue(level) {
                if left == 0 || trades == most {
                    return false;
                }
                let traded = left.min(maker.remaining);
                left -= traded;
                value += u128::from(price) * u128::from(traded);
                trades += 1;
            }
            true
        };
        match side {
            Side::Bid => self.asks.range(..=price).all(&mut take),
            Side::Ask => self.bids.range(price..).rev().all(&mut take),
        };
        (quantity - left, value)
    }

    /// Lets an order rest behind all others of its price.
    pub(crate) fn rest(&mut self, account: u32, id: u64, side: Side, price: u64, remaining: u64) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let (prev, next) = (NIL, NIL);
        let order = Order { id, account, side, price, remaining, seq, prev, next };
        let slot = self.slots.insert(order);
        let known = self.by_id.insert(id, slot);
        assert!(known.is_none(), "a new order's id is free");
        self.enqueue(slot);
    }

    /// Puts the order of a slot at the end of its price's queue.
    fn enqueue(&mut self, slot: u32) {
        let Order { side, price, remaining, .. } = *self.slots.get(slot);
        let alone = Level { head: slot, tail: slot, orders: 1, quantity: remaining.into() };
        match self.levels_mut(side).entry(price) {
            Entry::Vacant(entry) => {
                entry.insert(alone);
            }
            Entry::Occupied(entry) => {
                let level = entry.into_mut();
                let last = std::mem::replace(&mut level.tail, slot);
                level.orders += 1;
                level.quantity += u128::from(remaining);
                self.slots.set_next(last, slot);
                self.slots.set_prev(slot, last);
            }
        }
    }

    /// Takes an order out.
    pub(crate) fn remove(&mut self, slot: u32) -> Order {
        let order = self.slots.remove(slot);
        self.by_id.remove(&order.id);
        let Entry::Occupied(mut entry) = self.levels_mut(order.side).entry(order.price) else {
            unreachable!("a resting order's price has a level");
        };
        if entry.get().orders == 1 {
            entry.remove();
            return order;
        }
        let level = entry.get_mut();
        level.orders -= 1;
        level.quantity -= u128::from(order.remaining);
        if order.prev == NIL {
            level.head = order.next;
        }
        if order.next == NIL {
            level.tail = order.prev;
        }
        if order.prev != NIL {
            self.slots.set_next(order.prev, order.next);
        }
        if order.next != NIL {
            self.slots.set_prev(order.next, order.prev);
        }
        order
    }

    /// Lowers what is left of an order by less than all of it.
    pub(crate) fn shrink(&mut self, slot: u32, by: u64) {
        let Order { side, price, remaining, .. } = *self.slots.get(slot);
        assert!(by < remaining, "something is left");
        self.slots.set_remaining(slot, remaining - by);
        let level = self.levels_mut(side).get_mut(&price).expect("the price has a level");
        level.quantity -= u128::from(by);
    }

    /// Writes a trade down and gives its number.
    pub(crate) fn record(
        &mut self,
        taker: u64,
        maker: u64,
        price: u64,
        quantity: u64,
        taker_side: Side,
    ) -> u64 {
        self.trades += 1;
        if self.recent.len() == RECENT_TRADES {
            self.recent.pop_front();
        }
        let sequence = self.trades;
        self.recent.push_back(Trade { sequence, taker, maker, price, quantity, taker_side });
        sequence
    }

    /// The orders of a price, oldest first.
    pub(crate) fn queue(&self, level: &Level) -> impl Iterator<Item = &Order> {
        let follow = |slot: u32| (slot != NIL).then_some(slot);
        std::iter::successors(follow(level.head), move |&slot| follow(self.slots.get(slot).next))
            .map(|slot| self.slots.get(slot))
    }

    /// Builds index and queues from the slots alone. False when two orders have one id or one
    /// place in time, or the book is crossed: no book ever was so.
    pub(crate) fn rebuild(&mut self) -> bool {
        let mut by_seq = BTreeMap::new();
        let mut by_id = BTreeMap::new();
        for (slot, order) in self.slots.iter() {
            let known = by_seq.insert(order.seq, slot).is_some();
            if known || by_id.insert(order.id, slot).is_some() || order.seq >= self.next_seq {
                return false;
            }
        }
        self.by_id = by_id;
        for slot in by_seq.into_values() {
            self.enqueue(slot);
        }
        match (self.best(Side::Bid), self.best(Side::Ask)) {
            (Some((bid, _)), Some((ask, _))) => bid < ask,
            _ => true,
        }
    }
}
