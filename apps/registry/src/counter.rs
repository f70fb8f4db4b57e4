//! The counter service in a genesis.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tercio_counter::{Counter, Settings};
use tercio_execution::Application;
use tercio_genesis::{App, AppKind, Shown};
use tercio_types::Suite;

/// The counter service: `[counter]`.
#[derive(Clone, Copy, Debug)]
pub struct CounterKind;

/// What `[counter]` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    iterations: u64,
    reply: usize,
}

impl From<Settings> for Rules {
    fn from(Settings { iterations, reply }: Settings) -> Self {
        Self { iterations, reply }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Settings::default().into()
    }
}

impl CounterKind {
    /// The counter under these rules.
    #[must_use]
    pub fn app(settings: Settings) -> App {
        App::new::<Self>(settings.into())
    }
}

impl AppKind for CounterKind {
    const NAME: &'static str = "counter";
    const OPERATION: &'static str = "add";
    const QUESTION: &'static str = "total";

    type Rules = Rules;

    /// An operation takes as long as its iterations do, and its result must fit a frame.
    fn check(rules: &Rules) -> Result<(), String> {
        let limits = [
            ("iterations", rules.iterations, 1_000_000_000),
            ("reply", rules.reply as u64, 8 << 20),
        ];
        match limits.into_iter().find(|(_, found, most)| found > most) {
            Some((name, found, most)) => Err(format!("{name} must be 0 to {most}, not {found}")),
            None => Ok(()),
        }
    }

    fn build(rules: &Rules, suite: Suite) -> Box<dyn Application> {
        let Rules { iterations, reply } = *rules;
        Box::new(Counter::new(Settings { iterations, reply }, suite))
    }

    fn encode(rules: &Rules, out: &mut Vec<u8>) {
        out.extend_from_slice(&rules.iterations.to_le_bytes());
        out.extend_from_slice(&(rules.reply as u64).to_le_bytes());
    }

    fn operation(line: &str) -> Result<Bytes, String> {
        match line.trim() {
            "add" => Ok(Bytes::new()),
            other => Err(format!("'{other}' is no operation of the counter; write add")),
        }
    }

    fn result(bytes: &Bytes) -> Shown {
        number(bytes)
    }

    fn question(text: &str) -> Result<Bytes, String> {
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
}

/// The little-endian integer at the front, as the counter answers; zero when it is cut short.
fn number(bytes: &Bytes) -> Shown {
    let mut word = [0; 8];
    let known = bytes.len().min(8);
    word[..known].copy_from_slice(&bytes[..known]);
    Shown::number(u64::from_le_bytes(word))
}
