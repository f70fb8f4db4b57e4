//! The question about x of [`super::verify`] for many signatures at a time, in affine coordinates.
//!
//! A doubling in affine coordinates takes 5 multiplications and 2 squarings, an addition 5 and 1,
//! where Jacobian coordinates take 4 and 4, and 8 and 3: but each needs the inverse of a
//! difference. All signatures take the same steps ([`super::integers`] says why), so one inversion
//! serves a step of all of them, with three multiplications each (Montgomery's trick, counted
//! above). Hence this is for hundreds of signatures, and [`super::integers`] for a few.
//!
//! The formulas do not cover sums that are infinity, nor additions of equal or opposite points. A
//! signature that meets one is left undecided here; whoever asks takes the formulas that cover
//! everything.

use super::abreast::{Elements, ODD_MULTIPLES};
use super::comb::{Comb, Form};
use super::field::{Arithmetic, Fe};
use super::integers::{GENERATOR_WINDOWS, KEY_WINDOWS};
use super::point::Affine;
use super::signature::Equation;
use std::array::from_fn;
use tercio_unsafe_lanes::recode::digit;
use tercio_unsafe_lanes::{GENERATOR_WINDOW, KEY_WINDOW};

/// The answers for keys without tables; none where the formulas do not cover the way to it.
pub(super) fn with_points<const N: usize>(
    questions: &[[(&Affine, &Equation); N]],
    by: impl Arithmetic,
) -> Vec<[Option<bool>; N]> {
    let multiples = odd_multiples(questions, by);
    let scalars: Vec<_> = (questions.iter())
        .map(|group| group.map(|(_, equation)| (equation.s.to_odd(), equation.t.to_odd())))
        .collect();
    let generator = Comb::generator_window(Form::Scalar);
    let of_key = |group: usize, window: usize| {
        from_fn(|i| {
            let t = &scalars[group][i].1;
            let digit = digit(&t.limbs, window, KEY_WINDOW, KEY_WINDOWS);
            multiples[group][digit.index][i].negate_where(digit.negative ^ t.negated)
        })
    };
    let first = (0..questions.len()).map(|group| of_key(group, KEY_WINDOWS - 1));
    let mut sums = Sums::new(first, by);
    for bit in (0..KEY_WINDOW * (KEY_WINDOWS - 1)).rev() {
        sums.double();
        if bit % KEY_WINDOW == 0 {
            sums.add(|group| of_key(group, bit / KEY_WINDOW));
        }
        if bit % GENERATOR_WINDOW == 0 {
            let window = bit / GENERATOR_WINDOW;
            sums.add(|group| {
                from_fn(|i| generator.term_of(&scalars[group][i].0, window, GENERATOR_WINDOWS))
            });
        }
    }
    sums.compare(questions.iter().map(|group| group.map(|(_, equation)| equation)))
}

/// The answers for keys with tables, which are in scalar form; none where the formulas do not cover
/// the way to it.
pub(super) fn with_tables<const N: usize>(
    questions: &[[(&Comb, &Equation); N]],
    by: impl Arithmetic,
) -> Vec<[Option<bool>; N]> {
    let Some(windows) = questions.first().map(|group| group[0].0.windows()) else { return vec![] };
    let scalars: Vec<_> = (questions.iter())
        .map(|group| group.map(|(_, equation)| (equation.s.to_odd(), equation.t.to_odd())))
        .collect();
    let of_key = |group: usize, window: usize| {
        from_fn(|i| questions[group][i].0.term(&scalars[group][i].1, window))
    };
    let mut sums = Sums::new((0..questions.len()).map(|group| of_key(group, 0)), by);
    for window in 1..windows {
        sums.add(|group| of_key(group, window));
    }
    let generator = Comb::generator(Form::Scalar);
    for window in 0..generator.windows() {
        sums.add(|group| from_fn(|i| generator.term(&scalars[group][i].0, window)));
    }
    sums.compare(questions.iter().map(|group| group.map(|(_, equation)| equation)))
}

/// P, 3 P, 5 P, .. of each key.
fn odd_multiples<const N: usize>(
    questions: &[[(&Affine, &Equation); N]],
    by: impl Arithmetic,
) -> Vec<[[Affine; N]; ODD_MULTIPLES]> {
    let mut sums = Sums::new(questions.iter().map(|group| group.map(|(point, _)| *point)), by);
    let mut multiples: Vec<_> =
        (0..questions.len()).map(|group| [sums.points(group); ODD_MULTIPLES]).collect();
    let mut twice = sums.clone();
    twice.double();
    for i in 1..ODD_MULTIPLES {
        // Never equal or opposite: P has a large prime order.
        sums.add(|group| twice.points(group));
        for (group, multiples) in multiples.iter_mut().enumerate() {
            multiples[i] = sums.points(group);
        }
    }
    multiples
}

/// Points that take every step together, N of them interleaved.
#[derive(Clone)]
struct Sums<A, const N: usize> {
    x: Vec<Elements<A, N>>,
    y: Vec<Elements<A, N>>,
    /// Whether a step of it was not covered: what stands for the point is then no sum of anything.
    undecided: Vec<[bool; N]>,
    /// Products of all that is inverted, up to each group.
    before: Vec<Elements<A, N>>,
    /// What an addition inverts, and what it is the other y in.
    differences: Vec<Elements<A, N>>,
    terms: Vec<Elements<A, N>>,
    one: Elements<A, N>,
}

impl<A: Arithmetic, const N: usize> Sums<A, N> {
    fn new(points: impl Iterator<Item = [Affine; N]>, by: A) -> Self {
        let (x, y): (Vec<_>, Vec<_>) = points
            .map(|points| {
                let x = Elements::new(points.each_ref().map(|point| point.x), by);
                (x, Elements::new(points.each_ref().map(|point| point.y), by))
            })
            .unzip();
        let one = Elements::new([Fe::ONE; N], by);
        let count = x.len();
        let undecided = vec![[false; N]; count];
        let [before, differences, terms] = from_fn(|_| vec![one; count]);
        Self { x, y, undecided, before, differences, terms, one }
    }

    fn points(&self, group: usize) -> [Affine; N] {
        from_fn(|i| Affine { x: self.x[group].each[i], y: self.y[group].each[i] })
    }

    /// Twice the points. No point has order two, so no y is zero.
    fn double(&mut self) {
        let mut product = self.one;
        for (y, before) in self.y.iter().zip(&mut self.before) {
            *before = product;
            product = product.mul(y);
        }
        let mut inverse = product.inverse();
        let points = self.x.iter_mut().zip(&mut self.y);
        for ((x, y), before) in points.zip(&self.before).rev() {
            let of_y = inverse.mul(before);
            inverse = inverse.mul(y);
            // 3 (x^2 - 1) / 2 y
            let less = x.square().sub(&self.one);
            let slope = less.add(&less.half()).mul(&of_y);
            let third = slope.square().sub(x).sub(x);
            *y = slope.mul(&x.sub(&third)).sub(y);
            *x = third;
        }
    }

    /// The sums with the points that `term` gives for a group.
    fn add(&mut self, term: impl Fn(usize) -> [Affine; N]) {
        let mut product = self.one;
        for group in 0..self.x.len() {
            let points = term(group);
            let x = Elements::new(points.each_ref().map(|point| point.x), self.one.by);
            let mut difference = x.sub(&self.x[group]);
            for i in 0..N {
                if difference.each[i].is_zero() {
                    difference.each[i] = Fe::ONE;
                    self.undecided[group][i] = true;
                }
            }
            self.differences[group] = difference;
            self.before[group] = product;
            product = product.mul(&difference);
            self.terms[group] = Elements::new(points.each_ref().map(|point| point.y), self.one.by);
        }
        let mut inverse = product.inverse();
        for group in (0..self.x.len()).rev() {
            let of_difference = inverse.mul(&self.before[group]);
            inverse = inverse.mul(&self.differences[group]);
            let (x, y) = (self.x[group], self.y[group]);
            let slope = self.terms[group].sub(&y).mul(&of_difference);
            // The term's x is the difference more than ours.
            let third = slope.square().sub(&x).sub(&x).sub(&self.differences[group]);
            self.y[group] = slope.mul(&x.sub(&third)).sub(&y);
            self.x[group] = third;
        }
    }

    /// Whether each sum's x is one of the two that are right.
    fn compare<'a>(
        &self,
        equations: impl Iterator<Item = [&'a Equation; N]>,
    ) -> Vec<[Option<bool>; N]> {
        let answer = |group: usize, i: usize, equation: &Equation| {
            (!self.undecided[group][i]).then(|| equation.x().contains(&self.x[group].each[i]))
        };
        equations
            .enumerate()
            .map(|(group, equations)| from_fn(|i| answer(group, i, equations[i])))
            .collect()
    }
}

impl<A: Arithmetic, const N: usize> Elements<A, N> {
    /// The inverses, of which none is of zero, with one inversion.
    fn inverse(&self) -> Self {
        let mut each = self.each;
        Fe::invert_all(&mut each, self.by);
        Self::new(each, self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::super::abreast::UNUSUAL;
    use super::super::field::Portable;
    use super::super::integers;
    use super::super::order::Scalar;
    use super::super::point::Jacobian;
    use super::*;

    const COUNT: usize = 24;

    /// i G for i from 1 on, each by adding G to the one before.
    fn multiples() -> Vec<Affine> {
        let step = |sum: &Jacobian| Some(sum.add_affine(&Affine::GENERATOR));
        let multiples = std::iter::successors(Some(Affine::GENERATOR.into()), step);
        Jacobian::to_affine(&multiples.take(COUNT * COUNT + COUNT).collect::<Vec<_>>())
    }

    fn scalar(k: usize) -> Scalar {
        Scalar::reduce_limbs(&[k as u64, 0, 0, 0])
    }

    /// s G + t P for small s and t and P = k G of either sign: on the way and at the end, sums meet
    /// their terms, the terms' opposites and infinity.
    fn small_sums(by: impl Arithmetic) {
        let multiples = multiples();
        let keys: Vec<(isize, Affine, Comb)> = (1..=3)
            .flat_map(|k: isize| [(k, 0), (-k, 1)])
            .map(|(k, negative)| {
                let point = multiples[k.unsigned_abs() - 1].negate_where(negative);
                (k, point, Comb::of_key(&point, Form::Scalar))
            })
            .collect();
        let (mut questions, mut right) = (vec![], vec![]);
        for (k, point, comb) in &keys {
            for (s, t) in (1..COUNT).flat_map(|s| (1..8).map(move |t| (s, t))) {
                let sum = s as isize + t as isize * k;
                // Anything is wrong where the sum is infinity.
                let at = &multiples[sum.unsigned_abs().max(1) - 1];
                let x = Scalar::reduce_limbs(&at.x.to_limbs());
                for (c, is_right) in [(x, sum != 0), (x.add(&scalar(1)), false)] {
                    questions.push((point, comb, Equation { s: scalar(s), t: scalar(t), c }));
                    right.push(is_right);
                }
            }
        }
        let points: Vec<_> = questions.iter().map(|(point, _, e)| (*point, e)).collect();
        let tables: Vec<_> = questions.iter().map(|(_, comb, e)| (*comb, e)).collect();
        let (groups, rest) = points.as_chunks::<4>();
        assert!(rest.is_empty(), "every question is in a group");
        for answers in [with_points(groups, by), with_tables(tables.as_chunks::<4>().0, by)] {
            let answers = answers.as_flattened();
            for (i, (answer, right)) in answers.iter().zip(&right).enumerate() {
                assert!(answer.is_none_or(|answer| answer == *right), "question {i}");
            }
            assert!(answers.iter().any(Option::is_none), "no step met what it does not cover");
            assert!(answers.contains(&Some(true)), "nothing was decided");
        }
        // And whoever asks gets the right answer to all.
        let before = UNUSUAL.get();
        assert_eq!(integers::with_points::<2>(&points, by), right);
        assert_eq!(integers::with_tables::<2>(&tables, by), right);
        assert!(UNUSUAL.get() > before, "what was left undecided went to what covers it");
    }

    #[test]
    fn small_sums_are_decided_rightly_or_not_at_all() {
        small_sums(Portable);
        #[cfg(target_arch = "x86_64")]
        if let Some(mulx) = tercio_unsafe_lanes::Mulx::detect() {
            small_sums(mulx);
        }
    }
}
