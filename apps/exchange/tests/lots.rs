//! Every kind of order against a second matcher that was written from `docs/exchange.md` alone and
//! shares nothing with the exchange or the first one: it knows no orders, only single lots, each
//! with its price and its place in time, and trades them one by one.

use proptest::prelude::*;
use tercio_exchange::query::{OrdersAnswer, Query};
use tercio_exchange::{Command, Exchange, Fill, Outcome, Reject, Settings, Side};
use tercio_execution::Application;
use tercio_types::{ClientId, Suite};

/// One lot for sale, or one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lot {
    order: u64,
    wanted: bool,
    price: i64,
    arrival: usize,
}

#[derive(Clone, Default)]
struct Lots {
    resting: Vec<Lot>,
    arrivals: usize,
    trades: u64,
}

impl Lots {
    fn of(&self, order: u64) -> Vec<Lot> {
        self.resting.iter().copied().filter(|lot| lot.order == order).collect()
    }

    /// Trades one lot of the order, if there is one to trade with at `price` or better.
    fn trade(&mut self, wanted: bool, price: Option<i64>) -> Option<Lot> {
        let acceptable = |lot: &Lot| match price {
            None => true,
            Some(price) if wanted => lot.price <= price,
            Some(price) => lot.price >= price,
        };
        let partners = self.resting.iter().copied();
        let best = partners
            .filter(|lot| lot.wanted != wanted && acceptable(lot))
            .min_by_key(|lot| (if wanted { lot.price } else { -lot.price }, lot.arrival))?;
        let at = self.resting.iter().position(|lot| *lot == best).unwrap();
        self.resting.remove(at);
        Some(best)
    }

    /// Trades up to `count` lots; gives the trades and how many lots found no partner.
    fn enter(&mut self, wanted: bool, price: Option<i64>, count: i64) -> (Vec<Fill>, i64) {
        let mut fills: Vec<Fill> = vec![];
        for done in 0..count {
            let Some(lot) = self.trade(wanted, price) else { return (fills, count - done) };
            match fills.last_mut() {
                Some(fill) if fill.maker == lot.order => fill.quantity += 1,
                _ => {
                    self.trades += 1;
                    let (trade, maker, price) = (self.trades, lot.order, lot.price as u64);
                    fills.push(Fill { trade, maker, price, quantity: 1 });
                }
            }
        }
        (fills, 0)
    }

    fn limit(&mut self, order: u64, wanted: bool, price: i64, count: i64) -> Outcome {
        let (fills, left) = self.enter(wanted, Some(price), count);
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.resting.extend((0..left).map(|_| Lot { order, wanted, price, arrival }));
        Outcome::Placed { remaining: left as u64, dropped: 0, fills }
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        let taken = |lots: &Self, id| !lots.of(id).is_empty();
        let duplicate = Outcome::Rejected(Reject::DuplicateOrder);
        match *command {
            Command::Limit { id, .. }
            | Command::ImmediateOrCancel { id, .. }
            | Command::FillOrKill { id, .. }
            | Command::Market { id, .. }
                if taken(self, id) =>
            {
                duplicate
            }
            Command::Cancel { id, .. }
            | Command::Reduce { id, .. }
            | Command::Replace { id, .. }
                if !taken(self, id) =>
            {
                Outcome::Rejected(Reject::UnknownOrder)
            }
            Command::Limit { id, side, price, quantity, .. } => {
                self.limit(id, side == Side::Bid, price, quantity)
            }
            Command::ImmediateOrCancel { side, price, quantity, .. } => {
                let (fills, left) = self.enter(side == Side::Bid, Some(price), quantity);
                Outcome::Placed { remaining: 0, dropped: left as u64, fills }
            }
            Command::FillOrKill { side, price, quantity, .. } => {
                let before = self.clone();
                let (fills, left) = self.enter(side == Side::Bid, Some(price), quantity);
                if left > 0 {
                    *self = before;
                    return Outcome::Rejected(Reject::NotFilled);
                }
                Outcome::Placed { remaining: 0, dropped: 0, fills }
            }
            Command::Market { side, quantity, .. } => {
                let (fills, left) = self.enter(side == Side::Bid, None, quantity);
                Outcome::Placed { remaining: 0, dropped: left as u64, fills }
            }
            Command::Cancel { id, .. } => {
                let quantity = self.of(id).len() as u64;
                self.resting.retain(|lot| lot.order != id);
                Outcome::Cancelled { quantity }
            }
            Command::Reduce { id, quantity, .. } => self.keep(id, quantity),
            Command::Replace { id, price, quantity, .. } => {
                let old = self.of(id);
                if old[0].price == price && quantity <= old.len() as i64 {
                    return self.keep(id, quantity);
                }
                self.resting.retain(|lot| lot.order != id);
                self.limit(id, old[0].wanted, price, quantity)
            }
            Command::Deposit { .. } => unreachable!("nobody deposits here"),
        }
    }

    /// Takes lots of an order away until at most `most` are there.
    fn keep(&mut self, id: u64, most: i64) -> Outcome {
        while self.of(id).len() as i64 > most {
            let at = self.resting.iter().position(|lot| lot.order == id).unwrap();
            self.resting.remove(at);
        }
        Outcome::Reduced { remaining: self.of(id).len() as u64 }
    }

    /// Orders in the order in which they stand in the book: id and lots.
    fn book(&self) -> Vec<(u64, u64)> {
        let mut lots = self.resting.clone();
        lots.sort_by_key(|lot| {
            let first = if lot.wanted { (0, -lot.price) } else { (1, lot.price) };
            (first, lot.arrival)
        });
        let mut orders: Vec<(u64, u64)> = vec![];
        for lot in lots {
            match orders.last_mut() {
                Some((order, count)) if *order == lot.order => *count += 1,
                _ => orders.push((lot.order, 1)),
            }
        }
        orders
    }
}

fn command() -> impl Strategy<Value = Command> {
    let order = (0u64..10, any::<bool>(), 95i64..106, 1i64..14);
    (order, 0u8..16).prop_map(|((id, bid, price, quantity), kind)| {
        let side = if bid { Side::Bid } else { Side::Ask };
        let symbol = 0;
        match kind {
            0..6 => Command::Limit { symbol, id, side, price, quantity },
            6..8 => Command::ImmediateOrCancel { symbol, id, side, price, quantity },
            8..10 => Command::FillOrKill { symbol, id, side, price, quantity },
            10 => Command::Market { symbol, id, side, quantity },
            11..14 => Command::Replace { symbol, id, price, quantity },
            14 => Command::Reduce { symbol, id, quantity },
            _ => Command::Cancel { symbol, id },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_of_order_trades_as_single_lots_do(
        commands in prop::collection::vec(command(), 1..80)
    ) {
        let mut exchange = Exchange::new(Settings::markets(1), Suite::default()).unwrap();
        let mut lots = Lots::default();
        for command in &commands {
            let expected = lots.apply(command);
            prop_assert_eq!(exchange.apply(ClientId(1), command), expected, "{:?}", command);
        }
        let question = Query::Orders { symbol: 0, after: None, limit: 1000 };
        let answer = exchange.query(&question.to_bytes()).unwrap();
        let answer: OrdersAnswer = serde_json::from_slice(&answer).unwrap();
        let orders: Vec<_> = answer.orders.iter().map(|o| (o.id, o.remaining)).collect();
        prop_assert_eq!(orders, lots.book());
    }
}

/// Priority, order by order: what a replaced order loses and what it keeps.
#[test]
fn a_replaced_order_keeps_its_place_only_when_it_shrinks() {
    let bid = |id| Command::Limit { symbol: 0, id, side: Side::Bid, price: 100, quantity: 5 };
    let replace = |price, quantity| Command::Replace { symbol: 0, id: 1, price, quantity };
    let first_to_trade = |change: Command| {
        let mut exchange = Exchange::new(Settings::markets(1), Suite::default()).unwrap();
        for command in [bid(1), bid(2), change] {
            assert!(!matches!(exchange.apply(ClientId(1), &command), Outcome::Rejected(_)));
        }
        let sell = Command::Market { symbol: 0, id: 9, side: Side::Ask, quantity: 1 };
        match exchange.apply(ClientId(2), &sell) {
            Outcome::Placed { fills, .. } => fills[0].maker,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(first_to_trade(replace(100, 5)), 1, "the same again");
    assert_eq!(first_to_trade(replace(100, 2)), 1, "less");
    assert_eq!(first_to_trade(replace(100, 6)), 2, "more");
    assert_eq!(first_to_trade(replace(99, 5)), 2, "a worse price");
    assert_eq!(first_to_trade(replace(101, 5)), 1, "a better price is a better price");
}
