//! ECDSA over P-256 with SHA-256, by aws-lc.

use super::SchemeError;
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    ParsedPublicKey, UnparsedPublicKey,
};
use pkcs8::ObjectIdentifier;
use pkcs8::der::Encode;
use tercio_types::Scheme;
use zeroize::Zeroizing;

const CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

const UNCOMPRESSED: usize = 65;

pub(crate) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    // The library also takes compressed points; a key has one form here.
    key.len() == UNCOMPRESSED
        && UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature).is_ok()
}

pub(super) fn is_public_key(key: &[u8]) -> bool {
    key.len() == UNCOMPRESSED && ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).is_ok()
}

/// A private key.
pub(super) struct Secret(EcdsaKeyPair);

impl Secret {
    pub(super) fn generate() -> Result<Self, SchemeError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        pair.map(Self).map_err(|_| SchemeError::Generate(Scheme::EcdsaP256))
    }

    pub(super) fn from_scalar(scalar: &[u8]) -> Result<Self, SchemeError> {
        let bad = SchemeError::BadPrivateKey(Scheme::EcdsaP256);
        let key = sec1::EcPrivateKey {
            private_key: scalar,
            parameters: Some(sec1::EcParameters::NamedCurve(CURVE)),
            public_key: None,
        };
        let der = Zeroizing::new(key.to_der().map_err(|_| bad)?);
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der);
        pair.map(Self).map_err(|_| bad)
    }

    pub(super) fn scalar(&self) -> Result<Zeroizing<[u8; 32]>, SchemeError> {
        let bad = SchemeError::BadPrivateKey(Scheme::EcdsaP256);
        let scalar: EcPrivateKeyBin<'_> = self.0.private_key().as_be_bytes().map_err(|_| bad)?;
        Ok(Zeroizing::new(scalar.as_ref().try_into().map_err(|_| bad)?))
    }

    pub(super) fn public(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&SystemRandom::new(), message);
        signature.expect("a P-256 key signs any message").as_ref().to_vec()
    }
}
