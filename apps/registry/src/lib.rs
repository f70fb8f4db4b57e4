//! The applications that come along, as kinds that a genesis can name: their rules in its table,
//! their bytes in the chain id, their words.
//!
//! Architecture invariant: the one place that knows all applications. Nothing of the engine depends
//! on it; a program of another application lists its own kinds instead.

mod bank;
mod counter;
mod exchange;
mod kv;

pub use bank::BankKind;
pub use counter::CounterKind;
pub use exchange::ExchangeKind;
pub use kv::KvKind;

use bytes::Bytes;
use serde_json::{Value, json};
use std::fmt::Display;
use tercio_genesis::{Apps, Kind, Shown};
use tercio_wire::Encode;

/// All of them; the first is the default of a new network.
pub const KINDS: [Kind; 4] = [
    Kind::of::<CounterKind>(),
    Kind::of::<ExchangeKind>(),
    Kind::of::<KvKind>(),
    Kind::of::<BankKind>(),
];

/// All of them, as one looks for them by name.
#[must_use]
pub fn apps() -> Apps {
    Apps::new(&KINDS)
}

fn words<T: Encode>(read: Result<T, impl Display>) -> Result<Bytes, String> {
    read.map(|command| command.to_bytes()).map_err(|error| error.to_string())
}

/// What an application says, with the name and the fields of its outcome.
fn shown<T: Display>(
    read: Result<T, impl Display>,
    fields: impl FnOnce(&T) -> (&'static str, Value),
) -> Shown {
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(error) => return unreadable(&error),
    };
    let (name, fields) = fields(&outcome);
    let mut value = json!({ "outcome": name });
    if let (Some(value), Value::Object(fields)) = (value.as_object_mut(), fields) {
        value.extend(fields);
    }
    Shown { text: outcome.to_string(), value, refused: name == REJECTED }
}

fn unreadable(error: &dyn Display) -> Shown {
    let value = json!({ "unreadable": error.to_string() });
    Shown { text: value.to_string(), value, refused: false }
}

/// The outcome of all that an application refuses.
const REJECTED: &str = "rejected";

fn rejected(code: u8, reason: &dyn Display) -> (&'static str, Value) {
    (REJECTED, json!({ "code": code, "reason": reason.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_reads_its_own_examples() {
        let apps = apps();
        for name in apps.names() {
            let app = apps.named(name).expect("it is listed");
            assert_eq!(app.name(), name);
            app.check().unwrap();
            app.operation(app.example()).unwrap();
            app.question(app.example_question()).unwrap();
            assert!(app.operation("dance").is_err() && app.question("why?").is_err());
        }
        assert_eq!(apps.named("chess"), None);
    }

    /// People read a sentence, programs read fields, and a refusal is told from both.
    #[test]
    fn results_have_fields_and_say_whether_they_refuse() {
        use tercio_exchange::{Fill, Outcome};
        let app = |name| apps().named(name).expect("it is listed");
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
        let kv = KvKind::app(tercio_kv::Settings {
            max_key_bytes: 24,
            fill_keys: 1_000_000_000_000,
            ..tercio_kv::Settings::default()
        });
        let checker = kv.checker(tercio_types::Suite::default()).unwrap();
        checker(&kv.operation("put hello world").unwrap()).unwrap();
        let long = kv.operation(&format!("get {}", "k".repeat(25))).unwrap();
        let refused = checker(&long).unwrap_err();
        assert_eq!(refused, "the key is empty or too long");
        for name in apps().names() {
            let app = apps().named(name).expect("it is listed");
            let example = app.operation(app.example()).unwrap();
            app.checker(tercio_types::Suite::default()).unwrap()(&example).unwrap();
        }
    }
}
