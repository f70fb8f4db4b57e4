//! Many messages hashed at once, each in a lane of vector registers. Both suites' hashes take blocks
//! of 64 bytes and pad alike, so that they differ in their compression function alone.

use crate::sha256::Sha256;
use crate::sm3;
use tercio_types::{Digest, Suite};
use tercio_unsafe_lanes::words::{Block, LANES, States};

/// A message of two parts, hashed as one. The head has at most 64 bytes.
#[derive(Clone, Copy, Debug)]
pub struct HashInput<'a> {
    /// What it begins with.
    pub head: &'a [u8],
    /// The rest.
    pub body: &'a [u8],
}

/// Appends the digest of each message, in their order. Messages of about one length share vector
/// registers, where the processor has them.
///
/// # Panics
/// When a head has more than 64 bytes.
pub fn hash_many(suite: Suite, messages: &[HashInput<'_>], out: &mut Vec<Digest>) {
    let from = out.len();
    out.resize(from + messages.len(), Digest::NULL);
    let put = |i: usize, digest| out[from + i] = Digest(digest);
    match suite {
        Suite::Sha256Ed25519 => each_digest::<Sha256>(&Start::empty::<Sha256>(), messages, put),
        Suite::Sm3Sm2 => each_digest::<sm3::Many>(&Start::empty::<sm3::Many>(), messages, put),
        _ => unreachable!("a suite is made only from a number that this build knows"),
    }
}

/// A hash by its compression function.
pub(crate) trait Function {
    /// The state before the first block.
    const INITIAL: [u32; 8];

    /// From how many messages on lanes are faster than one by one; none without such registers.
    fn worth() -> Option<usize>;

    /// Takes a block into the state.
    fn compress(state: &mut [u32; 8], block: &Block);

    /// Takes one block of each message into its state.
    fn lanes(states: &mut States, blocks: &[&Block; LANES]);

    /// The digest of one message alone.
    fn alone(start: &Start, message: &HashInput<'_>) -> [u8; 32];
}

/// Where many messages start: nothing, or whole blocks that they have in common.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) state: [u32; 8],
    pub(crate) length: u64,
}

impl Start {
    /// Nothing.
    pub(crate) fn empty<F: Function>() -> Self {
        Self { state: F::INITIAL, length: 0 }
    }
}

impl HashInput<'_> {
    fn length(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// How many blocks the padded message has.
    fn blocks(&self) -> usize {
        (self.length() + 8) / 64 + 1
    }

    /// Block `index` of the padded message, which comes after `before` bytes: as it stands, or put
    /// together in `room`.
    fn block<'b>(&'b self, index: usize, before: u64, room: &'b mut Block) -> &'b Block {
        let start = index * 64;
        let within = start.checked_sub(self.head.len()).and_then(|at| self.body.get(at..));
        if let Some(whole) = within.and_then(|rest| rest.first_chunk()) {
            return whole;
        }
        let length = self.length();
        let mut at = 0;
        if start == 0 {
            at = self.head.len();
            room[..at].copy_from_slice(self.head);
        }
        let body = self.body.get(start + at - self.head.len()..).unwrap_or_default();
        let taken = body.len().min(64 - at);
        room[at..at + taken].copy_from_slice(&body[..taken]);
        at += taken;
        room[at..].fill(0);
        if (start..start + 64).contains(&length) {
            room[at] = 0x80;
        }
        if index + 1 == self.blocks() {
            let bits = (before + length as u64).wrapping_mul(8);
            room[56..].copy_from_slice(&bits.to_be_bytes());
        }
        room
    }
}

/// The digest of each message after the common start, in their order.
pub(crate) fn digest_many<F: Function>(start: &Start, messages: &[HashInput<'_>]) -> Vec<[u8; 32]> {
    let mut out = vec![[0; 32]; messages.len()];
    each_digest::<F>(start, messages, |i, digest| out[i] = digest);
    out
}

/// Gives `put` the place and the digest of each message after the common start, in any order.
fn each_digest<F: Function>(
    start: &Start,
    messages: &[HashInput<'_>],
    mut put: impl FnMut(usize, [u8; 32]),
) {
    assert!(messages.iter().all(|message| message.head.len() <= 64), "heads are short");
    let Some(worth) = F::worth().filter(|worth| messages.len() >= *worth) else {
        for (i, message) in messages.iter().enumerate() {
            put(i, F::alone(start, message));
        }
        return;
    };
    let mut order: Vec<usize> = (0..messages.len()).collect();
    // By number of blocks, so that no lane waits long for another.
    order.sort_by_cached_key(|&i| messages[i].blocks());
    for group in order.chunks(LANES) {
        if group.len() < worth {
            group.iter().for_each(|&i| put(i, F::alone(start, &messages[i])));
        } else {
            in_lanes::<F>(start, messages, group, &mut put);
        }
    }
}

fn in_lanes<F: Function>(
    start: &Start,
    messages: &[HashInput<'_>],
    group: &[usize],
    put: &mut impl FnMut(usize, [u8; 32]),
) {
    let mut states: States = start.state.map(|word| [word; LANES]);
    let mut blocks = [0; LANES];
    for (count, &i) in blocks.iter_mut().zip(group) {
        *count = messages[i].blocks();
    }
    let mut rooms = [[0; 64]; LANES];
    for index in 0..blocks[group.len() - 1] {
        // A lane whose message has ended goes on with whatever is there.
        let mut now: [&Block; LANES] = [&[0; 64]; LANES];
        for (lane, room) in rooms.iter_mut().enumerate().take(group.len()) {
            if index < blocks[lane] {
                now[lane] = messages[group[lane]].block(index, start.length, room);
            }
        }
        F::lanes(&mut states, &now);
        for (lane, &i) in group.iter().enumerate() {
            if index + 1 == blocks[lane] {
                put(i, bytes(&states.map(|word| word[lane])));
            }
        }
    }
}

/// A state as the digest that it is after the last block.
pub(crate) fn bytes(state: &[u32; 8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (chunk, word) in out.chunks_exact_mut(4).zip(state) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn many_equal_one_by_one(
            lengths in prop::collection::vec((0usize..65, 0usize..300), 0..40),
            even in any::<bool>(),
        ) {
            let lengths = lengths.iter().map(|(head, body)| (*head, if even { 100 } else { *body }));
            let parts: Vec<(Vec<u8>, Vec<u8>)> = lengths
                .enumerate()
                .map(|(i, (head, body))| (vec![i as u8; head], vec![!i as u8; body]))
                .collect();
            let messages: Vec<_> = parts.iter().map(|(head, body)| HashInput { head, body }).collect();
            for suite in Suite::ALL {
                let mut digests = vec![Digest::NULL];
                hash_many(suite, &messages, &mut digests);
                prop_assert_eq!(digests.len(), messages.len() + 1);
                for (digest, (head, body)) in digests[1..].iter().zip(&parts) {
                    prop_assert_eq!(*digest, hash(suite, &[head, body]));
                }
            }
        }

        #[test]
        fn a_common_start_stands_before_each(
            lengths in prop::collection::vec((0usize..64, 0usize..300), 0..40),
            common in prop::collection::vec(any::<u8>(), 0..150),
        ) {
            let parts: Vec<(Vec<u8>, Vec<u8>)> = lengths
                .iter()
                .enumerate()
                .map(|(i, (head, body))| (vec![i as u8; *head], vec![!i as u8; *body]))
                .collect();
            let messages: Vec<_> = parts.iter().map(|(head, body)| HashInput { head, body }).collect();
            let (start, rest) = sm3::start_after(&common);
            let common = &common[..common.len() - rest.len()];
            let digests = digest_many::<sm3::Many>(&start, &messages);
            for (digest, (head, body)) in digests.iter().zip(&parts) {
                prop_assert_eq!(*digest, crate::Sm3::digest(&[common, head, body]));
            }
        }
    }
}
