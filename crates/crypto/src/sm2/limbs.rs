//! 256-bit integers as four 64-bit limbs, least significant first. Nothing here branches on a
//! value, so all of it may touch secrets.

/// A 256-bit integer, least significant limb first.
pub(crate) type Limbs = [u64; 4];

/// `a + b` and the carry.
#[inline(always)]
pub(crate) fn add(a: &Limbs, b: &Limbs) -> (Limbs, bool) {
    let (r0, c) = a[0].carrying_add(b[0], false);
    let (r1, c) = a[1].carrying_add(b[1], c);
    let (r2, c) = a[2].carrying_add(b[2], c);
    let (r3, c) = a[3].carrying_add(b[3], c);
    ([r0, r1, r2, r3], c)
}

/// `a - b` and the borrow.
#[inline(always)]
pub(crate) fn sub(a: &Limbs, b: &Limbs) -> (Limbs, bool) {
    let (r0, c) = a[0].borrowing_sub(b[0], false);
    let (r1, c) = a[1].borrowing_sub(b[1], c);
    let (r2, c) = a[2].borrowing_sub(b[2], c);
    let (r3, c) = a[3].borrowing_sub(b[3], c);
    ([r0, r1, r2, r3], c)
}

/// `a` where `choice` is 0, `b` where it is 1.
#[inline(always)]
pub(crate) fn select(a: &Limbs, b: &Limbs, choice: u64) -> Limbs {
    let mask = choice.wrapping_neg();
    [
        a[0] ^ (mask & (a[0] ^ b[0])),
        a[1] ^ (mask & (a[1] ^ b[1])),
        a[2] ^ (mask & (a[2] ^ b[2])),
        a[3] ^ (mask & (a[3] ^ b[3])),
    ]
}

/// `a`, and 2^256 more with a carry, less than `2 m`, brought below `m`.
#[inline(always)]
pub(crate) fn reduce_once(a: &Limbs, carry: bool, m: &Limbs) -> Limbs {
    let (reduced, borrow) = sub(a, m);
    // Below m exactly when the subtraction borrowed and there was no carry to pay for it.
    select(&reduced, a, (borrow & !carry) as u64)
}

/// `a + b` modulo `m`, for `a` and `b` below `m`.
#[inline(always)]
pub(crate) fn add_mod(a: &Limbs, b: &Limbs, m: &Limbs) -> Limbs {
    let (sum, carry) = add(a, b);
    reduce_once(&sum, carry, m)
}

/// `a - b` modulo `m`, for `a` and `b` below `m`.
#[inline(always)]
pub(crate) fn sub_mod(a: &Limbs, b: &Limbs, m: &Limbs) -> Limbs {
    let (difference, borrow) = sub(a, b);
    // Hidden from the optimiser, which otherwise makes a branch of it that skips loading m.
    let mask = std::hint::black_box((borrow as u64).wrapping_neg());
    add(&difference, &[m[0] & mask, m[1] & mask, m[2] & mask, m[3] & mask]).0
}

/// `2^bits a` modulo `m`, for `a < m` and `m` above 2^255. For constants: slow, and with nothing
/// that is not yet to be had at compile time.
pub(crate) const fn shift_mod(a: &Limbs, bits: u32, m: &Limbs) -> Limbs {
    let (mut value, mut round) = (*a, 0);
    while round < bits {
        let (mut doubled, mut less, mut i) = ([0; 4], [0; 4], 0);
        let (mut carry, mut borrow) = (0, 0);
        while i < 4 {
            doubled[i] = (value[i] << 1) | carry;
            carry = value[i] >> 63;
            let (difference, under) = doubled[i].overflowing_sub(m[i]);
            let (difference, under_again) = difference.overflowing_sub(borrow);
            less[i] = difference;
            borrow = (under | under_again) as u64;
            i += 1;
        }
        value = if carry == 1 || borrow == 0 { less } else { doubled };
        round += 1;
    }
    value
}

/// Whether `a < b`.
pub(crate) fn less(a: &Limbs, b: &Limbs) -> bool {
    sub(a, b).1
}

/// Whether every limb is zero.
pub(crate) const fn is_zero(a: &Limbs) -> bool {
    a[0] | a[1] | a[2] | a[3] == 0
}

/// Reads 32 bytes, most significant first.
pub(crate) fn from_be_bytes(bytes: &[u8; 32]) -> Limbs {
    std::array::from_fn(|i| {
        u64::from_be_bytes(*bytes[24 - 8 * i..].first_chunk().expect("eight bytes are left"))
    })
}

/// Writes 32 bytes, most significant first.
pub(crate) fn to_be_bytes(a: &Limbs) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (chunk, limb) in bytes.chunks_exact_mut(8).zip(a.iter().rev()) {
        chunk.copy_from_slice(&limb.to_be_bytes());
    }
    bytes
}

pub(crate) use tercio_unsafe_lanes::recode::bits;
