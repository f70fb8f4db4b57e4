//! Points of SM2's curve, y^2 = x^3 - 3 x + b over the field of [`super::field`].
//!
//! Two sets of formulas. What knows no secret (tables, and in [`super::integers`] verification):
//! Jacobian coordinates (X / Z^2, Y / Z^3), with branches for the cases that the formulas do not
//! cover. Signing uses the complete formulas
//! of Renes, Costello and Batina (Eurocrypt 2016, algorithm 5) in homogeneous coordinates
//! (X / Z, Y / Z), which have no such cases and so nothing to branch on.

use super::field::{Fe, Portable};
use super::limbs::{self, Limbs};

/// The curve's coefficient b.
pub(crate) const B: Limbs =
    [0xddbc_bd41_4d94_0e93, 0xf397_89f5_15ab_8f92, 0x4d5a_9e4b_cf65_09a7, 0x28e9_fa9e_9d9f_5e34];

/// The same as an element.
const CURVE_B: Fe = Fe::constant(&B);

/// A point that is not at infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub(crate) x: Fe,
    pub(crate) y: Fe,
}

impl Affine {
    /// The generator.
    pub(crate) const GENERATOR: Self = Self {
        x: Fe::constant(&[
            0x715a_4589_334c_74c7,
            0x8fe3_0bbf_f266_0be1,
            0x5f99_0446_6a39_c994,
            0x32c4_ae2c_1f19_8119,
        ]),
        y: Fe::constant(&[
            0x02df_32e5_2139_f0a0,
            0xd0a9_877c_c62a_4740,
            0x59bd_cee3_6b69_2153,
            0xbc37_36a2_f4f6_779c,
        ]),
    };

    /// The point of two coordinates, when they are below p and on the curve.
    pub(crate) fn new(x: &Limbs, y: &Limbs) -> Option<Self> {
        if !limbs::less(x, &super::field::P) || !limbs::less(y, &super::field::P) {
            return None;
        }
        let (x, y) = (Fe::from_limbs(x), Fe::from_limbs(y));
        const THREE: Fe = Fe::constant(&[3, 0, 0, 0]);
        let right = x.square().sub(&THREE).mul(&x).add(&CURVE_B);
        (y.square() == right).then_some(Self { x, y })
    }

    #[cfg(test)]
    pub(crate) fn neg(&self) -> Self {
        Self { x: self.x, y: self.y.neg() }
    }

    /// The opposite where `choice` is 1, this where it is 0, without a branch.
    #[inline(always)]
    pub(crate) fn negate_where(&self, choice: u64) -> Self {
        Self { x: self.x, y: self.y.select(&self.y.neg(), choice) }
    }
}

/// A point in Jacobian coordinates; at infinity where Z is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jacobian {
    pub(crate) x: Fe,
    pub(crate) y: Fe,
    pub(crate) z: Fe,
}

impl From<Affine> for Jacobian {
    fn from(point: Affine) -> Self {
        Self { x: point.x, y: point.y, z: Fe::ONE }
    }
}

impl Jacobian {
    pub(crate) const INFINITY: Self = Self { x: Fe::ONE, y: Fe::ONE, z: Fe::ZERO };

    pub(crate) const fn is_infinity(&self) -> bool {
        self.z.is_zero()
    }

    #[cfg(test)]
    pub(crate) fn neg(&self) -> Self {
        Self { x: self.x, y: self.y.neg(), z: self.z }
    }

    /// Twice the point. Infinity gives infinity: no point has order two, so Y is never zero.
    #[inline(never)]
    pub(crate) fn double(&self) -> Self {
        let delta = self.z.square();
        let gamma = self.y.square();
        let beta4 = self.x.mul(&gamma).double().double();
        let alpha = self.x.sub(&delta).mul(&self.x.add(&delta));
        let alpha = alpha.double().add(&alpha);
        let x = alpha.square().sub(&beta4.double());
        let z = self.y.mul(&self.z).double();
        let gamma2 = gamma.double().square().double();
        let y = alpha.mul(&beta4.sub(&x)).sub(&gamma2);
        Self { x, y, z }
    }

    /// The sum with a point that is not at infinity, whatever both are.
    #[inline]
    pub(crate) fn add_affine(&self, other: &Affine) -> Self {
        if self.is_infinity() {
            return (*other).into();
        }
        let zz = self.z.square();
        let h = other.x.mul(&zz).sub(&self.x);
        let r = other.y.mul(&zz.mul(&self.z)).sub(&self.y);
        if h.is_zero() {
            return if r.is_zero() { self.double() } else { Self::INFINITY };
        }
        let hh = h.square();
        let hhh = h.mul(&hh);
        let v = self.x.mul(&hh);
        let x = r.square().sub(&hhh).sub(&v.double());
        let y = r.mul(&v.sub(&x)).sub(&self.y.mul(&hhh));
        Self { x, y, z: self.z.mul(&h) }
    }

    /// Affine forms of points of which none is at infinity, with one inversion for all.
    pub(crate) fn to_affine(points: &[Self]) -> Vec<Affine> {
        let mut inverses: Vec<Fe> = points.iter().map(|point| point.z).collect();
        Fe::invert_all(&mut inverses, Portable);
        let affine = |(point, inverse): (&Self, &Fe)| {
            let squared = inverse.square();
            Affine { x: point.x.mul(&squared), y: point.y.mul(&squared.mul(inverse)) }
        };
        points.iter().zip(&inverses).map(affine).collect()
    }
}

/// A point in homogeneous coordinates, for the complete formulas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homogeneous {
    pub(crate) x: Fe,
    pub(crate) y: Fe,
    pub(crate) z: Fe,
}

impl From<Affine> for Homogeneous {
    fn from(point: Affine) -> Self {
        Self { x: point.x, y: point.y, z: Fe::ONE }
    }
}

impl Homogeneous {
    pub(crate) const INFINITY: Self = Self { x: Fe::ZERO, y: Fe::ONE, z: Fe::ZERO };

    /// Twice the point (algorithm 6), by one sequence of operations for all inputs.
    pub(crate) fn double(&self) -> Self {
        let (xx, yy, zz) = (self.x.square(), self.y.square(), self.z.square());
        let xy2 = self.x.mul(&self.y).double();
        let xz2 = self.x.mul(&self.z).double();
        let yz2 = self.y.mul(&self.z).double();
        let zz3 = zz.double().add(&zz);
        let a = CURVE_B.mul(&zz).sub(&xz2);
        let a = a.double().add(&a);
        let (minus, plus) = (yy.sub(&a), yy.add(&a));
        let b = CURVE_B.mul(&xz2).sub(&zz3).sub(&xx);
        let b = b.double().add(&b);
        let c = xx.double().add(&xx).sub(&zz3);
        Self {
            x: minus.mul(&xy2).sub(&yz2.mul(&b)),
            y: minus.mul(&plus).add(&c.mul(&b)),
            z: yz2.mul(&yy).double().double(),
        }
    }

    /// `other` where `choice` is 1, this where it is 0, without a branch.
    pub(crate) fn select(&self, other: &Self, choice: u64) -> Self {
        Self {
            x: self.x.select(&other.x, choice),
            y: self.y.select(&other.y, choice),
            z: self.z.select(&other.z, choice),
        }
    }

    /// The sum with a point that is not at infinity, by one sequence of operations for all inputs.
    pub(crate) fn add_affine(&self, other: &Affine) -> Self {
        let t0 = self.x.mul(&other.x);
        let t1 = self.y.mul(&other.y);
        // x1 y2 + x2 y1, y1 + y2 z1, x1 + x2 z1.
        let cross = self.x.add(&self.y).mul(&other.x.add(&other.y)).sub(&t0.add(&t1));
        let yz = other.y.mul(&self.z).add(&self.y);
        let xz = other.x.mul(&self.z).add(&self.x);
        let a = xz.sub(&CURVE_B.mul(&self.z));
        let a = a.double().add(&a);
        let (minus, plus) = (t1.sub(&a), t1.add(&a));
        let z3 = self.z.double().add(&self.z);
        let b = CURVE_B.mul(&xz).sub(&z3).sub(&t0);
        let b = b.double().add(&b);
        let t0 = t0.double().add(&t0).sub(&z3);
        Self {
            x: cross.mul(&plus).sub(&yz.mul(&b)),
            y: plus.mul(&minus).add(&t0.mul(&b)),
            z: yz.mul(&minus).add(&cross.mul(&t0)),
        }
    }

    /// The point's affine form; nonsense for infinity.
    pub(crate) fn to_affine(self) -> Affine {
        let inverse = self.z.invert(Portable);
        Affine { x: self.x.mul(&inverse), y: self.y.mul(&inverse) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &Jacobian, b: &Jacobian) -> bool {
        let (za, zb) = (a.z.square(), b.z.square());
        if a.is_infinity() || b.is_infinity() {
            return a.is_infinity() && b.is_infinity();
        }
        a.x.mul(&zb) == b.x.mul(&za) && a.y.mul(&zb.mul(&b.z)) == b.y.mul(&za.mul(&a.z))
    }

    /// i G for i in 0..64, each by adding G to the one before.
    fn multiples() -> Vec<Jacobian> {
        let step = |sum: &Jacobian| Some(sum.add_affine(&Affine::GENERATOR));
        std::iter::successors(Some(Jacobian::INFINITY), step).take(64).collect()
    }

    #[test]
    fn the_generator_is_on_the_curve() {
        let g = Affine::GENERATOR;
        assert_eq!(Affine::new(&g.x.to_limbs(), &g.y.to_limbs()), Some(g));
        assert!(Affine::new(&g.y.to_limbs(), &g.x.to_limbs()).is_none());
        assert!(Affine::new(&super::super::field::P, &g.y.to_limbs()).is_none());
    }

    #[test]
    fn additions_hold_in_every_case() {
        let multiples = multiples();
        for i in 0..32 {
            for j in 0..32 {
                let (a, b) = (&multiples[i], &multiples[j]);
                let expected = multiples[i.abs_diff(j)];
                let expected = if i < j { expected.neg() } else { expected };
                if j > 0 {
                    let affine = Jacobian::to_affine(&[*b])[0];
                    assert!(same(&a.add_affine(&affine), &multiples[i + j]), "{i} + {j}");
                    assert!(same(&a.add_affine(&affine.neg()), &expected), "{i} - {j}");
                }
            }
            assert!(same(&multiples[i].double(), &multiples[2 * i]));
        }
    }

    #[test]
    fn complete_addition_agrees() {
        let multiples = multiples();
        let affine = Jacobian::to_affine(&multiples[1..]);
        for i in 1..32 {
            for j in 1..32 {
                let (a, b) = (&affine[i - 1], &affine[j - 1]);
                if i == j {
                    let twice = Homogeneous::from(*a).double();
                    assert_eq!(twice.to_affine(), affine[2 * i - 1], "twice {i}");
                    assert!(Homogeneous::INFINITY.double().z.is_zero());
                }
                let plus = Homogeneous::from(*a).add_affine(b);
                assert_eq!(plus.to_affine(), affine[i + j - 1], "{i} + {j}");
                let minus = Homogeneous::from(*a).add_affine(&b.neg());
                if i == j {
                    assert!(minus.z.is_zero());
                    // And on from infinity.
                    assert_eq!(minus.add_affine(b).to_affine(), *b);
                } else {
                    assert_eq!(minus.to_affine().x, affine[i.abs_diff(j) - 1].x, "{i} - {j}");
                }
            }
        }
    }
}
