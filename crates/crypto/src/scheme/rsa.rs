//! RSA-2048, PKCS#1 v1.5 with SHA-256, by aws-lc.

use super::SchemeError;
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

pub(crate) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    signature.len() == MODULUS
        && UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(message, signature)
            .is_ok()
}

pub(super) fn is_public_key(key: &[u8]) -> bool {
    // Two DER heads and an exponent leave the modulus of a key with this one's bytes 256 of them.
    (266..=273).contains(&key.len())
        && ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).is_ok()
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
        if pair.public_modulus_len() != MODULUS {
            return Err(bad);
        }
        Ok(Self(pair))
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
