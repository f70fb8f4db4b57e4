//! Commands and outcomes as people write and read them.
//!
//! ```
//! use tercio_exchange::{Command, Side, text};
//! let command = text::parse("buy 10 @ 101 in 0 as 7").unwrap();
//! let (side, price, quantity) = (Side::Bid, 101, 10);
//! assert_eq!(command, Command::Limit { symbol: 0, id: 7, side, price, quantity });
//! ```
//! Quantities are in lots and prices in ticks, since only whole numbers mean the same to everybody.

use crate::{Command, Outcome, Side, query::Query};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The forms of a command.
pub const USAGE: &str = "buy|sell QUANTITY [@ PRICE [ioc|fok]] in SYMBOL as ID | cancel ID in SYMBOL \
     | reduce ID to QUANTITY in SYMBOL | replace ID with QUANTITY @ PRICE in SYMBOL | deposit AMOUNT \
     of ASSET to CLIENT (numbers throughout; without a price it takes any)";
/// The forms of a query.
pub const QUERY_USAGE: &str = "symbols | top SYMBOL | depth SYMBOL LEVELS | order ID in SYMBOL | \
     account CLIENT | trades SYMBOL | orders SYMBOL (numbers throughout), or a query in JSON";

/// Why a line is no command or query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The words make none.
    #[error("write one of: {0}")]
    Usage(&'static str),
    /// A word that should be a number.
    #[error("{0:?} is no whole number, or too large a one")]
    Number(String),
    /// JSON that is no query.
    #[error("the JSON is no query: {0}")]
    Json(String),
}

fn number<T: FromStr>(word: &str) -> Result<T, TextError> {
    word.parse().map_err(|_| TextError::Number(word.to_owned()))
}

/// Reads a command.
///
/// # Errors
/// Why the line is no command.
pub fn parse(line: &str) -> Result<Command, TextError> {
    let usage = TextError::Usage(USAGE);
    let side = |word: &str| match word {
        "buy" => Some(Side::Bid),
        "sell" => Some(Side::Ask),
        _ => None,
    };
    match *line.split_whitespace().collect::<Vec<_>>() {
        ["cancel", id, "in", symbol] => {
            Ok(Command::Cancel { symbol: number(symbol)?, id: number(id)? })
        }
        ["reduce", id, "to", quantity, "in", symbol] => {
            let (symbol, id) = (number(symbol)?, number(id)?);
            Ok(Command::Reduce { symbol, id, quantity: number(quantity)? })
        }
        ["replace", id, "with", quantity, "@", price, "in", symbol] => {
            let (symbol, id, price) = (number(symbol)?, number(id)?, number(price)?);
            Ok(Command::Replace { symbol, id, price, quantity: number(quantity)? })
        }
        ["deposit", amount, "of", asset, "to", account] => {
            let (account, asset) = (number(account)?, number(asset)?);
            Ok(Command::Deposit { account, asset, amount: number(amount)? })
        }
        [verb, quantity, ref price @ .., "in", symbol, "as", id] => {
            let side = side(verb).ok_or(usage)?;
            let (symbol, id, quantity) = (number(symbol)?, number(id)?, number(quantity)?);
            match *price {
                [] => Ok(Command::Market { symbol, id, side, quantity }),
                ["@", price] => {
                    Ok(Command::Limit { symbol, id, side, price: number(price)?, quantity })
                }
                ["@", price, "ioc"] => {
                    let price = number(price)?;
                    Ok(Command::ImmediateOrCancel { symbol, id, side, price, quantity })
                }
                ["@", price, "fok"] => {
                    let price = number(price)?;
                    Ok(Command::FillOrKill { symbol, id, side, price, quantity })
                }
                _ => Err(TextError::Usage(USAGE)),
            }
        }
        _ => Err(usage),
    }
}

/// Reads a query: in words, or in JSON.
///
/// # Errors
/// Why the line is no query.
pub fn parse_query(line: &str) -> Result<Query, TextError> {
    if line.trim_start().starts_with('{') {
        return serde_json::from_str(line).map_err(|error| TextError::Json(error.to_string()));
    }
    match *line.split_whitespace().collect::<Vec<_>>() {
        ["symbols"] => Ok(Query::Symbols {}),
        ["top", symbol] => Ok(Query::Top { symbol: number(symbol)? }),
        ["depth", symbol, levels] => {
            Ok(Query::Depth { symbol: number(symbol)?, levels: number(levels)? })
        }
        ["order", id, "in", symbol] => {
            Ok(Query::Order { symbol: number(symbol)?, id: number(id)? })
        }
        ["account", client] => Ok(Query::Account { client: number(client)? }),
        ["trades", symbol] => Ok(Query::Trades { symbol: number(symbol)? }),
        ["orders", symbol] => {
            Ok(Query::Orders { symbol: number(symbol)?, after: None, limit: 100 })
        }
        _ => Err(TextError::Usage(QUERY_USAGE)),
    }
}

/// As a person reads it: a sentence, and a line for each trade.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reason) => write!(f, "rejected: {reason}"),
            Self::Placed { remaining, dropped, fills } => {
                write!(f, "accepted; {remaining} in the book")?;
                if *dropped > 0 {
                    write!(f, ", {dropped} given up")?;
                }
                fills.iter().try_for_each(|fill| {
                    let (quantity, price) = (fill.quantity, fill.price);
                    write!(f, "\ntrade {}: {quantity} @ {price} with {}", fill.trade, fill.maker)
                })
            }
            Self::Reduced { remaining } => write!(f, "{remaining} left, in the same place"),
            Self::Cancelled { quantity } => write!(f, "cancelled; {quantity} were left"),
            Self::Deposited { free } => write!(f, "deposited; {free} are free"),
        }
    }
}
