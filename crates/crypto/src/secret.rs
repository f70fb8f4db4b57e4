//! A principal's identity: a secret under the suite's scheme, from which signatures, links and MAC
//! keys come.
//!
//! ```text
//! suite           secret                    signs with    agrees on link secrets with
//! sha256-ed25519  seed: 32 B                Ed25519       X25519, the seed's own scalar
//! sm3-sm2         scalar: 32 B, big-endian  SM2           Diffie-Hellman on the SM2 curve
//! ```

use crate::signature::user_id;
use crate::{agreement, hash, sm2};
use ed25519_zebra::{SigningKey, VerificationKey};
use tercio_types::{Digest, PublicKey, SignatureBytes, Suite};
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The public key is no point of the curve, or one of small order that agrees with anybody.
    #[error("the public key is not a usable key of this suite")]
    BadPublicKey,
    /// The text is no secret key file.
    #[error(
        "expected a secret key file: 'tercio-secret-key 1' (or 'tercio-secret-key 1 sm2') and \
         64 hexadecimal digits"
    )]
    BadSecretFile,
    /// The number is no secret key of its scheme.
    #[error("the number of a secret key is out of range")]
    OutOfRange,
    /// The system gave no randomness.
    #[error("the operating system gave no randomness")]
    NoRandomness,
}

/// A secret key. Its memory is wiped on drop; it has no `Debug` that shows it.
#[derive(Clone)]
pub struct SecretKey(Secret);

#[derive(Clone)]
enum Secret {
    /// The seed.
    Ed25519(Zeroizing<[u8; 32]>),
    Sm2(Box<sm2::SecretKey>),
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// The first line of a secret key's file.
fn file_header(suite: Suite) -> &'static str {
    match suite {
        Suite::Sm3Sm2 => "tercio-secret-key 1 sm2\n",
        _ => "tercio-secret-key 1\n",
    }
}

impl SecretKey {
    /// A fresh key of the default suite from the operating system's randomness.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn generate() -> Result<Self, KeyError> {
        Self::generate_for(Suite::default())
    }

    /// A fresh key of `suite` from the operating system's randomness.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn generate_for(suite: Suite) -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|_| KeyError::NoRandomness)?;
        Ok(Self::derived_from(suite, &seed))
    }

    /// The default suite's key of a known seed: for tests and for keys derived elsewhere.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self::derived_from(Suite::default(), &seed)
    }

    /// The key of `suite` that a seed gives. An SM2 scalar is the first of the chain of hashes
    /// behind the seed that is in range.
    #[must_use]
    pub fn derived_from(suite: Suite, seed: &[u8; 32]) -> Self {
        let mut bytes = Zeroizing::new(*seed);
        loop {
            if suite != Suite::Sha256Ed25519 {
                *bytes = hash(suite, &[b"tercio scalar 1", &*bytes]).0;
            }
            if let Ok(key) = Self::from_bytes(suite, &bytes) {
                return key;
            }
        }
    }

    /// The key whose secret bytes these are.
    ///
    /// # Errors
    /// When they are none of this suite.
    pub fn from_bytes(suite: Suite, bytes: &[u8; 32]) -> Result<Self, KeyError> {
        Ok(Self(match suite {
            Suite::Sm3Sm2 => Secret::Sm2(Box::new(sm2::SecretKey::from_bytes(bytes)?)),
            _ => Secret::Ed25519(Zeroizing::new(*bytes)),
        }))
    }

    pub(crate) fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        match &self.0 {
            Secret::Ed25519(seed) => seed.clone(),
            Secret::Sm2(key) => key.to_bytes(),
        }
    }

    /// The suite that it is a key of.
    #[must_use]
    pub fn suite(&self) -> Suite {
        match &self.0 {
            Secret::Ed25519(_) => Suite::Sha256Ed25519,
            Secret::Sm2(_) => Suite::Sm3Sm2,
        }
    }

    /// The text to keep in a file of mode 0600.
    #[must_use]
    pub fn to_file_text(&self) -> Zeroizing<String> {
        let mut text = String::with_capacity(96);
        text.push_str(file_header(self.suite()));
        for byte in *self.to_bytes() {
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
        let found = Suite::ALL.into_iter().find_map(|suite| {
            let hex = text.strip_prefix(file_header(suite))?;
            Some((suite, hex.strip_suffix('\n').unwrap_or(hex)))
        });
        let (suite, hex) = found.ok_or(KeyError::BadSecretFile)?;
        let Digest(bytes) = hex.parse().map_err(|_| KeyError::BadSecretFile)?;
        Self::from_bytes(suite, &bytes).map_err(|_| KeyError::BadSecretFile)
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let key = match &self.0 {
            Secret::Ed25519(seed) => {
                let key: [u8; 32] = VerificationKey::from(&SigningKey::from(**seed)).into();
                PublicKey::new(&key)
            }
            Secret::Sm2(key) => PublicKey::new(key.public().as_bytes()),
        };
        key.expect("the keys of every suite fit")
    }

    /// Signs `message`. Deterministic (RFC 8032, RFC 6979).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> SignatureBytes {
        let bytes: [u8; 64] = match &self.0 {
            Secret::Ed25519(seed) => SigningKey::from(**seed).sign(message).into(),
            Secret::Sm2(key) => key.sign(user_id(), message).to_bytes(),
        };
        SignatureBytes::new(&bytes).expect("64 bytes")
    }

    /// The static Diffie-Hellman secret of this identity, for [`agreement`].
    #[must_use]
    pub fn agreement_secret(&self) -> Zeroizing<[u8; 32]> {
        match &self.0 {
            Secret::Ed25519(seed) => agreement::x25519_secret(seed),
            Secret::Sm2(key) => key.to_bytes(),
        }
    }

    /// The secret that this identity shares with the holder of `peer`: static Diffie-Hellman, so
    /// that both know it without a message and after every restart.
    ///
    /// # Errors
    /// When `peer` is no usable key.
    pub fn link_secret(&self, peer: &PublicKey) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let suite = self.suite();
        let public = agreement::public_of_identity(suite, peer)?;
        agreement::agree(suite, &self.agreement_secret(), &public).ok_or(KeyError::BadPublicKey)
    }

    /// A key derived from this one for another purpose.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> Self {
        let suite = self.suite();
        let seed = hash(suite, &[b"tercio derived key 1", &*self.to_bytes(), purpose]);
        Self::derived_from(suite, &Zeroizing::new(seed.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_the_same_link_secret() {
        for suite in Suite::ALL {
            let [a, b, c] = [1, 2, 3].map(|i| SecretKey::derived_from(suite, &[i; 32]));
            let ab = a.link_secret(&b.public()).unwrap();
            assert_eq!(*ab, *b.link_secret(&a.public()).unwrap());
            assert_ne!(*ab, *a.link_secret(&c.public()).unwrap());
        }
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
        let a = SecretKey::derived_from(Suite::Sm3Sm2, &[1; 32]);
        for bad in [&[0; 65][..], &[4; 65], &[4; 64], &[]] {
            let key = PublicKey::new(bad).unwrap();
            assert_eq!(a.link_secret(&key).unwrap_err(), KeyError::BadPublicKey, "{bad:?}");
        }
    }

    #[test]
    fn file_text_round_trips_and_nothing_prints_the_secret() {
        for suite in Suite::ALL {
            let key = SecretKey::generate_for(suite).unwrap();
            let text = key.to_file_text();
            assert_eq!(SecretKey::from_file_text(&text).unwrap().public(), key.public());
            assert_eq!(format!("{key:?}"), "SecretKey(..)");
        }
        let text = SecretKey::from_seed([7; 32]).to_file_text();
        let zero = format!("tercio-secret-key 1 sm2\n{}\n", "00".repeat(32));
        assert_eq!(SecretKey::from_file_text(&zero).unwrap_err(), KeyError::BadSecretFile);
        for bad in ["", "tercio-secret-key 2\n00", &text[..40], &format!("{}x", &*text)] {
            assert!(SecretKey::from_file_text(bad).is_err(), "{bad:?}");
        }
    }
}
