//! Signature schemes: what a verdict is, for each.
//!
//! Whoever holds the key of a scheme in `scheme/` signs with a [`SigningSecret`]; everybody checks
//! with [`crate::verify`]. Replicas sign with their identities ([`crate::SecretKey`]); a client
//! may sign its packages with a key of another scheme.
//!
//! One verdict everywhere is the rule: a key or signature that is malformed in any way is bad, and
//! each scheme has one form of a key, which is what [`SigningSecret::public`] gives. A second form
//! would give one key two identities. It is refused where a key comes in ([`public_key`]), and no
//! signature holds under it ([`crate::verify`]).
//!
//! ```text
//! scheme     public key                                 signature
//! ed25519    32 B (RFC 8032), y below p,                64 B (ZIP-215)
//!            not of small order
//! sm2        65 B: 4 | x | y (SEC 1), below p           64 B: r | s
//! p256       65 B: 4 | x | y (SEC 1), below p           64 B: r | s, s at most half the order
//! secp256k1  65 B: 4 | x | y (SEC 1), below p           64 B: r | s, s at most half the order
//! rsa        DER RSAPublicKey (RFC 8017), a modulus     256 B
//!            of 2048 bits, an odd exponent from 3 on
//!            of at most 33 bits
//! ```
//!
//! An Ed25519 key must also lie in the subgroup of prime order, as every key does that RFC 8032
//! makes: of A + T, for T of small order, A's secret is the secret too. That takes a multiplication,
//! and so [`public_key`] alone looks at it.

mod p256;
mod pair;
mod pem;
mod rsa;
mod secp256k1;

pub(crate) use p256::verify as verify_p256;
pub(crate) use rsa::verify as verify_rsa;
pub(crate) use secp256k1::verify as verify_secp256k1;

pub use pair::{signature_from_der, signature_to_der};
pub use pem::{public_from_pem, public_to_der, public_to_pem};

use crate::{SecretKey, sm2};
use tercio_types::{PublicKey, Scheme, SignatureBytes, SigningKey, Suite};
use thiserror::Error;

/// Why a signing key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// The bytes are no private key of the scheme.
    #[error("this is no {} private key in PKCS#8 (its public key is {})", .0.name(), form(*.0))]
    BadPrivateKey(Scheme),
    /// The bytes are no public key of the scheme, or not in its one form.
    #[error("this is no usable {} public key: {}", .0.name(), form(*.0))]
    BadPublicKey(Scheme),
    /// The bytes are no signature of the scheme.
    #[error("this is no {} signature", .0.name())]
    BadSignature(Scheme),
    /// The text is no public key.
    #[error(
        "a public key is its scheme's name (ed25519, sm2, p256, secp256k1 or rsa), a colon, and \
         hexadecimal digits"
    )]
    BadText,
    /// The text is no PEM of a known kind.
    #[error(
        "expected a PEM file with one private key: PRIVATE KEY (PKCS#8), or EC PRIVATE KEY (SEC 1)"
    )]
    BadPem,
    /// The library could not make a key.
    #[error("no {} key could be made", .0.name())]
    Generate(Scheme),
}

/// The one form of a public key, in words.
fn form(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Ed25519 => "32 bytes as RFC 8032 writes a point of the subgroup of prime order",
        Scheme::Rsa2048 => {
            "a DER RSAPublicKey (PKCS#1, not SubjectPublicKeyInfo) with a modulus of 2048 bits and \
             an odd exponent from 3 on of at most 33 bits"
        }
        _ => "65 bytes, 04 before both coordinates of a point (not compressed, not hybrid)",
    }
}

/// A key that signs packages under some scheme.
pub struct SigningSecret(Secret);

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningSecret({:?}, ..)", self.scheme())
    }
}

enum Secret {
    /// Ed25519 or SM2: an identity's key.
    Identity(Box<SecretKey>),
    EcdsaP256(p256::Secret),
    Secp256k1(secp256k1::Secret),
    Rsa2048(Box<rsa::Secret>),
}

impl From<SecretKey> for SigningSecret {
    fn from(identity: SecretKey) -> Self {
        Self(Secret::Identity(Box::new(identity)))
    }
}

impl SigningSecret {
    /// A fresh key.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn generate(scheme: Scheme) -> Result<Self, SchemeError> {
        let failed = |_| SchemeError::Generate(scheme);
        let identity = |suite| SecretKey::generate_for(suite).map(Self::from).map_err(failed);
        Ok(Self(match scheme {
            Scheme::Ed25519 => return identity(Suite::Sha256Ed25519),
            Scheme::Sm2 => return identity(Suite::Sm3Sm2),
            Scheme::EcdsaP256 => Secret::EcdsaP256(p256::Secret::generate()?),
            Scheme::Secp256k1 => Secret::Secp256k1(secp256k1::Secret::generate()?),
            Scheme::Rsa2048 => Secret::Rsa2048(Box::new(rsa::Secret::generate()?)),
            _ => unreachable!("a scheme is made only from a name that this build knows"),
        }))
    }
}

impl SigningSecret {
    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        match &self.0 {
            Secret::Identity(key) => key.suite().scheme(),
            Secret::EcdsaP256(_) => Scheme::EcdsaP256,
            Secret::Secp256k1(_) => Scheme::Secp256k1,
            Secret::Rsa2048(_) => Scheme::Rsa2048,
        }
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> SigningKey {
        let key = match &self.0 {
            Secret::Identity(key) => {
                return SigningKey { scheme: self.scheme(), key: key.public() };
            }
            Secret::EcdsaP256(key) => key.public(),
            Secret::Secp256k1(key) => key.public(),
            Secret::Rsa2048(key) => key.public(),
        };
        let key = PublicKey::new(&key).expect("every scheme's keys fit");
        SigningKey { scheme: self.scheme(), key }
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> SignatureBytes {
        let signature = match &self.0 {
            Secret::Identity(key) => return key.sign(message),
            Secret::EcdsaP256(key) => key.sign(message),
            Secret::Secp256k1(key) => key.sign(message),
            Secret::Rsa2048(key) => key.sign(message),
        };
        SignatureBytes::new(&signature).expect("every scheme's signatures fit")
    }
}

/// A public key of a scheme, if it is one in its one form: what a genesis may name.
///
/// # Errors
/// When it is none, or the key has another form that is taken: no signature holds under it then.
pub fn public_key(scheme: Scheme, bytes: &[u8]) -> Result<SigningKey, SchemeError> {
    let usable = match scheme {
        Scheme::Ed25519 => crate::agreement::is_ed25519(bytes),
        Scheme::Sm2 => sm2::PublicKey::from_bytes(bytes).is_ok(),
        Scheme::EcdsaP256 => p256::is_public_key(bytes),
        Scheme::Secp256k1 => secp256k1::is_public_key(bytes),
        Scheme::Rsa2048 => rsa::is_public_key(bytes),
        _ => false,
    };
    let key = PublicKey::new(bytes).filter(|_| usable);
    key.map(|key| SigningKey { scheme, key }).ok_or(SchemeError::BadPublicKey(scheme))
}

/// The bytes of lower-case hexadecimal digits; `None` when the text is none.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// An identity of `suite` as files write it: its public key in lower-case hexadecimal digits.
///
/// # Errors
/// When the text is none.
pub fn identity_from_text(suite: Suite, text: &str) -> Result<PublicKey, SchemeError> {
    let scheme = suite.scheme();
    let bytes = from_hex(text).ok_or(SchemeError::BadPublicKey(scheme))?;
    Ok(public_key(scheme, &bytes)?.key)
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("a nibble");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A public key as files write it: its bytes in lower-case hexadecimal digits.
#[must_use]
pub fn key_text(key: &PublicKey) -> String {
    to_hex(key.as_slice())
}

/// A signing key as files write it: the scheme's name, a colon, and the key in hexadecimal digits.
///
/// # Errors
/// When the text is none.
pub fn signing_key_from_text(text: &str) -> Result<SigningKey, SchemeError> {
    let (scheme, digits) = text.split_once(':').ok_or(SchemeError::BadText)?;
    let scheme = Scheme::from_name(scheme).ok_or(SchemeError::BadText)?;
    let bytes = from_hex(digits).ok_or(SchemeError::BadPublicKey(scheme))?;
    public_key(scheme, &bytes)
}

/// The text of a signing key; see [`signing_key_from_text`].
#[must_use]
pub fn signing_key_text(key: &SigningKey) -> String {
    format!("{}:{}", key.scheme.name(), key_text(&key.key))
}

#[cfg(test)]
mod forms;
#[cfg(test)]
mod openssl;
#[cfg(test)]
mod vectors;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SignatureItem, verify, verify_batch};

    fn good(key: &SigningKey, message: &[u8], signature: &[u8]) -> bool {
        let Some(signature) = SignatureBytes::new(signature) else { return false };
        let item = SignatureItem { key, message, signature: &signature };
        let verdict = verify(&item);
        assert_eq!(verify_batch(&[item]), [verdict], "a batch of one");
        verdict
    }

    #[test]
    fn each_scheme_signs_and_nothing_altered_holds() {
        for scheme in Scheme::ALL {
            let secret = SigningSecret::generate(scheme).unwrap();
            let (key, message) = (secret.public(), b"a message");
            assert_eq!((secret.scheme(), key.scheme), (scheme, scheme));
            let signature = secret.sign(message).as_slice().to_vec();
            assert!(good(&key, message, &signature), "{scheme:?}");
            assert!(!good(&key, b"another", &signature));
            for at in [0, 31, 32, signature.len() - 1] {
                let mut bad = signature.clone();
                bad[at] ^= 1;
                assert!(!good(&key, message, &bad), "{scheme:?}, byte {at}");
            }
            for len in [0, 1, signature.len() - 1] {
                assert!(!good(&key, message, &signature[..len]));
            }
            assert!(!good(&key, message, &[&signature[..], &[0]].concat()));
            for other in Scheme::ALL {
                let of = SigningKey { scheme: other, key: key.key };
                assert_eq!(good(&of, message, &signature), other == scheme, "{other:?}");
            }
        }
    }

    #[test]
    fn keys_that_are_none_are_refused_and_verify_nothing() {
        for scheme in Scheme::ALL {
            let secret = SigningSecret::generate(scheme).unwrap();
            let (key, signature) = (secret.public(), secret.sign(b"m"));
            let bytes = key.key.as_slice();
            assert_eq!(public_key(scheme, bytes), Ok(key));
            let mut bads = vec![vec![], vec![0; bytes.len()], vec![2; bytes.len()]];
            bads.extend((1..bytes.len()).map(|len| bytes[..len].to_vec()));
            bads.push([bytes, &[0]].concat());
            for bad in bads {
                assert!(public_key(scheme, &bad).is_err(), "{scheme:?}: {bad:02x?}");
                let key = PublicKey::new(&bad).unwrap();
                assert!(!good(&SigningKey { scheme, key }, b"m", signature.as_slice()));
            }
        }
    }

    #[test]
    fn a_mixed_batch_has_a_verdict_for_each() {
        let secrets: Vec<_> = (0..25)
            .map(|i| SigningSecret::generate(Scheme::ALL[i % 4]).unwrap())
            .chain([SigningSecret::generate(Scheme::Rsa2048).unwrap()])
            .collect();
        let signed: Vec<_> = secrets.iter().map(|s| (s.public(), s.sign(b"good"))).collect();
        let item = |i: usize, message: &'static [u8]| SignatureItem {
            key: &signed[i].0,
            message,
            signature: &signed[i].1,
        };
        assert!(verify_batch(&[]).is_empty());
        for bad in 0..signed.len() {
            let batch: Vec<_> = (0..signed.len())
                .map(|i| item(i, if i == bad { b"bad" } else { b"good" }))
                .collect();
            let verdicts = verify_batch(&batch);
            assert!(verdicts.iter().enumerate().all(|(i, verdict)| *verdict == (i != bad)));
        }
    }

    #[test]
    fn texts_and_pem_round_trip() {
        for scheme in Scheme::ALL {
            let secret = SigningSecret::generate(scheme).unwrap();
            let key = secret.public();
            assert_eq!(signing_key_from_text(&signing_key_text(&key)), Ok(key));
            let pem = secret.to_pem().unwrap();
            let back = SigningSecret::from_pem(&pem).unwrap();
            assert_eq!(back.public(), key);
            assert!(good(&key, b"m", back.sign(b"m").as_slice()));
            assert_eq!(format!("{secret:?}"), format!("SigningSecret({scheme:?}, ..)"));
            for cut in [0, 10, pem.len() / 2, pem.len() - 10] {
                assert!(SigningSecret::from_pem(&pem[..cut]).is_err());
            }
            assert_eq!(SigningSecret::from_pem(&pem.repeat(2)).unwrap_err(), SchemeError::BadPem);
        }
        for bad in ["", "p256", "p256:", "p255:00", "p256:0", "p256:zz", ":00", "rsa:30"] {
            assert!(signing_key_from_text(bad).is_err(), "{bad}");
        }
    }
}
