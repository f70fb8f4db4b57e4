//! The engine against a matcher that was written from `docs/exchange.md` alone and shares nothing
//! with it: one unsorted list of orders, scanned for everything; balances added up from scratch.

use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;
use tercio_exchange::query::{OrderAnswer, Query};
use tercio_exchange::replay::{self, Summary};
use tercio_exchange::{Command, Exchange, Fill, Outcome, Reject, Settings, Side};
use tercio_execution::Application;
use tercio_types::{ClientId, Suite};

/// A resting order of the naive matcher. Older ones come first in its list.
#[derive(Clone)]
struct Resting {
    market: usize,
    owner: u64,
    name: u64,
    buys: bool,
    price: i128,
    left: i128,
}

/// A trade of the naive matcher: buyer and seller are clients.
#[derive(Clone)]
struct Deal {
    market: usize,
    buyer: u64,
    seller: u64,
    price: i128,
    amount: i128,
}

#[derive(Clone, Default)]
struct Naive {
    book: Vec<Resting>,
    deals: Vec<Deal>,
}

/// What a naive order traded: with whom, at what price, how much.
type Matches = Vec<(u64, i128, i128)>;

impl Naive {
    fn place(&mut self, mut new: Resting, max_fills: usize) -> (Matches, i128) {
        let mut matches = Vec::new();
        let mut dropped = 0;
        while new.left > 0 {
            let mut best: Option<usize> = None;
            for i in 0..self.book.len() {
                let other = &self.book[i];
                if other.market != new.market || other.buys == new.buys {
                    continue;
                }
                let acceptable =
                    if new.buys { other.price <= new.price } else { other.price >= new.price };
                let better = match best {
                    None => true,
                    Some(b) if new.buys => other.price < self.book[b].price,
                    Some(b) => other.price > self.book[b].price,
                };
                if acceptable && better {
                    best = Some(i);
                }
            }
            let Some(i) = best else { break };
            if matches.len() == max_fills {
                dropped = new.left;
                new.left = 0;
                break;
            }
            let amount = new.left.min(self.book[i].left);
            let other = self.book[i].clone();
            let (buyer, seller) =
                if new.buys { (new.owner, other.owner) } else { (other.owner, new.owner) };
            self.deals.push(Deal { market: new.market, buyer, seller, price: other.price, amount });
            matches.push((other.name, other.price, amount));
            new.left -= amount;
            self.book[i].left -= amount;
            self.book.retain(|o| o.left > 0);
        }
        if new.left > 0 {
            self.book.push(new);
        }
        (matches, dropped)
    }

    fn position(&self, market: usize, name: u64) -> Option<usize> {
        self.book.iter().position(|o| o.market == market && o.name == name)
    }

    /// The book of a market: bids from the highest price, then asks from the lowest.
    fn sorted(&self, market: usize) -> Vec<&Resting> {
        let mut orders: Vec<_> = self.book.iter().filter(|o| o.market == market).collect();
        // Stable, so that orders of one price stay in the order of their arrival.
        orders.sort_by_key(|o| if o.buys { (0, -o.price) } else { (1, o.price) });
        orders
    }
}

/// The two files that a naive replay of an events file gives, and the counts of the summary.
fn naive_replay(text: &str) -> (String, String, u64) {
    let mut naive = Naive::default();
    let mut trades = String::from("sequence,taker,maker,price,quantity,taker_side\n");
    let mut unknown = 0;
    let mut sequence = 0;
    let money = |cents: i128| format!("{}.{:02}", cents / 100, cents % 100);
    for row in text.trim_end().split('\n').skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let name: u64 = cells[0].parse().unwrap();
        let price: i128 = cells[3].replace('.', "").parse().unwrap();
        let left: i128 = cells[4].parse().unwrap();
        let buys = cells[6] == "bid";
        let known = naive.position(0, name);
        match (cells[5], known) {
            ("created", None) => {
                assert!(cells[3].len() - cells[3].find('.').unwrap() == 3, "two decimals");
                assert!(price > 0 && left > 0, "this file has no other orders");
                let new = Resting { market: 0, owner: 1, name, buys, price, left };
                for (maker, price, amount) in naive.place(new, usize::MAX).0 {
                    sequence += 1;
                    let side = cells[6];
                    let price = money(price);
                    writeln!(trades, "{sequence},{name},{maker},{price},{amount},{side}").unwrap();
                }
            }
            ("changed", Some(i)) => {
                naive.book[i].left = naive.book[i].left.min(left);
                naive.book.retain(|o| o.left > 0);
            }
            ("deleted", Some(i)) => {
                naive.book.remove(i);
            }
            (_, None) => unknown += 1,
            (action, _) => panic!("{action} of the known order {name}"),
        }
    }
    let mut book = String::from("id,side,price,remaining\n");
    for o in naive.sorted(0) {
        let side = if o.buys { "bid" } else { "ask" };
        writeln!(book, "{},{side},{},{}", o.name, money(o.price), o.left).unwrap();
    }
    (trades, book, unknown)
}

/// All resting orders of a market by pages of a size.
fn pages(exchange: &Exchange, symbol: u16, limit: u32) -> Vec<OrderAnswer> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let answer = exchange.query(&Query::Orders { symbol, after, limit }.to_bytes()).unwrap();
        let page: tercio_exchange::query::OrdersAnswer = serde_json::from_slice(&answer).unwrap();
        pages.push(answer);
        after = page.next;
        if after.is_none() {
            return replay::book_from_query_pages(pages).unwrap();
        }
    }
}

#[test]
fn the_real_order_flow_gives_both_files_byte_for_byte() {
    let file = "../../../shared/data/bitstamp-2015-05-01-orders.csv";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        let loud = format!("NOT TESTED: the order file {} is not there", path.display());
        assert!(std::env::var_os("CI").is_none(), "{loud}");
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{loud}\n").as_bytes());
        return;
    };
    let events = replay::parse_events(&text).unwrap();
    let commands: Vec<_> = events.iter().map(|event| event.command(0)).collect();
    let mut exchange = Exchange::new(Settings::replay(), Suite::default()).unwrap();
    let outcomes: Vec<_> = commands.iter().map(|c| exchange.apply(ClientId(1), c)).collect();

    let (trades, book, unknown) = naive_replay(&text);
    let ours = replay::trades_from_outcomes(commands.iter().zip(&outcomes)).unwrap();
    let mut bytes = Vec::new();
    replay::write_trades(&ours, &mut bytes).unwrap();
    assert!(bytes == trades.as_bytes(), "the trades differ");
    bytes.clear();
    replay::write_book(&pages(&exchange, 0, 7), &mut bytes).unwrap();
    assert!(bytes == book.as_bytes(), "the books differ");

    let summary = Summary::of(&outcomes);
    assert_eq!((summary.orders, summary.unknown), (50_414, unknown));
    assert_eq!(summary.placed, 24_894, "every created order is accepted");
    assert!(summary.rejected.is_empty() && summary.cut == 0);
    assert_eq!(summary.trades, ours.len() as u64);
    assert!(summary.trades > 100 && pages(&exchange, 0, 1000).len() > 100, "a market");
    for (sum, supply) in exchange.supplies() {
        assert_eq!(sum, supply);
    }
}

/// Small enough that every limit is met now and then.
fn tight() -> Settings {
    let mut settings = Settings::markets(2);
    settings.credit = 400;
    settings.operator = Some(ClientId(0));
    settings.max_accounts = 3;
    settings.max_open_orders = 6;
    settings.max_book_orders = 10;
    settings.max_fills = 2;
    settings
}

fn command() -> impl Strategy<Value = Command> {
    let symbol = prop_oneof![20 => 0u16..2, 1 => Just(2u16)];
    let id = 0u64..14;
    let limit = (
        symbol.clone(),
        id.clone(),
        prop_oneof![Just(Side::Bid), Just(Side::Ask)],
        prop_oneof![40 => 8i64..13, 1 => -1i64..1, 1 => Just(i64::MAX)],
        prop_oneof![40 => 1i64..9, 5 => 9i64..60, 1 => -1i64..1, 1 => Just(i64::MAX)],
    );
    let kind = prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(3), 2 => Just(4)];
    prop_oneof![
        11 => (limit, kind).prop_map(|((symbol, id, side, price, quantity), kind)| match kind {
            0 => Command::Limit { symbol, id, side, price, quantity },
            1 => Command::ImmediateOrCancel { symbol, id, side, price, quantity },
            2 => Command::FillOrKill { symbol, id, side, price, quantity },
            3 => Command::Market { symbol, id, side, quantity },
            _ => Command::Replace { symbol, id, price, quantity },
        }),
        1 => (symbol.clone(), id.clone()).prop_map(|(symbol, id)| Command::Cancel { symbol, id }),
        2 => (symbol, id, -1i64..12)
            .prop_map(|(symbol, id, quantity)| Command::Reduce { symbol, id, quantity }),
        1 => (0u64..4, 0u16..4, prop_oneof![20 => -1i128..90, 1 => Just(1 << 120)])
            .prop_map(|(account, asset, amount)| Command::Deposit { account, asset, amount }),
    ]
}

/// What happens to what does not trade at once.
#[derive(Clone, Copy, PartialEq)]
enum Leftover {
    Rests,
    Goes,
    Kills,
}

fn placed(before: u64, left: i128, matches: Matches, dropped: i128) -> Outcome {
    let traded: i128 = matches.iter().map(|m| m.2).sum();
    let fill = |(trade, (maker, price, amount)): (u64, (u64, i128, i128))| Fill {
        trade,
        maker,
        price: price as u64,
        quantity: amount as u64,
    };
    let remaining = (left - traded - dropped) as u64;
    let fills = (before + 1..).zip(matches).map(fill).collect();
    Outcome::Placed { remaining, dropped: dropped as u64, fills }
}

/// The naive matcher with accounts: who may do what, by adding everything up again each time.
struct NaiveExchange {
    settings: Settings,
    naive: Naive,
    deposits: Vec<(u64, u16, i128)>,
    opened: Vec<u64>,
}

impl NaiveExchange {
    fn free(&self, client: u64, asset: u16) -> i128 {
        let mut sum = self.settings.credit as i128;
        for (account, deposited, amount) in &self.deposits {
            if (*account, *deposited) == (client, asset) {
                sum += amount;
            }
        }
        for deal in &self.naive.deals {
            let (base, quote) = (deal.market as u16 + 1, 0);
            let (pays, gets) = if asset == quote {
                (deal.buyer, deal.seller)
            } else if asset == base {
                (deal.seller, deal.buyer)
            } else {
                continue;
            };
            let amount = if asset == quote { deal.price * deal.amount } else { deal.amount };
            sum -= if pays == client { amount } else { 0 };
            sum += if gets == client { amount } else { 0 };
        }
        for order in self.naive.book.iter().filter(|o| o.owner == client) {
            if order.buys && asset == 0 {
                sum -= order.price * order.left;
            }
            if !order.buys && asset == order.market as u16 + 1 {
                sum -= order.left;
            }
        }
        sum
    }

    fn opens(&mut self, client: u64) -> bool {
        if !self.opened.contains(&client) {
            if self.opened.len() == self.settings.max_accounts as usize {
                return false;
            }
            self.opened.push(client);
        }
        true
    }

    fn apply(&mut self, client: u64, command: &Command) -> Outcome {
        let rejected = Outcome::Rejected;
        match *command {
            Command::Limit { symbol, .. }
            | Command::Cancel { symbol, .. }
            | Command::Reduce { symbol, .. }
            | Command::ImmediateOrCancel { symbol, .. }
            | Command::FillOrKill { symbol, .. }
            | Command::Market { symbol, .. }
            | Command::Replace { symbol, .. }
                if symbol > 1 =>
            {
                rejected(Reject::UnknownSymbol)
            }
            Command::Limit { symbol, id, side, price, quantity } => {
                self.enter(client, (symbol, id, side), Some(price), quantity, Leftover::Rests)
            }
            Command::ImmediateOrCancel { symbol, id, side, price, quantity } => {
                self.enter(client, (symbol, id, side), Some(price), quantity, Leftover::Goes)
            }
            Command::FillOrKill { symbol, id, side, price, quantity } => {
                self.enter(client, (symbol, id, side), Some(price), quantity, Leftover::Kills)
            }
            Command::Market { symbol, id, side, quantity } => {
                self.enter(client, (symbol, id, side), None, quantity, Leftover::Goes)
            }
            Command::Replace { symbol, id, price, quantity } => {
                self.replace(client, symbol, id, price.into(), quantity.into())
            }
            Command::Cancel { symbol, id } => self.lower(client, symbol, id, 0),
            Command::Reduce { symbol, id, quantity } => {
                self.lower(client, symbol, id, quantity.into())
            }
            Command::Deposit { account, asset, amount } => {
                let known = self.deposits.iter().filter(|d| d.1 == asset);
                let sum: i128 = known.map(|d| d.2).sum();
                if client != 0 {
                    rejected(Reject::NotOperator)
                } else if asset > 2 {
                    rejected(Reject::UnknownAsset)
                } else if amount <= 0 {
                    rejected(Reject::InvalidAmount)
                } else if sum + amount > 1 << 120 {
                    rejected(Reject::BalanceOverflow)
                } else if !self.opens(account) {
                    rejected(Reject::TooManyAccounts)
                } else {
                    self.deposits.push((account, asset, amount));
                    Outcome::Deposited { free: self.free(account, asset) as u128 }
                }
            }
        }
    }

    /// An order on trial: it is placed in a copy, and the copy stays if nothing speaks against it.
    fn enter(
        &mut self,
        client: u64,
        (symbol, id, side): (u16, u64, Side),
        price: Option<i64>,
        quantity: i64,
        leftover: Leftover,
    ) -> Outcome {
        let (market, buys) = (usize::from(symbol), side == Side::Bid);
        let left = i128::from(quantity);
        let worst = price.map_or(if buys { 1 << 100 } else { 0 }, i128::from);
        let rests = leftover == Leftover::Rests;
        let count = |f: &dyn Fn(&Resting) -> bool| self.naive.book.iter().filter(|o| f(o)).count();
        if price.is_some() && worst <= 0 {
            return Outcome::Rejected(Reject::InvalidPrice);
        }
        if left <= 0 {
            return Outcome::Rejected(Reject::InvalidQuantity);
        }
        if price.is_some() && worst * left >= 1 << 63 {
            return Outcome::Rejected(Reject::ValueOverflow);
        }
        if self.naive.position(market, id).is_some() {
            return Outcome::Rejected(Reject::DuplicateOrder);
        }
        if rests && count(&|o| o.market == market) == self.settings.max_book_orders as usize {
            return Outcome::Rejected(Reject::BookFull);
        }
        if rests && count(&|o| o.owner == client) == self.settings.max_open_orders as usize {
            return Outcome::Rejected(Reject::TooManyOpenOrders);
        }
        let mut after = self.naive.clone();
        let new = Resting { market, owner: client, name: id, buys, price: worst, left };
        let (matches, mut dropped) = after.place(new, self.settings.max_fills as usize);
        if !rests && let Some(i) = after.position(market, id) {
            dropped += after.book.remove(i).left;
        }
        let (asset, cost) = match (buys, price) {
            (true, Some(_)) => (0, worst * left),
            (true, None) => (0, matches.iter().map(|(_, price, amount)| price * amount).sum()),
            (false, _) => (symbol + 1, left),
        };
        if self.free(client, asset) < cost {
            return Outcome::Rejected(Reject::InsufficientBalance);
        }
        if leftover == Leftover::Kills && dropped > 0 {
            return Outcome::Rejected(Reject::NotFilled);
        }
        if !self.opens(client) {
            return Outcome::Rejected(Reject::TooManyAccounts);
        }
        let before = self.deals(market);
        self.naive = after;
        placed(before, left, matches, dropped)
    }

    fn deals(&self, market: usize) -> u64 {
        self.naive.deals.iter().filter(|d| d.market == market).count() as u64
    }

    fn replace(&mut self, client: u64, symbol: u16, id: u64, price: i128, left: i128) -> Outcome {
        let market = usize::from(symbol);
        let Some(i) = self.naive.position(market, id) else {
            return Outcome::Rejected(Reject::UnknownOrder);
        };
        let old = self.naive.book[i].clone();
        if old.owner != client {
            return Outcome::Rejected(Reject::NotOwner);
        }
        if price <= 0 {
            return Outcome::Rejected(Reject::InvalidPrice);
        }
        if left <= 0 {
            return Outcome::Rejected(Reject::InvalidQuantity);
        }
        if price * left >= 1 << 63 {
            return Outcome::Rejected(Reject::ValueOverflow);
        }
        if price == old.price && left <= old.left {
            self.naive.book[i].left = left;
            return Outcome::Reduced { remaining: left as u64 };
        }
        self.naive.book.remove(i);
        let (asset, cost) = if old.buys { (0, price * left) } else { (symbol + 1, left) };
        if self.free(client, asset) < cost {
            self.naive.book.insert(i, old);
            return Outcome::Rejected(Reject::InsufficientBalance);
        }
        let before = self.deals(market);
        let new = Resting { price, left, ..old };
        let (matches, dropped) = self.naive.place(new, self.settings.max_fills as usize);
        placed(before, left, matches, dropped)
    }

    fn lower(&mut self, client: u64, symbol: u16, id: u64, to: i128) -> Outcome {
        let Some(i) = self.naive.position(symbol.into(), id) else {
            return Outcome::Rejected(Reject::UnknownOrder);
        };
        let order = &mut self.naive.book[i];
        if order.owner != client {
            return Outcome::Rejected(Reject::NotOwner);
        }
        if to <= 0 {
            let quantity = order.left as u64;
            self.naive.book.remove(i);
            return Outcome::Cancelled { quantity };
        }
        order.left = order.left.min(to);
        Outcome::Reduced { remaining: order.left as u64 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_flows_have_the_same_outcomes_books_and_balances(
        steps in prop::collection::vec((0u64..4, command()), 1..60)
    ) {
        let mut exchange = Exchange::new(tight(), Suite::default()).unwrap();
        let naive = Naive::default();
        let (deposits, opened) = (Vec::new(), Vec::new());
        let mut model = NaiveExchange { settings: tight(), naive, deposits, opened };
        for (client, command) in &steps {
            let expected = model.apply(*client, command);
            prop_assert_eq!(exchange.apply(ClientId(*client), command), expected, "{:?}", command);
            for (sum, supply) in exchange.supplies() {
                prop_assert_eq!(sum, supply, "conservation");
            }
        }
        for symbol in 0..2u16 {
            let expected: Vec<_> = model
                .naive
                .sorted(symbol.into())
                .into_iter()
                .map(|o| (o.name, o.owner, o.buys, o.price, o.left))
                .collect();
            let found: Vec<_> = pages(&exchange, symbol, 2)
                .into_iter()
                .map(|o| {
                    (o.id, o.account, o.side == Side::Bid, o.price.into(), o.remaining.into())
                })
                .collect();
            prop_assert_eq!(found, expected);
        }
        for client in 0..4 {
            let answer = exchange.query(&Query::Account { client }.to_bytes()).unwrap();
            let account: tercio_exchange::query::AccountAnswer =
                serde_json::from_slice(&answer).unwrap();
            for balance in account.balances {
                prop_assert_eq!(balance.free as i128, model.free(client, balance.asset));
            }
        }
    }
}
