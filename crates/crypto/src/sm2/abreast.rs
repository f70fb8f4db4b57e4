//! Field elements and points of several verifications, interleaved for instruction-level parallelism:
//! their operations do not depend on each other, which keeps a processor's units busy; alone, each
//! waits for the one before.

use super::field::{Arithmetic, Fe};
use super::point::{Affine, Jacobian};
use std::array::from_fn;

/// N elements, and who computes with them.
#[derive(Clone, Copy)]
pub(super) struct Elements<A, const N: usize> {
    pub(super) each: [Fe; N],
    pub(super) by: A,
}

impl<A: Arithmetic, const N: usize> Elements<A, N> {
    #[inline(always)]
    pub(super) fn new(each: [Fe; N], by: A) -> Self {
        Self { each, by }
    }

    // Bare loops from operands to result: what copies elements in wider registers on the way waits
    // for the stores of their limbs.
    #[inline(always)]
    fn map(&self, operation: impl Fn(A, &Fe) -> Fe) -> Self {
        let (mut each, mut i) = ([Fe::ZERO; N], 0);
        while i < N {
            each[i] = operation(self.by, &self.each[i]);
            i += 1;
        }
        Self::new(each, self.by)
    }

    #[inline(always)]
    fn zip(&self, other: &Self, operation: impl Fn(A, &Fe, &Fe) -> Fe) -> Self {
        let (mut each, mut i) = ([Fe::ZERO; N], 0);
        while i < N {
            each[i] = operation(self.by, &self.each[i], &other.each[i]);
            i += 1;
        }
        Self::new(each, self.by)
    }

    #[inline(always)]
    pub(super) fn mul(&self, other: &Self) -> Self {
        self.zip(other, A::mul)
    }

    #[inline(always)]
    pub(super) fn square(&self) -> Self {
        self.map(A::square)
    }

    #[inline(always)]
    pub(super) fn add(&self, other: &Self) -> Self {
        self.zip(other, A::add)
    }

    #[inline(always)]
    pub(super) fn sub(&self, other: &Self) -> Self {
        self.zip(other, A::sub)
    }

    #[inline(always)]
    pub(super) fn half(&self) -> Self {
        self.map(A::half)
    }

    #[inline(always)]
    fn double(&self) -> Self {
        self.add(self)
    }
}

/// N points in Jacobian coordinates (X / Z^2, Y / Z^3), each at infinity where its Z is zero.
#[derive(Clone, Copy)]
pub(super) struct Points<A, const N: usize> {
    pub(super) x: Elements<A, N>,
    y: Elements<A, N>,
    pub(super) z: Elements<A, N>,
}

#[cfg(test)]
thread_local! {
    /// How often an addition of this thread met infinity or an equal or opposite point: tests show
    /// that theirs do.
    pub(super) static UNUSUAL: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<A: Arithmetic, const N: usize> Points<A, N> {
    #[inline(always)]
    pub(super) fn new(points: &[Affine; N], by: A) -> Self {
        let [x, y] = coordinates(points, by);
        Self { x, y, z: Elements::new([Fe::ONE; N], by) }
    }

    /// Twice the points: 4 multiplications and 4 squarings. Infinity gives infinity: no point has
    /// order two, so Y is never zero.
    #[inline(never)]
    pub(super) fn double(&self) -> Self {
        // The usual formulas with Z halved, which leaves less to add.
        let delta = self.z.square();
        let gamma = self.y.square();
        let product = self.x.sub(&delta).mul(&self.x.add(&delta));
        let beta = self.x.mul(&gamma);
        let alpha = product.add(&product.half());
        let z = self.y.mul(&self.z);
        let x = alpha.square().sub(&beta).sub(&beta);
        let gamma2 = gamma.square();
        let y = alpha.mul(&beta.sub(&x)).sub(&gamma2);
        Self { x, y, z }
    }

    /// The sums with points that are not at infinity, whatever all are: 8 multiplications and 3
    /// squarings.
    #[inline(never)]
    pub(super) fn add(&self, points: &[Affine; N]) -> Self {
        let [x2, y2] = coordinates(points, self.x.by);
        let zz = self.z.square();
        let zzz = zz.mul(&self.z);
        let h = x2.mul(&zz).sub(&self.x);
        let s = y2.mul(&zzz);
        let hh = h.square();
        let r = s.sub(&self.y);
        let hhh = h.mul(&hh);
        let rr = r.square();
        let v = self.x.mul(&hh);
        let x = rr.sub(&hhh).sub(&v).sub(&v);
        let yj = self.y.mul(&hhh);
        let z = self.z.mul(&h);
        let y = r.mul(&v.sub(&x)).sub(&yj);
        let mut sum = Self { x, y, z };
        for (i, point) in points.iter().enumerate() {
            // Z or H was zero: the formulas do not cover this addition.
            if sum.z.each[i].is_zero() {
                sum.set(i, &self.get(i).add_affine(point));
            }
        }
        sum
    }

    fn get(&self, i: usize) -> Jacobian {
        Jacobian { x: self.x.each[i], y: self.y.each[i], z: self.z.each[i] }
    }

    #[cold]
    fn set(&mut self, i: usize, point: &Jacobian) {
        #[cfg(test)]
        UNUSUAL.set(UNUSUAL.get() + 1);
        (self.x.each[i], self.y.each[i], self.z.each[i]) = (point.x, point.y, point.z);
    }
}

#[inline(always)]
fn coordinates<A: Arithmetic, const N: usize>(points: &[Affine; N], by: A) -> [Elements<A, N>; 2] {
    [Elements::new(from_fn(|i| points[i].x), by), Elements::new(from_fn(|i| points[i].y), by)]
}

/// How many odd multiples a key's table has.
pub(super) const ODD_MULTIPLES: usize = 1 << (tercio_unsafe_lanes::KEY_WINDOW - 1);

/// P, 3 P, 5 P, .. of N points in projective form: every multiple has its own Z, and `steps[i]` is
/// what Z was multiplied by on the way to multiple i.
pub(super) struct OddMultiples<A, const N: usize> {
    points: [[Elements<A, N>; 2]; ODD_MULTIPLES],
    steps: [Elements<A, N>; ODD_MULTIPLES],
    /// Z of the last multiple; never zero.
    pub(super) z: Elements<A, N>,
}

impl<A: Arithmetic, const N: usize> OddMultiples<A, N> {
    /// Adds 2 P again and again, with 2 P always brought to the sum's Z (Meloni's co-Z addition: 5
    /// multiplications and 2 squarings, Z included). No two operands are equal or opposite,
    /// because P has a large prime order.
    pub(super) fn new(points: &[Affine; N], by: A) -> Self {
        // 2 P, and P with the same Z = 2 y.
        let [px, py] = coordinates(points, by);
        let m = px.square().sub(&Elements::new([Fe::ONE; N], by));
        let m = m.double().add(&m);
        let yy = py.square();
        let y4 = yy.double().square().double();
        let s = px.mul(&yy).double().double();
        let mut z = py.double();
        let x2 = m.square().sub(&s).sub(&s);
        let mut twice = [x2, m.mul(&s.sub(&x2)).sub(&y4)];
        let mut points = [[s, y4]; ODD_MULTIPLES];
        let mut steps = [z; ODD_MULTIPLES];
        for i in 1..ODD_MULTIPLES {
            let [x, y] = points[i - 1];
            let d = twice[0].sub(&x);
            let c = d.square();
            let (w1, w2) = (twice[0].mul(&c), x.mul(&c));
            let e = twice[1].sub(&y);
            let x3 = e.square().sub(&w1).sub(&w2);
            let a = twice[1].mul(&w1.sub(&w2));
            let y3 = e.mul(&w1.sub(&x3)).sub(&a);
            z = z.mul(&d);
            twice = [w1, a];
            points[i] = [x3, y3];
            steps[i] = d;
        }
        Self { points, steps, z }
    }

    /// The multiples in affine form, from the inverses of the last one's Z.
    pub(super) fn to_affine(&self, inverses: &[Fe; N]) -> [[Affine; N]; ODD_MULTIPLES] {
        let mut inverse = Elements::new(*inverses, self.z.by);
        let mut out = [[Affine::GENERATOR; N]; ODD_MULTIPLES];
        for i in (0..ODD_MULTIPLES).rev() {
            let squared = inverse.square();
            let [x, y] = &self.points[i];
            let (x, y) = (x.mul(&squared), y.mul(&squared.mul(&inverse)));
            out[i] = from_fn(|lane| Affine { x: x.each[lane], y: y.each[lane] });
            inverse = inverse.mul(&self.steps[i]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::Portable;
    use super::*;

    /// i G for i in 0..100, each by adding G to the one before.
    fn multiples() -> Vec<Jacobian> {
        let step = |sum: &Jacobian| Some(sum.add_affine(&Affine::GENERATOR));
        std::iter::successors(Some(Jacobian::INFINITY), step).take(100).collect()
    }

    fn affine(point: &Jacobian) -> Option<Affine> {
        (!point.is_infinity()).then(|| Jacobian::to_affine(&[*point])[0])
    }

    /// Every lane in every case, with a Z that is not one, beside lanes in the usual case.
    fn additions_and_doublings(by: impl Arithmetic) {
        let multiples = multiples();
        let at = |i: usize| affine(&multiples[i]).expect("not infinity");
        for a in 2..24 {
            for b in 1..24 {
                for lane in 0..3 {
                    // The lane has a G, the others (30 + lane) G, with Z that is not one.
                    let of = |i| if i == lane { a } else { 30 + i };
                    let start = Points::new(&from_fn::<_, 3, _>(|i| at(of(i) - 1)), by)
                        .add(&[Affine::GENERATOR; 3]);
                    for (negative, sign) in [(0, 1), (1, -1)] {
                        let point = at(b).negate_where(negative);
                        let sum = start.add(&from_fn(|i| if i == lane { point } else { at(7) }));
                        for i in 0..3 {
                            let k =
                                if i == lane { a as i32 + sign * b as i32 } else { 37 + i as i32 };
                            let expected = affine(&multiples[k.unsigned_abs() as usize])
                                .map(|point| point.negate_where(u64::from(k < 0)));
                            assert_eq!(affine(&sum.get(i)), expected, "{a} {sign} {b}, lane {i}");
                            // On from there: twice, and from infinity by an addition.
                            let twice = affine(&sum.double().get(i));
                            let expected = affine(&multiples[2 * k.unsigned_abs() as usize])
                                .map(|point| point.negate_where(u64::from(k < 0)));
                            assert_eq!(twice, expected, "twice {k}");
                            if k == 0 {
                                assert_eq!(affine(&sum.add(&[at(b); 3]).get(i)), Some(at(b)));
                                assert_eq!(
                                    affine(&sum.double().add(&[at(b); 3]).get(i)),
                                    Some(at(b))
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    fn odd_multiples(by: impl Arithmetic) {
        let multiples = multiples();
        let start = [1, 2].map(|i| affine(&multiples[i]).expect("not infinity"));
        let odd = OddMultiples::new(&start, by);
        let mut inverses = odd.z.each;
        Fe::invert_all(&mut inverses, by);
        for (i, row) in odd.to_affine(&inverses).iter().enumerate() {
            let k = 2 * i + 1;
            assert_eq!(row.map(Some), [affine(&multiples[k]), affine(&multiples[2 * k])], "{k}");
        }
    }

    #[test]
    fn every_addition_doubling_and_table_by_every_arithmetic() {
        additions_and_doublings(Portable);
        odd_multiples(Portable);
        #[cfg(target_arch = "x86_64")]
        if let Some(mulx) = tercio_unsafe_lanes::Mulx::detect() {
            additions_and_doublings(mulx);
            odd_multiples(mulx);
        }
    }
}
