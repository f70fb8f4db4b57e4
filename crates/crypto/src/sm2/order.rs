//! Integers modulo n, the prime order of SM2's group. Constant-time: these are keys and nonces.

use super::limbs::{self, Limbs};
use zeroize::Zeroize;

/// The order of the group.
pub(crate) const N: Limbs =
    [0x53bb_f409_39d5_4123, 0x7203_df6b_21c6_052b, 0xffff_ffff_ffff_ffff, 0xffff_fffe_ffff_ffff];

const ONE: [u64; 4] = [1, 0, 0, 0];
const R: Limbs = limbs::shift_mod(&ONE, 256, &N);
const R2: Limbs = limbs::shift_mod(&ONE, 512, &N);

/// -1 / n modulo 2^64, by Newton's iteration.
const QUOTIENT: u64 = {
    let (mut inverse, mut i) = (1u64, 0);
    while i < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(N[0].wrapping_mul(inverse)));
        i += 1;
    }
    inverse.wrapping_neg()
};

/// An integer modulo n, below n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroize)]
pub(crate) struct Scalar(Limbs);

impl Scalar {
    pub(crate) const ONE: Self = Self(ONE);

    /// The number of 32 bytes, when it is below n.
    pub(crate) fn from_be_bytes(bytes: &[u8; 32]) -> Option<Self> {
        let value = limbs::from_be_bytes(bytes);
        limbs::less(&value, &N).then_some(Self(value))
    }

    /// The number of 32 bytes modulo n.
    pub(crate) fn reduce(bytes: &[u8; 32]) -> Self {
        Self(limbs::reduce_once(&limbs::from_be_bytes(bytes), false, &N))
    }

    /// A number below p, modulo n; p is below 2 n.
    pub(crate) fn reduce_limbs(value: &Limbs) -> Self {
        Self(limbs::reduce_once(value, false, &N))
    }

    pub(crate) fn to_be_bytes(self) -> [u8; 32] {
        limbs::to_be_bytes(&self.0)
    }

    pub(crate) const fn limbs(&self) -> &Limbs {
        &self.0
    }

    pub(crate) const fn is_zero(&self) -> bool {
        limbs::is_zero(&self.0)
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        Self(limbs::add_mod(&self.0, &other.0, &N))
    }

    pub(crate) fn sub(&self, other: &Self) -> Self {
        Self(limbs::sub_mod(&self.0, &other.0, &N))
    }

    pub(crate) fn neg(&self) -> Self {
        Self([0; 4]).sub(self)
    }

    pub(crate) fn select(&self, other: &Self, choice: u64) -> Self {
        Self(limbs::select(&self.0, &other.0, choice))
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        // One factor in Montgomery form gives a product in plain form.
        Self(montgomery(&montgomery(&self.0, &R2), &other.0))
    }

    /// The inverse by Fermat's theorem; zero for zero. The exponent is public.
    pub(crate) fn invert(&self) -> Self {
        let exponent = [N[0] - 2, N[1], N[2], N[3]];
        let base = montgomery(&self.0, &R2);
        let mut powers = [R; 16];
        for i in 1..16 {
            powers[i] = montgomery(&powers[i - 1], &base);
        }
        let mut result = powers[0];
        for window in (0..64).rev() {
            for _ in 0..4 {
                result = montgomery(&result, &result);
            }
            result = montgomery(&result, &powers[limbs::bits(&exponent, 4 * window, 4)]);
        }
        powers.zeroize();
        Self(montgomery(&result, &ONE))
    }
}

/// `a b / 2^256` modulo n.
#[inline]
fn montgomery(a: &Limbs, b: &Limbs) -> Limbs {
    let mut t = [0u64; 5];
    for digit in a {
        let (t0, c) = digit.carrying_mul_add(b[0], t[0], 0);
        let (t1, c) = digit.carrying_mul_add(b[1], t[1], c);
        let (t2, c) = digit.carrying_mul_add(b[2], t[2], c);
        let (t3, c) = digit.carrying_mul_add(b[3], t[3], c);
        let (t4, over) = t[4].carrying_add(c, false);
        let q = t0.wrapping_mul(QUOTIENT);
        let (_, c) = q.carrying_mul_add(N[0], t0, 0);
        let (t1, c) = q.carrying_mul_add(N[1], t1, c);
        let (t2, c) = q.carrying_mul_add(N[2], t2, c);
        let (t3, c) = q.carrying_mul_add(N[3], t3, c);
        let (t4, over_again) = t4.carrying_add(c, false);
        t = [t1, t2, t3, t4, over as u64 + over_again as u64];
    }
    limbs::reduce_once(&[t[0], t[1], t[2], t[3]], t[4] != 0, &N)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scalar() -> impl Strategy<Value = Scalar> {
        prop_oneof![
            any::<[u8; 32]>().prop_map(|bytes| Scalar::reduce(&bytes)),
            Just(Scalar([0; 4])),
            Just(Scalar::ONE),
            Just(Scalar::ONE.neg()),
        ]
    }

    proptest! {
        #[test]
        fn a_field(a in scalar(), b in scalar(), c in scalar()) {
            prop_assert_eq!(a.mul(&b.add(&c)), a.mul(&b).add(&a.mul(&c)));
            prop_assert_eq!(a.mul(&b), b.mul(&a));
            prop_assert_eq!(a.mul(&Scalar::ONE), a);
            prop_assert_eq!(a.sub(&b).add(&b), a);
            if !a.is_zero() {
                prop_assert_eq!(a.mul(&a.invert()), Scalar::ONE);
            }
            prop_assert_eq!(Scalar::from_be_bytes(&a.to_be_bytes()), Some(a));
        }
    }
}
