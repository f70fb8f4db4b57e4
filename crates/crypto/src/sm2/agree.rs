//! Diffie-Hellman on SM2's curve, and the compressed form of points that travels in handshakes.
//! The group has prime order, so every point but infinity is as good as any other.

use super::field::{Fe, P, Portable};
use super::key::{PublicKey, SecretKey};
use super::limbs;
use super::point::{Affine, B, Homogeneous};
use zeroize::Zeroizing;

/// Length of a compressed point: 2 or 3, x.
pub const COMPRESSED: usize = 33;

impl PublicKey {
    /// The compressed form of SEC 1.
    #[must_use]
    pub fn compress(&self) -> [u8; COMPRESSED] {
        let bytes = self.as_bytes();
        let mut out = [0; COMPRESSED];
        out[0] = 2 | bytes[64] & 1;
        out[1..].copy_from_slice(&bytes[1..33]);
        out
    }

    /// The key of [`Self::compress`]; nothing when the bytes are no such form.
    #[must_use]
    pub fn decompress(bytes: &[u8]) -> Option<Self> {
        let [sign @ (2 | 3), x @ ..] = bytes else { return None };
        let x = limbs::from_be_bytes(x.try_into().ok()?);
        if !limbs::less(&x, &P) {
            return None;
        }
        // p = 3 mod 4, so a square's root is its power (p + 1) / 4.
        const QUARTER: limbs::Limbs = [
            0x4000_0000_0000_0000,
            0xffff_ffff_c000_0000,
            0xffff_ffff_ffff_ffff,
            0x3fff_ffff_bfff_ffff,
        ];
        let element = Fe::from_limbs(&x);
        let three = Fe::ONE.double().add(&Fe::ONE);
        let square = element.square().sub(&three).mul(&element).add(&Fe::from_limbs(&B));
        let root = square.pow(&QUARTER, Portable);
        let even = root.to_limbs()[0] & 1 == u64::from(sign & 1);
        let y = if even { root } else { root.neg() };
        Affine::new(&x, &y.to_limbs()).map(Self::from_point)
    }
}

impl SecretKey {
    /// What this key and the holder of `peer` share: x of the product, most significant byte first.
    /// No branch and no address depends on the secret.
    #[must_use]
    pub fn agree(&self, peer: &PublicKey) -> Zeroizing<[u8; 32]> {
        let secret = self.to_bytes();
        let mut sum = Homogeneous::INFINITY;
        for byte in *secret {
            for bit in (0..8).rev() {
                sum = sum.double();
                let with = sum.add_affine(&peer.point);
                sum = sum.select(&with, u64::from(byte >> bit & 1));
            }
        }
        // The secret is from 1 to n - 2, so this is not infinity.
        Zeroizing::new(limbs::to_be_bytes(&sum.to_affine().x.to_limbs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(seed: [u8; 32]) -> SecretKey {
        SecretKey::from_bytes(&seed).unwrap()
    }

    #[test]
    fn small_multiples_of_the_generator_agree_with_its_own_comb() {
        for (a, b) in [(1, 1), (1, 2), (2, 3), (255, 77), (3, 129)] {
            let number = |i: u8| {
                let mut bytes = [0; 32];
                bytes[31] = i;
                key(bytes)
            };
            let mut product = [0; 32];
            product[30..].copy_from_slice(&(u16::from(a) * u16::from(b)).to_be_bytes());
            let expected = key(product).public().as_bytes()[1..33].to_vec();
            assert_eq!(number(a).agree(number(b).public())[..], expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn both_ends_agree_and_points_round_trip(a: [u8; 32], b: [u8; 32]) {
            let (Ok(a), Ok(b)) = (SecretKey::from_bytes(&a), SecretKey::from_bytes(&b)) else {
                return Ok(());
            };
            prop_assert_eq!(a.agree(b.public()), b.agree(a.public()));
            let compressed = a.public().compress();
            prop_assert_eq!(PublicKey::decompress(&compressed), Some(*a.public()));
            let mut other = compressed;
            other[0] ^= 1;
            let other = PublicKey::decompress(&other).unwrap();
            prop_assert_eq!(other.point, a.public().point.neg());
        }

        #[test]
        fn what_is_no_point_is_refused(x: [u8; 32], sign in 0u8..6) {
            let bytes = [&[sign][..], &x].concat();
            match PublicKey::decompress(&bytes) {
                Some(key) => prop_assert_eq!(&key.compress()[..], &bytes),
                None => prop_assert!(PublicKey::decompress(&bytes[..32]).is_none()),
            }
        }
    }

    #[test]
    fn coordinates_from_p_on_are_refused() {
        for add in 0..3u64 {
            let x = limbs::to_be_bytes(&[P[0].wrapping_add(add), P[1], P[2], P[3]]);
            assert!(PublicKey::decompress(&[&[2][..], &x].concat()).is_none());
        }
    }
}
