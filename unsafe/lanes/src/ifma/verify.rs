//! Eight verifications at once.

use super::curve::{Affine, Jacobian, ODD_MULTIPLES, OddMultiples};
use super::field::Fe;
use crate::recode::digit;
use crate::{Comb, GENERATOR_WINDOW, Job, KEY_WINDOW, Key, OddScalar, Outcome, Row};
use core::arch::x86_64::*;

/// How many groups of eight share one inversion. More need more memory for tables: 8 KiB each.
const GROUPS: usize = 16;
/// Bits that are looked at: the windows of both widths end at 260.
const BITS: usize = 260;
/// A group's tables: for each lane the odd multiples of its key.
type Tables = [[Row; ODD_MULTIPLES]; 8];

/// A register from a row.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(row: &Row) -> __m512i {
    // SAFETY: a row is 64 bytes, initialised and aligned to 64.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_load_si512(row.0.as_ptr().cast())
    }
}

/// A row from a register.
#[target_feature(enable = "avx512f")]
#[inline]
fn store(row: &mut Row, register: __m512i) {
    // SAFETY: a row is 64 bytes, ours alone and aligned to 64.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_store_si512(row.0.as_mut_ptr().cast(), register);
    }
}

/// Turns eight registers of eight words over: word i of register j becomes word j of register i.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(r: [__m512i; 8]) -> [__m512i; 8] {
    let low = |a, b| _mm512_unpacklo_epi64(a, b);
    let high = |a, b| _mm512_unpackhi_epi64(a, b);
    let pairs = [
        low(r[0], r[1]),
        high(r[0], r[1]),
        low(r[2], r[3]),
        high(r[2], r[3]),
        low(r[4], r[5]),
        high(r[4], r[5]),
        low(r[6], r[7]),
        high(r[6], r[7]),
    ];
    let even = |a, b| _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
    let odd = |a, b| _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b);
    // Words (0, 4), (2, 6), .. of four registers each.
    let (a0, a2) = (even(pairs[0], pairs[2]), odd(pairs[0], pairs[2]));
    let (a1, a3) = (even(pairs[1], pairs[3]), odd(pairs[1], pairs[3]));
    let (b0, b2) = (even(pairs[4], pairs[6]), odd(pairs[4], pairs[6]));
    let (b1, b3) = (even(pairs[5], pairs[7]), odd(pairs[5], pairs[7]));
    [
        even(a0, b0),
        even(a1, b1),
        even(a2, b2),
        even(a3, b3),
        odd(a0, b0),
        odd(a1, b1),
        odd(a2, b2),
        odd(a3, b3),
    ]
}

/// Eight points from a row each.
#[target_feature(enable = "avx512f,avx512vbmi2")]
#[inline]
fn gather(rows: [&Row; 8]) -> Affine {
    let mut registers = [_mm512_setzero_si512(); 8];
    for (register, row) in registers.iter_mut().zip(rows) {
        *register = load(row);
    }
    let [x0, x1, x2, x3, y0, y1, y2, y3] = transpose(registers);
    Affine { x: Fe::from_words(&[x0, x1, x2, x3]), y: Fe::from_words(&[y0, y1, y2, y3]) }
}

/// Eight points to a row each.
#[target_feature(enable = "avx512f")]
#[inline]
fn scatter(point: &Affine) -> [Row; 8] {
    let ([x0, x1, x2, x3], [y0, y1, y2, y3]) = (point.x.to_words(), point.y.to_words());
    let registers = transpose([x0, x1, x2, x3, y0, y1, y2, y3]);
    let mut rows = [Row::default(); 8];
    for (row, register) in rows.iter_mut().zip(registers) {
        store(row, register);
    }
    rows
}

/// Digit `window` of eight scalars: indices, and the lanes to subtract in.
#[inline(always)]
fn digits(
    scalars: [&OddScalar; 8],
    window: usize,
    width: usize,
    windows: usize,
) -> ([usize; 8], u8) {
    let (mut indices, mut negative) = ([0; 8], 0);
    for (lane, scalar) in scalars.iter().enumerate() {
        let digit = digit(&scalar.limbs, window, width, windows);
        indices[lane] = digit.index;
        negative |= ((digit.negative ^ scalar.negated) as u8) << lane;
    }
    (indices, negative)
}

/// See [`super::Ifma::check`].
#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
pub(super) fn check(generator: &Comb<'_>, jobs: &[Job<'_>]) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(jobs.len());
    for batch in jobs.chunks(8 * GROUPS) {
        // The last group's empty lanes repeat its last job.
        let groups: Vec<[&Job<'_>; 8]> = batch
            .chunks(8)
            .map(|group| std::array::from_fn(|lane| &group[lane.min(group.len() - 1)]))
            .collect();
        let sums: Vec<Jacobian> = match batch[0].key {
            Key::Table(_) => {
                let mut sums = Vec::with_capacity(groups.len());
                for group in &groups {
                    sums.push(with_tables(generator, group));
                }
                sums
            }
            Key::Point(_) => with_points(generator, &groups),
        };
        for ((sum, group), jobs) in sums.iter().zip(&groups).zip(batch.chunks(8)) {
            let (equal, undecided) = compare(sum, group);
            outcomes.extend((0..jobs.len()).map(|lane| match (undecided >> lane, equal >> lane) {
                (u, _) if u & 1 == 1 => Outcome::Undecided,
                (_, e) if e & 1 == 1 => Outcome::Equal,
                _ => Outcome::Different,
            }));
        }
    }
    outcomes
}

/// Lanes whose x is one of the job's two, and lanes that met a case outside of the formulas.
#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
fn compare(sum: &Jacobian, group: &[&Job<'_>; 8]) -> (u8, u8) {
    let rows: [Row; 8] = std::array::from_fn(|lane| {
        let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = group[lane].x;
        Row([a0, a1, a2, a3, b0, b1, b2, b3])
    });
    let candidates = gather(rows.each_ref());
    let zz = sum.z.square().carry(); // 2
    let mut equal = 0;
    for x in [candidates.x, candidates.y] {
        let difference = x.mul(&zz).sub(&sum.x.sum()).plus_p(3).carry();
        equal |= difference.zero_mask();
    }
    (equal, sum.z.zero_mask())
}

/// s G + t P for keys with tables: one addition a window, and no doubling.
#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
fn with_tables(generator: &Comb<'_>, group: &[&Job<'_>; 8]) -> Jacobian {
    let tables: [&Comb<'_>; 8] = group.map(|job| match &job.key {
        Key::Table(comb) => comb,
        Key::Point(_) => panic!("a point among tables"),
    });
    let width = tables[0].width;
    assert!(tables.iter().all(|table| table.width == width), "tables of different widths");
    let (s, t) = (group.map(|job| &job.s), group.map(|job| &job.t));
    let size = 1 << (width - 1);
    let windows = 256usize.div_ceil(width);
    let (indices, negative) = digits(t, 0, width, windows);
    let rows = std::array::from_fn(|lane| &tables[lane].rows[indices[lane]]);
    let mut sum = Jacobian::from_affine(&gather(rows), negative);
    for window in 1..windows {
        let (indices, negative) = digits(t, window, width, windows);
        let rows = std::array::from_fn(|lane| &tables[lane].rows[window * size + indices[lane]]);
        sum = sum.add(&gather(rows), negative);
    }
    let size = 1 << (generator.width - 1);
    let windows = 256usize.div_ceil(generator.width);
    for window in 0..windows {
        let (indices, negative) = digits(s, window, generator.width, windows);
        let rows = indices.map(|index| &generator.rows[window * size + index]);
        sum = sum.add(&gather(rows), negative);
    }
    sum
}

/// s G + t P for keys without tables: short ones are made, all groups sharing one inversion; then
/// both products in one row of doublings.
#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
fn with_points(generator: &Comb<'_>, groups: &[[&Job<'_>; 8]]) -> Vec<Jacobian> {
    let mut multiples = Vec::with_capacity(groups.len());
    for group in groups {
        let rows = group.each_ref().map(|job| match &job.key {
            Key::Point(row) => row,
            Key::Table(_) => panic!("a table among points"),
        });
        multiples.push(OddMultiples::new(&gather(rows)));
    }
    let mut product = Fe::one();
    let mut before = Vec::with_capacity(groups.len());
    for table in &multiples {
        before.push(product);
        product = product.mul(&table.z).carry(); // 2.3
    }
    let mut inverse = product.invert();
    let mut sums = Vec::with_capacity(groups.len());
    let mut tables: Tables = [[Row::default(); ODD_MULTIPLES]; 8];
    for ((group, multiples), before) in groups.iter().zip(&multiples).zip(&before).rev() {
        let own = inverse.mul(before).carry(); // 1.5
        inverse = inverse.mul(&multiples.z).carry(); // 1.6
        for (i, point) in multiples.to_affine(&own).iter().enumerate() {
            for (table, row) in tables.iter_mut().zip(scatter(point)) {
                table[i] = row;
            }
        }
        sums.push(one_group(generator, group, &tables));
    }
    sums.reverse();
    sums
}

#[target_feature(enable = "avx512f,avx512ifma,avx512vbmi2")]
fn one_group(generator: &Comb<'_>, group: &[&Job<'_>; 8], tables: &Tables) -> Jacobian {
    let (s, t) = (group.map(|job| &job.s), group.map(|job| &job.t));
    let mut position = BITS - KEY_WINDOW;
    let (indices, negative) = digits(t, position / KEY_WINDOW, KEY_WINDOW, BITS / KEY_WINDOW);
    let rows = std::array::from_fn(|lane| &tables[lane][indices[lane]]);
    let mut sum = Jacobian::from_affine(&gather(rows), negative);
    while position > 0 {
        sum = sum.double();
        position -= 1;
        if position.is_multiple_of(KEY_WINDOW) {
            let window = position / KEY_WINDOW;
            let (indices, negative) = digits(t, window, KEY_WINDOW, BITS / KEY_WINDOW);
            let rows = std::array::from_fn(|lane| &tables[lane][indices[lane]]);
            sum = sum.add(&gather(rows), negative);
        }
        if position.is_multiple_of(GENERATOR_WINDOW) {
            let (window, windows) = (position / GENERATOR_WINDOW, BITS / GENERATOR_WINDOW);
            let (indices, negative) = digits(s, window, GENERATOR_WINDOW, windows);
            sum = sum.add(&gather(indices.map(|index| &generator.rows[index])), negative);
        }
    }
    sum
}
