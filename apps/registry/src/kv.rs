//! The key-value store in a genesis.

use crate::{shown, words};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tercio_execution::{Application, Keyed};
use tercio_genesis::{App, AppKind};
use tercio_kv::{Kv, Reply, Settings, text};
use tercio_types::Suite;

/// The key-value store: `[kv]`.
#[derive(Clone, Copy, Debug)]
pub struct KvKind;

/// What `[kv]` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    max_key_bytes: u32,
    max_value_bytes: u32,
    fill_keys: u64,
    fill_value_bytes: u32,
}

impl From<Settings> for Rules {
    fn from(settings: Settings) -> Self {
        let Settings { max_key_bytes, max_value_bytes, fill_keys, fill_value_bytes } = settings;
        Self { max_key_bytes, max_value_bytes, fill_keys, fill_value_bytes }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Settings::default().into()
    }
}

impl Rules {
    fn settings(&self) -> Settings {
        let Self { max_key_bytes, max_value_bytes, fill_keys, fill_value_bytes } = *self;
        Settings { max_key_bytes, max_value_bytes, fill_keys, fill_value_bytes }
    }
}

impl KvKind {
    /// The store under these rules.
    #[must_use]
    pub fn app(settings: Settings) -> App {
        App::new::<Self>(settings.into())
    }
}

impl AppKind for KvKind {
    const NAME: &'static str = "kv";
    const OPERATION: &'static str = "put hello world";
    const QUESTION: &'static str = "get hello";

    type Rules = Rules;

    fn check(rules: &Rules) -> Result<(), String> {
        rules.settings().validate().map_err(|error| error.to_string())
    }

    fn build(rules: &Rules, suite: Suite) -> Box<dyn Application> {
        let store = Kv::new(rules.settings()).expect("the rules were checked");
        Box::new(Keyed::new(store, suite))
    }

    fn encode(rules: &Rules, out: &mut Vec<u8>) {
        out.extend_from_slice(&rules.max_key_bytes.to_le_bytes());
        out.extend_from_slice(&rules.max_value_bytes.to_le_bytes());
        out.extend_from_slice(&rules.fill_keys.to_le_bytes());
        out.extend_from_slice(&rules.fill_value_bytes.to_le_bytes());
    }

    fn operation(line: &str) -> Result<Bytes, String> {
        words(text::parse(line))
    }

    fn result(bytes: &Bytes) -> Value {
        shown(Reply::parse(bytes))
    }

    fn question(line: &str) -> Result<Bytes, String> {
        words(text::parse_query(line))
    }
}
