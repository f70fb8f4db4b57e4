//! Signatures: the pair (r, s).

use super::limbs;
use super::order::{N, Scalar};
use thiserror::Error;

/// Why bytes are no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an SM2 signature in its one encoding, with r and s from 1 to n - 1")]
pub struct MalformedSignature;

/// A signature whose r and s are in range. Whether it is anybody's is another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    pub(super) r: Scalar,
    pub(super) s: Scalar,
}

impl Signature {
    /// Length of `r || s`.
    pub const BYTES: usize = 64;

    /// From the numbers, when both are from 1 to n - 1.
    pub(super) fn new(r: Scalar, s: Scalar) -> Option<Self> {
        (!r.is_zero() && !s.is_zero()).then_some(Self { r, s })
    }

    /// Reads `r || s`, 32 bytes each, most significant first.
    ///
    /// # Errors
    /// When the length is another, or r or s is zero or not below n.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedSignature> {
        let (&[r, s], []) = bytes.as_chunks::<32>() else { return Err(MalformedSignature) };
        let read = |bytes| Scalar::from_be_bytes(bytes).ok_or(MalformedSignature);
        Self::new(read(&r)?, read(&s)?).ok_or(MalformedSignature)
    }

    /// Writes `r || s`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.r.to_be_bytes());
        bytes[32..].copy_from_slice(&self.s.to_be_bytes());
        bytes
    }
}

/// What is left of a signature and digest for the curve: that x of `s G + t P` is `c` modulo n.
pub(super) struct Equation {
    pub(super) s: Scalar,
    pub(super) t: Scalar,
    pub(super) c: Scalar,
}

impl Equation {
    /// The equation, unless r + s = 0 modulo n, which no signature has.
    pub(super) fn new(signature: &Signature, digest: &[u8; 32]) -> Option<Self> {
        let t = signature.r.add(&signature.s);
        let c = signature.r.sub(&Scalar::reduce(digest));
        (!t.is_zero()).then_some(Self { s: signature.s, t, c })
    }

    /// The two field elements that are `c` modulo n; twice the same when there is one only. Since
    /// n < p < 2 n these are c, and c + n when that is below p.
    pub(super) fn x(&self) -> [super::field::Fe; 2] {
        use super::field::{Fe, P};
        let c = *self.c.limbs();
        let first = Fe::from_limbs(&c);
        let (second, carry) = limbs::add(&c, &N);
        if !carry && limbs::less(&second, &P) {
            [first, Fe::from_limbs(&second)]
        } else {
            [first, first]
        }
    }
}
