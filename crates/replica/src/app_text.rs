//! How people write an application's operations and questions, and how its answers are shown:
//! each application's own words, dispatched where the applications are listed.

use crate::genesis::App;
use bytes::Bytes;
use serde_json::{Value, json};
use std::fmt::Display;
use tercio_wire::Encode;

impl App {
    /// An operation to begin with, as [`Self::operation`] reads it.
    #[must_use]
    pub fn example(&self) -> &'static str {
        match self {
            Self::Counter(_) => "add",
            Self::Exchange(_) => "buy 1 @ 100000 in 0 as 1",
            Self::Kv(_) => "put hello world",
            Self::Bank(_) => "open 1",
        }
    }

    /// A question to begin with, as [`Self::question`] reads it.
    #[must_use]
    pub fn example_question(&self) -> &'static str {
        match self {
            Self::Counter(_) => "total",
            Self::Exchange(_) => "top 0",
            Self::Kv(_) => "get hello",
            Self::Bank(_) => "balance 1",
        }
    }

    /// Reads an operation as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub fn operation(&self, line: &str) -> Result<Bytes, String> {
        match self {
            Self::Counter(_) => match line.trim() {
                "add" => Ok(Bytes::new()),
                other => Err(format!("'{other}' is no operation of the counter; write add")),
            },
            Self::Exchange(_) => words(tercio_exchange::text::parse(line)),
            Self::Kv(_) => words(tercio_kv::text::parse(line)),
            Self::Bank(_) => words(tercio_bank::text::parse(line)),
        }
    }

    /// A result of [`Self::operation`] for people and programs, as JSON; a text is for people.
    #[must_use]
    pub fn result(&self, bytes: &Bytes) -> Value {
        match self {
            Self::Counter(_) => number(bytes),
            Self::Exchange(_) => shown(tercio_exchange::Outcome::parse(bytes)),
            Self::Kv(_) => shown(tercio_kv::Reply::parse(bytes)),
            Self::Bank(_) => shown(tercio_bank::Outcome::parse(bytes)),
        }
    }

    /// Reads a question as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub fn question(&self, text: &str) -> Result<Bytes, String> {
        match self {
            Self::Counter(_) => {
                let words: Vec<&str> = text.split_whitespace().collect();
                let id = match words[..] {
                    ["total"] => return Ok(Bytes::new()),
                    ["client", id] => id.parse::<u64>().ok(),
                    _ => None,
                };
                id.map(|id| Bytes::copy_from_slice(&id.to_le_bytes())).ok_or_else(|| {
                    format!("'{text}' is no question to the counter; write total or client ID")
                })
            }
            Self::Exchange(_) => {
                let query = tercio_exchange::text::parse_query(text);
                query.map(|query| query.to_bytes()).map_err(|error| error.to_string())
            }
            Self::Kv(_) => words(tercio_kv::text::parse_query(text)),
            Self::Bank(_) => words(tercio_bank::text::parse_query(text)),
        }
    }

    /// An answer to [`Self::question`] for people and programs.
    #[must_use]
    pub fn answer(&self, bytes: &Bytes) -> Value {
        match self {
            Self::Counter(_) => number(bytes),
            Self::Exchange(_) => serde_json::from_slice(bytes)
                .unwrap_or_else(|error| json!({ "unreadable": error.to_string() })),
            Self::Kv(_) | Self::Bank(_) => self.result(bytes),
        }
    }
}

fn words<T: Encode>(read: Result<T, impl Display>) -> Result<Bytes, String> {
    read.map(|command| command.to_bytes()).map_err(|error| error.to_string())
}

fn shown(answer: Result<impl Display, impl Display>) -> Value {
    match answer {
        Ok(answer) => json!(answer.to_string()),
        Err(error) => json!({ "unreadable": error.to_string() }),
    }
}

/// The little-endian integer at the front, as the counter answers; zero when it is cut short.
fn number(bytes: &Bytes) -> Value {
    let mut word = [0; 8];
    let known = bytes.len().min(8);
    word[..known].copy_from_slice(&bytes[..known]);
    json!(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_reads_its_own_examples() {
        for name in App::NAMES {
            let app = App::named(name).expect("it is listed");
            assert_eq!(app.name(), *name);
            app.operation(app.example()).unwrap();
            app.question(app.example_question()).unwrap();
            assert!(app.operation("dance").is_err() && app.question("why?").is_err());
        }
        assert_eq!(App::named("chess"), None);
    }
}
