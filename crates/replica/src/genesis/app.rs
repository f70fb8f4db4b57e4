//! The application that a genesis names: its rules, its table in the file, its bytes in the chain
//! id.

use super::GenesisError;
use crate::toml_error::{At, FileError, Source};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use tercio_bank::Bank;
use tercio_counter::Counter;
use tercio_exchange::{Exchange, SymbolSpec};
use tercio_execution::{Application, Keyed};
use tercio_kv::Kv;
use tercio_types::{ClientId, Suite};

/// The application that a network runs, with the rules that are part of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum App {
    /// The counter service.
    Counter(tercio_counter::Settings),
    /// The exchange.
    Exchange(tercio_exchange::Settings),
    /// The key-value store.
    Kv(tercio_kv::Settings),
    /// The bank.
    Bank(tercio_bank::Settings),
}

impl App {
    /// The names of all applications.
    pub const NAMES: &[&str] = &["counter", "exchange", "kv", "bank"];

    /// The application of that name under its default rules.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "counter" => Some(Self::Counter(tercio_counter::Settings::default())),
            "exchange" => Some(Self::Exchange(tercio_exchange::Settings::default())),
            "kv" => Some(Self::Kv(tercio_kv::Settings::default())),
            "bank" => Some(Self::Bank(tercio_bank::Settings::default())),
            _ => None,
        }
    }

    /// Its name in the genesis.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Exchange(_) => "exchange",
            Self::Kv(_) => "kv",
            Self::Bank(_) => "bank",
        }
    }

    /// Looks whether its settings make sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), GenesisError> {
        match self {
            Self::Counter(_) => Ok(()),
            Self::Exchange(settings) => settings.validate().map_err(GenesisError::Exchange),
            Self::Kv(settings) => settings.validate().map_err(GenesisError::Kv),
            Self::Bank(settings) => settings.validate().map_err(GenesisError::Bank),
        }
    }

    /// The application in its first state.
    ///
    /// # Errors
    /// When its settings make no sense.
    pub fn build(&self, suite: Suite) -> Result<Box<dyn Application>, GenesisError> {
        Ok(match self {
            Self::Counter(settings) => Box::new(Counter::new(*settings, suite)),
            Self::Exchange(settings) => {
                Box::new(Exchange::new(settings.clone(), suite).map_err(GenesisError::Exchange)?)
            }
            Self::Kv(settings) => {
                Box::new(Keyed::new(Kv::new(*settings).map_err(GenesisError::Kv)?, suite))
            }
            Self::Bank(settings) => {
                Box::new(Keyed::new(Bank::new(*settings).map_err(GenesisError::Bank)?, suite))
            }
        })
    }

    /// Appends its name and rules as the chain id covers them.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        super::put_text(out, self.name().as_bytes());
        match self {
            Self::Counter(tercio_counter::Settings { iterations, reply }) => {
                out.extend_from_slice(&iterations.to_le_bytes());
                out.extend_from_slice(&(*reply as u64).to_le_bytes());
            }
            Self::Exchange(settings) => {
                out.extend_from_slice(&(settings.symbols.len() as u64).to_le_bytes());
                for symbol in &settings.symbols {
                    super::put_text(out, symbol.name.as_bytes());
                    out.extend_from_slice(&symbol.base.to_le_bytes());
                    out.extend_from_slice(&symbol.quote.to_le_bytes());
                }
                out.extend_from_slice(&settings.credit.to_le_bytes());
                out.push(settings.operator.is_some().into());
                out.extend_from_slice(&settings.operator.unwrap_or_default().0.to_le_bytes());
                for limit in [
                    settings.max_accounts,
                    settings.max_open_orders,
                    settings.max_book_orders,
                    settings.max_fills,
                ] {
                    out.extend_from_slice(&limit.to_le_bytes());
                }
            }
            Self::Kv(tercio_kv::Settings {
                max_key_bytes,
                max_value_bytes,
                fill_keys,
                fill_value_bytes,
            }) => {
                out.extend_from_slice(&max_key_bytes.to_le_bytes());
                out.extend_from_slice(&max_value_bytes.to_le_bytes());
                out.extend_from_slice(&fill_keys.to_le_bytes());
                out.extend_from_slice(&fill_value_bytes.to_le_bytes());
            }
            Self::Bank(tercio_bank::Settings { issuer, accounts, balance, owners }) => {
                for word in [issuer.unwrap_or_default().0, *accounts, *balance, *owners] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
}

/// The tables of the applications in the file, of which one must be there. `Text` knows its place
/// in the file when it is read.
pub(super) struct AppEntries<Text> {
    pub(super) counter: Option<CounterEntry>,
    pub(super) exchange: Option<ExchangeEntry<Text>>,
    pub(super) kv: Option<KvEntry>,
    pub(super) bank: Option<BankEntry>,
}

impl<Text> Default for AppEntries<Text> {
    fn default() -> Self {
        Self { counter: None, exchange: None, kv: None, bank: None }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CounterEntry {
    iterations: u64,
    reply: usize,
}

impl From<tercio_counter::Settings> for CounterEntry {
    fn from(tercio_counter::Settings { iterations, reply }: tercio_counter::Settings) -> Self {
        Self { iterations, reply }
    }
}

impl Default for CounterEntry {
    fn default() -> Self {
        tercio_counter::Settings::default().into()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SymbolEntry {
    name: String,
    base: u16,
    quote: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExchangeEntry<Text> {
    symbols: Vec<SymbolEntry>,
    credit: Option<Text>,
    operator: Option<u64>,
    max_accounts: u32,
    max_open_orders: u32,
    max_book_orders: u32,
    max_fills: u32,
}

fn symbols(settings: &tercio_exchange::Settings) -> Vec<SymbolEntry> {
    let entry = |s: &SymbolSpec| SymbolEntry { name: s.name.clone(), base: s.base, quote: s.quote };
    settings.symbols.iter().map(entry).collect()
}

impl<Text> Default for ExchangeEntry<Text> {
    fn default() -> Self {
        let settings = tercio_exchange::Settings::default();
        Self {
            symbols: symbols(&settings),
            credit: None,
            operator: None,
            max_accounts: settings.max_accounts,
            max_open_orders: settings.max_open_orders,
            max_book_orders: settings.max_book_orders,
            max_fills: settings.max_fills,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KvEntry {
    max_key_bytes: u32,
    max_value_bytes: u32,
    fill_keys: u64,
    fill_value_bytes: u32,
}

impl From<tercio_kv::Settings> for KvEntry {
    fn from(settings: tercio_kv::Settings) -> Self {
        Self {
            max_key_bytes: settings.max_key_bytes,
            max_value_bytes: settings.max_value_bytes,
            fill_keys: settings.fill_keys,
            fill_value_bytes: settings.fill_value_bytes,
        }
    }
}

impl Default for KvEntry {
    fn default() -> Self {
        tercio_kv::Settings::default().into()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BankEntry {
    /// 0 for nobody, which no client is.
    issuer: u64,
    accounts: u64,
    balance: u64,
    owners: u64,
}

impl From<tercio_bank::Settings> for BankEntry {
    fn from(settings: tercio_bank::Settings) -> Self {
        let tercio_bank::Settings { issuer, accounts, balance, owners } = settings;
        Self { issuer: issuer.unwrap_or_default().0, accounts, balance, owners }
    }
}

impl Default for BankEntry {
    fn default() -> Self {
        tercio_bank::Settings::default().into()
    }
}

impl AppEntries<At<String>> {
    /// The application that the file names.
    pub(super) fn read(self, source: &Source<'_>) -> Result<App, FileError> {
        let Self { counter, exchange, kv, bank } = self;
        let counter = counter.map(|CounterEntry { iterations, reply }| {
            App::Counter(tercio_counter::Settings { iterations, reply })
        });
        let exchange = exchange.map(|entry| exchange_settings(source, entry).map(App::Exchange));
        let kv = kv.map(|entry| {
            App::Kv(tercio_kv::Settings {
                max_key_bytes: entry.max_key_bytes,
                max_value_bytes: entry.max_value_bytes,
                fill_keys: entry.fill_keys,
                fill_value_bytes: entry.fill_value_bytes,
            })
        });
        let bank = bank.map(|BankEntry { issuer, accounts, balance, owners }| {
            let issuer = (issuer != 0).then_some(ClientId(issuer));
            App::Bank(tercio_bank::Settings { issuer, accounts, balance, owners })
        });
        let mut named = [counter, exchange.transpose()?, kv, bank].into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(app), None) => Ok(app),
            _ => {
                let names: Vec<_> = App::NAMES.iter().map(|name| format!("[{name}]")).collect();
                let what = format!("name the application by exactly one of {}", names.join(", "));
                Err(source.error(0..0, what))
            }
        }
    }
}

impl AppEntries<String> {
    /// What names the application in the file.
    pub(super) fn of(app: &App) -> Self {
        match app {
            App::Counter(settings) => Self { counter: Some((*settings).into()), ..Self::default() },
            App::Exchange(settings) => {
                let entry = ExchangeEntry {
                    symbols: symbols(settings),
                    credit: Some(settings.credit.to_string()),
                    operator: settings.operator.map(|client| client.0),
                    max_accounts: settings.max_accounts,
                    max_open_orders: settings.max_open_orders,
                    max_book_orders: settings.max_book_orders,
                    max_fills: settings.max_fills,
                };
                Self { exchange: Some(entry), ..Self::default() }
            }
            App::Kv(settings) => Self { kv: Some((*settings).into()), ..Self::default() },
            App::Bank(settings) => Self { bank: Some((*settings).into()), ..Self::default() },
        }
    }
}

fn exchange_settings(
    source: &Source<'_>,
    entry: ExchangeEntry<At<String>>,
) -> Result<tercio_exchange::Settings, FileError> {
    let default = tercio_exchange::Settings::default();
    let credit = match &entry.credit {
        None => default.credit,
        Some(text) => u128::from_str(text.get())
            .map_err(|_| source.at(text, "expected a whole number between quotes"))?,
    };
    let symbol = |s: SymbolEntry| SymbolSpec { name: s.name, base: s.base, quote: s.quote };
    Ok(tercio_exchange::Settings {
        symbols: entry.symbols.into_iter().map(symbol).collect(),
        credit,
        operator: entry.operator.map(ClientId),
        max_accounts: entry.max_accounts,
        max_open_orders: entry.max_open_orders,
        max_book_orders: entry.max_book_orders,
        max_fills: entry.max_fills,
    })
}
