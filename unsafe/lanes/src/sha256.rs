//! SHA-256's compression function (FIPS 180-4, section 6.2.2) for sixteen messages at once, each in a
//! lane of AVX-512 registers.
//!
//! A message alone is best left to the processor's own SHA instructions: these take about twice as
//! long for a block as sixteen lanes do, and half as long as sixteen lanes of which one is used.

use crate::words::{Block, LANES, States};

/// Shows that the processor has the instructions.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(());

impl Lanes {
    /// Whether they are there.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return crate::words::avx512::is_there().then_some(Self(()));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Takes one block of each message into its state.
    pub fn compress(self, states: &mut States, blocks: &[&Block; LANES]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function is safe but for the instructions it uses, and there is no value of
        // this type unless the processor said that it has them.
        #[allow(unsafe_code)]
        unsafe {
            avx512::compress(states, blocks);
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no value of this type is made here: {states:?} {blocks:?}");
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Block, LANES, States};
    use crate::words::avx512::{lanes, register, registers};
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi32, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_srli_epi32,
        _mm512_ternarylogic_epi32,
    };

    /// FIPS 180-4, section 4.2.2: the fractions of the cube roots of the first 64 primes.
    #[rustfmt::skip]
    const CONSTANTS: [u32; 64] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4,
        0xab1c_5ed5, 0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe,
        0x9bdc_06a7, 0xc19b_f174, 0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f,
        0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da, 0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7,
        0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967, 0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc,
        0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85, 0xa2bf_e8a1, 0xa81a_664b,
        0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070, 0x19a4_c116,
        0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7,
        0xc671_78f2,
    ];

    /// Truth tables of three words' bits: x ^ y ^ z, x ? y : z, and what two of them say.
    const PARITY: i32 = 0x96;
    const CHOOSE: i32 = 0xca;
    const MAJORITY: i32 = 0xe8;

    /// Round `j` of sixteen. `working` begins with the variable that is called `a` eight rounds
    /// earlier: names move by one each round, registers stay.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn round(working: &mut [__m512i; 8], j: usize, word: __m512i, constant: u32) {
        let place = |name: usize| (name + 16 - j) % 8;
        let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|name| working[place(name)]);
        let rotated = (_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11), _mm512_ror_epi32(e, 25));
        let sum1 = _mm512_ternarylogic_epi32(rotated.0, rotated.1, rotated.2, PARITY);
        let choice = _mm512_ternarylogic_epi32(e, f, g, CHOOSE);
        let input = _mm512_add_epi32(word, _mm512_set1_epi32(constant.cast_signed()));
        let input = _mm512_add_epi32(h, input);
        let first = _mm512_add_epi32(input, _mm512_add_epi32(sum1, choice));
        let rotated = (_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13), _mm512_ror_epi32(a, 22));
        let sum0 = _mm512_ternarylogic_epi32(rotated.0, rotated.1, rotated.2, PARITY);
        let majority = _mm512_ternarylogic_epi32(a, b, c, MAJORITY);
        working[place(3)] = _mm512_add_epi32(d, first);
        working[place(7)] = _mm512_add_epi32(first, _mm512_add_epi32(sum0, majority));
    }

    /// The word sixteen behind word `j`, in its place.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn extend(words: &mut [__m512i; 16], j: usize) {
        let ahead = |by: usize| words[(j + by) % 16];
        let w = ahead(1);
        let parts = (_mm512_ror_epi32(w, 7), _mm512_ror_epi32(w, 18), _mm512_srli_epi32(w, 3));
        let sigma0 = _mm512_ternarylogic_epi32(parts.0, parts.1, parts.2, PARITY);
        let w = ahead(14);
        let parts = (_mm512_ror_epi32(w, 17), _mm512_ror_epi32(w, 19), _mm512_srli_epi32(w, 10));
        let sigma1 = _mm512_ternarylogic_epi32(parts.0, parts.1, parts.2, PARITY);
        let sum = _mm512_add_epi32(_mm512_add_epi32(words[j], sigma0), ahead(9));
        words[j] = _mm512_add_epi32(sum, sigma1);
    }

    /// Written out, so that each word and variable has a register: as a loop it takes 40 % longer.
    macro_rules! sixteen {
        ($each:ident) => {
            $each!(0);
            $each!(1);
            $each!(2);
            $each!(3);
            $each!(4);
            $each!(5);
            $each!(6);
            $each!(7);
            $each!(8);
            $each!(9);
            $each!(10);
            $each!(11);
            $each!(12);
            $each!(13);
            $each!(14);
            $each!(15);
        };
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn compress(states: &mut States, blocks: &[&Block; LANES]) {
        let mut words = registers(blocks);
        let before = states.each_ref().map(register);
        let mut working = before;
        let (constants, _) = CONSTANTS.as_chunks::<16>();
        macro_rules! first {
            ($j:literal) => {
                round(&mut working, $j, words[$j], constants[0][$j]);
            };
        }
        sixteen!(first);
        for constants in &constants[1..] {
            macro_rules! next {
                ($j:literal) => {
                    extend(&mut words, $j);
                    round(&mut working, $j, words[$j], constants[$j]);
                };
            }
            sixteen!(next);
        }
        for ((state, before), after) in states.iter_mut().zip(before).zip(working) {
            *state = lanes(_mm512_add_epi32(before, after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const INITIAL: [u32; 8] = [
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab,
        0x5be0_cd19,
    ];

    /// FIPS 180-4's examples, "abc" and one of two blocks, in turns over the lanes.
    #[test]
    #[rustfmt::skip]
    fn the_standards_examples() {
        let Some(sha256) = Lanes::detect() else { return };
        let mut abc = [0; 64];
        abc[..4].copy_from_slice(b"abc\x80");
        abc[63] = 24;
        let mut long = [[0; 64]; 2];
        let text = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq\x80";
        long[0][..57].copy_from_slice(text);
        long[1][62..].copy_from_slice(&448u16.to_be_bytes());
        fn blocks<'a>(odd: &'a Block, even: &'a Block) -> [&'a Block; LANES] {
            std::array::from_fn(|lane| if lane % 2 == 1 { odd } else { even })
        }
        let mut states: States = INITIAL.map(|word| [word; LANES]);
        sha256.compress(&mut states, &blocks(&abc, &long[0]));
        let after_one = states;
        sha256.compress(&mut states, &blocks(&abc, &long[1]));
        for lane in 0..LANES {
            let (states, expected) = match lane % 2 {
                1 => (after_one, [
                    0xba78_16bf, 0x8f01_cfea, 0x4141_40de, 0x5dae_2223,
                    0xb003_61a3, 0x9617_7a9c, 0xb410_ff61, 0xf200_15ad,
                ]),
                _ => (states, [
                    0x248d_6a61, 0xd206_38b8, 0xe5c0_2693, 0x0c3e_6039,
                    0xa33c_e459, 0x64ff_2167, 0xf6ec_edd4, 0x19db_06c1,
                ]),
            };
            assert_eq!(states.map(|word| word[lane]), expected);
        }
    }
}
