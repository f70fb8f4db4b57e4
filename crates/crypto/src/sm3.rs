//! SM3 (GB/T 32905-2016): a hash of 256 bits. One message at a time, piece by piece, or many
//! messages at once in the lanes of vector registers.

use tercio_unsafe_lanes::sm3::{Blocks, INITIAL, LANES, States, compress, compress_lanes};

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

fn bytes(state: &[u32; 8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (chunk, word) in out.chunks_exact_mut(4).zip(state) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    out
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

/// Where many messages start: nothing, or whole blocks that they have in common.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    state: [u32; 8],
    length: u64,
}

impl Start {
    pub(crate) const EMPTY: Self = Self { state: INITIAL, length: 0 };

    /// After the whole blocks of `bytes`; also gives the rest.
    pub(crate) fn after(bytes: &[u8]) -> (Self, &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<64>();
        let mut state = INITIAL;
        blocks.iter().for_each(|block| compress(&mut state, block));
        (Self { state, length: 64 * blocks.len() as u64 }, rest)
    }
}

/// A message of two parts, hashed as one. The head has at most 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    fn length(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// How many blocks the padded message has.
    fn blocks(&self) -> usize {
        (self.length() + 8) / 64 + 1
    }

    /// Block `index` of the padded message, which comes after `before` bytes.
    fn block(&self, index: usize, before: u64) -> [u8; 64] {
        let mut block = [0; 64];
        let (length, start) = (self.length(), index * 64);
        let mut at = 0;
        if start == 0 {
            at = self.head.len();
            block[..at].copy_from_slice(self.head);
        }
        let body = self.body.get(start + at - self.head.len()..).unwrap_or_default();
        let taken = body.len().min(64 - at);
        block[at..at + taken].copy_from_slice(&body[..taken]);
        if (start..start + 64).contains(&length) {
            block[length - start] = 0x80;
        }
        if index + 1 == self.blocks() {
            let bits = (before + length as u64).wrapping_mul(8);
            block[56..].copy_from_slice(&bits.to_be_bytes());
        }
        block
    }
}

/// The digest of each message after the common start, in their order. Messages of about one length
/// share vector registers.
pub(crate) fn digest_many(start: &Start, messages: &[Message<'_>]) -> Vec<[u8; 32]> {
    let mut out = vec![[0; 32]; messages.len()];
    // By number of blocks, so that no lane waits long for another.
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by_key(|&i| messages[i].blocks());
    for group in order.chunks(LANES) {
        if let [i] = *group {
            let mut state = start.state;
            for index in 0..messages[i].blocks() {
                compress(&mut state, &messages[i].block(index, start.length));
            }
            out[i] = bytes(&state);
            continue;
        }
        let mut states: States = start.state.map(|word| [word; LANES]);
        let last = messages[group[group.len() - 1]].blocks();
        for index in 0..last {
            let mut blocks: Blocks = [[0; LANES]; 16];
            for (lane, &i) in group.iter().enumerate() {
                if index < messages[i].blocks() {
                    let block = messages[i].block(index, start.length);
                    for (words, bytes) in blocks.iter_mut().zip(block.as_chunks::<4>().0) {
                        words[lane] = u32::from_be_bytes(*bytes);
                    }
                }
            }
            compress_lanes(&mut states, &blocks);
            for (lane, &i) in group.iter().enumerate() {
                if index + 1 == messages[i].blocks() {
                    out[i] = bytes(&states.map(|word| word[lane]));
                }
            }
        }
    }
    out
}

/// HMAC (RFC 2104) with SM3.
#[derive(Clone, Debug)]
pub(crate) struct HmacSm3 {
    inner: Sm3,
    outer: Sm3,
}

impl HmacSm3 {
    /// A MAC under a key of at most 64 bytes.
    pub(crate) fn new(key: &[u8]) -> Self {
        let with = |pad: u8| {
            let mut block = [pad; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            let mut hash = Sm3::new();
            hash.update(&block);
            hash
        };
        assert!(key.len() <= 64, "a longer key would have to be hashed first");
        Self { inner: with(0x36), outer: with(0x5c) }
    }

    /// The MAC of the parts, one after the other.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let (mut inner, mut outer) = (self.inner.clone(), self.outer.clone());
        parts.iter().for_each(|part| inner.update(part));
        outer.update(&inner.finish());
        outer.finish()
    }
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

    /// A case computed by hand from HMAC's definition: another path than the midstates.
    #[test]
    fn hmac_by_definition() {
        let key = [7; 32];
        let (mut inner, mut outer) = ([0x36; 64], [0x5c; 64]);
        for i in 0..32 {
            inner[i] ^= key[i];
            outer[i] ^= key[i];
        }
        let inside = Sm3::digest(&[&inner, b"text"]);
        let whole = Sm3::digest(&[&outer, &inside]);
        assert_eq!(HmacSm3::new(&key).tag(&[b"te", b"xt"]), whole);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(Sm3::digest(&[&bytes]), Sm3::digest(&[&bytes[..cut], &bytes[cut..]]));
        }

        #[test]
        fn many_equal_one_by_one(
            lengths in prop::collection::vec((0usize..64, 0usize..300), 0..40),
            common in prop::collection::vec(any::<u8>(), 0..150),
        ) {
            let parts: Vec<(Vec<u8>, Vec<u8>)> = lengths
                .iter()
                .enumerate()
                .map(|(i, (head, body))| (vec![i as u8; *head], vec![!i as u8; *body]))
                .collect();
            let messages: Vec<_> = parts.iter().map(|(head, body)| Message { head, body }).collect();
            let (start, rest) = Start::after(&common);
            let common = &common[..common.len() - rest.len()];
            for (digest, (head, body)) in digest_many(&start, &messages).iter().zip(&parts) {
                prop_assert_eq!(*digest, Sm3::digest(&[common, head, body]));
            }
        }
    }
}
