//! ECDSA over P-256 with SHA-256, by aws-lc. Key and signature have one form, as over secp256k1: the
//! uncompressed point, and of the two signatures that hold the one whose s is at most half the order.

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

/// The order of the curve's points, most significant byte first (FIPS 186-5, SP 800-186).
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
    0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// a - b, for a of at least b, most significant byte first.
fn minus(a: &[u8; 32], b: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let mut borrow = false;
    for i in (0..32).rev() {
        let (difference, under) = a[i].overflowing_sub(b[i]);
        let (difference, under_again) = difference.overflowing_sub(borrow.into());
        out[i] = difference;
        borrow = under || under_again;
    }
    out
}

/// Of the two signatures that hold together, the one that is taken; nothing when there are none.
pub(super) fn with_low_s(signature: &[u8; 64]) -> Option<[u8; 64]> {
    let (r, s) = signature.split_at(32);
    if s >= &ORDER[..] {
        return None;
    }
    let other = minus(&ORDER, s);
    [r, s.min(&other)].concat().try_into().ok()
}

fn has_low_s(signature: &[u8]) -> bool {
    <&[u8; 64]>::try_from(signature).is_ok_and(|bytes| with_low_s(bytes) == Some(*bytes))
}

/// The library also takes compressed and hybrid points; a key has one form here.
fn is_uncompressed(key: &[u8]) -> bool {
    key.len() == UNCOMPRESSED && key[0] == 4
}

pub(crate) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    is_uncompressed(key)
        && has_low_s(signature)
        && UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature).is_ok()
}

pub(super) fn is_public_key(key: &[u8]) -> bool {
    is_uncompressed(key) && ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).is_ok()
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
        let signature = signature.expect("a P-256 key signs any message");
        let low = signature.as_ref().try_into().ok().and_then(with_low_s);
        low.expect("r and s of 32 bytes, s below the order").to_vec()
    }
}
