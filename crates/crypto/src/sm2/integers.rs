//! The question about x of [`super::verify`] on 64-bit integers, a few signatures abreast; many of
//! them take [`super::together`].
//!
//! As in the vector code, the scalars' digits are all odd, so every signature has the same
//! additions at the same places: a key's odd multiples below 2^5 and the generator's below 2^13
//! share one chain of doublings; with a key's table there is no doubling at all.

use super::abreast::{ODD_MULTIPLES, OddMultiples, Points};
use super::comb::{Comb, Form};
use super::field::{Arithmetic, Fe};
use super::point::Affine;
use super::signature::Equation;
use super::together;
use std::array::from_fn;
use tercio_unsafe_lanes::recode::digit;
use tercio_unsafe_lanes::{GENERATOR_WINDOW, KEY_WINDOW};

/// How many keys of a few signatures share an inversion: enough that the share of each is small.
const SHARING: usize = 32;

/// How many of them are interleaved, so that one need not wait for the other.
const ABREAST: usize = 4;
/// From how many questions on [`together`] is faster: with tables it is from 96, without from 160.
pub(super) const MANY: usize = 160;
/// How many it takes at a time: what it remembers of each, a kilobyte and more, stays near the
/// processor.
pub(super) const MOST: usize = 1024;

pub(super) const KEY_WINDOWS: usize = 256usize.div_ceil(KEY_WINDOW);
pub(super) const GENERATOR_WINDOWS: usize = 256usize.div_ceil(GENERATOR_WINDOW);

/// The answers for keys without tables.
pub(super) fn with_points<const N: usize>(
    questions: &[(&Affine, &Equation)],
    by: impl Arithmetic,
) -> Vec<bool> {
    answer(
        questions,
        |groups| together::with_points(groups, by),
        |few| few_with_points::<N>(few, by),
    )
}

/// The answers for keys with tables, which are in scalar form.
pub(super) fn with_tables<const N: usize>(
    questions: &[(&Comb, &Equation)],
    by: impl Arithmetic,
) -> Vec<bool> {
    answer(
        questions,
        |groups| together::with_tables(groups, by),
        |few| few_with_tables::<N>(few, by),
    )
}

/// Answers many questions together; those that this leaves undecided, and few, by what covers
/// everything.
fn answer<Q: Copy>(
    questions: &[Q],
    together: impl Fn(&[[Q; ABREAST]]) -> Vec<[Option<bool>; ABREAST]>,
    few: impl Fn(&[Q]) -> Vec<bool>,
) -> Vec<bool> {
    let mut answers = Vec::with_capacity(questions.len());
    for questions in questions.chunks(MOST) {
        if questions.len() < MANY {
            answers.extend(few(questions));
            continue;
        }
        let (groups, rest) = questions.as_chunks();
        let decided = together(groups).into_iter().flatten().zip(groups.as_flattened());
        answers.extend(decided.map(|(answer, question)| match answer {
            Some(answer) => answer,
            None => few(&[*question])[0],
        }));
        answers.extend(few(rest));
    }
    answers
}

fn few_with_points<const N: usize>(
    questions: &[(&Affine, &Equation)],
    by: impl Arithmetic,
) -> Vec<bool> {
    let mut answers = Vec::with_capacity(questions.len());
    for sharing in questions.chunks(SHARING) {
        let (groups, rest) = sharing.as_chunks::<N>();
        let groups: Vec<_> = groups.iter().map(|group| Untabled::new(*group, by)).collect();
        let rest: Vec<_> = rest.iter().map(|question| Untabled::new([*question], by)).collect();
        let of_groups = groups.iter().flat_map(|group| group.odd.z.each);
        let mut inverses: Vec<Fe> =
            of_groups.chain(rest.iter().flat_map(|one| one.odd.z.each)).collect();
        Fe::invert_all(&mut inverses, by);
        let (of_groups, of_rest) = inverses.split_at(groups.len() * N);
        for (group, inverses) in groups.iter().zip(of_groups.as_chunks().0) {
            answers.extend(group.answer(inverses, by));
        }
        for (one, inverses) in rest.iter().zip(of_rest.as_chunks().0) {
            answers.extend(one.answer(inverses, by));
        }
    }
    answers
}

fn few_with_tables<const N: usize>(
    questions: &[(&Comb, &Equation)],
    by: impl Arithmetic,
) -> Vec<bool> {
    let (groups, rest) = questions.as_chunks::<N>();
    let of_groups = groups.iter().flat_map(|group| tabled(group, by));
    of_groups.chain(rest.iter().flat_map(|question| tabled(&[*question], by))).collect()
}

/// Questions whose keys' multiples wait for an inverse.
struct Untabled<'a, A, const N: usize> {
    equations: [&'a Equation; N],
    odd: OddMultiples<A, N>,
}

impl<'a, A: Arithmetic, const N: usize> Untabled<'a, A, N> {
    fn new(questions: [(&Affine, &'a Equation); N], by: A) -> Self {
        let odd = OddMultiples::new(&questions.map(|(point, _)| *point), by);
        Self { equations: questions.map(|(_, equation)| equation), odd }
    }

    fn answer(&self, inverses: &[Fe; N], by: A) -> [bool; N] {
        let multiples: [[Affine; N]; ODD_MULTIPLES] = self.odd.to_affine(inverses);
        let generator = Comb::generator_window(Form::Scalar);
        let s = self.equations.map(|equation| equation.s.to_odd());
        let t = self.equations.map(|equation| equation.t.to_odd());
        let of_key = |window| {
            from_fn(|i| {
                let digit = digit(&t[i].limbs, window, KEY_WINDOW, KEY_WINDOWS);
                multiples[digit.index][i].negate_where(digit.negative ^ t[i].negated)
            })
        };
        let mut sum = Points::new(&of_key(KEY_WINDOWS - 1), by);
        for bit in (0..KEY_WINDOW * (KEY_WINDOWS - 1)).rev() {
            sum = sum.double();
            if bit % KEY_WINDOW == 0 {
                sum = sum.add(&of_key(bit / KEY_WINDOW));
            }
            if bit % GENERATOR_WINDOW == 0 {
                let window = bit / GENERATOR_WINDOW;
                sum = sum.add(&from_fn(|i| generator.term_of(&s[i], window, GENERATOR_WINDOWS)));
            }
        }
        compare(&sum, self.equations)
    }
}

fn tabled<A: Arithmetic, const N: usize>(questions: &[(&Comb, &Equation); N], by: A) -> [bool; N] {
    let generator = Comb::generator(Form::Scalar);
    let s = questions.map(|(_, equation)| equation.s.to_odd());
    let t = questions.map(|(_, equation)| equation.t.to_odd());
    let of_key = |window| from_fn(|i| questions[i].0.term(&t[i], window));
    let windows = questions[0].0.windows();
    let mut sum = Points::new(&of_key(0), by);
    for window in 1..windows {
        sum = sum.add(&of_key(window));
    }
    for window in 0..generator.windows() {
        sum = sum.add(&from_fn(|i| generator.term(&s[i], window)));
    }
    compare(&sum, questions.map(|(_, equation)| equation))
}

/// Whether each sum is not at infinity and its x = X / Z^2 is one of the two that are right.
fn compare<A: Arithmetic, const N: usize>(
    sum: &Points<A, N>,
    equations: [&Equation; N],
) -> [bool; N] {
    let zz = sum.z.square();
    from_fn(|i| {
        let right = |x: &Fe| x.mul(&zz.each[i]) == sum.x.each[i];
        !sum.z.each[i].is_zero() && equations[i].x().iter().any(right)
    })
}
