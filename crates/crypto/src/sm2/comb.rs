//! Tables of odd multiples, and sums taken from them.

use super::field::Fe;
use super::order::Scalar;
use super::point::{Affine, Homogeneous, Jacobian};
use std::sync::OnceLock;
use tercio_unsafe_lanes::recode::digit;
use tercio_unsafe_lanes::{GENERATOR_WINDOW, MONTGOMERY_BITS, OddScalar, Row};

/// Width of the windows on the generator.
const GENERATOR_WIDTH: usize = 8;
/// Width of the windows on a known key: 43 windows of 32 points, 86 KiB.
const KEY_WIDTH: usize = 6;

/// The form of a table's coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Montgomery form of the scalar field.
    Scalar,
    /// Montgomery form of the vector field.
    Vector,
}

impl Form {
    /// R is 2 to this.
    fn bits(self) -> u32 {
        match self {
            Self::Scalar => 256,
            Self::Vector => MONTGOMERY_BITS,
        }
    }

    /// A point as a row of a table.
    pub(crate) fn row(self, point: &Affine) -> Row {
        let [x0, x1, x2, x3] = point.x.to_montgomery(self.bits());
        let [y0, y1, y2, y3] = point.y.to_montgomery(self.bits());
        Row([x0, x1, x2, x3, y0, y1, y2, y3])
    }
}

/// Row `window * 2^(width - 1) + i` holds `(2 i + 1) 2^(width window)` times a point.
pub(crate) struct Comb {
    width: usize,
    windows: usize,
    rows: Vec<Row>,
}

impl std::fmt::Debug for Comb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Comb({} windows of {} bits)", self.windows, self.width)
    }
}

impl Comb {
    fn new(point: &Affine, width: usize, windows: usize, form: Form) -> Self {
        // For each window 2^(width window) P and twice that.
        let mut steps = Vec::with_capacity(2 * windows);
        let mut base = Jacobian::from(*point);
        for _ in 0..windows {
            let twice = base.double();
            steps.extend([base, twice]);
            base = (1..width).fold(twice, |point, _| point.double());
        }
        let steps = Jacobian::to_affine(&steps);
        let mut rows = Vec::with_capacity(windows << (width - 1));
        for pair in steps.chunks_exact(2) {
            let next = |sum: &Jacobian| Some(sum.add_affine(&pair[1]));
            let odd: Vec<_> = std::iter::successors(Some(Jacobian::from(pair[0])), next)
                .take(1 << (width - 1))
                .collect();
            rows.extend(Jacobian::to_affine(&odd).iter().map(|point| form.row(point)));
        }
        Self { width, windows, rows }
    }

    /// The table of a key that is met often.
    pub(crate) fn of_key(point: &Affine, form: Form) -> Self {
        Self::new(point, KEY_WIDTH, 256usize.div_ceil(KEY_WIDTH), form)
    }

    /// The size of a key's table in bytes.
    pub(crate) const KEY_BYTES: usize =
        256usize.div_ceil(KEY_WIDTH) * (1 << (KEY_WIDTH - 1)) * size_of::<Row>();

    /// The generator's table, made at first use.
    pub(crate) fn generator(form: Form) -> &'static Self {
        static TABLES: [OnceLock<Comb>; 2] = [OnceLock::new(), OnceLock::new()];
        TABLES[usize::from(form == Form::Vector)].get_or_init(|| {
            let windows = 256usize.div_ceil(GENERATOR_WIDTH);
            Self::new(&Affine::GENERATOR, GENERATOR_WIDTH, windows, form)
        })
    }

    /// One wide window on the generator, for sums that are doubled anyway.
    pub(crate) fn generator_window(form: Form) -> &'static Self {
        static TABLES: [OnceLock<Comb>; 2] = [OnceLock::new(), OnceLock::new()];
        TABLES[usize::from(form == Form::Vector)]
            .get_or_init(|| Self::new(&Affine::GENERATOR, GENERATOR_WINDOW, 1, form))
    }

    /// The table as the vector code takes it.
    pub(crate) fn as_lanes(&self) -> tercio_unsafe_lanes::Comb<'_> {
        tercio_unsafe_lanes::Comb { width: self.width, rows: &self.rows }
    }

    /// How many windows there are.
    pub(crate) fn windows(&self) -> usize {
        self.windows
    }

    /// What `window` of k adds to a sum for k P. The table is in scalar form.
    #[inline(always)]
    pub(crate) fn term(&self, k: &OddScalar, window: usize) -> Affine {
        let digit = digit(&k.limbs, window, self.width, self.windows);
        point(&self.rows[(window << (self.width - 1)) + digit.index])
            .negate_where(digit.negative ^ k.negated)
    }

    /// The same of a table of one window, for sums that are doubled between the `windows` windows
    /// of k.
    #[inline(always)]
    pub(crate) fn term_of(&self, k: &OddScalar, window: usize, windows: usize) -> Affine {
        let digit = digit(&k.limbs, window, self.width, windows);
        point(&self.rows[digit.index]).negate_where(digit.negative ^ k.negated)
    }

    /// `k P` for a secret k that is not zero: every row of a window is read, whichever is wanted,
    /// and the additions are complete. The table is in scalar form.
    pub(crate) fn secret_multiple(&self, k: &Scalar) -> Affine {
        let odd = k.to_odd();
        let look_up = |window: usize| {
            let digit = digit(&odd.limbs, window, self.width, self.windows);
            let size = 1 << (self.width - 1);
            let mut row = [0; 8];
            for (i, candidate) in self.rows[window * size..][..size].iter().enumerate() {
                let mask = equal_mask(i as u64, digit.index as u64);
                for (limb, candidate) in row.iter_mut().zip(candidate.0) {
                    *limb |= candidate & mask;
                }
            }
            point(&Row(row)).negate_where(digit.negative ^ odd.negated)
        };
        (1..self.windows)
            .fold(Homogeneous::from(look_up(0)), |sum, window| sum.add_affine(&look_up(window)))
            .to_affine()
    }
}

/// All ones when `a == b`, else zero, for numbers below 2^63.
#[inline(always)]
fn equal_mask(a: u64, b: u64) -> u64 {
    std::hint::black_box((a ^ b).wrapping_sub(1) >> 63).wrapping_neg()
}

#[inline(always)]
fn point(row: &Row) -> Affine {
    let [x0, x1, x2, x3, y0, y1, y2, y3] = row.0;
    let x = Fe::from_montgomery([x0, x1, x2, x3]);
    Affine { x, y: Fe::from_montgomery([y0, y1, y2, y3]) }
}

impl Scalar {
    /// This number, or where it is even n minus it, and then marked so. Not for zero.
    pub(crate) fn to_odd(self) -> OddScalar {
        let even = 1 ^ (self.limbs()[0] & 1);
        OddScalar { limbs: *self.select(&self.neg(), even).limbs(), negated: even }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sum + k P`.
    fn add_multiple(comb: &Comb, sum: Jacobian, k: &Scalar) -> Jacobian {
        let k = k.to_odd();
        (0..comb.windows).fold(sum, |sum, window| sum.add_affine(&comb.term(&k, window)))
    }

    fn small(k: u8) -> Scalar {
        let mut bytes = [0; 32];
        bytes[31] = k;
        Scalar::reduce(&bytes)
    }

    #[test]
    fn multiples_of_the_generator() {
        let comb = Comb::generator(Form::Scalar);
        let mut expected = Jacobian::INFINITY;
        for k in 1..40 {
            expected = expected.add_affine(&Affine::GENERATOR);
            let affine = Jacobian::to_affine(&[expected])[0];
            for (scalar, point) in [(small(k), affine), (small(k).neg(), affine.neg())] {
                let sum = add_multiple(comb, Jacobian::INFINITY, &scalar);
                assert_eq!(Jacobian::to_affine(&[sum]), [point], "{k}");
                assert_eq!(comb.secret_multiple(&scalar), point, "{k}");
                // From a start that makes additions meet equal and opposite points.
                let sum = add_multiple(comb, point.neg().into(), &scalar);
                assert!(sum.is_infinity(), "{k}");
            }
        }
    }

    #[test]
    fn a_keys_table_is_a_table_of_its_point() {
        let point = Jacobian::from(Affine::GENERATOR).double();
        let key = Comb::of_key(&Jacobian::to_affine(&[point])[0], Form::Scalar);
        assert_eq!(size_of_val(&key.rows[..]), Comb::KEY_BYTES);
        let of = |k| add_multiple(&key, Jacobian::INFINITY, &small(k));
        let generator = Comb::generator(Form::Scalar);
        let by_generator = |k| add_multiple(generator, Jacobian::INFINITY, &small(k));
        for k in [1, 2, 77, 100] {
            let points = Jacobian::to_affine(&[of(k), by_generator(2 * k)]);
            assert_eq!(points[0], points[1]);
        }
    }
}
