//! ECDSA over secp256k1 with SHA-256, by libsecp256k1. A signature whose s is above half the order
//! is bad: of the two that hold, one is the form.

use super::SchemeError;
use secp256k1::ecdsa::Signature;
use secp256k1::{Message, PublicKey, SecretKey};
use sha2::{Digest as _, Sha256};
use tercio_types::Scheme;
use zeroize::Zeroizing;

const UNCOMPRESSED: usize = 65;

fn digest(message: &[u8]) -> Message {
    Message::from_digest(Sha256::digest(message).into())
}

/// The library also takes compressed and hybrid points; a key has one form here.
fn parse(key: &[u8]) -> Option<PublicKey> {
    let uncompressed = key.len() == UNCOMPRESSED && key[0] == 4;
    uncompressed.then(|| PublicKey::from_slice(key).ok())?
}

pub(super) fn is_public_key(key: &[u8]) -> bool {
    parse(key).is_some()
}

pub(crate) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Some(key) = parse(key) else { return false };
    let Ok(signature) = Signature::from_compact(signature) else { return false };
    signature.verify(digest(message), &key).is_ok()
}

/// Of the two signatures that hold together, the one that is taken; nothing when there are none.
pub(super) fn with_low_s(signature: &[u8; 64]) -> Option<[u8; 64]> {
    let mut signature = Signature::from_compact(signature).ok()?;
    signature.normalize_s();
    Some(signature.serialize_compact())
}

/// A private key.
pub(super) struct Secret(SecretKey);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.non_secure_erase();
    }
}

impl Secret {
    pub(super) fn generate() -> Result<Self, SchemeError> {
        let mut bytes = Zeroizing::new([0; 32]);
        let failed = SchemeError::Generate(Scheme::Secp256k1);
        loop {
            getrandom::fill(&mut *bytes).map_err(|_| failed)?;
            // All but one in 2^127 are scalars.
            if let Ok(secret) = Self::from_scalar(&*bytes) {
                return Ok(secret);
            }
        }
    }

    pub(super) fn from_scalar(bytes: &[u8]) -> Result<Self, SchemeError> {
        let bad = SchemeError::BadPrivateKey(Scheme::Secp256k1);
        let bytes = Zeroizing::new(<[u8; 32]>::try_from(bytes).map_err(|_| bad)?);
        SecretKey::from_secret_bytes(*bytes).map(Self).map_err(|_| bad)
    }

    pub(super) fn scalar(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_secret_bytes())
    }

    pub(super) fn public(&self) -> Vec<u8> {
        PublicKey::from_secret_key(&self.0).serialize_uncompressed().to_vec()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        secp256k1::ecdsa::sign(digest(message), &self.0).serialize_compact().to_vec()
    }
}
