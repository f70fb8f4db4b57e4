//! The rules of a bank, which all replicas share.

use tercio_types::ClientId;
use thiserror::Error;

/// The most accounts that a bank begins with.
const MAX_ACCOUNTS: u64 = 1_000_000_000;

/// The rules of a bank and what it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The client that may deposit; nobody when `None`.
    pub issuer: Option<ClientId>,
    /// How many accounts are open from the beginning. Their numbers count from 0; account `i`
    /// belongs to client `1 + i % owners`.
    pub accounts: u64,
    /// What each of them has.
    pub balance: u64,
    /// How many clients share them.
    pub owners: u64,
}

impl Default for Settings {
    /// Client 1 is the issuer; no accounts are open.
    fn default() -> Self {
        Self { issuer: Some(ClientId(1)), accounts: 0, balance: 0, owners: 1 }
    }
}

/// Why settings make no bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Too many accounts.
    #[error("accounts must be 0 to {MAX_ACCOUNTS}, not {0}")]
    Accounts(u64),
    /// Accounts that belong to nobody.
    #[error("owners must be at least 1")]
    Owners,
    /// Client 0, which stands for nobody in files.
    #[error("the issuer cannot be client 0")]
    Issuer,
}

impl Settings {
    /// Looks whether these settings make a bank.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.accounts > MAX_ACCOUNTS {
            return Err(SettingsError::Accounts(self.accounts));
        }
        if self.owners == 0 {
            return Err(SettingsError::Owners);
        }
        if self.issuer == Some(ClientId(0)) {
            return Err(SettingsError::Issuer);
        }
        Ok(())
    }
}
