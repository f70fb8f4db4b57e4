//! The field of SM2's curve: integers modulo p = 2^256 - 2^224 - 2^96 + 2^64 - 1, in Montgomery
//! form with R = 2^256.
//!
//! Since p = -1 modulo 2^64, the quotient digit of a Montgomery step is the lowest limb itself, and
//! adding the digit's multiple of p takes shifts and additions only:
//! `q (p + 1) / 2^64 = q (2^192 - 2^160 - 2^32 + 1)`.
//!
//! No function branches on a value or reads memory at an address that depends on one.
//!
//! Verification may run in other instructions: see [`Arithmetic`].

use super::limbs::{self, Limbs};

/// The prime.
pub(crate) const P: Limbs =
    [0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000, 0xffff_ffff_ffff_ffff, 0xffff_fffe_ffff_ffff];

/// R^2 mod p, which takes a number into Montgomery form.
const R2: Limbs = limbs::shift_mod(&[1, 0, 0, 0], 512, &P);

/// An element of the field: Montgomery form, below p.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fe(Limbs);

impl Fe {
    pub(crate) const ZERO: Self = Self([0; 4]);
    pub(crate) const ONE: Self = Self::constant(&[1, 0, 0, 0]);

    /// The element of a number below p, at compile time.
    pub(crate) const fn constant(a: &Limbs) -> Self {
        Self(limbs::shift_mod(a, 256, &P))
    }

    /// The element of a number below p.
    #[inline]
    pub(crate) fn from_limbs(a: &Limbs) -> Self {
        Self(*a).mul(&Self(R2))
    }

    /// The number, below p.
    #[inline]
    pub(crate) fn to_limbs(self) -> Limbs {
        reduce([self.0[0], self.0[1], self.0[2], self.0[3], 0, 0, 0, 0])
    }

    /// The limbs in Montgomery form with R = 2^`bits` in place of 2^256.
    pub(crate) fn to_montgomery(self, bits: u32) -> Limbs {
        assert!(bits >= 256);
        (256..bits).fold(self, |value, _| value.double()).0
    }

    /// What [`Self::to_montgomery`] with 256 bits gave.
    #[inline(always)]
    pub(crate) const fn from_montgomery(a: Limbs) -> Self {
        Self(a)
    }

    #[inline(always)]
    pub(crate) fn add(&self, other: &Self) -> Self {
        Self(limbs::add_mod(&self.0, &other.0, &variable_prime()))
    }

    #[inline(always)]
    pub(crate) fn sub(&self, other: &Self) -> Self {
        Self(limbs::sub_mod(&self.0, &other.0, &variable_prime()))
    }

    #[inline(always)]
    pub(crate) fn double(&self) -> Self {
        self.add(self)
    }

    #[inline(always)]
    pub(crate) fn neg(&self) -> Self {
        Self::ZERO.sub(self)
    }

    #[inline(always)]
    pub(crate) fn mul(&self, other: &Self) -> Self {
        let (a, b) = (&self.0, &other.0);
        let (t0, c) = a[0].carrying_mul_add(b[0], 0, 0);
        let (t1, c) = a[0].carrying_mul_add(b[1], 0, c);
        let (t2, c) = a[0].carrying_mul_add(b[2], 0, c);
        let (t3, t4) = a[0].carrying_mul_add(b[3], 0, c);
        let (t1, c) = a[1].carrying_mul_add(b[0], t1, 0);
        let (t2, c) = a[1].carrying_mul_add(b[1], t2, c);
        let (t3, c) = a[1].carrying_mul_add(b[2], t3, c);
        let (t4, t5) = a[1].carrying_mul_add(b[3], t4, c);
        let (t2, c) = a[2].carrying_mul_add(b[0], t2, 0);
        let (t3, c) = a[2].carrying_mul_add(b[1], t3, c);
        let (t4, c) = a[2].carrying_mul_add(b[2], t4, c);
        let (t5, t6) = a[2].carrying_mul_add(b[3], t5, c);
        let (t3, c) = a[3].carrying_mul_add(b[0], t3, 0);
        let (t4, c) = a[3].carrying_mul_add(b[1], t4, c);
        let (t5, c) = a[3].carrying_mul_add(b[2], t5, c);
        let (t6, t7) = a[3].carrying_mul_add(b[3], t6, c);
        Self(reduce([t0, t1, t2, t3, t4, t5, t6, t7]))
    }

    #[inline(always)]
    pub(crate) fn square(&self) -> Self {
        let a = &self.0;
        // Each product of two different limbs once, then twice that, then the squares.
        let (t1, c) = a[0].carrying_mul_add(a[1], 0, 0);
        let (t2, c) = a[0].carrying_mul_add(a[2], 0, c);
        let (t3, t4) = a[0].carrying_mul_add(a[3], 0, c);
        let (t3, c) = a[1].carrying_mul_add(a[2], t3, 0);
        let (t4, t5) = a[1].carrying_mul_add(a[3], t4, c);
        let (t5, t6) = a[2].carrying_mul_add(a[3], t5, 0);
        let t7 = t6 >> 63;
        let t6 = (t6 << 1) | (t5 >> 63);
        let t5 = (t5 << 1) | (t4 >> 63);
        let t4 = (t4 << 1) | (t3 >> 63);
        let t3 = (t3 << 1) | (t2 >> 63);
        let t2 = (t2 << 1) | (t1 >> 63);
        let t1 = t1 << 1;
        let (t0, h0) = a[0].carrying_mul_add(a[0], 0, 0);
        let (l1, h1) = a[1].carrying_mul_add(a[1], 0, 0);
        let (l2, h2) = a[2].carrying_mul_add(a[2], 0, 0);
        let (l3, h3) = a[3].carrying_mul_add(a[3], 0, 0);
        let (t1, c) = t1.carrying_add(h0, false);
        let (t2, c) = t2.carrying_add(l1, c);
        let (t3, c) = t3.carrying_add(h1, c);
        let (t4, c) = t4.carrying_add(l2, c);
        let (t5, c) = t5.carrying_add(h2, c);
        let (t6, c) = t6.carrying_add(l3, c);
        let (t7, _) = t7.carrying_add(h3, c);
        Self(reduce([t0, t1, t2, t3, t4, t5, t6, t7]))
    }

    /// Half.
    #[inline(always)]
    pub(crate) fn half(&self) -> Self {
        // An odd number plus p is even.
        let mask = (self.0[0] & 1).wrapping_neg();
        let ([r0, r1, r2, r3], carry) = limbs::add(&self.0, &variable_prime().map(|p| p & mask));
        let shifted = |low: u64, high: u64| low >> 1 | high << 63;
        Self([shifted(r0, r1), shifted(r1, r2), shifted(r2, r3), shifted(r3, carry.into())])
    }

    /// This to the power of a public exponent.
    pub(crate) fn pow(&self, exponent: &Limbs, by: impl Arithmetic) -> Self {
        let mut powers = [Self::ONE; 16];
        for i in 1..16 {
            powers[i] = by.mul(&powers[i - 1], self);
        }
        let mut result = Self::ONE;
        for window in (0..64).rev() {
            for _ in 0..4 {
                result = by.square(&result);
            }
            result = by.mul(&result, &powers[limbs::bits(exponent, 4 * window, 4)]);
        }
        result
    }

    /// The inverse; zero for zero: the power p - 2, by a chain of 256 squarings and 15
    /// multiplications. Its bits are 31 ones, a zero, 128 ones, 32 zeros, 62 ones, a zero and a one.
    pub(crate) fn invert(&self, by: impl Arithmetic) -> Self {
        // What has `count` ones more than `ones` behind it.
        let append = |ones: &Self, count: usize, more: &Self| {
            let shifted = (0..count).fold(*ones, |power, _| by.square(&power));
            by.mul(&shifted, more)
        };
        let x2 = append(self, 1, self);
        let x3 = append(&x2, 1, self);
        let x6 = append(&x3, 3, &x3);
        let x12 = append(&x6, 6, &x6);
        let x15 = append(&x12, 3, &x3);
        let x30 = append(&x15, 15, &x15);
        let x31 = append(&x30, 1, self);
        let x32 = append(&x31, 1, self);
        let power = append(&x31, 1 + 32, &x32);
        let power = append(&power, 32, &x32);
        let power = append(&power, 32, &x32);
        let power = append(&power, 32, &x32);
        let power = append(&power, 32 + 31, &x31);
        let power = append(&power, 31, &x31);
        append(&power, 2, self)
    }

    /// Replaces every element by its inverse, at the price of three multiplications each and one
    /// inversion. None may be zero.
    pub(crate) fn invert_all(elements: &mut [Self], by: impl Arithmetic) {
        if elements.is_empty() {
            return;
        }
        let mut product = Self::ONE;
        let before: Vec<Self> = elements
            .iter()
            .map(|element| {
                let before = product;
                product = by.mul(&product, element);
                before
            })
            .collect();
        assert!(!product.is_zero(), "zero has no inverse");
        let mut inverse = product.invert(by);
        for (element, before) in elements.iter_mut().zip(&before).rev() {
            let next = by.mul(&inverse, element);
            *element = by.mul(&inverse, before);
            inverse = next;
        }
    }

    #[inline(always)]
    pub(crate) const fn is_zero(&self) -> bool {
        limbs::is_zero(&self.0)
    }

    /// `self` where `choice` is 0, `other` where it is 1.
    #[inline(always)]
    pub(crate) fn select(&self, other: &Self, choice: u64) -> Self {
        Self(limbs::select(&self.0, &other.0, choice))
    }
}

/// Who computes: every implementation gives the same elements.
pub(crate) trait Arithmetic: Copy {
    fn mul(self, a: &Fe, b: &Fe) -> Fe;
    fn square(self, a: &Fe) -> Fe;
    fn add(self, a: &Fe, b: &Fe) -> Fe;
    fn sub(self, a: &Fe, b: &Fe) -> Fe;
    fn half(self, a: &Fe) -> Fe;
}

/// The compiler's instructions, on every processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Arithmetic for Portable {
    #[inline(always)]
    fn mul(self, a: &Fe, b: &Fe) -> Fe {
        a.mul(b)
    }

    #[inline(always)]
    fn square(self, a: &Fe) -> Fe {
        a.square()
    }

    #[inline(always)]
    fn add(self, a: &Fe, b: &Fe) -> Fe {
        a.add(b)
    }

    #[inline(always)]
    fn sub(self, a: &Fe, b: &Fe) -> Fe {
        a.sub(b)
    }

    #[inline(always)]
    fn half(self, a: &Fe) -> Fe {
        a.half()
    }
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic for tercio_unsafe_lanes::Mulx {
    #[inline(always)]
    fn mul(self, a: &Fe, b: &Fe) -> Fe {
        Fe(Self::mul(self, &a.0, &b.0))
    }

    #[inline(always)]
    fn square(self, a: &Fe) -> Fe {
        Fe(Self::square(self, &a.0))
    }

    #[inline(always)]
    fn add(self, a: &Fe, b: &Fe) -> Fe {
        Fe(Self::add(self, &a.0, &b.0))
    }

    #[inline(always)]
    fn sub(self, a: &Fe, b: &Fe) -> Fe {
        Fe(Self::sub(self, &a.0, &b.0))
    }

    #[inline(always)]
    fn half(self, a: &Fe) -> Fe {
        Fe(Self::half(self, &a.0))
    }
}

/// The prime as numbers that the compiler does not know. Where it knows that limbs are all ones it
/// turns a chain of borrows into comparisons of single limbs, which takes longer.
#[inline(always)]
fn variable_prime() -> Limbs {
    static PRIME: Limbs = P;
    *std::hint::black_box(&PRIME)
}

/// `t / 2^256` modulo p, for `t < 2^256 p`.
#[inline(always)]
fn reduce(t: [u64; 8]) -> Limbs {
    // The low half alone first: (low + m p) / 2^256 is at most p, so no step overflows four limbs.
    let mut r = [t[0], t[1], t[2], t[3]];
    for _ in 0..4 {
        let q = r[0];
        let (low, high) = (q << 32, q >> 32);
        // Modulo 2^256 on the way; the result itself is below that.
        let (r0, c) = r[1].carrying_add(q, false);
        let (r1, c) = r[2].carrying_add(0, c);
        let (r2, c) = r[3].carrying_add(0, c);
        let (r3, _) = q.carrying_add(0, c);
        let (r0, b) = r0.borrowing_sub(low, false);
        let (r1, b) = r1.borrowing_sub(high, b);
        let (r2, b) = r2.borrowing_sub(low, b);
        let (r3, _) = r3.borrowing_sub(high, b);
        r = [r0, r1, r2, r3];
    }
    let (sum, carry) = limbs::add(&r, &[t[4], t[5], t[6], t[7]]);
    limbs::reduce_once(&sum, carry, &variable_prime())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Limbs that are often at an end of their range, where carries are lost.
    fn edge_limb() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(u64::MAX), Just(u64::MAX << 32), Just(1), any::<u64>()]
    }

    fn element() -> impl Strategy<Value = Limbs> {
        [edge_limb(), edge_limb(), edge_limb(), edge_limb()]
            .prop_map(|a| if limbs::less(&a, &P) { a } else { limbs::sub(&a, &P).0 })
    }

    /// a * b mod p by doubling and adding, with nothing of Montgomery in it.
    fn slow_mul(a: &Limbs, b: &Limbs) -> Limbs {
        (0..256).rev().fold([0; 4], |sum, i| {
            let twice = limbs::add_mod(&sum, &sum, &P);
            if limbs::bits(b, i, 1) == 1 { limbs::add_mod(&twice, a, &P) } else { twice }
        })
    }

    proptest! {
        #[test]
        fn multiplication_is_that_of_integers(a in element(), b in element()) {
            let (x, y) = (Fe::from_limbs(&a), Fe::from_limbs(&b));
            prop_assert_eq!(x.to_limbs(), a);
            prop_assert_eq!(x.mul(&y).to_limbs(), slow_mul(&a, &b));
            prop_assert_eq!(x.square(), x.mul(&x));
            prop_assert_eq!(x.sub(&y).add(&y), x);
            prop_assert_eq!(x.neg().add(&x), Fe::ZERO);
            // The raw limbs too: the edges of Montgomery form are not those of the numbers.
            let (x, y) = (Fe(a), Fe(b));
            prop_assert_eq!(x.mul(&y).to_limbs(), slow_mul(&x.to_limbs(), &y.to_limbs()));
            prop_assert_eq!(x.square(), x.mul(&x));
            prop_assert_eq!(x.half().double(), x);
        }

        /// On limbs of every kind, and with results that are operands again.
        #[test]
        #[cfg(target_arch = "x86_64")]
        fn mulx_gives_the_same_elements(a in element(), b in element()) {
            let Some(mulx) = tercio_unsafe_lanes::Mulx::detect() else { return Ok(()) };
            let (mut x, mut y) = (Fe(a), Fe(b));
            for _ in 0..4 {
                prop_assert_eq!(Arithmetic::mul(mulx, &x, &y), x.mul(&y));
                prop_assert_eq!(Arithmetic::square(mulx, &x), x.square());
                prop_assert_eq!(Arithmetic::add(mulx, &x, &y), x.add(&y));
                prop_assert_eq!(Arithmetic::sub(mulx, &x, &y), x.sub(&y));
                prop_assert_eq!(Arithmetic::half(mulx, &x), x.half());
                // Sums of p and a little more, which random numbers do not meet.
                let near = x.neg().add(&Fe([b[0] & 1, 0, 0, 0]));
                prop_assert_eq!(Arithmetic::add(mulx, &x, &near), x.add(&near));
                prop_assert_eq!(Arithmetic::sub(mulx, &near, &x), near.sub(&x));
                (x, y) = (x.mul(&y), x.add(&y));
            }
        }

        #[test]
        fn inverses_alone_and_together(numbers in prop::collection::vec(element(), 1..6)) {
            let mut elements: Vec<Fe> = numbers.iter().map(|a| Fe(*a)).collect();
            elements.retain(|a| !a.is_zero());
            let originals = elements.clone();
            Fe::invert_all(&mut elements, Portable);
            for (inverse, a) in elements.iter().zip(&originals) {
                prop_assert_eq!(inverse.mul(a), Fe::ONE);
                prop_assert_eq!(&a.invert(Portable), inverse);
            }
        }
    }
}
