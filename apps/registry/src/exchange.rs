//! The exchange in a genesis.

use crate::{rejected, shown, unreadable, words};
use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use tercio_exchange::{Exchange, Fill, Outcome, Settings, SymbolSpec, text};
use tercio_execution::Application;
use tercio_genesis::{App, AppKind, Shown};
use tercio_types::{ClientId, Suite};

/// The exchange: `[exchange]`.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeKind;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Symbol {
    name: String,
    base: u16,
    quote: u16,
}

/// A number that may be longer than one of TOML, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wide(u128);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.parse();
        number.map(Self).map_err(|_| D::Error::custom("expected a whole number between quotes"))
    }
}

/// What `[exchange]` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    credit: Wide,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<u64>,
    max_accounts: u32,
    max_open_orders: u32,
    max_book_orders: u32,
    max_fills: u32,
    symbols: Vec<Symbol>,
}

impl From<Settings> for Rules {
    fn from(settings: Settings) -> Self {
        let symbol = |SymbolSpec { name, base, quote }| Symbol { name, base, quote };
        Self {
            symbols: settings.symbols.into_iter().map(symbol).collect(),
            credit: Wide(settings.credit),
            operator: settings.operator.map(|client| client.0),
            max_accounts: settings.max_accounts,
            max_open_orders: settings.max_open_orders,
            max_book_orders: settings.max_book_orders,
            max_fills: settings.max_fills,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Settings::default().into()
    }
}

impl Rules {
    fn settings(&self) -> Settings {
        let symbol = |s: &Symbol| SymbolSpec { name: s.name.clone(), base: s.base, quote: s.quote };
        Settings {
            symbols: self.symbols.iter().map(symbol).collect(),
            credit: self.credit.0,
            operator: self.operator.map(ClientId),
            max_accounts: self.max_accounts,
            max_open_orders: self.max_open_orders,
            max_book_orders: self.max_book_orders,
            max_fills: self.max_fills,
        }
    }
}

impl ExchangeKind {
    /// The exchange under these rules.
    #[must_use]
    pub fn app(settings: Settings) -> App {
        App::new::<Self>(settings.into())
    }
}

impl AppKind for ExchangeKind {
    const NAME: &'static str = "exchange";
    const OPERATION: &'static str = "buy 1 @ 100000 in 0 as 1";
    const QUESTION: &'static str = "top 0";

    type Rules = Rules;

    fn check(rules: &Rules) -> Result<(), String> {
        rules.settings().validate().map_err(|error| error.to_string())
    }

    fn build(rules: &Rules, suite: Suite) -> Box<dyn Application> {
        Box::new(Exchange::new(rules.settings(), suite).expect("the rules were checked"))
    }

    fn encode(rules: &Rules, out: &mut Vec<u8>) {
        out.extend_from_slice(&(rules.symbols.len() as u64).to_le_bytes());
        for Symbol { name, base, quote } in &rules.symbols {
            out.extend_from_slice(&(name.len() as u64).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&base.to_le_bytes());
            out.extend_from_slice(&quote.to_le_bytes());
        }
        out.extend_from_slice(&rules.credit.0.to_le_bytes());
        out.push(rules.operator.is_some().into());
        out.extend_from_slice(&rules.operator.unwrap_or_default().to_le_bytes());
        let Rules { max_accounts, max_open_orders, max_book_orders, max_fills, .. } = *rules;
        for limit in [max_accounts, max_open_orders, max_book_orders, max_fills] {
            out.extend_from_slice(&limit.to_le_bytes());
        }
    }

    fn operation(line: &str) -> Result<Bytes, String> {
        words(text::parse(line))
    }

    fn result(bytes: &Bytes) -> Shown {
        shown(Outcome::parse(bytes), fields)
    }

    fn question(line: &str) -> Result<Bytes, String> {
        let query = text::parse_query(line);
        query.map(|query| query.to_bytes()).map_err(|error| error.to_string())
    }

    fn answer(bytes: &Bytes) -> Shown {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) => Shown { text: value.to_string(), value, refused: false },
            Err(error) => unreadable(&error),
        }
    }
}

fn fields(outcome: &Outcome) -> (&'static str, Value) {
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
