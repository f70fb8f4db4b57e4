//! Key agreement on the suite's curve: what links and MAC keys stand on.
//!
//! ```text
//! suite           public                          shared
//! sha256-ed25519  X25519's u: 32 B (RFC 7748)     32 B, never zero
//! sm3-sm2         compressed point: 33 B (SEC 1)  x of the product: 32 B, big-endian
//! ```
//! An identity's public half follows from its public key.

use crate::{KeyError, SecretKey, sm2};
use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::montgomery::MontgomeryPoint;
use sha2::{Digest as _, Sha512};
use std::sync::LazyLock;
use subtle::ConstantTimeEq;
use tercio_types::{PublicKey, Suite};
use zeroize::Zeroizing;

/// The length of a public half in bytes.
#[must_use]
pub const fn public_len(suite: Suite) -> usize {
    match suite {
        Suite::Sm3Sm2 => sm2::COMPRESSED,
        _ => 32,
    }
}

/// A public half: the first [`public_len`] bytes.
pub type Public = [u8; 33];

fn padded(u: [u8; 32]) -> Public {
    let mut public = [0; 33];
    public[..32].copy_from_slice(&u);
    public
}

/// The scalar that Ed25519 derives from the seed, before clamping.
pub(crate) fn x25519_secret(seed: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    let wide = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(seed)));
    Zeroizing::new(*wide.first_chunk().expect("64 bytes"))
}

/// A secret half from 32 random bytes.
#[must_use]
pub fn secret_from_seed(suite: Suite, seed: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    match suite {
        Suite::Sm3Sm2 => SecretKey::derived_from(suite, seed).to_bytes(),
        _ => Zeroizing::new(*seed),
    }
}

/// The SM2 key of a secret half.
fn sm2_key(secret: &[u8; 32]) -> sm2::SecretKey {
    sm2::SecretKey::from_bytes(secret).expect("a secret half comes from here")
}

/// The public half of a secret one.
///
/// # Panics
/// When `secret` was made neither by [`secret_from_seed`] nor by an identity of `suite`.
#[must_use]
pub fn public_of(suite: Suite, secret: &[u8; 32]) -> Public {
    match suite {
        Suite::Sm3Sm2 => sm2_key(secret).public().compress(),
        _ => padded(MontgomeryPoint::mul_base_clamped(*secret).to_bytes()),
    }
}

/// The public half of an identity. For Ed25519 that is its X25519 form (the birational map of RFC
/// 7748).
///
/// # Errors
/// When the key is no point of the curve, or one of small order.
pub fn public_of_identity(suite: Suite, key: &PublicKey) -> Result<Public, KeyError> {
    if suite == Suite::Sm3Sm2 {
        let key = sm2::PublicKey::from_bytes(key.as_slice());
        return key.map(|key| key.compress()).map_err(|_| KeyError::BadPublicKey);
    }
    let point = edwards(key.as_slice()).ok_or(KeyError::BadPublicKey)?;
    Ok(padded(point.to_montgomery().to_bytes()))
}

/// The point of an Ed25519 key, unless it is of small order or in another encoding than RFC 8032's.
fn edwards(key: &[u8]) -> Option<EdwardsPoint> {
    has_ed25519_form(key).then(|| CompressedEdwardsY::from_slice(key).ok()?.decompress())?
}

/// Whether these bytes are a usable Ed25519 key: see [`crate::public_key`].
pub(crate) fn is_ed25519(key: &[u8]) -> bool {
    edwards(key).is_some_and(|point| point.is_torsion_free())
}

/// Whether 32 bytes are the one encoding of what they encode, and that is not of small order. Cheap:
/// it is asked at every signature, whose rules (ZIP-215) take other encodings and small orders.
pub(crate) fn has_ed25519_form(key: &[u8]) -> bool {
    static SMALL: LazyLock<[[u8; 32]; 8]> =
        LazyLock::new(|| EIGHT_TORSION.map(|point| point.compress().to_bytes()));
    let Ok(key) = <&[u8; 32]>::try_from(key) else { return false };
    // p is 2^255 - 19, and the highest bit is the sign of x. A sign where x is 0 is of small order.
    let [first, middle @ .., last] = key;
    let y_below_p = last & 0x7f != 0x7f || middle.iter().any(|b| *b != 0xff) || *first < 0xed;
    let same_y = |a: &[u8; 32]| a[..31] == key[..31] && (a[31] ^ key[31]) & 0x7f == 0;
    y_below_p && !SMALL.iter().any(same_y)
}

/// What both halves' holders share; `None` when the public half is none. Constant time in the
/// secret.
///
/// # Panics
/// As [`public_of`].
#[must_use]
pub fn agree(suite: Suite, secret: &[u8; 32], public: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    if suite == Suite::Sm3Sm2 {
        return Some(sm2_key(secret).agree(&sm2::PublicKey::decompress(public)?));
    }
    let point = MontgomeryPoint(*public.first_chunk()?);
    let shared = Zeroizing::new(point.mul_clamped(*secret).to_bytes());
    (!bool::from(shared.ct_eq(&[0; 32]))).then_some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identitys_public_half_is_that_of_its_secret_half() {
        for suite in Suite::ALL {
            let key = SecretKey::derived_from(suite, &[7; 32]);
            let public = public_of_identity(suite, &key.public()).unwrap();
            assert_eq!(public, public_of(suite, &key.agreement_secret()));
        }
    }

    #[test]
    fn two_agree_and_what_is_no_public_half_agrees_with_nobody() {
        for suite in Suite::ALL {
            let [a, b] = [1, 2].map(|i| secret_from_seed(suite, &[i; 32]));
            let len = public_len(suite);
            let ab = agree(suite, &a, &public_of(suite, &b)[..len]).unwrap();
            assert_eq!(*ab, *agree(suite, &b, &public_of(suite, &a)[..len]).unwrap());
            assert!(agree(suite, &a, &[0; 33][..len]).is_none());
            assert!(agree(suite, &a, &[]).is_none());
        }
    }
}
