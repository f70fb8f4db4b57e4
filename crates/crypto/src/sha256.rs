//! SHA-256 of short messages, straight on the compression function: most of what is hashed here is one to nine blocks long, and a general hasher's buffering costs as much
//! as half a block each time. The `sha2` crate does the compression, and all longer messages.

use crate::many::{Function, HashInput, Start, bytes};
use sha2::Digest as _;
use sha2::block_api::compress256;
use tercio_types::Digest;
use tercio_unsafe_lanes::sha256::Lanes;
use tercio_unsafe_lanes::words::{Block, LANES, States};

/// The initial state (FIPS 180-4, section 5.3.3).
pub(crate) const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The most blocks that are put together here: a Merkle node with sixteen children.
const MOST: usize = 9;
/// What padding takes at least: one bit, and the length.
const PADDING: usize = 9;

/// The state after the blocks of `message`, `before` bytes having gone into `state`; `None` when
/// the message is too long for this place.
fn finish(mut state: [u32; 8], before: usize, message: &[&[u8]]) -> Option<[u32; 8]> {
    let len: usize = message.iter().map(|part| part.len()).sum();
    // Clearing room for the longest message would cost more than it takes to hash a short one.
    match (len + PADDING).div_ceil(64) {
        1 => compress_padded::<1>(&mut state, 1, before, len, message),
        blocks @ 2..=4 => compress_padded::<4>(&mut state, blocks, before, len, message),
        blocks @ 5..=MOST => compress_padded::<MOST>(&mut state, blocks, before, len, message),
        _ => return None,
    }
    Some(state)
}

fn compress_padded<const ROOM: usize>(
    state: &mut [u32; 8],
    blocks: usize,
    before: usize,
    len: usize,
    message: &[&[u8]],
) {
    let mut room: [Block; ROOM] = [[0; 64]; ROOM];
    let bytes = room[..blocks].as_flattened_mut();
    let mut at = 0;
    for part in message {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    bytes[at] = 0x80;
    let bits = (before + len) as u64 * 8;
    bytes[blocks * 64 - 8..].copy_from_slice(&bits.to_be_bytes());
    compress256(state, &room[..blocks]);
}

/// The digest of the parts, one after the other, if they are short together.
pub(crate) fn short(parts: &[&[u8]]) -> Option<Digest> {
    finish(INITIAL, 0, parts).map(|state| Digest(bytes(&state)))
}

/// SHA-256 over many messages.
pub(crate) struct Sha256;

impl Function for Sha256 {
    const INITIAL: [u32; 8] = INITIAL;

    fn worth() -> Option<usize> {
        // One by one they take the processor's SHA instructions, which need 38 ns for a block where
        // sixteen lanes need 15 each, and 5 to be filled.
        Lanes::detect().map(|_| 10)
    }

    fn compress(state: &mut [u32; 8], block: &Block) {
        compress256(state, std::slice::from_ref(block));
    }

    fn lanes(states: &mut States, blocks: &[&Block; LANES]) {
        Lanes::detect().expect("they are worth it").compress(states, blocks);
    }

    fn alone(start: &Start, message: &HashInput<'_>) -> [u8; 32] {
        let parts = [message.head, message.body];
        match finish(start.state, start.length as usize, &parts) {
            Some(state) => bytes(&state),
            None => {
                assert_eq!(start.length, 0, "a long message stands alone");
                sha2::Sha256::new().chain_update(parts[0]).chain_update(parts[1]).finalize().into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_general_hash_at_every_length() {
        let text: Vec<u8> = (0..700u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in 0..text.len() {
            let (one, rest) = text[..len].split_at(len / 3);
            let general: [u8; 32] = sha2::Sha256::digest(&text[..len]).into();
            let ours = short(&[one, rest]);
            assert_eq!(ours, (len + PADDING <= 64 * MOST).then_some(Digest(general)), "{len}");
        }
    }
}
