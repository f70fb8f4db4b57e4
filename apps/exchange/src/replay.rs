//! Replays a file of order events and writes what came of it.
//!
//! The rows become [`Command`]s in file order, the [`Outcome`]s become a file of trades, and the
//! pages of [`crate::query::Query::Orders`] become a file of the orders that rest at the end.
//! `docs/exchange.md` states all three formats and the matching rules for whoever wants to hold
//! another matcher against them.

use crate::query::{OrderAnswer, OrdersAnswer, Trade};
use crate::{Command, Outcome, Reject, Side};
use std::collections::BTreeMap;
use std::io::{self, Write};
use thiserror::Error;

/// The first line of an events file.
pub const EVENTS_HEADER: &str = "id,timestamp,exchange.timestamp,price,volume,action,direction";
/// The first line of a trades file.
pub const TRADES_HEADER: &str = "sequence,taker,maker,price,quantity,taker_side";
/// The first line of a book file.
pub const BOOK_HEADER: &str = "id,side,price,remaining";

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A limit order came in.
    Created,
    /// What was left of an order changed.
    Changed,
    /// An order was taken out.
    Deleted,
}

/// A row of an events file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The order.
    pub id: u64,
    /// Its price, in ticks of 0.01.
    pub price: i64,
    /// What is left of it after the event, in lots of 1e-8.
    pub volume: i64,
    /// What happened.
    pub action: Action,
    /// Its side.
    pub side: Side,
}

impl Event {
    /// The command that replays it in market `symbol`.
    #[must_use]
    pub fn command(&self, symbol: u16) -> Command {
        let Self { id, price, volume, action, side } = *self;
        match action {
            Action::Created => Command::Limit { symbol, id, side, price, quantity: volume },
            Action::Changed => Command::Reduce { symbol, id, quantity: volume },
            Action::Deleted => Command::Cancel { symbol, id },
        }
    }
}

/// Why a file is no events file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Reads an events file: the header, then a row an event. Lines end in a line feed (or a carriage
/// return and a line feed); empty lines are refused.
///
/// # Errors
/// The first line that is not as documented.
pub fn parse_events(text: &str) -> Result<Vec<Event>, ParseError> {
    let mut lines = (1..).zip(text.lines());
    match lines.next() {
        Some((_, EVENTS_HEADER)) => {}
        _ => {
            let what = format!("the header must be {EVENTS_HEADER:?}");
            return Err(ParseError { line: 1, what });
        }
    }
    lines.map(|(line, row)| parse_row(row).map_err(|what| ParseError { line, what })).collect()
}

fn parse_row(row: &str) -> Result<Event, String> {
    let fields: Vec<&str> = row.split(',').take(8).collect();
    let [id, timestamp, exchange_timestamp, price, volume, action, direction] = fields[..] else {
        return Err("a row has 7 fields".into());
    };
    number("timestamp", timestamp)?;
    number("exchange.timestamp", exchange_timestamp)?;
    Ok(Event {
        id: number("id", id)?,
        price: ticks(price)?,
        volume: number("volume", volume)?
            .try_into()
            .map_err(|_| format!("volume {volume:?} is too large"))?,
        action: match action {
            "created" => Action::Created,
            "changed" => Action::Changed,
            "deleted" => Action::Deleted,
            other => return Err(format!("action {other:?} is not created, changed or deleted")),
        },
        side: match direction {
            "bid" => Side::Bid,
            "ask" => Side::Ask,
            other => return Err(format!("direction {other:?} is not bid or ask")),
        },
    })
}

/// Decimal digits, nothing else.
fn number(name: &str, text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{name} {text:?} is not a whole number"));
    }
    text.parse().map_err(|_| format!("{name} {text:?} is too large"))
}

/// A price with at most two decimals, in hundredths.
fn ticks(text: &str) -> Result<i64, String> {
    let (whole, cents) = match text.split_once('.') {
        None => (text, 0),
        Some((whole, decimals)) => {
            let digits = number("price", decimals).map_err(|_| not_a_price(text))?;
            match decimals.len() {
                1 => (whole, digits * 10),
                2 => (whole, digits),
                _ => return Err(format!("price {text:?} has more than two decimals")),
            }
        }
    };
    let whole = number("price", whole).map_err(|_| not_a_price(text))?;
    let ticks = whole.checked_mul(100).and_then(|ticks| ticks.checked_add(cents));
    ticks.and_then(|t| t.try_into().ok()).ok_or_else(|| format!("price {text:?} is too large"))
}

fn not_a_price(text: &str) -> String {
    format!("price {text:?} is not a decimal number")
}

/// Why results make no trades or book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CollectError {
    /// A command cannot have had this outcome.
    #[error("outcome {0} (counted from 0) does not belong to its command")]
    Mismatch(usize),
    /// The numbers of the trades have a gap: outcomes are missing or out of order.
    #[error("the trades of outcome {0} (counted from 0) do not follow those before")]
    TradeGap(usize),
    /// The bytes are no page of orders.
    #[error("page {0} (counted from 0) is no page of orders")]
    Page(usize),
    /// The book changed between two pages.
    #[error("page {0} (counted from 0) shows another state of the book")]
    Revision(usize),
    /// No page at all, pages behind the last, or the last one missing.
    #[error("the pages do not end with the last one")]
    Incomplete,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The events.
    pub orders: u64,
    /// The orders that were accepted.
    pub placed: u64,
    /// The orders that were reduced (or left as they were) and still rest.
    pub reduced: u64,
    /// The orders that were taken out.
    pub cancelled: u64,
    /// The events whose order was unknown when they were executed.
    pub unknown: u64,
    /// The events that were refused for any other reason.
    pub rejected: BTreeMap<Reject, u64>,
    /// The orders that gave up a part.
    pub cut: u64,
    /// The trades.
    pub trades: u64,
}

impl Summary {
    /// Counts outcomes.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let mut summary = Self::default();
        for outcome in outcomes {
            summary.orders += 1;
            match outcome {
                Outcome::Placed { dropped, fills, .. } => {
                    summary.placed += 1;
                    summary.cut += u64::from(*dropped > 0);
                    summary.trades += fills.len() as u64;
                }
                Outcome::Reduced { .. } => summary.reduced += 1,
                Outcome::Cancelled { .. } => summary.cancelled += 1,
                Outcome::Rejected(Reject::UnknownOrder) => summary.unknown += 1,
                Outcome::Rejected(reason) => *summary.rejected.entry(*reason).or_default() += 1,
                Outcome::Deposited { .. } => {}
            }
        }
        summary
    }
}

/// The trades of a market whose commands are given with their outcomes, all of them, in the order
/// of execution.
///
/// # Errors
/// When the outcomes are not those of the commands, or some are missing.
pub fn trades_from_outcomes<'a>(
    results: impl IntoIterator<Item = (&'a Command, &'a Outcome)>,
) -> Result<Vec<Trade>, CollectError> {
    let mut trades = Vec::new();
    // A command that replaces an order does not say its side again.
    let mut sides = BTreeMap::new();
    for (i, result) in results.into_iter().enumerate() {
        let (taker, taker_side, fills) = match result {
            (
                Command::Limit { id, side, .. }
                | Command::ImmediateOrCancel { id, side, .. }
                | Command::FillOrKill { id, side, .. }
                | Command::Market { id, side, .. },
                Outcome::Placed { fills, .. },
            ) => {
                sides.insert(*id, *side);
                (*id, *side, fills)
            }
            (Command::Replace { id, .. }, Outcome::Placed { fills, .. }) => {
                (*id, *sides.get(id).ok_or(CollectError::Mismatch(i))?, fills)
            }
            (_, Outcome::Rejected(_))
            | (Command::Cancel { .. } | Command::Reduce { .. }, Outcome::Cancelled { .. })
            | (Command::Reduce { .. } | Command::Replace { .. }, Outcome::Reduced { .. })
            | (Command::Deposit { .. }, Outcome::Deposited { .. }) => continue,
            _ => return Err(CollectError::Mismatch(i)),
        };
        for fill in fills {
            let (sequence, maker) = (fill.trade, fill.maker);
            if sequence != trades.len() as u64 + 1 {
                return Err(CollectError::TradeGap(i));
            }
            let (price, quantity) = (fill.price, fill.quantity);
            trades.push(Trade { sequence, taker, maker, price, quantity, taker_side });
        }
    }
    Ok(trades)
}

/// The resting orders of a market from the answers to [`crate::query::Query::Orders`], the first
/// page asked for without a cursor and each other with the `next` of the one before.
///
/// # Errors
/// When the bytes are no pages, are not all, or the book changed in between.
pub fn book_from_query_pages(
    pages: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Result<Vec<OrderAnswer>, CollectError> {
    let mut orders = Vec::new();
    let mut revision = None;
    let mut complete = false;
    for (i, page) in pages.into_iter().enumerate() {
        if complete {
            return Err(CollectError::Incomplete);
        }
        let page: OrdersAnswer =
            serde_json::from_slice(page.as_ref()).map_err(|_| CollectError::Page(i))?;
        if *revision.get_or_insert(page.revision) != page.revision {
            return Err(CollectError::Revision(i));
        }
        complete = page.next.is_none();
        orders.extend(page.orders);
    }
    if !complete {
        return Err(CollectError::Incomplete);
    }
    Ok(orders)
}

fn dollars(ticks: u64) -> String {
    format!("{}.{:02}", ticks / 100, ticks % 100)
}

/// Writes a trades file.
///
/// # Errors
/// When `out` cannot be written.
pub fn write_trades(trades: &[Trade], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{TRADES_HEADER}")?;
    for t in trades {
        let (price, side) = (dollars(t.price), t.taker_side.word());
        writeln!(out, "{},{},{},{price},{},{side}", t.sequence, t.taker, t.maker, t.quantity)?;
    }
    Ok(())
}

/// Writes a book file; the orders as [`book_from_query_pages`] gives them.
///
/// # Errors
/// When `out` cannot be written.
pub fn write_book(orders: &[OrderAnswer], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{BOOK_HEADER}")?;
    for o in orders {
        writeln!(out, "{},{},{},{}", o.id, o.side.word(), dollars(o.price), o.remaining)?;
    }
    Ok(())
}
