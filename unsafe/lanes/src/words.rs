//! Blocks of sixteen messages as words in lanes: word `i` of all messages side by side.

/// How many messages have a lane.
pub const LANES: usize = 16;
/// A block of one message.
pub type Block = [u8; 64];
/// The states of the messages, word by word.
pub type States = [[u32; LANES]; 8];
/// One block of each message, word by word.
pub type Blocks = [[u32; LANES]; 16];

/// The words of these blocks, which have their most significant byte first.
#[must_use]
pub fn words(blocks: &[&Block; LANES]) -> Blocks {
    #[cfg(target_arch = "x86_64")]
    if avx512::is_there() {
        // SAFETY: the function is safe but for the instructions it uses, and the processor has
        // just said that it has them.
        #[allow(unsafe_code)]
        return unsafe { avx512::registers(blocks) }.map(avx512::lanes);
    }
    one_by_one(blocks)
}

fn one_by_one(blocks: &[&Block; LANES]) -> Blocks {
    let mut out = [[0; LANES]; 16];
    for (lane, block) in blocks.iter().enumerate() {
        for (words, bytes) in out.iter_mut().zip(block.as_chunks::<4>().0) {
            words[lane] = u32::from_be_bytes(*bytes);
        }
    }
    out
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use super::{Block, LANES};
    use std::arch::x86_64::{
        __m512i, _mm512_set4_epi32, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
        _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };
    use std::mem::transmute;

    /// Whether the processor has the instructions.
    pub(crate) fn is_there() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
    }

    pub(crate) fn register(lanes: &[u32; LANES]) -> __m512i {
        // SAFETY: both are 64 bytes without padding, of which any are a value.
        #[allow(unsafe_code)]
        unsafe {
            transmute(*lanes)
        }
    }

    pub(crate) fn lanes(register: __m512i) -> [u32; LANES] {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            transmute(register)
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn load(block: &Block) -> __m512i {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let bytes: __m512i = unsafe { transmute(*block) };
        let swap = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
        _mm512_shuffle_epi8(bytes, swap)
    }

    /// Transposes by twos, fours, eights and sixteens.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn registers(blocks: &[&Block; LANES]) -> [__m512i; 16] {
        let mut rows = [load(blocks[0]); LANES];
        for (row, block) in rows.iter_mut().zip(blocks) {
            *row = load(block);
        }
        let mut by_two = rows;
        for i in (0..16).step_by(2) {
            by_two[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
            by_two[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        }
        // Register `4 q + r` has, in its quarter k, word `4 k + r` of messages `4 q` to `4 q + 3`.
        let mut by_four = by_two;
        for q in (0..16).step_by(4) {
            by_four[q] = _mm512_unpacklo_epi64(by_two[q], by_two[q + 2]);
            by_four[q + 1] = _mm512_unpackhi_epi64(by_two[q], by_two[q + 2]);
            by_four[q + 2] = _mm512_unpacklo_epi64(by_two[q + 1], by_two[q + 3]);
            by_four[q + 3] = _mm512_unpackhi_epi64(by_two[q + 1], by_two[q + 3]);
        }
        let mut out = by_four;
        for r in 0..4 {
            let [a, b, c, d] = [0, 4, 8, 12].map(|q| by_four[q + r]);
            // Quarters 0 and 2 of two registers, and quarters 1 and 3.
            let (ab_even, cd_even) =
                (_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(c, d, 0x88));
            let (ab_odd, cd_odd) =
                (_mm512_shuffle_i32x4(a, b, 0xdd), _mm512_shuffle_i32x4(c, d, 0xdd));
            out[r] = _mm512_shuffle_i32x4(ab_even, cd_even, 0x88);
            out[8 + r] = _mm512_shuffle_i32x4(ab_even, cd_even, 0xdd);
            out[4 + r] = _mm512_shuffle_i32x4(ab_odd, cd_odd, 0x88);
            out[12 + r] = _mm512_shuffle_i32x4(ab_odd, cd_odd, 0xdd);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_in_its_place() {
        let blocks: [Block; LANES] =
            std::array::from_fn(|lane| std::array::from_fn(|i| (67 * lane + 3 * i) as u8));
        let expected = one_by_one(&blocks.each_ref());
        assert_eq!(words(&blocks.each_ref()), expected);
        assert_eq!(expected[5][9], u32::from_be_bytes(blocks[9][20..24].try_into().unwrap()));
    }
}
