//! Questions about the state, in JSON for people: `{"depth":{"symbol":0,"levels":5}}`.

use crate::book::{Book, Level};
use crate::slots::Order;
use crate::{Exchange, Side};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use tercio_execution::AppError;
use tercio_types::ClientId;

/// The longest question, in bytes.
pub const MAX_QUESTION: usize = 4096;
/// The most levels or orders of one answer.
pub const MAX_ITEMS: u32 = 1000;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Query {
    /// The markets; answered by a list of [`SymbolAnswer`].
    Symbols {},
    /// The best levels; answered by [`DepthAnswer`] with at most one level a side.
    Top {
        /// The market.
        symbol: u16,
    },
    /// The best levels of both sides; answered by [`DepthAnswer`].
    Depth {
        /// The market.
        symbol: u16,
        /// How many levels a side, 1 to [`MAX_ITEMS`].
        levels: u32,
    },
    /// A resting order; answered by [`OrderAnswer`] or `null`.
    Order {
        /// The market.
        symbol: u16,
        /// Its id.
        id: u64,
    },
    /// An account; answered by [`AccountAnswer`].
    Account {
        /// Whose.
        client: u64,
    },
    /// How many trades there were, and the last of them; answered by [`TradesAnswer`].
    Trades {
        /// The market.
        symbol: u16,
    },
    /// All resting orders page by page; answered by [`OrdersAnswer`].
    Orders {
        /// The market.
        symbol: u16,
        /// Where the last page ended; absent for the first.
        #[serde(default)]
        after: Option<Cursor>,
        /// How many orders, 1 to [`MAX_ITEMS`].
        limit: u32,
    },
}

impl Query {
    /// The bytes to ask with.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("a query is plain data").into()
    }
}

/// A place in the book: bids before asks, the best price first, then the oldest order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The side.
    pub side: Side,
    /// The price, in ticks.
    pub price: u64,
    /// The arrival number of the last order that was seen.
    pub arrival: u64,
}

/// A market.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolAnswer {
    /// Its number in commands.
    pub symbol: u16,
    /// Its name.
    pub name: String,
    /// The asset that is traded.
    pub base: u16,
    /// The asset that is paid with.
    pub quote: u16,
    /// How many orders rest.
    pub orders: u32,
    /// How many trades there were.
    pub trades: u64,
}

/// A price level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelAnswer {
    /// The price, in ticks.
    pub price: u64,
    /// What rests there, in lots.
    pub quantity: u128,
    /// In how many orders.
    pub orders: u32,
}

/// The levels of a book, best first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthAnswer {
    /// The buyers.
    pub bids: Vec<LevelAnswer>,
    /// The sellers.
    pub asks: Vec<LevelAnswer>,
}

/// A resting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderAnswer {
    /// Its id.
    pub id: u64,
    /// The client that owns it.
    pub account: u64,
    /// Buy or sell.
    pub side: Side,
    /// The price, in ticks.
    pub price: u64,
    /// What is left of it, in lots.
    pub remaining: u64,
    /// Its arrival number in the market: at one price the lower trades first.
    pub arrival: u64,
}

/// An account's part of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceAnswer {
    /// The asset.
    pub asset: u16,
    /// What can be spent.
    pub free: u128,
    /// What resting orders stand for.
    pub held: u128,
}

/// An account. One that was never used is shown as it would be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountAnswer {
    /// Whose.
    pub client: u64,
    /// Whether it has been opened.
    pub opened: bool,
    /// How many orders it has resting.
    pub open_orders: u32,
    /// Its balances, one an asset.
    pub balances: Vec<BalanceAnswer>,
}

/// A trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trade {
    /// Its number in the market; the first is 1.
    pub sequence: u64,
    /// The order that came in.
    pub taker: u64,
    /// The order that rested.
    pub maker: u64,
    /// The price, in ticks.
    pub price: u64,
    /// How much, in lots.
    pub quantity: u64,
    /// The side of the order that came in.
    pub taker_side: Side,
}

/// The trades of a market.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TradesAnswer {
    /// How many there were.
    pub count: u64,
    /// The last of them, at most 64, oldest first.
    pub recent: Vec<Trade>,
}

/// A page of a market's resting orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersAnswer {
    /// How many commands the market had accepted: pages of one revision fit together.
    pub revision: u64,
    /// The orders: bids before asks, the best price first, then the oldest order.
    pub orders: Vec<OrderAnswer>,
    /// Where to go on; absent when this was the last page.
    pub next: Option<Cursor>,
}

fn json(answer: &impl Serialize) -> Result<Bytes, AppError> {
    Ok(serde_json::to_vec(answer).expect("an answer is plain data").into())
}

impl Exchange {
    pub(crate) fn answer(&self, question: &[u8]) -> Result<Bytes, AppError> {
        if question.len() > MAX_QUESTION {
            return Err(AppError(format!("a question has at most {MAX_QUESTION} bytes")));
        }
        let query: Query = serde_json::from_slice(question)
            .map_err(|error| AppError(format!("the question is no query: {error}")))?;
        match query {
            Query::Symbols {} => json(&self.symbols()),
            Query::Top { symbol } => json(&depth(self.book(symbol)?, 1)),
            Query::Depth { symbol, levels } => json(&depth(self.book(symbol)?, items(levels)?)),
            Query::Order { symbol, id } => {
                let book = self.book(symbol)?;
                json(&book.find(id).map(|slot| self.order(book.slots.get(slot))))
            }
            Query::Account { client } => json(&self.account_answer(client)),
            Query::Trades { symbol } => {
                let book = self.book(symbol)?;
                let recent = book.recent.iter().copied().collect();
                json(&TradesAnswer { count: book.trades, recent })
            }
            Query::Orders { symbol, after, limit } => {
                json(&self.orders(self.book(symbol)?, after, items(limit)?))
            }
        }
    }

    fn book(&self, symbol: u16) -> Result<&Book, AppError> {
        let unknown = || AppError(format!("there is no symbol {symbol}"));
        self.books.get(usize::from(symbol)).ok_or_else(unknown)
    }

    fn symbols(&self) -> Vec<SymbolAnswer> {
        let specs = self.settings.symbols.iter().zip(&self.books);
        (0u16..)
            .zip(specs)
            .map(|(symbol, (spec, book))| SymbolAnswer {
                symbol,
                name: spec.name.clone(),
                base: spec.base,
                quote: spec.quote,
                orders: book.slots.len(),
                trades: book.trades,
            })
            .collect()
    }

    fn order(&self, order: &Order) -> OrderAnswer {
        OrderAnswer {
            id: order.id,
            account: self.accounts.get(order.account).client.0,
            side: order.side,
            price: order.price,
            remaining: order.remaining,
            arrival: order.seq,
        }
    }

    fn account_answer(&self, client: u64) -> AccountAnswer {
        let account = self.accounts.find(ClientId(client));
        let balance = |asset: u16| {
            let (free, held) = account.map_or((self.settings.credit, 0), |account| {
                let balance = self.accounts.balance(account, asset);
                (balance.free, balance.held)
            });
            BalanceAnswer { asset, free, held }
        };
        AccountAnswer {
            client,
            opened: account.is_some(),
            open_orders: account.map_or(0, |account| self.accounts.get(account).open),
            balances: (0..self.deposits.len() as u16).map(balance).collect(),
        }
    }

    fn orders(&self, book: &Book, after: Option<Cursor>, limit: usize) -> OrdersAnswer {
        // One order more than asked for shows whether there is a next page.
        let mut orders: Vec<_> = [Side::Bid, Side::Ask]
            .into_iter()
            .flat_map(|side| resting(book, side, after))
            .take(limit + 1)
            .map(|order| self.order(order))
            .collect();
        let more = orders.len() > limit;
        orders.truncate(limit);
        let last = orders.last().filter(|_| more);
        let next = last.map(|o| Cursor { side: o.side, price: o.price, arrival: o.arrival });
        OrdersAnswer { revision: book.revision, orders, next }
    }
}

fn items(count: u32) -> Result<usize, AppError> {
    if !(1..=MAX_ITEMS).contains(&count) {
        return Err(AppError(format!("ask for 1 to {MAX_ITEMS} items, not {count}")));
    }
    Ok(count as usize)
}

fn depth(book: &Book, levels: usize) -> DepthAnswer {
    let answer = |(&price, level): (&u64, &Level)| LevelAnswer {
        price,
        quantity: level.quantity,
        orders: level.orders,
    };
    DepthAnswer {
        bids: book.levels(Side::Bid).iter().rev().take(levels).map(answer).collect(),
        asks: book.levels(Side::Ask).iter().take(levels).map(answer).collect(),
    }
}

/// The orders of a side behind the cursor, best price first, then oldest first.
fn resting(
    book: &Book,
    side: Side,
    after: Option<Cursor>,
) -> Box<dyn Iterator<Item = &Order> + '_> {
    let start = match after {
        None => Bound::Unbounded,
        Some(cursor) if cursor.side == side => Bound::Included(cursor.price),
        Some(cursor) if cursor.side < side => Bound::Unbounded,
        Some(_) => return Box::new(std::iter::empty()),
    };
    let levels = book.levels(side);
    let levels: Box<dyn Iterator<Item = (&u64, &Level)>> = match side {
        Side::Bid => Box::new(levels.range((Bound::Unbounded, start)).rev()),
        Side::Ask => Box::new(levels.range((start, Bound::Unbounded))),
    };
    let seen = after.filter(|cursor| cursor.side == side);
    Box::new(levels.flat_map(move |(&price, level)| {
        let seen = seen.filter(|cursor| cursor.price == price);
        book.queue(level).filter(move |order| seen.is_none_or(|c| order.seq > c.arrival))
    }))
}
