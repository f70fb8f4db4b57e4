//! The field modulo p = 2^256 - 2^224 - 2^96 + 2^64 - 1, eight elements in vector lanes: five limbs of 52
//! bits a register, Montgomery form with R = 2^260.
//!
//! An [`Fe`] has limbs below 2^52 and so a value below 2^260 = 16.0 p; a [`Sum`] has signed limbs
//! of any size below 2^62, whose value is what counts. Multiplication takes `Fe`s below A p and
//! B p and gives a value below (A B / 16 + 1) p. Each formula states the bounds it relies on, as
//! multiples of p; [`Sum::carry`] needs a value in 0..16 p, [`Sum::fold`] any within +-200 p, and
//! gives one below 2.01 p.

use core::arch::x86_64::*;

/// Eight elements, limbs below 2^52.
#[derive(Clone, Copy)]
pub(super) struct Fe(pub(super) [__m512i; 5]);

/// Eight values with limbs not carried yet.
#[derive(Clone, Copy)]
pub(super) struct Sum([__m512i; 5]);

/// Eight products before reduction.
#[derive(Clone, Copy)]
pub(super) struct Product([__m512i; 10]);

const MASK: i64 = (1 << 52) - 1;
/// p + 1 without its lowest limb, which is zero: limb 1 borrows from limb 2.
const LIMB_1: i64 = (1 << 52) - (1 << 44) + (1 << 12);
const LIMB_4: i64 = (1 << 48) - (1 << 16);

/// Eight equal words.
#[target_feature(enable = "avx512f")]
#[inline]
fn all(value: i64) -> __m512i {
    _mm512_set1_epi64(value)
}

impl Product {
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn of(a: &Fe, b: &Fe) -> Self {
        Self([_mm512_setzero_si512(); 10]).plus(a, b)
    }

    /// The sum with another product.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn plus(self, a: &Fe, b: &Fe) -> Self {
        let mut t = self.0;
        for i in 0..5 {
            for j in 0..5 {
                t[i + j] = _mm512_madd52lo_epu64(t[i + j], a.0[i], b.0[j]);
                t[i + j + 1] = _mm512_madd52hi_epu64(t[i + j + 1], a.0[i], b.0[j]);
            }
        }
        Self(t)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn square(a: &Fe) -> Self {
        let mut t = [_mm512_setzero_si512(); 10];
        for i in 0..5 {
            for j in i + 1..5 {
                t[i + j] = _mm512_madd52lo_epu64(t[i + j], a.0[i], a.0[j]);
                t[i + j + 1] = _mm512_madd52hi_epu64(t[i + j + 1], a.0[i], a.0[j]);
            }
        }
        for limb in &mut t[1..9] {
            *limb = _mm512_add_epi64(*limb, *limb);
        }
        for i in 0..5 {
            t[2 * i] = _mm512_madd52lo_epu64(t[2 * i], a.0[i], a.0[i]);
            t[2 * i + 1] = _mm512_madd52hi_epu64(t[2 * i + 1], a.0[i], a.0[i]);
        }
        Self(t)
    }

    /// The product over 2^260. Each step clears the lowest limb by adding a multiple of p; since
    /// p = -1 modulo 2^52, the multiple's factor is that limb.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn reduce(self) -> Sum {
        let mut t = self.0;
        for i in 0..5 {
            let q = t[i];
            let low = _mm512_and_si512(q, all(MASK));
            let carried = _mm512_add_epi64(t[i + 1], _mm512_srai_epi64::<52>(q));
            t[i + 1] = _mm512_madd52lo_epu64(carried, low, all(LIMB_1));
            let high = _mm512_madd52hi_epu64(t[i + 2], low, all(LIMB_1));
            t[i + 2] = _mm512_sub_epi64(high, low);
            t[i + 4] = _mm512_madd52lo_epu64(t[i + 4], low, all(LIMB_4));
            t[i + 5] = _mm512_madd52hi_epu64(t[i + 5], low, all(LIMB_4));
        }
        Sum([t[5], t[6], t[7], t[8], t[9]])
    }
}

impl Fe {
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn mul(&self, other: &Self) -> Sum {
        Product::of(self, other).reduce()
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn square(&self) -> Sum {
        Product::square(self).reduce()
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn sum(&self) -> Sum {
        Sum(self.0)
    }

    /// The element 1.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn one() -> Self {
        // 2^260 modulo p = 16 (2^224 + 2^96 - 2^64 + 1).
        let value = [16, (1 << 48) - (1 << 16), 0, 0, 1 << 20];
        Self(value.map(|limb| all(limb)))
    }

    /// From registers of 64-bit limbs below 2^256.
    #[target_feature(enable = "avx512f,avx512vbmi2")]
    #[inline]
    pub(super) fn from_words(w: &[__m512i; 4]) -> Self {
        let mask = all(MASK);
        Self([
            _mm512_and_si512(w[0], mask),
            _mm512_and_si512(_mm512_shrdi_epi64::<52>(w[0], w[1]), mask),
            _mm512_and_si512(_mm512_shrdi_epi64::<40>(w[1], w[2]), mask),
            _mm512_and_si512(_mm512_shrdi_epi64::<28>(w[2], w[3]), mask),
            _mm512_srli_epi64::<16>(w[3]),
        ])
    }

    /// To registers of 64-bit limbs; the value must be below 2^256.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn to_words(self) -> [__m512i; 4] {
        let l = self.0;
        [
            _mm512_or_si512(l[0], _mm512_slli_epi64::<52>(l[1])),
            _mm512_or_si512(_mm512_srli_epi64::<12>(l[1]), _mm512_slli_epi64::<40>(l[2])),
            _mm512_or_si512(_mm512_srli_epi64::<24>(l[2]), _mm512_slli_epi64::<28>(l[3])),
            _mm512_or_si512(_mm512_srli_epi64::<36>(l[3]), _mm512_slli_epi64::<16>(l[4])),
        ]
    }

    /// The same element below p. `self` may be any `Fe`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn canonical(&self) -> Self {
        // Below 2.01 p after folding: p can go off at most twice.
        self.sum().fold().minus_p_once().minus_p_once()
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn minus_p_once(&self) -> Self {
        let less = self.sum().plus_p(-1).propagate();
        let negative = _mm512_movepi64_mask_f(less[4]);
        let mut out = less;
        for (limb, old) in out.iter_mut().zip(self.0) {
            *limb = _mm512_mask_mov_epi64(*limb, negative, old);
        }
        Self(out)
    }

    /// Which lanes are zero modulo p.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn zero_mask(&self) -> u8 {
        let l = self.canonical().0;
        let any = _mm512_or_si512(
            _mm512_or_si512(_mm512_or_si512(l[0], l[1]), _mm512_or_si512(l[2], l[3])),
            l[4],
        );
        !_mm512_test_epi64_mask(any, any)
    }

    /// The inverse, below 2 p; zero for zero.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn invert(&self) -> Self {
        const EXPONENT: [u64; 4] = [
            0xffff_ffff_ffff_fffd,
            0xffff_ffff_0000_0000,
            0xffff_ffff_ffff_ffff,
            0xffff_fffe_ffff_ffff,
        ];
        let mut powers = [Self::one(); 16];
        for i in 1..16 {
            powers[i] = powers[i - 1].mul(self).carry();
        }
        let mut result = Self::one();
        for window in (0..64).rev() {
            for _ in 0..4 {
                result = result.square().carry();
            }
            result = result.mul(&powers[crate::recode::bits(&EXPONENT, 4 * window, 4)]).carry();
        }
        result
    }
}

/// The sign bits, with nothing but AVX-512F.
#[target_feature(enable = "avx512f")]
#[inline]
fn _mm512_movepi64_mask_f(a: __m512i) -> __mmask8 {
    _mm512_cmplt_epi64_mask(a, _mm512_setzero_si512())
}

impl Sum {
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn add(self, other: &Self) -> Self {
        let mut out = self.0;
        for (limb, other) in out.iter_mut().zip(other.0) {
            *limb = _mm512_add_epi64(*limb, other);
        }
        Self(out)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn sub(self, other: &Self) -> Self {
        let mut out = self.0;
        for (limb, other) in out.iter_mut().zip(other.0) {
            *limb = _mm512_sub_epi64(*limb, other);
        }
        Self(out)
    }

    /// Times `2^K`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn shl<const K: u32>(self) -> Self {
        let mut out = self.0;
        for limb in &mut out {
            *limb = _mm512_slli_epi64::<K>(*limb);
        }
        Self(out)
    }

    /// Plus `times` p, which has three limbs that are not zero when they may be negative.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn plus_p(self, times: i64) -> Self {
        let mut t = self.0;
        t[0] = _mm512_sub_epi64(t[0], all(times));
        t[1] = _mm512_sub_epi64(t[1], all(times * ((1 << 44) - (1 << 12))));
        t[4] = _mm512_add_epi64(t[4], all(times * LIMB_4));
        Self(t)
    }

    /// The negative in the lanes of `mask`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn negate_where(self, mask: u8) -> Self {
        let mut out = self.0;
        for limb in &mut out {
            *limb = _mm512_mask_sub_epi64(*limb, mask, _mm512_setzero_si512(), *limb);
        }
        Self(out)
    }

    /// Carries upwards; the topmost limb keeps the sign.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn propagate(self) -> [__m512i; 5] {
        let mut t = self.0;
        for i in 0..4 {
            t[i + 1] = _mm512_add_epi64(t[i + 1], _mm512_srai_epi64::<52>(t[i]));
            t[i] = _mm512_and_si512(t[i], all(MASK));
        }
        t
    }

    /// The element, for a value in 0..16 p.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn carry(self) -> Fe {
        let t = self.propagate();
        // A value out of bounds would lose bits in the next multiplication: a mistake in a
        // formula's bounds, which no input should be able to show.
        debug_assert!(
            _mm512_cmplt_epu64_mask(t[4], all(1 << 52)) == 0xff,
            "a value outside of 0..2^260"
        );
        Fe(t)
    }

    /// The element, below 2.01 p, for a value within +-200 p. Subtracts (h - 1) p, where h is what
    /// the top limb holds beyond 2^256.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn fold(self) -> Fe {
        let mut t = self.0;
        let h = _mm512_srai_epi64::<48>(_mm512_sub_epi64(t[4], all(1 << 48)));
        t[4] = _mm512_sub_epi64(t[4], _mm512_slli_epi64::<48>(h));
        t[4] = _mm512_add_epi64(t[4], _mm512_slli_epi64::<16>(h));
        t[1] = _mm512_add_epi64(t[1], _mm512_slli_epi64::<44>(h));
        t[1] = _mm512_sub_epi64(t[1], _mm512_slli_epi64::<12>(h));
        t[0] = _mm512_add_epi64(t[0], h);
        Self(t).carry()
    }
}

/// See [`super::Ifma::issue_multiplications`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn issue(count: usize) -> usize {
    let factor = core::hint::black_box(all(0x9_7f4a_7c15));
    let mut sums = [factor; 16];
    for _ in 0..count / 16 {
        for sum in &mut sums {
            *sum = _mm512_madd52lo_epu64(*sum, factor, *sum);
        }
    }
    core::hint::black_box(sums);
    count / 16 * 16
}
