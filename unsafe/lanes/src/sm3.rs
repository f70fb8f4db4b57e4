//! SM3's compression function (GB/T 32905-2016, section 5.3) for one message or for many in vector lanes.
//!
//! One text serves every width: a word of `N` lanes is an array that the compiler keeps in vector
//! registers. What differs is the instructions it may use, chosen when the program runs.

use crate::words::{Block, Blocks, LANES, States, words};

/// The hash's state before the first block.
pub const INITIAL: [u32; 8] = [
    0x7380_166f,
    0x4914_b2b9,
    0x1724_42d7,
    0xda8a_0600,
    0xa96f_30bc,
    0x1631_38aa,
    0xe38d_ee4d,
    0xb0fb_0e4e,
];

/// One word of each of `N` messages.
type Word<const N: usize> = [u32; N];

#[inline(always)]
fn map2<const N: usize>(a: Word<N>, b: Word<N>, f: impl Fn(u32, u32) -> u32) -> Word<N> {
    let mut out = [0; N];
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn map3<const N: usize>(
    a: Word<N>,
    b: Word<N>,
    c: Word<N>,
    f: impl Fn(u32, u32, u32) -> u32,
) -> Word<N> {
    let mut out = [0; N];
    for i in 0..N {
        out[i] = f(a[i], b[i], c[i]);
    }
    out
}

#[inline(always)]
fn rotate<const N: usize>(a: Word<N>, by: u32) -> Word<N> {
    map2(a, a, |x, _| x.rotate_left(by))
}

#[inline(always)]
fn rounds<const N: usize>(state: &mut [Word<N>; 8], block: &[Word<N>; 16]) {
    let mut w = *block;
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for j in 0..64 {
        let early = j < 16;
        let constant = if early { 0x79cc_4519_u32 } else { 0x7a87_9d8a }.rotate_left(j as u32 % 32);
        let a12 = rotate(a, 12);
        let ss1 = map2(a12, e, |x, y| x.wrapping_add(y).wrapping_add(constant).rotate_left(7));
        let ss2 = map2(ss1, a12, |x, y| x ^ y);
        let ff =
            map3(a, b, c, |x, y, z| if early { x ^ y ^ z } else { (x & y) | (x & z) | (y & z) });
        let gg = map3(e, f, g, |x, y, z| if early { x ^ y ^ z } else { (x & y) | (!x & z) });
        let word = w[j % 16];
        let ahead = w[(j + 4) % 16];
        let tt1 = map3(ff, d, ss2, |x, y, z| x.wrapping_add(y).wrapping_add(z));
        let tt1 = map3(tt1, word, ahead, |x, y, z| x.wrapping_add(y ^ z));
        let tt2 = map3(gg, h, ss1, |x, y, z| x.wrapping_add(y).wrapping_add(z));
        let tt2 = map2(tt2, word, u32::wrapping_add);
        d = c;
        c = rotate(b, 9);
        b = a;
        a = tt1;
        h = g;
        g = rotate(f, 19);
        f = e;
        e = map2(tt2, tt2, |x, _| x ^ x.rotate_left(9) ^ x.rotate_left(17));
        // The word of 16 rounds from now takes the place of this round's.
        let mixed =
            map3(word, w[(j + 7) % 16], w[(j + 13) % 16], |x, y, z| x ^ y ^ z.rotate_left(15));
        let mixed = map2(mixed, mixed, |x, _| x ^ x.rotate_left(15) ^ x.rotate_left(23));
        w[j % 16] =
            map3(mixed, w[(j + 3) % 16], w[(j + 10) % 16], |x, y, z| x ^ y.rotate_left(7) ^ z);
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = map2(*old, new, |x, y| x ^ y);
    }
}

/// Takes one block of one message into its state.
pub fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [[0]; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = [u32::from_be_bytes(*bytes)];
    }
    let mut wide = state.map(|word| [word]);
    rounds(&mut wide, &words);
    *state = wide.map(|[word]| word);
}

/// Takes one block of each message into its state. With AVX-512 or AVX2 all lanes go at once.
pub fn compress_lanes(states: &mut States, blocks: &[&Block; LANES]) {
    let blocks = &words(blocks);
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
        fn avx512(states: &mut States, blocks: &Blocks) {
            rounds(states, blocks);
        }
        #[target_feature(enable = "avx2")]
        fn avx2(states: &mut States, blocks: &Blocks) {
            rounds(states, blocks);
        }
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
        {
            // SAFETY: the function is safe but for the instructions it uses, and the processor
            // has just said that it has them.
            #[allow(unsafe_code)]
            unsafe {
                avx512(states, blocks);
            }
            return;
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                avx2(states, blocks);
            }
            return;
        }
    }
    rounds(states, blocks);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GB/T 32905-2016, appendix A.1: "abc", one padded block.
    #[test]
    fn the_standards_example() {
        let mut block = [0; 64];
        block[..4].copy_from_slice(b"abc\x80");
        block[63] = 24;
        let mut state = INITIAL;
        compress(&mut state, &block);
        assert_eq!(
            state,
            [
                0x66c7_f0f4,
                0x62ee_edd9,
                0xd1f2_d46b,
                0xdc10_e4e2,
                0x4167_c487,
                0x5cf2_f7a2,
                0x297d_a02b,
                0x8f4b_a8e0
            ]
        );
    }

    proptest! {
        #[test]
        fn lanes_equal_one_by_one(
            states in prop::array::uniform16(prop::array::uniform8(any::<u32>())),
            blocks in prop::collection::vec(prop::array::uniform32(any::<[u8; 2]>()), LANES),
        ) {
            let mut wide: States = std::array::from_fn(|i| std::array::from_fn(|lane| states[lane][i]));
            let blocks: Vec<Block> =
                blocks.iter().map(|block| block.as_flattened().try_into().unwrap()).collect();
            let blocks: [&Block; LANES] = std::array::from_fn(|lane| &blocks[lane]);
            let words = words(&blocks);
            let mut plain = wide;
            rounds(&mut plain, &words);
            compress_lanes(&mut wide, &blocks);
            prop_assert_eq!(wide, plain);
            for (lane, state) in states.iter().enumerate() {
                let mut one = *state;
                compress(&mut one, blocks[lane]);
                prop_assert_eq!(one, wide.map(|word| word[lane]));
            }
        }
    }
}
