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
use tercio_genesis::{Apps, Kind};
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

fn shown(answer: Result<impl Display, impl Display>) -> Value {
    match answer {
        Ok(answer) => json!(answer.to_string()),
        Err(error) => json!({ "unreadable": error.to_string() }),
    }
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
}
