//! An account as it stands in the store.

use bytes::Bytes;
use tercio_types::ClientId;

/// An account.
///
/// ```text
/// key     number: u64, big-endian, so that accounts stand in order
/// value   owner: u64 | balance: u64, little-endian
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The client that may transfer from it.
    pub owner: ClientId,
    /// What it has.
    pub balance: u64,
}

impl Account {
    /// The key of the account of that number.
    #[must_use]
    pub fn key(number: u64) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    /// Reads a value of the store. Only this application writes there, so it is one.
    pub(crate) fn from_value(value: &[u8]) -> Self {
        let (owner, balance) = value.split_first_chunk::<8>().expect("an account has 16 bytes");
        let balance = balance.try_into().expect("an account has 16 bytes");
        Self { owner: ClientId(u64::from_le_bytes(*owner)), balance: u64::from_le_bytes(balance) }
    }

    pub(crate) fn to_value(self) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.owner.0.to_le_bytes());
        value[8..].copy_from_slice(&self.balance.to_le_bytes());
        value
    }
}
