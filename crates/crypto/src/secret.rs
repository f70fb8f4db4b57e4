//! A principal's secret: an Ed25519 seed, from which the signing key and the static
//! Diffie-Hellman key come.

use crate::Hasher;
use curve25519_dalek::{edwards::CompressedEdwardsY, montgomery::MontgomeryPoint};
use ed25519_zebra::{SigningKey, VerificationKey};
use sha2::{Digest as _, Sha512};
use subtle::ConstantTimeEq;
use tercio_types::{PublicKey, SignatureBytes, Suite};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The public key is no point of the curve, or one of small order that agrees with anybody.
    #[error("the public key is not a usable Ed25519 key")]
    BadPublicKey,
    /// The text is no secret key file.
    #[error("expected a secret key file: 'tercio-secret-key 1' and 64 hexadecimal digits")]
    BadSecretFile,
    /// The text or the bytes are no key of the scheme in a form that is read.
    #[error("not a key of this scheme: PEM with PKCS#8, SEC 1 or SubjectPublicKeyInfo is read")]
    Malformed,
    /// The number is no secret key of its scheme.
    #[error("the number of a secret key is out of range")]
    OutOfRange,
    /// The system gave no randomness.
    #[error("the operating system gave no randomness")]
    NoRandomness,
}

/// A secret key. Its memory is wiped on drop; it has no `Debug` that shows it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey {
    seed: [u8; 32],
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

const FILE_HEADER: &str = "tercio-secret-key 1";

impl SecretKey {
    /// A fresh key from the operating system's randomness.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| KeyError::NoRandomness)?;
        Ok(Self { seed })
    }

    /// The key of a known seed: for tests and for keys derived elsewhere.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self { seed }
    }

    /// The text to keep in a file of mode 0600.
    #[must_use]
    pub fn to_file_text(&self) -> Zeroizing<String> {
        let mut text = String::with_capacity(96);
        text.push_str(FILE_HEADER);
        text.push('\n');
        for byte in self.seed {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(nibble.into(), 16).expect("a nibble"));
            }
        }
        text.push('\n');
        Zeroizing::new(text)
    }

    /// Reads what [`Self::to_file_text`] wrote.
    ///
    /// # Errors
    /// When the text is anything else.
    pub fn from_file_text(text: &str) -> Result<Self, KeyError> {
        let hex = text
            .strip_prefix(FILE_HEADER)
            .and_then(|rest| rest.strip_prefix('\n'))
            .map(|rest| rest.strip_suffix('\n').unwrap_or(rest))
            .ok_or(KeyError::BadSecretFile)?;
        let seed: tercio_types::Digest = hex.parse().map_err(|_| KeyError::BadSecretFile)?;
        Ok(Self { seed: seed.0 })
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let key: [u8; 32] = VerificationKey::from(&self.signing()).into();
        PublicKey::new(&key).expect("32 bytes")
    }

    fn signing(&self) -> SigningKey {
        SigningKey::from(self.seed)
    }

    /// Signs `message`. Deterministic (RFC 8032).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> SignatureBytes {
        let bytes: [u8; 64] = self.signing().sign(message).into();
        SignatureBytes::new(&bytes).expect("64 bytes")
    }

    /// The static X25519 secret of this identity: the scalar that Ed25519 derives from the seed.
    #[must_use]
    pub fn x25519(&self) -> Zeroizing<[u8; 32]> {
        let wide = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(self.seed)));
        Zeroizing::new(*wide.first_chunk().expect("64 bytes"))
    }

    /// The secret that this identity shares with the holder of `peer`: static Diffie-Hellman, so
    /// that both know it without a message and after every restart.
    ///
    /// # Errors
    /// When `peer` is no usable key.
    pub fn link_secret(&self, peer: &PublicKey) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let point = MontgomeryPoint(x25519_public(peer)?);
        let shared = Zeroizing::new(point.mul_clamped(*self.x25519()).to_bytes());
        if bool::from(shared.ct_eq(&[0; 32])) {
            return Err(KeyError::BadPublicKey);
        }
        Ok(shared)
    }

    /// A key derived from this one for another purpose.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> Self {
        let mut hasher = Hasher::new(Suite::default());
        hasher.update(b"tercio derived key 1");
        hasher.update(&self.seed);
        hasher.update(purpose);
        Self { seed: hasher.finish().0 }
    }
}

/// The X25519 form of an identity's public key (the birational map of RFC 7748).
///
/// # Errors
/// When the key is no point of the curve.
pub fn x25519_public(key: &PublicKey) -> Result<[u8; 32], KeyError> {
    let compressed = CompressedEdwardsY::from_slice(key.as_slice());
    let point = compressed.ok().and_then(|c| c.decompress()).ok_or(KeyError::BadPublicKey)?;
    if point.is_small_order() {
        return Err(KeyError::BadPublicKey);
    }
    Ok(point.to_montgomery().to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_the_same_link_secret() {
        let (a, b) = (SecretKey::from_seed([1; 32]), SecretKey::from_seed([2; 32]));
        let ab = a.link_secret(&b.public()).unwrap();
        assert_eq!(*ab, *b.link_secret(&a.public()).unwrap());
        let c = SecretKey::from_seed([3; 32]);
        assert_ne!(*ab, *a.link_secret(&c.public()).unwrap());
    }

    #[test]
    fn small_order_and_garbage_keys_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        let a = SecretKey::from_seed([1; 32]);
        for bad in [&identity[..], &[2; 32], &[0; 31], &[]] {
            let key = PublicKey::new(bad).unwrap();
            assert_eq!(a.link_secret(&key).unwrap_err(), KeyError::BadPublicKey, "{bad:?}");
        }
    }

    #[test]
    fn file_text_round_trips_and_nothing_prints_the_secret() {
        let key = SecretKey::generate().unwrap();
        let text = key.to_file_text();
        assert_eq!(SecretKey::from_file_text(&text).unwrap().public(), key.public());
        assert_eq!(format!("{key:?}"), "SecretKey(..)");
        for bad in ["", "tercio-secret-key 2\n00", &text[..40], &format!("{}x", &*text)] {
            assert!(SecretKey::from_file_text(bad).is_err(), "{bad:?}");
        }
    }
}
