//! A made-up market: a client's endless flow of commands around drifting prices. The same seed
//! and client give the same flow; all clients of a seed see the same prices, so they trade.

use crate::{Command, Side};
use std::collections::VecDeque;

/// How many orders a client keeps in mind (and so at most in the book, but for those that it
/// forgot when they had already traded).
const MEMORY: usize = 512;
/// Where prices start, in ticks, and between what they stay.
const START: i64 = 100_000;
const LOWEST: i64 = 10_000;
const HIGHEST: i64 = 1_000_000;

/// Splitmix64: a step of a counter and a mix of its bits.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, nearly uniform.
    ///
    /// # Panics
    /// When `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }
}

/// An order that the client placed and has not taken back. It may have traded since.
#[derive(Clone, Copy, Debug)]
struct Placed {
    symbol: u16,
    id: u64,
    quantity: i64,
}

/// The flow of one client; an iterator that never ends.
///
/// Of a hundred commands about 70 are limit orders (one in six of them crosses the middle), the
/// others take back or reduce an order that was placed before, when there is one.
#[derive(Clone, Debug)]
pub struct Flow {
    prices: Random,
    choices: Random,
    middles: Vec<i64>,
    placed: VecDeque<Placed>,
    next_id: u64,
}

impl Flow {
    /// The flow of `client` over `symbols` markets. Order ids begin at `client << 40`, so that
    /// clients below 2^24 never meet.
    ///
    /// # Panics
    /// When `symbols` is zero.
    #[must_use]
    pub fn new(seed: u64, client: u64, symbols: u16) -> Self {
        assert!(symbols > 0, "a flow needs a market");
        let mut mix = Random::new(seed ^ client.rotate_left(32));
        Self {
            prices: Random::new(seed),
            choices: Random::new(mix.draw()),
            middles: vec![START; symbols.into()],
            placed: VecDeque::new(),
            next_id: client << 40,
        }
    }

    /// The next command.
    pub fn command(&mut self) -> Command {
        self.drift();
        let choice = self.choices.below(100);
        let full = self.placed.len() >= MEMORY;
        match self.placed.len() as u64 {
            0 => self.limit(),
            _ if choice < 70 && !full => self.limit(),
            _ if choice < 90 || full => {
                let Placed { symbol, id, .. } = self.take_one();
                Command::Cancel { symbol, id }
            }
            _ => {
                let mut order = self.take_one();
                order.quantity = (order.quantity / 2).max(1);
                self.placed.push_back(order);
                let Placed { symbol, id, quantity } = order;
                Command::Reduce { symbol, id, quantity }
            }
        }
    }

    /// A step of one market's price: a tick up or down every now and then.
    fn drift(&mut self) {
        let market = self.prices.below(self.middles.len() as u64) as usize;
        let step = match self.prices.below(16) {
            0 => 1,
            1 => -1,
            _ => 0,
        };
        self.middles[market] = (self.middles[market] + step).clamp(LOWEST, HIGHEST);
    }

    fn limit(&mut self) -> Command {
        let symbol = self.choices.below(self.middles.len() as u64) as u16;
        let side = if self.choices.below(2) == 0 { Side::Bid } else { Side::Ask };
        // Small distances from the middle are the most frequent.
        let reach = 1 + self.choices.below(50);
        let distance = self.choices.below(reach) as i64 + 1;
        let away = if self.choices.below(6) == 0 { -distance } else { distance };
        let middle = self.middles[usize::from(symbol)];
        let price = match side {
            Side::Bid => middle - away,
            Side::Ask => middle + away,
        };
        let quantity = 1 + self.choices.below(100) as i64;
        let id = self.next_id;
        self.next_id += 1;
        self.placed.push_back(Placed { symbol, id, quantity });
        Command::Limit { symbol, id, side, price, quantity }
    }

    fn take_one(&mut self) -> Placed {
        let i = self.choices.below(self.placed.len() as u64) as usize;
        self.placed.swap_remove_back(i).expect("the index is below the length")
    }
}

impl Iterator for Flow {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        Some(self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Summary;
    use crate::{Exchange, Settings};
    use tercio_types::{ClientId, Suite};

    /// A market worth looking at: most orders rest, many trade, few commands come too late, and
    /// nothing else is refused.
    #[test]
    fn a_flow_is_a_market_and_the_same_each_time() {
        let (clients, symbols, rounds) = (8, 4, 2500);
        let run = || {
            let mut exchange = Exchange::new(Settings::markets(symbols), Suite::default()).unwrap();
            let mut flows: Vec<_> = (0..clients).map(|c| Flow::new(7, c, symbols)).collect();
            let mut outcomes = Vec::new();
            for _ in 0..rounds {
                for (client, flow) in (0u64..).zip(&mut flows) {
                    outcomes.push(exchange.apply(ClientId(client), &flow.command()));
                }
            }
            Summary::of(&outcomes)
        };
        let summary = run();
        assert_eq!(summary, run());
        let share = |part: u64| part * 100 / summary.orders;
        assert!((50..80).contains(&share(summary.placed)), "{summary:?}");
        assert!((5..80).contains(&share(summary.trades)), "{summary:?}");
        assert!(share(summary.cancelled) >= 5 && share(summary.reduced) >= 2, "{summary:?}");
        assert!(share(summary.unknown) < 25 && summary.rejected.is_empty(), "{summary:?}");
        assert_ne!(Flow::new(7, 1, 4).command(), Flow::new(8, 1, 4).command());
    }
}
