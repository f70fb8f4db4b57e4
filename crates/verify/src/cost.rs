//! What it costs to verify, in nanoseconds of one thread.
//!
//! Constants, so that the same frames are charged alike in the simulator and on every machine; only
//! their proportions matter much, since shares are shares of a thread's time. They are what one
//! operation takes by itself, rounded up, on the slower of the machines of `docs/results`: `bench
//! calibrate` has the terms of [`FRAME`] and [`BYTE`]; `bench verify` and `bench auth` those of
//! signatures, of which a good one costs less in a batch and a false one does not.

use crate::Lane;
use tercio_types::Scheme;
use tercio_wire::FrameHeader;

/// Reading a frame, a tag, and what goes with them.
pub(crate) const FRAME: u64 = 1_500;
/// Hashing and copying a byte, under the slower hash.
const BYTE: u64 = 5;
/// Refusing a frame or answering it again: an encoding, a tag, a place in a queue.
const ANSWER: u64 = 500;
/// The most for one: an honest client's may find no room, which must not mute it for seconds.
const MOST_FOR_ANSWER: u64 = 2_000_000;
/// The bytes of a frame that [`ANSWER`] covers.
const SHORT: usize = 4 << 10;

/// The dearest signature.
const DEAREST: u64 = 60_000;

/// What a frame of this many bytes costs without signatures.
pub(crate) fn of_frame(bytes: usize) -> u64 {
    FRAME + BYTE * bytes as u64
}

/// What a frame may cost as far as its first bytes say: a request that is forwarded may be signed.
pub(crate) fn expected(lane: Lane, frame: &[u8]) -> u64 {
    let header = FrameHeader::peek(frame).ok().flatten();
    let signed = header.is_some_and(|header| header.is_signed());
    let may_be = signed || matches!(lane, Lane::Forwards(_));
    of_frame(frame.len()) + if may_be { DEAREST } else { 0 }
}

/// What a frame of this many bytes costs that was of no use, and its answer.
pub(crate) fn of_answer(bytes: usize) -> u64 {
    (ANSWER + BYTE * bytes.saturating_sub(SHORT) as u64).min(MOST_FOR_ANSWER)
}

/// What a signature costs that is checked by itself.
pub(crate) fn of_signature(scheme: Scheme) -> u64 {
    match scheme {
        Scheme::Rsa2048 => 40_000,
        Scheme::Secp256k1 => 50_000,
        // Also those of schemes that this build does not know yet.
        _ => DEAREST,
    }
}
