//! Cryptography in instructions that only some processors have: SM2 verifications in eight lanes of
//! AVX-512 IFMA, SM2's field on 64-bit integers with MULX, and SHA-256 and SM3 hashes in sixteen lanes. Named
//! for what the rest of the workspace forbids: calling a function that uses such instructions is
//! `unsafe`, and so are assembly and moving a register to and from memory; each such block says why
//! it is sound.
//!
//! Nothing here decides what a valid key or signature is. `tercio-crypto` does, and asks this
//! crate for the arithmetic; a lane in which the fast formulas meet a case that they do not cover
//! is reported as [`Outcome::Undecided`] and goes to the scalar code.

#[cfg(target_arch = "x86_64")]
mod ifma;
#[cfg(target_arch = "x86_64")]
mod mulx;
pub mod recode;
mod row;
pub mod sha256;
pub mod sm3;
pub mod words;

#[cfg(target_arch = "x86_64")]
pub use ifma::Ifma;
#[cfg(target_arch = "x86_64")]
pub use mulx::Mulx;
pub use row::Row;

/// How many bits a table's coordinates are shifted by: they are in Montgomery form with
/// R = 2^260, five limbs of 52 bits.
pub const MONTGOMERY_BITS: u32 = 260;

/// Width in bits of the windows on a key without a table of its own.
pub const KEY_WINDOW: usize = 5;
/// Width in bits of the windows on the generator when the doublings are there anyway.
pub const GENERATOR_WINDOW: usize = 13;

/// A table of odd multiples of one point: row `window * 2^(width - 1) + i` holds
/// `(2 i + 1) 2^(width window)` times the point, in Montgomery form with R = 2^260, below p.
#[derive(Clone, Copy, Debug)]
pub struct Comb<'a> {
    /// Width of a window in bits.
    pub width: usize,
    /// The rows, `2^(width - 1)` a window; the windows cover at least 256 bits, unless the
    /// evaluation doubles between them.
    pub rows: &'a [Row],
}

/// One `k P` of a verification, with `k` made odd: `k`, or `n - k` and the sum negated.
#[derive(Clone, Copy, Debug, Default)]
pub struct OddScalar {
    /// The odd number, below n.
    pub limbs: [u64; 4],
    /// 1 when it stands for its negative.
    pub negated: u64,
}

/// A signature to check: whether x of `s G + t P` is one of two numbers.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The factor of the generator.
    pub s: OddScalar,
    /// The factor of the key.
    pub t: OddScalar,
    /// The key P.
    pub key: Key<'a>,
    /// The two values of x that are right (mostly twice the same), in Montgomery form, below p.
    pub x: [[u64; 4]; 2],
}

/// A key, which is a point of the curve in either form.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// The point alone, in Montgomery form with R = 2^260, below p.
    Point(Row),
    /// The point's table.
    Table(Comb<'a>),
}

/// What the arithmetic found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// x is one of the two.
    Equal,
    /// It is neither.
    Different,
    /// An addition met a point equal or opposite to its other operand, or the sum is at infinity.
    Undecided,
}
