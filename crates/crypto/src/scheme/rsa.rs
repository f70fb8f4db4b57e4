//! RSA-2048, PKCS#1 v1.5 with SHA-256, by aws-lc.
//!
//! A key is the DER `RSAPublicKey { modulus, publicExponent }` of RFC 8017 and nothing else: the
//! library also takes one inside of a SubjectPublicKeyInfo, which would be another name of the same
//! key. The modulus is odd and has exactly 2048 bits, since every signature has 256 bytes here; the
//! exponent is odd, above 1 and of at most 33 bits, the most that the library computes with.

use super::SchemeError;
use super::pair::two_numbers;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
    UnparsedPublicKey,
};
use tercio_types::Scheme;

/// The bytes of a modulus, and so of a signature: a key of another size verifies nothing.
const MODULUS: usize = 256;
/// The most bits of an exponent.
const EXPONENT_BITS: u32 = 33;

/// Whether it is a key's one form, with numbers of the sizes that are taken.
fn has_form(key: &[u8]) -> bool {
    let Some([modulus, exponent]) = two_numbers(key) else { return false };
    let (modulus, exponent) = (modulus.as_bytes(), exponent.as_bytes());
    let sized = modulus.len() == MODULUS && modulus[0] >= 0x80 && modulus[MODULUS - 1] % 2 == 1;
    let mut padded = [0; 8];
    let Some(start) = padded.len().checked_sub(exponent.len()) else { return false };
    padded[start..].copy_from_slice(exponent);
    let exponent = u64::from_be_bytes(padded);
    sized && exponent % 2 == 1 && exponent > 1 && exponent < 1 << EXPONENT_BITS
}

pub(crate) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    signature.len() == MODULUS
        && has_form(key)
        && UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(message, signature)
            .is_ok()
}

pub(super) fn is_public_key(key: &[u8]) -> bool {
    has_form(key) && ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).is_ok()
}

/// A private key.
pub(super) struct Secret(RsaKeyPair);

impl Secret {
    pub(super) fn generate() -> Result<Self, SchemeError> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048);
        pair.map(Self).map_err(|_| SchemeError::Generate(Scheme::Rsa2048))
    }

    pub(super) fn from_pkcs8(der: &[u8]) -> Result<Self, SchemeError> {
        let bad = SchemeError::BadPrivateKey(Scheme::Rsa2048);
        let pair = RsaKeyPair::from_pkcs8(der).map_err(|_| bad)?;
        let secret = Self(pair);
        if is_public_key(&secret.public()) { Ok(secret) } else { Err(bad) }
    }

    pub(super) fn to_pkcs8(&self) -> Result<Vec<u8>, SchemeError> {
        let der: Result<Pkcs8V1Der<'_>, _> = self.0.as_der();
        let der = der.map_err(|_| SchemeError::Generate(Scheme::Rsa2048))?;
        Ok(der.as_ref().to_vec())
    }

    pub(super) fn public(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; MODULUS];
        let signed = self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.expect("an RSA key signs any message");
        signature
    }
}
