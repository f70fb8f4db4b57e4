//! The rules of a store, which all replicas share.

use thiserror::Error;

/// The rules of a store and what it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest key in bytes, 1 to 4,096.
    pub max_key_bytes: u32,
    /// The longest value in bytes, 1 to 1 MiB.
    pub max_value_bytes: u32,
    /// How many keys the store begins with, for measurements on a store of some size: see
    /// [`Settings::fill_key`].
    pub fill_keys: u64,
    /// The bytes of each of their values.
    pub fill_value_bytes: u32,
}

impl Default for Settings {
    /// Keys of up to 256 bytes, values of up to 64 KiB, and an empty store.
    fn default() -> Self {
        Self { max_key_bytes: 256, max_value_bytes: 1 << 16, fill_keys: 0, fill_value_bytes: 1024 }
    }
}

/// Why settings make no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A limit that is zero or too high.
    #[error("{name} must be {least} to {most}, not {found}")]
    Limit {
        /// The setting.
        name: &'static str,
        /// Its lowest value.
        least: u64,
        /// Its highest value.
        most: u64,
        /// What was given.
        found: u64,
    },
}

impl Settings {
    /// Looks whether these settings make a store.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let value_most = self.max_value_bytes.into();
        // Keys that are filled in have 17 bytes.
        let key_least = if self.fill_keys == 0 { 1 } else { self.fill_key(0).len() as u64 };
        let limits = [
            ("max_key_bytes", u64::from(self.max_key_bytes), key_least, 4096),
            ("max_value_bytes", value_most, 1, 1 << 20),
            ("fill_keys", self.fill_keys, 0, 1_000_000_000_000),
            ("fill_value_bytes", self.fill_value_bytes.into(), 0, value_most.max(1024)),
        ];
        for (name, found, least, most) in limits {
            if !(least..=most).contains(&found) {
                return Err(SettingsError::Limit { name, least, most, found });
            }
        }
        Ok(())
    }

    /// The i-th key that the store begins with: `fill/` and the number in twelve digits.
    #[must_use]
    pub fn fill_key(&self, i: u64) -> Vec<u8> {
        format!("fill/{i:012}").into_bytes()
    }

    /// Its value: `fill_value_bytes` bytes that no compressor makes smaller, a function of `i`.
    #[must_use]
    pub fn fill_value(&self, i: u64) -> Vec<u8> {
        let size = self.fill_value_bytes as usize;
        // SplitMix64: an equidistributed sequence of words, mixed.
        let mut state = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let mut value = Vec::with_capacity(size.next_multiple_of(8));
        while value.len() < size {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            value.extend_from_slice(&(z ^ z >> 31).to_le_bytes());
        }
        value.truncate(size);
        value
    }
}
