//! Points of y^2 = x^3 - 3 x + b, eight in vector lanes, in Jacobian coordinates (X / Z^2, Y / Z^3).
//!
//! The formulas do not cover an addition of equal or opposite points, nor infinity. When one
//! happens, H = 0 gives Z = 0, and Z stays zero through every later doubling and addition: a sum
//! whose Z is not zero has met no such case.

use super::field::{Fe, Product};

/// Eight points. Bounds between operations: X < 2.01 p, Y < 3 p, Z < 4 p.
#[derive(Clone, Copy)]
pub(super) struct Jacobian {
    pub(super) x: Fe,
    pub(super) y: Fe,
    pub(super) z: Fe,
}

/// Eight points in affine coordinates, below p.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) x: Fe,
    pub(super) y: Fe,
}

impl Jacobian {
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn from_affine(point: &Affine, negative: u8) -> Self {
        // y < p, so -y + p < p + 1.
        let y = point.y.sum().negate_where(negative).plus_p(1).carry();
        Self { x: point.x, y, z: Fe::one() }
    }

    /// Twice the points: 4 multiplications and 4 squarings.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn double(&self) -> Self {
        let delta = self.z.square(); // 16 / 16 + 1 = 2
        let gamma = self.y.square().carry(); // 9 / 16 + 1 = 1.57
        let minus = self.x.sum().sub(&delta).plus_p(2).carry(); // 4.01
        let plus = self.x.sum().add(&delta).carry(); // 4.01
        let third = minus.mul(&plus); // 2.01
        let alpha = third.shl::<1>().add(&third).carry(); // 6.03
        let beta = self.x.mul(&gamma); // 1.2
        let z = self.y.mul(&self.z).shl::<1>().carry(); // 2 (3 * 4 / 16 + 1) = 3.5
        let x = alpha.square().sub(&beta.shl::<3>()).fold();
        let w = beta.shl::<2>().sub(&x.sum()).plus_p(3).carry(); // 7.8
        let gamma2 = gamma.square().shl::<3>(); // 9.3
        let y = alpha.mul(&w).sub(&gamma2).fold();
        Self { x, y, z }
    }

    /// The sums with `point`, or in the lanes of `negative` with its opposite: 8 multiplications
    /// (two of them reduced together) and 3 squarings.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn add(&self, point: &Affine, negative: u8) -> Self {
        let zz = self.z.square().carry(); // 2
        let u = point.x.mul(&zz); // 1.13
        let zzz = self.z.mul(&zz).carry(); // 1.5
        let s = point.y.mul(&zzz).negate_where(negative); // +-1.1
        let h = u.sub(&self.x.sum()).plus_p(3).carry(); // 4.13
        let r = s.sub(&self.y.sum()).plus_p(5).carry(); // 6.1
        let z = self.z.mul(&h).carry(); // 2.04
        let hh = h.square().carry(); // 2.07
        let hhh = h.mul(&hh).carry(); // 1.54
        let v = self.x.mul(&hh); // 1.27
        let x = r.square().sub(&hhh.sum()).sub(&v.shl::<1>()).fold();
        let w = v.sub(&x.sum()).plus_p(3).carry(); // 4.27
        let minus_y = Fe::zero_minus(&self.y, 3); // 3
        // (6.1 * 4.27 + 3 * 1.54) / 16 + 1 = 2.92
        let y = Product::of(&r, &w).plus(&minus_y, &hhh).reduce().carry();
        Self { x, y, z }
    }
}

impl Fe {
    /// `times` p minus an element of at most that.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn zero_minus(element: &Self, times: i64) -> Self {
        element.sum().negate_where(0xff).plus_p(times).carry()
    }
}

/// How many odd multiples a key's table has.
pub(super) const ODD_MULTIPLES: usize = 1 << (crate::KEY_WINDOW - 1);

/// P, 3 P, 5 P, .. in projective form: every multiple has its own Z, and `steps[i]` is what Z was
/// multiplied by on the way to multiple i.
pub(super) struct OddMultiples {
    points: [(Fe, Fe); ODD_MULTIPLES],
    steps: [Fe; ODD_MULTIPLES],
    /// Z of the last multiple: below 4 p.
    pub(super) z: Fe,
}

impl OddMultiples {
    /// Adds 2 P again and again, with 2 P always brought to the sum's Z (Meloni's co-Z addition:
    /// 5 multiplications and 2 squarings, and one more for Z). No two operands are equal or
    /// opposite, because P has a large prime order.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(point: &Affine) -> Self {
        // 2 P, and P with the same Z = 2 y.
        let xx = point.x.square(); // 1.07
        let m = xx.sub(&Fe::one().sum()); // above -0.01
        let m = m.shl::<1>().add(&m).plus_p(1).carry(); // 4.3
        let yy = point.y.square().carry(); // 1.07
        let y4 = yy.square().shl::<3>().fold(); // 2.01
        let s = point.x.mul(&yy).shl::<2>().fold(); // 2.01
        let mut z = point.y.sum().shl::<1>().carry(); // 2
        let x2 = m.square().sub(&s.sum().shl::<1>()).fold(); // 2.01
        let w = s.sum().sub(&x2.sum()).plus_p(3).carry(); // 5.01
        let y2 = m.mul(&w).sub(&y4.sum()).fold(); // 2.01
        let mut twice = (x2, y2);
        let mut points = [(s, y4); ODD_MULTIPLES];
        let mut steps = [z; ODD_MULTIPLES];
        for i in 1..ODD_MULTIPLES {
            let (x, y) = points[i - 1];
            let d = twice.0.sum().sub(&x.sum()).plus_p(3).carry(); // 5.01
            let c = d.square().carry(); // 2.57
            let w1 = twice.0.mul(&c).carry(); // 1.33
            let w2 = x.mul(&c); // 1.33
            let e = twice.1.sum().sub(&y.sum()).plus_p(3).carry(); // 5.01
            let x3 = e.square().sub(&w1.sum()).sub(&w2).fold(); // 2.01
            let f = w1.sum().sub(&w2).plus_p(2).carry(); // 3.33
            let a = twice.1.mul(&f).carry(); // 1.42
            let g = w1.sum().sub(&x3.sum()).plus_p(3).carry(); // 4.33
            let y3 = e.mul(&g).sub(&a.sum()).fold(); // 2.01
            z = z.mul(&d).carry(); // 4 * 5.01 / 16 + 1 = 2.26
            twice = (w1, a);
            points[i] = (x3, y3);
            steps[i] = d;
        }
        Self { points, steps, z }
    }

    /// The multiples in affine form, from the inverse of the last one's Z (below 2 p).
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    pub(super) fn to_affine(&self, inverse: &Fe) -> [Affine; ODD_MULTIPLES] {
        let mut inverse = *inverse;
        let mut out = [Affine { x: inverse, y: inverse }; ODD_MULTIPLES];
        for i in (0..ODD_MULTIPLES).rev() {
            let squared = inverse.square().carry(); // 1.6
            let cubed = squared.mul(&inverse).carry(); // 1.3
            let (x, y) = &self.points[i];
            out[i] = Affine {
                x: x.mul(&squared).carry().canonical(),
                y: y.mul(&cubed).carry().canonical(),
            };
            inverse = inverse.mul(&self.steps[i]).carry(); // 3 * 5.01 / 16 + 1 < 2
        }
        out
    }
}
