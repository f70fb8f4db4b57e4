//! The field modulo p = 2^256 - 2^224 - 2^96 + 2^64 - 1 on 64-bit integers, in the instructions
//! that a compiler does not find: MULX, which leaves the flags alone, and chains of ADC and SBB.
//!
//! An element is four limbs, least significant first, in Montgomery form with R = 2^256 and below
//! p. Every function here needs that of its operands and keeps it; with others the number is wrong
//! and nothing worse happens.
//!
//! Reduction takes two limbs away at a time and no multiplication by p. Since p = -1 modulo 2^64,
//! the quotient digits of t are q0 = t0 and q1 = t1 + q0 - a modulo 2^64, where
//! (q1 2^64 + q0) 2^32 = c 2^128 + b 2^64 + a. Then t + q p has no limbs 0 and 1, and to limbs 1 to
//! 5 of t it adds q0, q1, 0, q0, q1 and takes away a, b, a + c, b, c; a + c does not carry, since a
//! ends in 32 zeros and c < 2^32. Both shifts are multiplications by 2^32, which the multipliers
//! have time for.
//!
//! No function branches on a value or reads memory at an address that depends on one.

use core::arch::asm;

/// The prime.
static P: [u64; 4] =
    [0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000, 0xffff_ffff_ffff_ffff, 0xffff_fffe_ffff_ffff];

/// The right to use MULX: there is a value only on a processor that has it.
#[derive(Clone, Copy, Debug)]
pub struct Mulx(());

/// Adds `[a + offset] b` to the four limbs `t`, and what is above them to `top`, which is `x4`
/// itself where there was no such limb.
macro_rules! row {
    ($offset:literal, $t0:literal, $t1:literal, $t2:literal, $t3:literal, $x4:literal, $top:literal) => {
        concat!(
            "mov rdx, [{a} + ",
            $offset,
            "]\n",
            "mulx {x1}, {x0}, [{b}]\n",
            "mulx {x2}, ",
            $x4,
            ", [{b} + 8]\n",
            "add {x1}, ",
            $x4,
            "\n",
            "mulx {x3}, ",
            $x4,
            ", [{b} + 16]\n",
            "adc {x2}, ",
            $x4,
            "\n",
            "mulx ",
            $x4,
            ", rdx, [{b} + 24]\n",
            "adc {x3}, rdx\n",
            "adc ",
            $x4,
            ", 0\n",
            "add ",
            $t0,
            ", {x0}\n",
            "adc ",
            $t1,
            ", {x1}\n",
            "adc ",
            $t2,
            ", {x2}\n",
            "adc ",
            $t3,
            ", {x3}\n",
            "adc ",
            $top,
            "\n",
        )
    };
}

/// Takes the limbs `t0` and `t1` away by adding a multiple of p, and puts the carry out of `t5`
/// into `t6` (`t6e` is its lower half). Uses x0 to x3 and rdx.
macro_rules! fold {
    ($t0:literal, $t1:literal, $t2:literal, $t3:literal, $t4:literal, $t5:literal, $t6:literal,
     $t6e:literal, $before:literal) => {
        concat!(
            "mov rdx, 0x100000000\n",
            "mulx {x1}, {x0}, ",
            $t0,
            "\n", // x0 = a
            "lea {x2}, [",
            $t0,
            " + ",
            $t1,
            "]\n",
            "sub {x2}, {x0}\n",       // x2 = q1
            "mulx rdx, {x3}, {x2}\n", // rdx = c
            "mov ",
            $t6e,
            ", 0\n",
            $before,
            "lea {x3}, [{x3} + {x1}]\n", // x3 = b
            "lea {x1}, [{x0} + rdx]\n",  // x1 = a + c
            "add ",
            $t1,
            ", ",
            $t0,
            "\n",
            "adc ",
            $t2,
            ", {x2}\n",
            "adc ",
            $t3,
            ", 0\n",
            "adc ",
            $t4,
            ", ",
            $t0,
            "\n",
            "adc ",
            $t5,
            ", {x2}\n",
            "adc ",
            $t6,
            ", 0\n",
            "sub ",
            $t1,
            ", {x0}\n",
            "sbb ",
            $t2,
            ", {x3}\n",
            "sbb ",
            $t3,
            ", {x1}\n",
            "sbb ",
            $t4,
            ", {x3}\n",
            "sbb ",
            $t5,
            ", rdx\n",
            "sbb ",
            $t6,
            ", 0\n",
        )
    };
}

/// Brings the limbs `t`, and 2^256 more where `carry` is not zero, from below 2 p to below p. Uses
/// x0 to x3.
macro_rules! reduce_once {
    ($t0:literal, $t1:literal, $t2:literal, $t3:literal, $carry:literal) => {
        concat!(
            "mov {x0}, ",
            $t0,
            "\n",
            "mov {x1}, ",
            $t1,
            "\n",
            "mov {x2}, ",
            $t2,
            "\n",
            "mov {x3}, ",
            $t3,
            "\n",
            "sub {x0}, -1\n",
            "sbb {x1}, [rip + {p} + 8]\n",
            "sbb {x2}, -1\n",
            "sbb {x3}, [rip + {p} + 24]\n",
            "sbb ",
            $carry,
            ", 0\n",
            "cmovnc ",
            $t0,
            ", {x0}\n",
            "cmovnc ",
            $t1,
            ", {x1}\n",
            "cmovnc ",
            $t2,
            ", {x2}\n",
            "cmovnc ",
            $t3,
            ", {x3}\n",
        )
    };
}

impl Mulx {
    /// The right, where the processor has BMI2.
    #[must_use]
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("bmi2").then_some(Self(()))
    }

    /// The product.
    ///
    /// After two rows and a fold the rest is below 2 p, so the carry into the fifth limb is 0 or 1;
    /// two rows more make less than (2^128 + 1) p, of which the five and six limbs have no carry,
    /// and the second fold leaves less than 2 p.
    #[must_use]
    #[inline(always)]
    pub fn mul(self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let (r0, r1, r2, r3);
        // SAFETY: reads the eight limbs that the references stand for and the constant, writes
        // registers only, and they are all named; the processor has MULX, since `self` exists.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "mov rdx, [{a}]",
                "mulx {t1}, {t0}, [{b}]",
                "mulx {t2}, {t5}, [{b} + 8]",
                "add {t1}, {t5}",
                "mulx {t3}, {t5}, [{b} + 16]",
                "adc {t2}, {t5}",
                "mulx {t4}, rdx, [{b} + 24]",
                "adc {t3}, rdx",
                "adc {t4}, 0",
                row!("8", "{t1}", "{t2}", "{t3}", "{t4}", "{t5}", "{t5}, 0"),
                fold!("{t0}", "{t1}", "{t2}", "{t3}", "{t4}", "{t5}", "{t6}", "{t6:e}", ""),
                row!("16", "{t2}", "{t3}", "{t4}", "{t5}", "{t0}", "{t6}, {t0}"),
                row!("24", "{t3}", "{t4}", "{t5}", "{t6}", "{t0}", "{t0}, 0"),
                fold!("{t2}", "{t3}", "{t4}", "{t5}", "{t6}", "{t0}", "{t1}", "{t1:e}", ""),
                reduce_once!("{t4}", "{t5}", "{t6}", "{t0}", "{t1}"),
                a = in(reg) a.as_ptr(), b = in(reg) b.as_ptr(), p = sym P,
                t0 = out(reg) r3, t1 = out(reg) _, t2 = out(reg) _, t3 = out(reg) _,
                t4 = out(reg) r0, t5 = out(reg) r1, t6 = out(reg) r2,
                x0 = out(reg) _, x1 = out(reg) _, x2 = out(reg) _, x3 = out(reg) _,
                out("rdx") _,
                options(pure, readonly, nostack),
            );
        }
        [r0, r1, r2, r3]
    }

    /// The square: each product of two different limbs once, then twice that, then the squares.
    /// The carry of the first fold (`k`) goes in with the second; nothing comes out of the top, since
    /// the rest after that fold is below p^2 / 2^128 + p < 2^384.
    #[must_use]
    #[inline(always)]
    pub fn square(self, a: &[u64; 4]) -> [u64; 4] {
        let (r0, r1, r2, r3);
        // SAFETY: as in `mul`.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "mov rdx, [{x3}]",
                "mulx {t2}, {t1}, [{x3} + 8]",
                "mulx {t3}, {t0}, [{x3} + 16]",
                "add {t2}, {t0}",
                "mulx {t4}, {t0}, [{x3} + 24]",
                "adc {t3}, {t0}",
                "adc {t4}, 0",
                "mov rdx, [{x3} + 8]",
                "mulx {t7}, {t0}, [{x3} + 16]",
                "mulx {t5}, {t6}, [{x3} + 24]",
                "add {t7}, {t6}",
                "adc {t5}, 0",
                "add {t3}, {t0}",
                "adc {t4}, {t7}",
                "mov rdx, [{x3} + 16]",
                "mulx {t6}, rdx, [{x3} + 24]",
                "adc {t5}, rdx",
                "adc {t6}, 0",
                "mov {t7:e}, 0",
                "add {t1}, {t1}",
                "adc {t2}, {t2}",
                "adc {t3}, {t3}",
                "adc {t4}, {t4}",
                "adc {t5}, {t5}",
                "adc {t6}, {t6}",
                "adc {t7}, 0",
                "mov rdx, [{x3}]",
                "mulx {x0}, {t0}, rdx",
                "mov rdx, [{x3} + 8]",
                "mulx {x2}, {x1}, rdx",
                "add {t1}, {x0}",
                "adc {t2}, {x1}",
                "adc {t3}, {x2}",
                "mov rdx, [{x3} + 16]",
                "mulx {x2}, {x1}, rdx",
                "adc {t4}, {x1}",
                "adc {t5}, {x2}",
                "mov rdx, [{x3} + 24]",
                "mulx {x2}, {x1}, rdx",
                "adc {t6}, {x1}",
                "adc {t7}, {x2}",
                fold!("{t0}", "{t1}", "{t2}", "{t3}", "{t4}", "{t5}", "{k}", "{k:e}", ""),
                fold!(
                    "{t2}", "{t3}", "{t4}", "{t5}", "{t6}", "{t7}", "{t0}", "{t0:e}",
                    "add {t6}, {k}\n adc {t7}, 0\n"
                ),
                reduce_once!("{t4}", "{t5}", "{t6}", "{t7}", "{t0}"),
                p = sym P,
                t0 = out(reg) _, t1 = out(reg) _, t2 = out(reg) _, t3 = out(reg) _,
                t4 = out(reg) r0, t5 = out(reg) r1, t6 = out(reg) r2, t7 = out(reg) r3,
                k = out(reg) _, x0 = out(reg) _, x1 = out(reg) _, x2 = out(reg) _,
                x3 = inout(reg) a.as_ptr() => _,
                out("rdx") _,
                options(pure, readonly, nostack),
            );
        }
        [r0, r1, r2, r3]
    }

    /// The sum.
    #[must_use]
    #[inline(always)]
    pub fn add(self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let [mut r0, mut r1, mut r2, mut r3] = *a;
        // SAFETY: as in `mul`, and with no instruction that not every processor has.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "add {r0}, [{b}]",
                "adc {r1}, [{b} + 8]",
                "adc {r2}, [{b} + 16]",
                "adc {r3}, [{b} + 24]",
                "sbb {carry}, {carry}",
                reduce_once!("{r0}", "{r1}", "{r2}", "{r3}", "{carry}"),
                b = in(reg) b.as_ptr(), p = sym P,
                r0 = inout(reg) r0, r1 = inout(reg) r1, r2 = inout(reg) r2, r3 = inout(reg) r3,
                carry = out(reg) _,
                x0 = out(reg) _, x1 = out(reg) _, x2 = out(reg) _, x3 = out(reg) _,
                options(pure, readonly, nostack),
            );
        }
        [r0, r1, r2, r3]
    }

    /// The difference: after a borrow less 2^256 - p = 2^224 + 2^96 - 2^64 + 1, which adds p.
    #[must_use]
    #[inline(always)]
    pub fn sub(self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let [mut r0, mut r1, mut r2, mut r3] = *a;
        // SAFETY: as in `add`.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "sub {r0}, [{b}]",
                "sbb {r1}, [{b} + 8]",
                "sbb {r2}, [{b} + 16]",
                "sbb {r3}, [{b} + 24]",
                "sbb {borrow}, {borrow}",
                "mov {limb1:e}, {borrow:e}", // 2^32 - 1 after a borrow, else 0
                "mov {limb3}, {limb1}",
                "sub {limb3}, {borrow}", // 2^32
                "neg {borrow}",          // 1
                "sub {r0}, {borrow}",
                "sbb {r1}, {limb1}",
                "sbb {r2}, 0",
                "sbb {r3}, {limb3}",
                b = in(reg) b.as_ptr(),
                r0 = inout(reg) r0, r1 = inout(reg) r1, r2 = inout(reg) r2, r3 = inout(reg) r3,
                borrow = out(reg) _, limb1 = out(reg) _, limb3 = out(reg) _,
                options(pure, readonly, nostack),
            );
        }
        [r0, r1, r2, r3]
    }

    /// Half: an odd number plus p is even.
    #[must_use]
    #[inline(always)]
    pub fn half(self, a: &[u64; 4]) -> [u64; 4] {
        let [mut r0, mut r1, mut r2, mut r3] = *a;
        // SAFETY: as in `add`, and reads no memory.
        #[allow(unsafe_code)]
        unsafe {
            asm!(
                "mov {p0:e}, {r0:e}",
                "and {p0:e}, 1",
                "neg {p0}", // all ones for an odd number
                "mov {p1}, {p0}",
                "shl {p1}, 32",
                "mov {p3}, {p0}",
                "btr {p3}, 32",
                "add {r0}, {p0}",
                "adc {r1}, {p1}",
                "adc {r2}, {p0}",
                "adc {r3}, {p3}",
                "rcr {r3}, 1",
                "rcr {r2}, 1",
                "rcr {r1}, 1",
                "rcr {r0}, 1",
                r0 = inout(reg) r0, r1 = inout(reg) r1, r2 = inout(reg) r2, r3 = inout(reg) r3,
                p0 = out(reg) _, p1 = out(reg) _, p3 = out(reg) _,
                options(pure, nomem, nostack),
            );
        }
        [r0, r1, r2, r3]
    }
}
