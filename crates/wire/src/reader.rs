//! A cursor over received bytes that can only be used strictly.

use crate::DecodeError;
use bytes::{Buf, Bytes};
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
/// Numbers are read without touching the allocation's reference count.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    at: usize,
    suite: Suite,
}

impl Reader {
    /// Starts at the beginning of `bytes`; digests inside are of `suite`.
    #[must_use]
    pub fn new(bytes: Bytes, suite: Suite) -> Self {
        Self { bytes, at: 0, suite }
    }

    /// The suite whose hash names content.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What is left, to look at.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// When fewer are left; `what` says of what.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        if n > self.remaining() {
            return Err(DecodeError::Truncated(what));
        }
        let taken = self.bytes.slice(self.at..self.at + n);
        self.at += n;
        Ok(taken)
    }

    /// Takes everything that is left.
    pub fn take_rest(&mut self) -> Bytes {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.advance(std::mem::take(&mut self.at));
        bytes
    }

    /// Takes a fixed number of bytes as an array.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = &self.bytes[self.at..];
        let head = *rest.first_chunk::<N>().ok_or(DecodeError::Truncated(what))?;
        self.at += N;
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
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}
