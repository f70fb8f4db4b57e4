//! 256-bit integers as four 64-bit limbs, least significant first. Nothing here branches on a
//! value, so all of it may touch secrets.

/// A 256-bit integer, least significant limb first.
pub(crate) type Limbs = [u64; 4];

/// `a + b + carry`, and the carry out (0 or 1).
#[inline(always)]
pub(crate) const fn adc(a: u64, b: u64, carry: u64) -> (u64, u64) {
    let sum = (a as u128).wrapping_add(b as u128).wrapping_add(carry as u128);
    (sum as u64, (sum >> 64) as u64)
}

/// `a - b - borrow`, and the borrow out (0 or 1).
#[inline(always)]
pub(crate) const fn sbb(a: u64, b: u64, borrow: u64) -> (u64, u64) {
    let difference = (a as u128).wrapping_sub(b as u128).wrapping_sub(borrow as u128);
    (difference as u64, (difference >> 127) as u64)
}

/// `acc + a * b + carry`, low and high word.
#[inline(always)]
pub(crate) const fn mac(acc: u64, a: u64, b: u64, carry: u64) -> (u64, u64) {
    let sum = (a as u128).wrapping_mul(b as u128).wrapping_add(acc as u128);
    let sum = sum.wrapping_add(carry as u128);
    (sum as u64, (sum >> 64) as u64)
}

/// `a + b` and the carry.
#[inline(always)]
pub(crate) const fn add(a: &Limbs, b: &Limbs) -> (Limbs, u64) {
    let (r0, c) = adc(a[0], b[0], 0);
    let (r1, c) = adc(a[1], b[1], c);
    let (r2, c) = adc(a[2], b[2], c);
    let (r3, c) = adc(a[3], b[3], c);
    ([r0, r1, r2, r3], c)
}

/// `a - b` and the borrow.
#[inline(always)]
pub(crate) const fn sub(a: &Limbs, b: &Limbs) -> (Limbs, u64) {
    let (r0, c) = sbb(a[0], b[0], 0);
    let (r1, c) = sbb(a[1], b[1], c);
    let (r2, c) = sbb(a[2], b[2], c);
    let (r3, c) = sbb(a[3], b[3], c);
    ([r0, r1, r2, r3], c)
}

/// `a` where `choice` is 0, `b` where it is 1.
#[inline(always)]
pub(crate) const fn select(a: &Limbs, b: &Limbs, choice: u64) -> Limbs {
    let mask = 0u64.wrapping_sub(choice);
    [
        a[0] ^ (mask & (a[0] ^ b[0])),
        a[1] ^ (mask & (a[1] ^ b[1])),
        a[2] ^ (mask & (a[2] ^ b[2])),
        a[3] ^ (mask & (a[3] ^ b[3])),
    ]
}

/// `carry * 2^256 + a`, less than `2 m`, brought below `m`.
#[inline(always)]
pub(crate) const fn reduce_once(a: &Limbs, carry: u64, m: &Limbs) -> Limbs {
    let (reduced, borrow) = sub(a, m);
    // Below m exactly when the subtraction borrowed and there was no carry to pay for it.
    select(&reduced, a, borrow & (1 ^ carry))
}

/// `a + b` modulo `m`, for `a` and `b` below `m`.
#[inline(always)]
pub(crate) const fn add_mod(a: &Limbs, b: &Limbs, m: &Limbs) -> Limbs {
    let (sum, carry) = add(a, b);
    reduce_once(&sum, carry, m)
}

/// `a - b` modulo `m`, for `a` and `b` below `m`.
#[inline(always)]
pub(crate) const fn sub_mod(a: &Limbs, b: &Limbs, m: &Limbs) -> Limbs {
    let (difference, borrow) = sub(a, b);
    let mask = 0u64.wrapping_sub(borrow);
    add(&difference, &[m[0] & mask, m[1] & mask, m[2] & mask, m[3] & mask]).0
}

/// `2^bits` modulo `m`, for `m` above `2^255`.
pub(crate) const fn power_of_two_mod(bits: u32, m: &Limbs) -> Limbs {
    let mut value = [1, 0, 0, 0];
    let mut i = 0;
    while i < bits {
        value = add_mod(&value, &value, m);
        i += 1;
    }
    value
}

/// Whether `a < b`.
pub(crate) const fn less(a: &Limbs, b: &Limbs) -> bool {
    sub(a, b).1 == 1
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
