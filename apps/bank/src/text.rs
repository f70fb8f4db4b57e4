//! Commands and outcomes as people write and read them.
//!
//! ```
//! use tercio_bank::{Command, Outcome, text};
//! let command = text::parse("transfer 1 2 100").unwrap();
//! assert_eq!(command, Command::Transfer { from: 1, to: 2, amount: 100 });
//! assert_eq!(Outcome::Transferred { left: 50 }.to_string(), "transferred; 50 left");
//! ```

use crate::{Account, Command, Outcome};
use std::fmt;
use thiserror::Error;

/// The forms of a command.
pub const USAGE: &str =
    "open ACCOUNT | deposit ACCOUNT AMOUNT | transfer FROM TO AMOUNT | balance ACCOUNT";
/// The form of a query.
pub const QUERY_USAGE: &str = "balance ACCOUNT";

/// Why a line is no command or query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The words make none.
    #[error("write one of: {0}")]
    Usage(&'static str),
    /// A word that should be a number.
    #[error("{0:?} is no whole number from 0 to 18446744073709551615")]
    Number(String),
}

/// Reads a command.
///
/// # Errors
/// Why the line is no command.
pub fn parse(line: &str) -> Result<Command, TextError> {
    fn number(word: &str) -> Result<u64, TextError> {
        // `parse` would take a sign, too.
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        let number = digits.then(|| word.parse().ok()).flatten();
        number.ok_or_else(|| TextError::Number(word.to_owned()))
    }
    match *line.split_whitespace().collect::<Vec<_>>() {
        ["open", account] => Ok(Command::Open { account: number(account)? }),
        ["deposit", account, amount] => {
            Ok(Command::Deposit { account: number(account)?, amount: number(amount)? })
        }
        ["transfer", from, to, amount] => {
            let (from, to) = (number(from)?, number(to)?);
            Ok(Command::Transfer { from, to, amount: number(amount)? })
        }
        ["balance", account] => Ok(Command::Balance { account: number(account)? }),
        _ => Err(TextError::Usage(USAGE)),
    }
}

/// Reads a query, which is a command that only reads.
///
/// # Errors
/// Why the line is no query.
pub fn parse_query(line: &str) -> Result<Command, TextError> {
    match parse(line) {
        Ok(query @ Command::Balance { .. }) => Ok(query),
        Ok(_) | Err(TextError::Usage(_)) => Err(TextError::Usage(QUERY_USAGE)),
        Err(error) => Err(error),
    }
}

/// As a person reads it.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reason) => write!(f, "rejected: {reason}"),
            Self::Opened => f.write_str("opened"),
            Self::Deposited { balance } => write!(f, "deposited; the balance is {balance}"),
            Self::Transferred { left } => write!(f, "transferred; {left} left"),
            Self::Account(Account { owner, balance }) => {
                write!(f, "{balance}, owned by client {owner}")
            }
        }
    }
}
