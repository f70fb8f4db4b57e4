//! The key-value store in a genesis.

use crate::{rejected, shown, words};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tercio_execution::{Application, Keyed};
use tercio_genesis::{App, AppKind, Shown};
use tercio_kv::{Kv, Page, Reply, Settings, text as lines};
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
        words(lines::parse(line))
    }

    fn result(bytes: &Bytes) -> Shown {
        shown(Reply::parse(bytes), fields)
    }

    fn without_content(rules: &Rules) -> Rules {
        Rules { fill_keys: 0, ..rules.clone() }
    }

    fn question(line: &str) -> Result<Bytes, String> {
        words(lines::parse_query(line))
    }
}

fn fields(reply: &Reply) -> (&'static str, Value) {
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

/// Bytes that are text as such, others in hexadecimal.
fn text(bytes: &Bytes) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": tercio_crypto::to_hex(bytes) }),
    }
}
