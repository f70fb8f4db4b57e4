//! How people write an application's operations and questions, and how its answers are shown:
//! each application's own words, dispatched where the applications are listed.

use crate::genesis::{App, GenesisError};
use bytes::Bytes;
use serde_json::{Value, json};
use std::fmt::Display;
use tercio_types::Suite;
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

    /// A result of [`Self::operation`], for people and for programs.
    #[must_use]
    pub fn result(&self, bytes: &Bytes) -> Shown {
        match self {
            Self::Counter(_) => number(bytes),
            Self::Exchange(_) => Shown::of(tercio_exchange::Outcome::parse(bytes), exchange),
            Self::Kv(_) => Shown::of(tercio_kv::Reply::parse(bytes), kv),
            Self::Bank(_) => Shown::of(tercio_bank::Outcome::parse(bytes), bank),
        }
    }

    /// What replicas ask of an operation before they order it ([`tercio_execution::Application::check`]), and why
    /// they would refuse it, which their REJECT does not say. It has the application's rules, and
    /// nothing of the content that a network begins with.
    ///
    /// # Errors
    /// When its settings make no sense.
    pub fn checker(
        &self,
        suite: Suite,
    ) -> Result<impl Fn(&[u8]) -> Result<(), String> + use<>, GenesisError> {
        let empty = match self.clone() {
            Self::Kv(settings) => Self::Kv(tercio_kv::Settings { fill_keys: 0, ..settings }),
            Self::Bank(settings) => Self::Bank(tercio_bank::Settings { accounts: 0, ..settings }),
            other => other,
        };
        let app = empty.build(suite)?;
        Ok(move |operation: &[u8]| app.check(operation).map_err(|why| why.to_string()))
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

    /// An answer to [`Self::question`], for people and for programs.
    #[must_use]
    pub fn answer(&self, bytes: &Bytes) -> Shown {
        match self {
            Self::Counter(_) => number(bytes),
            Self::Exchange(_) => match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => Shown { text: value.to_string(), value, refused: false },
                Err(error) => Shown::unreadable(&error),
            },
            Self::Kv(_) | Self::Bank(_) => self.result(bytes),
        }
    }
}

/// A result or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// For people.
    pub text: String,
    /// For programs: a number, or an object whose `outcome` says which fields it has.
    pub value: Value,
    /// Whether the application refused what it was asked for, and changed nothing.
    pub refused: bool,
}

impl Shown {
    fn of<T: Display>(
        read: Result<T, impl Display>,
        fields: impl FnOnce(&T) -> (&'static str, Value),
    ) -> Self {
        let outcome = match read {
            Ok(outcome) => outcome,
            Err(error) => return Self::unreadable(&error),
        };
        let (name, fields) = fields(&outcome);
        let mut value = json!({ "outcome": name });
        if let (Some(value), Value::Object(fields)) = (value.as_object_mut(), fields) {
            value.extend(fields);
        }
        Self { text: outcome.to_string(), value, refused: name == REJECTED }
    }

    fn unreadable(error: &dyn Display) -> Self {
        let value = json!({ "unreadable": error.to_string() });
        Self { text: value.to_string(), value, refused: false }
    }
}

/// The outcome of all that an application refuses.
const REJECTED: &str = "rejected";

fn rejected(code: u8, reason: &dyn Display) -> (&'static str, Value) {
    (REJECTED, json!({ "code": code, "reason": reason.to_string() }))
}

fn exchange(outcome: &tercio_exchange::Outcome) -> (&'static str, Value) {
    use tercio_exchange::{Fill, Outcome};
    match outcome {
        Outcome::Rejected(reason) => rejected(reason.code(), reason),
        Outcome::Placed { remaining, dropped, fills } => {
            let fill = |Fill { trade, maker, price, quantity }: &Fill| json!({ "trade": trade, "maker": maker, "price": price, "quantity": quantity });
            let fills: Vec<Value> = fills.iter().map(fill).collect();
            ("placed", json!({ "remaining": remaining, "dropped": dropped, "fills": fills }))
        }
        Outcome::Reduced { remaining } => ("reduced", json!({ "remaining": remaining })),
        Outcome::Cancelled { quantity } => ("cancelled", json!({ "quantity": quantity })),
        // Above 64 bits, which JSON's readers may not have.
        Outcome::Deposited { free } => ("deposited", json!({ "free": free.to_string() })),
    }
}

fn kv(reply: &tercio_kv::Reply) -> (&'static str, Value) {
    use tercio_kv::{Page, Reply};
    match reply {
        Reply::Rejected(reason) => rejected(reason.code(), reason),
        Reply::Found(value) => ("found", json!({ "value": text(value) })),
        Reply::Missing => ("missing", json!({})),
        Reply::Stored { replaced } => ("stored", json!({ "replaced": replaced })),
        Reply::Deleted { existed } => ("deleted", json!({ "existed": existed })),
        Reply::Swapped => ("swapped", json!({})),
        Reply::Differs(value) => ("differs", json!({ "value": value.as_ref().map(text) })),
        Reply::Page(Page { entries, more }) => {
            let entry = |(key, value)| json!({ "key": text(key), "value": text(value) });
            let entries: Vec<Value> = entries.iter().map(|(k, v)| entry((k, v))).collect();
            ("page", json!({ "entries": entries, "more": more }))
        }
        Reply::Count(count) => ("count", json!({ "count": count })),
    }
}

fn bank(outcome: &tercio_bank::Outcome) -> (&'static str, Value) {
    use tercio_bank::{Account, Outcome};
    match outcome {
        Outcome::Rejected(reason) => rejected(reason.code(), reason),
        Outcome::Opened => ("opened", json!({})),
        Outcome::Deposited { balance } => ("deposited", json!({ "balance": balance })),
        Outcome::Transferred { left } => ("transferred", json!({ "left": left })),
        Outcome::Account(Account { owner, balance }) => {
            ("account", json!({ "owner": owner.0, "balance": balance }))
        }
    }
}

/// Bytes that are text as such, others in hexadecimal.
fn text(bytes: &Bytes) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": tercio_crypto::to_hex(bytes) }),
    }
}

fn words<T: Encode>(read: Result<T, impl Display>) -> Result<Bytes, String> {
    read.map(|command| command.to_bytes()).map_err(|error| error.to_string())
}

/// The little-endian integer at the front, as the counter answers; zero when it is cut short.
fn number(bytes: &Bytes) -> Shown {
    let mut word = [0; 8];
    let known = bytes.len().min(8);
    word[..known].copy_from_slice(&bytes[..known]);
    let number = u64::from_le_bytes(word);
    Shown { text: number.to_string(), value: json!(number), refused: false }
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

    /// People read a sentence, programs read fields, and a refusal is told from both.
    #[test]
    fn results_have_fields_and_say_whether_they_refuse() {
        use tercio_exchange::{Fill, Outcome};
        let app = |name| App::named(name).expect("it is listed");
        let fills = vec![Fill { trade: 1, maker: 7, price: 100, quantity: 3 }];
        let placed = Outcome::Placed { remaining: 2, dropped: 0, fills };
        let shown = app("exchange").result(&placed.to_bytes());
        assert_eq!(shown.text, "accepted; 2 in the book\ntrade 1: 3 @ 100 with 7");
        let fill = json!({ "trade": 1, "maker": 7, "price": 100, "quantity": 3 });
        let fields = json!({ "outcome": "placed", "remaining": 2, "dropped": 0, "fills": [fill] });
        assert_eq!((shown.value, shown.refused), (fields, false));

        let overdraft = tercio_bank::Outcome::Rejected(tercio_bank::Reject::InsufficientFunds);
        let shown = app("bank").result(&overdraft.to_bytes());
        assert_eq!((shown.text.as_str(), shown.refused), ("rejected: insufficient funds", true));
        assert_eq!(shown.value["outcome"], "rejected");
        assert_eq!(
            (&shown.value["code"], &shown.value["reason"]),
            (&json!(9), &json!("insufficient funds"))
        );

        let differs = tercio_kv::Reply::Differs(Some(Bytes::from_static(&[0xff, 1])));
        let shown = app("kv").result(&differs.to_bytes());
        // It was asked what the key is, and told.
        assert!(!shown.refused);
        assert_eq!(shown.value, json!({ "outcome": "differs", "value": { "hex": "ff01" } }));
        let found = tercio_kv::Reply::Found(Bytes::from_static(b"world"));
        assert_eq!(app("kv").answer(&found.to_bytes()).value["value"], "world");
        let broken = app("kv").result(&Bytes::from_static(&[0xee]));
        assert!(broken.value["unreadable"].is_string() && !broken.refused, "{broken:?}");
        assert_eq!(app("counter").result(&Bytes::from_static(&[5])).value, 5);
    }

    /// A checker says what replicas say, and costs nothing of what a network begins with.
    #[test]
    fn a_checker_has_the_rules_and_no_content() {
        let kv = App::Kv(tercio_kv::Settings {
            max_key_bytes: 24,
            fill_keys: 1_000_000_000_000,
            ..tercio_kv::Settings::default()
        });
        let checker = kv.checker(Suite::default()).unwrap();
        checker(&kv.operation("put hello world").unwrap()).unwrap();
        let long = kv.operation(&format!("get {}", "k".repeat(25))).unwrap();
        let refused = checker(&long).unwrap_err();
        assert_eq!(refused, "the key is empty or too long");
        for name in App::NAMES {
            let app = App::named(name).expect("it is listed");
            let example = app.operation(app.example()).unwrap();
            app.checker(Suite::default()).unwrap()(&example).unwrap();
        }
    }
}
