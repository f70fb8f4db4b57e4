//! Scalars as digits that are all odd: each of `windows` digits of `width` bits lies in
//! {-(2^width - 1), .., -3, -1, 1, 3, .., 2^width - 1}, so that no digit is zero and a table holds
//! the odd multiples only.
//!
//! For an odd `k < 2^256` let `k' = (k + 2^(width windows) - 1) / 2`, and u_i its ordinary digits:
//! then `k = sum (2 u_i - (2^width - 1)) 2^(width i)`. The upper half of the values of u_i gives
//! the positive digits, the lower half their negatives in reverse.
//!
//! Nothing here branches on the scalar.

/// The `width` bits of `a` from bit `from` on; bits above 255 are zero. `width` is at most 32.
#[must_use]
#[inline(always)]
pub fn bits(a: &[u64; 4], from: usize, width: usize) -> usize {
    let (limb, shift) = (from / 64, from % 64);
    let low = a.get(limb).map_or(0, |limb| limb >> shift);
    let high = match a.get(limb + 1) {
        Some(next) if shift > 0 => next << (64 - shift),
        _ => 0,
    };
    ((low | high) & ((1 << width) - 1)) as usize
}

/// A digit: the odd multiple `2 index + 1`, and 1 where it is to be subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Which odd multiple.
    pub index: usize,
    /// 1 for a negative digit, else 0.
    pub negative: u64,
}

/// Digit `window` of the odd number `k`, of `windows` digits of `width` bits, which together have
/// at least 256 bits.
#[must_use]
#[inline(always)]
pub fn digit(k: &[u64; 4], window: usize, width: usize, windows: usize) -> Digit {
    debug_assert!(k[0] & 1 == 1 && width * windows >= 256);
    let half = 1 << (width - 1);
    // k' is k / 2 with the topmost bit of the topmost digit set.
    let top = if window + 1 == windows { half } else { 0 };
    let digit = bits(k, window * width + 1, width) | top;
    let positive = digit >> (width - 1);
    Digit { index: (digit ^ positive.wrapping_sub(1)) & (half - 1), negative: 1 ^ positive as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sum of the digits modulo 2^64, with the powers of two modulo 2^64 and, for the high
    /// part, shifted down by `from` bits from the top window.
    fn sum_mod_2_64(k: &[u64; 4], width: usize, windows: usize) -> u64 {
        (0..windows).rev().fold(0u64, |sum, window| {
            let digit = digit(k, window, width, windows);
            let value = 2 * digit.index as u64 + 1;
            let value = if digit.negative == 1 { value.wrapping_neg() } else { value };
            sum.wrapping_shl(width as u32).wrapping_add(value)
        })
    }

    proptest! {
        #[test]
        fn digits_add_up_to_the_number(mut k in prop::array::uniform4(any::<u64>())) {
            k[0] |= 1;
            for (width, windows) in [(5, 52), (6, 43), (8, 32), (13, 20)] {
                prop_assert_eq!(sum_mod_2_64(&k, width, windows), k[0]);
                // Exactly: add the digits up in 320 bits.
                let mut sum = [0i128; 6];
                for window in 0..windows {
                    let digit = digit(&k, window, width, windows);
                    let value = (2 * digit.index as i128 + 1) * (1 - 2 * digit.negative as i128);
                    let at = window * width;
                    let shifted = value << (at % 64);
                    sum[at / 64] += shifted & i128::from(u64::MAX);
                    sum[at / 64 + 1] += shifted >> 64;
                }
                let mut carry = 0;
                for (i, limb) in sum.iter().enumerate() {
                    let total = limb + carry;
                    prop_assert_eq!(total as u64, k.get(i).copied().unwrap_or(0));
                    carry = total >> 64;
                }
                prop_assert_eq!(carry, 0);
            }
        }
    }
}
