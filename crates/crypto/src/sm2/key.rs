//! Keys, user ids and Z, the digest that binds a signature to both.

use super::comb::{Comb, Form};
use super::limbs;
use super::order::{N, Scalar};
use super::point::{Affine, B};
use super::signature::Signature;
use crate::KeyError;
use crate::hmac::Hmac;
use crate::many::{HashInput, Start, digest_many};
use crate::sm3::{Many, Sm3, start_after};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Why bytes are no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an SM2 public key: 0x04, x and y of a point of the curve")]
pub struct MalformedKey;

/// A point of the curve that is not at infinity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey {
    pub(super) point: Affine,
    bytes: [u8; Self::BYTES],
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sm2::PublicKey(")?;
        self.bytes[1..5].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..)")
    }
}

impl PublicKey {
    /// Length of the one encoding that is taken: 0x04, x, y.
    pub const BYTES: usize = 65;

    /// Reads the uncompressed form of SEC 1. No other is taken (compressed and hybrid forms would
    /// give one key several encodings), and every coordinate must be below p and the point on the
    /// curve.
    ///
    /// # Errors
    /// When that is not so.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedKey> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| MalformedKey)?;
        let ([4, coordinates @ ..], true) = (&bytes, bytes.len() == Self::BYTES) else {
            return Err(MalformedKey);
        };
        let (&[x, y], []) = coordinates.as_chunks::<32>() else { return Err(MalformedKey) };
        let point = Affine::new(&limbs::from_be_bytes(&x), &limbs::from_be_bytes(&y));
        Ok(Self { point: point.ok_or(MalformedKey)?, bytes })
    }

    pub(super) fn from_point(point: Affine) -> Self {
        let mut bytes = [4; Self::BYTES];
        bytes[1..33].copy_from_slice(&limbs::to_be_bytes(&point.x.to_limbs()));
        bytes[33..].copy_from_slice(&limbs::to_be_bytes(&point.y.to_limbs()));
        Self { point, bytes }
    }

    /// The encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }
}

/// Who signs, as SM2 has it: bytes that both sides agree on and that enter every digest.
#[derive(Clone, Debug)]
pub struct UserId {
    /// Of what stands before the key's coordinates: the whole blocks, hashed,
    start: Start,
    /// and the rest.
    rest: Vec<u8>,
}

impl Default for UserId {
    /// `1234567812345678`, which GB/T 35276 and OpenSSL's and GmSSL's tools use.
    fn default() -> Self {
        Self::new(b"1234567812345678").expect("it is short")
    }
}

impl UserId {
    /// An id of at most 8,191 bytes: its length in bits must fit 16 bits.
    #[must_use]
    pub fn new(id: &[u8]) -> Option<Self> {
        let bits = u16::try_from(id.len().checked_mul(8)?).ok()?;
        let g = PublicKey::from_point(Affine::GENERATOR);
        let a = limbs::sub(&super::field::P, &[3, 0, 0, 0]).0;
        let mut bytes = bits.to_be_bytes().to_vec();
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(&limbs::to_be_bytes(&a));
        bytes.extend_from_slice(&limbs::to_be_bytes(&B));
        bytes.extend_from_slice(&g.as_bytes()[1..]);
        let (start, rest) = start_after(&bytes);
        Some(Self { rest: rest.to_vec(), start })
    }

    /// What the keys' coordinates come after: hashed blocks, and bytes.
    pub(super) fn before_key(&self) -> (&Start, &[u8]) {
        (&self.start, &self.rest)
    }

    /// Z of a key under this id.
    #[must_use]
    pub fn z(&self, key: &PublicKey) -> [u8; 32] {
        let message = HashInput { head: &self.rest, body: &key.as_bytes()[1..] };
        digest_many::<Many>(&self.start, &[message])[0]
    }

    /// The digest that is signed: of Z and the message.
    #[must_use]
    pub fn digest(&self, key: &PublicKey, message: &[u8]) -> [u8; 32] {
        Sm3::digest(&[&self.z(key), message])
    }
}

/// A secret key. Its memory is wiped on drop, and no `Debug` shows it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey {
    d: Scalar,
    /// 1 / (1 + d).
    inverse: Scalar,
    #[zeroize(skip)]
    public: PublicKey,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sm2::SecretKey(..)")
    }
}

impl SecretKey {
    /// A fresh key from the operating system's randomness.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn generate() -> Result<Self, KeyError> {
        loop {
            let mut bytes = Zeroizing::new([0; 32]);
            getrandom::fill(&mut *bytes).map_err(|_| KeyError::NoRandomness)?;
            if let Ok(key) = Self::from_bytes(&bytes) {
                return Ok(key);
            }
        }
    }

    /// The key of a number from 1 to n - 2, most significant byte first.
    ///
    /// # Errors
    /// When the number is out of range.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let d = Scalar::from_be_bytes(bytes).ok_or(KeyError::OutOfRange)?;
        let next = d.add(&Scalar::ONE);
        if d.is_zero() || next.is_zero() {
            return Err(KeyError::OutOfRange);
        }
        let point = Comb::generator(Form::Scalar).secret_multiple(&d);
        Ok(Self { inverse: next.invert(), d, public: PublicKey::from_point(point) })
    }

    /// The number, most significant byte first.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.d.to_be_bytes())
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message in the name of `user`. Deterministic: the nonce comes from the key and the
    /// digest by RFC 6979 with HMAC-SM3, so a broken source of randomness cannot give the key away.
    /// No branch and no address depends on a secret.
    #[must_use]
    pub fn sign(&self, user: &UserId, message: &[u8]) -> Signature {
        self.sign_digest(&user.digest(&self.public, message))
    }

    /// Signs a digest made elsewhere ([`UserId::digest`]).
    #[must_use]
    pub fn sign_digest(&self, digest: &[u8; 32]) -> Signature {
        let mut nonces = Nonces::new(&self.d, digest);
        loop {
            let mut k = nonces.next_nonce();
            let signature = self.sign_with(digest, &k);
            k.zeroize();
            if let Some(signature) = signature {
                return signature;
            }
        }
    }

    /// GB/T 32918.2, section 6.1, steps A4 to A6; nothing for the few nonces that it rejects.
    pub(super) fn sign_with(&self, digest: &[u8; 32], k: &Scalar) -> Option<Signature> {
        let x = Comb::generator(Form::Scalar).secret_multiple(k).x.to_limbs();
        let r = Scalar::reduce(digest).add(&Scalar::reduce_limbs(&x));
        let mut sum = r.add(k);
        // (k - r d) / (1 + d) = (k + r) / (1 + d) - r.
        let s = sum.mul(&self.inverse).sub(&r);
        let usable = !sum.is_zero();
        sum.zeroize();
        if usable { Signature::new(r, s) } else { None }
    }
}

/// The nonces of RFC 6979, section 3.2, with HMAC-SM3 and the order n.
struct Nonces {
    key: Zeroizing<[u8; 32]>,
    value: Zeroizing<[u8; 32]>,
    first: bool,
}

impl Nonces {
    fn new(d: &Scalar, digest: &[u8; 32]) -> Self {
        let secret = Zeroizing::new(d.to_be_bytes());
        let digest = Scalar::reduce(digest).to_be_bytes();
        let mut this =
            Self { key: Zeroizing::new([0; 32]), value: Zeroizing::new([1; 32]), first: true };
        for separator in [0, 1] {
            this.step(&[&[separator], &*secret, &digest]);
        }
        this
    }

    fn step(&mut self, input: &[&[u8]]) {
        let parts: Vec<&[u8]> =
            std::iter::once(&self.value[..]).chain(input.iter().copied()).collect();
        let text = Zeroizing::new(parts.concat());
        *self.key = self.code(&text);
        *self.value = self.code(&*self.value);
    }

    /// The code of `text` under the key as it is now.
    fn code(&self, text: &[u8]) -> [u8; 32] {
        Hmac::<Many>::new(&*self.key).code(&HashInput { head: &[], body: text })
    }

    fn next_nonce(&mut self) -> Scalar {
        loop {
            if !std::mem::take(&mut self.first) {
                self.step(&[&[0]]);
            }
            *self.value = self.code(&*self.value);
            if let Some(k) = Scalar::from_be_bytes(&self.value)
                && !k.is_zero()
            {
                return k;
            }
        }
    }
}

/// The order of the group, most significant byte first.
#[must_use]
pub fn order() -> [u8; 32] {
    limbs::to_be_bytes(&N)
}
