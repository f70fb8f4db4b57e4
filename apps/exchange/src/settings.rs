//! What a network fixes about its exchange in the genesis.

use crate::codec::MAX_FILLS;
use std::collections::BTreeSet;
use tercio_types::ClientId;
use thiserror::Error;

/// The most that the genesis credit, and the deposits of an asset, may come to. Balances are 128
/// bits wide, so below this nothing can overflow.
pub(crate) const MAX_SUPPLY: u128 = 1 << 120;

/// A market: a pair of assets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolSpec {
    /// A short name for people, 1 to 32 bytes.
    pub name: String,
    /// The asset that is bought and sold; its smallest unit is the lot.
    pub base: u16,
    /// The asset that is paid with; one unit of it is one tick times one lot.
    pub quote: u16,
}

/// The rules of an exchange. The same at every replica: they are part of the state digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The markets; a command names one by its index.
    pub symbols: Vec<SymbolSpec>,
    /// What every account has of every asset when it is opened, so that a network can trade
    /// without deposits.
    pub credit: u128,
    /// The client that may deposit; nobody when `None`.
    pub operator: Option<ClientId>,
    /// The most accounts. One is opened by a client's first accepted order or deposit.
    pub max_accounts: u32,
    /// The most resting orders of an account over all markets.
    pub max_open_orders: u32,
    /// The most resting orders of a market.
    pub max_book_orders: u32,
    /// The most trades of one order; what would trade on beyond them is given up.
    pub max_fills: u32,
}

/// Why settings make no exchange.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No market, or too many.
    #[error("an exchange has 1 to 4096 symbols, not {0}")]
    Symbols(usize),
    /// A name that is empty, too long, or used twice.
    #[error("the symbol name {0:?} is empty, longer than 32 bytes, or used twice")]
    Name(String),
    /// A pair of one asset, or of an asset with a number that is too high.
    #[error("symbol {0:?} needs two different assets with numbers below 4096")]
    Assets(String),
    /// A limit that is zero or too high.
    #[error("{name} must be 1 to {most}, not {found}")]
    Limit {
        /// The setting.
        name: &'static str,
        /// Its highest value.
        most: u32,
        /// What was given.
        found: u32,
    },
    /// Too high a credit.
    #[error("the credit times max_accounts must be at most 2^120")]
    Credit,
}

impl Default for Settings {
    /// Eight markets of eight assets against one.
    fn default() -> Self {
        Self::markets(8)
    }
}

impl Settings {
    /// `count` markets named `S0`, `S1`, ..: asset 0 is what all are paid with, asset `i + 1` is
    /// what market `i` trades.
    #[must_use]
    pub fn markets(count: u16) -> Self {
        Self {
            symbols: (0..count)
                .map(|i| SymbolSpec { name: format!("S{i}"), base: i.saturating_add(1), quote: 0 })
                .collect(),
            credit: 1 << 80,
            operator: None,
            max_accounts: 1 << 16,
            max_open_orders: 1 << 16,
            max_book_orders: 1 << 20,
            max_fills: 1024,
        }
    }

    /// The one market of [`crate::replay`]: `BTCUSD`, ticks of 0.01 USD, lots of 1e-8 BTC. One
    /// client sends all orders, so its limits are those of the book.
    #[must_use]
    pub fn replay() -> Self {
        let symbols = vec![SymbolSpec { name: "BTCUSD".into(), base: 1, quote: 0 }];
        let all = Self::markets(1);
        let (max_open_orders, max_fills) = (all.max_book_orders, MAX_FILLS as u32);
        Self { symbols, max_open_orders, max_fills, ..all }
    }

    /// How many assets there are: one more than the highest number.
    pub(crate) fn assets(&self) -> usize {
        let highest = self.symbols.iter().map(|s| s.base.max(s.quote)).max();
        highest.map_or(0, |asset| usize::from(asset) + 1)
    }

    /// Looks whether these settings make an exchange.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if !(1..=4096).contains(&self.symbols.len()) {
            return Err(SettingsError::Symbols(self.symbols.len()));
        }
        let mut names = BTreeSet::new();
        for symbol in &self.symbols {
            let name = &symbol.name;
            if name.is_empty() || name.len() > 32 || !names.insert(name) {
                return Err(SettingsError::Name(name.clone()));
            }
            if symbol.base == symbol.quote || symbol.base.max(symbol.quote) >= 4096 {
                return Err(SettingsError::Assets(name.clone()));
            }
        }
        let limits = [
            ("max_accounts", self.max_accounts, 1 << 24),
            ("max_open_orders", self.max_open_orders, 1 << 24),
            ("max_book_orders", self.max_book_orders, 1 << 24),
            ("max_fills", self.max_fills, MAX_FILLS as u32),
        ];
        for (name, found, most) in limits {
            if !(1..=most).contains(&found) {
                return Err(SettingsError::Limit { name, most, found });
            }
        }
        match self.credit.checked_mul(self.max_accounts.into()) {
            Some(supply) if supply <= MAX_SUPPLY => Ok(()),
            _ => Err(SettingsError::Credit),
        }
    }

    /// The canonical bytes that enter the state.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.symbols.len() as u32).to_le_bytes());
        for symbol in &self.symbols {
            out.push(symbol.name.len() as u8);
            out.extend_from_slice(symbol.name.as_bytes());
            out.extend_from_slice(&symbol.base.to_le_bytes());
            out.extend_from_slice(&symbol.quote.to_le_bytes());
        }
        out.extend_from_slice(&self.credit.to_le_bytes());
        out.push(self.operator.is_some().into());
        out.extend_from_slice(&self.operator.map_or(0, |c| c.0).to_le_bytes());
        for limit in [self.max_accounts, self.max_open_orders, self.max_book_orders, self.max_fills]
        {
            out.extend_from_slice(&limit.to_le_bytes());
        }
    }
}
