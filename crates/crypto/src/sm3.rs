//! SM3 (GB/T 32905-2016): a hash of 256 bits, fed piece by piece. Many messages at once are hashed in
//! [`crate::many`].

use crate::many::{Function, HashInput, Start, bytes};
use tercio_unsafe_lanes::sm3::{INITIAL, compress, compress_lanes};
use tercio_unsafe_lanes::words::{Block, LANES, States};

/// An SM3 hash that is fed piece by piece.
#[derive(Clone, Debug)]
pub struct Sm3 {
    state: [u32; 8],
    /// Bytes that do not fill a block yet.
    pending: [u8; 64],
    length: u64,
}

impl Default for Sm3 {
    fn default() -> Self {
        Self::new()
    }
}

impl Sm3 {
    /// The hash of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { state: INITIAL, pending: [0; 64], length: 0 }
    }

    /// Feeds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let filled = (self.length % 64) as usize;
        self.length += bytes.len() as u64;
        if filled > 0 {
            let taken = bytes.len().min(64 - filled);
            self.pending[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if filled + taken < 64 {
                return;
            }
            compress(&mut self.state, &self.pending);
        }
        let (blocks, rest) = bytes.as_chunks::<64>();
        blocks.iter().for_each(|block| compress(&mut self.state, block));
        self.pending[..rest.len()].copy_from_slice(rest);
    }

    /// The digest of all that was fed.
    #[must_use]
    pub fn finish(mut self) -> [u8; 32] {
        let filled = (self.length % 64) as usize;
        for block in tail(&self.pending[..filled], self.length).as_chunks::<64>().0 {
            compress(&mut self.state, block);
        }
        bytes(&self.state)
    }

    /// The digest of the parts, one after the other.
    #[must_use]
    pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Self::new();
        parts.iter().for_each(|part| hash.update(part));
        hash.finish()
    }
}

/// The last one or two blocks of a message of `length` bytes, of which `rest` are in no block yet.
fn tail(rest: &[u8], length: u64) -> Tail {
    let mut tail = Tail { blocks: [0; 128], used: if rest.len() < 56 { 64 } else { 128 } };
    tail.blocks[..rest.len()].copy_from_slice(rest);
    tail.blocks[rest.len()] = 0x80;
    tail.blocks[tail.used - 8..tail.used].copy_from_slice(&(length.wrapping_mul(8)).to_be_bytes());
    tail
}

struct Tail {
    blocks: [u8; 128],
    used: usize,
}

impl std::ops::Deref for Tail {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.blocks[..self.used]
    }
}

/// SM3 over many messages.
#[derive(Clone, Debug)]
pub(crate) struct Many;

impl Function for Many {
    const INITIAL: [u32; 8] = INITIAL;

    fn worth() -> Option<usize> {
        Some(2)
    }

    fn compress(state: &mut [u32; 8], block: &Block) {
        compress(state, block);
    }

    fn lanes(states: &mut States, blocks: &[&Block; LANES]) {
        compress_lanes(states, blocks);
    }

    fn alone(start: &Start, message: &HashInput<'_>) -> [u8; 32] {
        let mut hash = Sm3 { state: start.state, pending: [0; 64], length: start.length };
        hash.update(message.head);
        hash.update(message.body);
        hash.finish()
    }
}

/// The start after the whole blocks of `bytes`; also gives the rest.
pub(crate) fn start_after(bytes: &[u8]) -> (Start, &[u8]) {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut start = Start::empty::<Many>();
    blocks.iter().for_each(|block| compress(&mut start.state, block));
    start.length = 64 * blocks.len() as u64;
    (start, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// GB/T 32905-2016, appendix A.
    #[test]
    fn the_standards_examples() {
        assert_eq!(
            hex(&Sm3::digest(&[b"abc"])),
            "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
        );
        assert_eq!(
            hex(&Sm3::digest(&[&b"abcd".repeat(16)])),
            "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732"
        );
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(Sm3::digest(&[&bytes]), Sm3::digest(&[&bytes[..cut], &bytes[cut..]]));
        }
    }
}
