//! A cursor over received bytes that can only be used strictly.

use crate::DecodeError;
use bytes::Bytes;
use tercio_types::{Digest, Suite};

/// A value with one canonical encoding.
pub trait Encode {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// The encoding alone.
    fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }
}

/// A value that can be read back.
pub trait Decode: Sized {
    /// Reads the value and leaves the cursor behind it.
    ///
    /// # Errors
    /// When the bytes are no canonical encoding.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError>;

    /// Reads the value from all of `bytes`.
    ///
    /// # Errors
    /// When the bytes are no canonical encoding, or more than one.
    fn from_bytes(bytes: &Bytes, suite: Suite) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes.clone(), suite);
        let value = Self::decode(&mut input)?;
        input.finish()?;
        Ok(value)
    }
}

/// A cursor over shared bytes. What it hands out are slices of the same allocation, never copies.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    suite: Suite,
}

impl Reader {
    /// Starts at the beginning of `bytes`; digests inside are of `suite`.
    #[must_use]
    pub fn new(bytes: Bytes, suite: Suite) -> Self {
        Self { bytes, suite }
    }

    /// The suite whose hash names content.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// What is left, without taking it.
    #[must_use]
    pub fn rest(&self) -> &Bytes {
        &self.bytes
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// When fewer are left; `what` says of what.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        if n > self.bytes.len() {
            return Err(DecodeError::Truncated(what));
        }
        Ok(self.bytes.split_to(n))
    }

    /// Takes everything that is left.
    pub fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes)
    }

    /// Takes a fixed number of bytes as an array.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let head = *self.bytes.first_chunk::<N>().ok_or(DecodeError::Truncated(what))?;
        let _ = self.bytes.split_to(N);
        Ok(head)
    }

    /// Takes a byte.
    ///
    /// # Errors
    /// When none is left.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// Takes a 16-bit integer.
    ///
    /// # Errors
    /// When fewer bytes are left.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Takes a 32-bit integer.
    ///
    /// # Errors
    /// When fewer bytes are left.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Takes a 64-bit integer.
    ///
    /// # Errors
    /// When fewer bytes are left.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Takes a flag: 0 or 1, nothing else.
    ///
    /// # Errors
    /// When the byte is missing or another.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown { what, found: other.into() }),
        }
    }

    /// Takes a digest.
    ///
    /// # Errors
    /// When fewer bytes are left.
    pub fn digest(&mut self, what: &'static str) -> Result<Digest, DecodeError> {
        self.array(what).map(Digest)
    }

    /// Takes a 32-bit count of entries of at least `least` bytes each. A count that the bytes
    /// left could not hold is refused before anything is allocated for it.
    ///
    /// # Errors
    /// When the count is missing, above `limit`, or above what is left.
    pub fn count(
        &mut self,
        least: usize,
        limit: usize,
        what: &'static str,
    ) -> Result<usize, DecodeError> {
        let count = self.u32(what)? as usize;
        if count > limit {
            return Err(DecodeError::TooLong { what, found: count as u64, limit: limit as u64 });
        }
        if count.saturating_mul(least) > self.remaining() {
            return Err(DecodeError::Truncated(what));
        }
        Ok(count)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// When bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}
