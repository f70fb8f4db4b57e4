//! HMAC (RFC 2104) with a suite's hash. The two states behind its padded key are kept, so that the code
//! of a message of at most 55 bytes costs two compressions; of many messages each lane of the vector
//! registers takes one, under a key of its own.

use crate::many::{Function, HashInput, Start, bytes};
use std::marker::PhantomData;
use tercio_unsafe_lanes::words::{Block, LANES, States};

/// A key with its two midstates.
pub(crate) struct Hmac<F> {
    inner: [u32; 8],
    outer: [u32; 8],
    hash: PhantomData<F>,
}

impl<F> Clone for Hmac<F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner, outer: self.outer, hash: PhantomData }
    }
}

/// How many bytes a padded key has.
const KEY: u64 = 64;

impl<F: Function> Hmac<F> {
    /// A key of at most 64 bytes.
    pub(crate) fn new(key: &[u8]) -> Self {
        assert!(key.len() <= 64, "a longer key would have to be hashed first");
        let behind = |pad: u8| {
            let mut block = [pad; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            let mut state = F::INITIAL;
            F::compress(&mut state, &block);
            state
        };
        Self { inner: behind(0x36), outer: behind(0x5c), hash: PhantomData }
    }

    /// The code of a message of two parts.
    pub(crate) fn code(&self, message: &HashInput<'_>) -> [u8; 32] {
        let inner = F::alone(&Start { state: self.inner, length: KEY }, message);
        let inner = HashInput { head: &inner, body: &[] };
        F::alone(&Start { state: self.outer, length: KEY }, &inner)
    }
}

/// What is authenticated: the 52 bytes of a message.
type Said = [u8; 52];

/// Gives `put` the place and the code of each message under its key, in any order.
pub(crate) fn each_code<F: Function>(
    items: &[(&Hmac<F>, &Said)],
    mut put: impl FnMut(usize, [u8; 32]),
) {
    let worth = F::worth().unwrap_or(usize::MAX);
    for (group, items) in items.chunks(LANES).enumerate() {
        let from = group * LANES;
        if items.len() < worth {
            for (i, (key, body)) in items.iter().enumerate() {
                put(from + i, key.code(&HashInput { head: &[], body: &body[..] }));
            }
            continue;
        }
        // Either message fits one block with its padding.
        let mut blocks = [[0; 64]; LANES];
        for (block, (_, said)) in blocks.iter_mut().zip(items) {
            *block = padded(said);
        }
        let states = lanes::<F>(items, |key| &key.inner, &blocks);
        for (lane, block) in blocks.iter_mut().enumerate().take(items.len()) {
            *block = padded(&bytes(&states.map(|words| words[lane])));
        }
        let states = lanes::<F>(items, |key| &key.outer, &blocks);
        for lane in 0..items.len() {
            put(from + lane, bytes(&states.map(|words| words[lane])));
        }
    }
}

/// The last block of a message that has a padded key before it.
fn padded<const LEN: usize>(message: &[u8; LEN]) -> Block {
    let mut block = [0; 64];
    block[..LEN].copy_from_slice(message);
    block[LEN] = 0x80;
    block[56..].copy_from_slice(&((KEY + LEN as u64) * 8).to_be_bytes());
    block
}

/// The states behind a block each.
fn lanes<F: Function>(
    items: &[(&Hmac<F>, &Said)],
    state: fn(&Hmac<F>) -> &[u32; 8],
    blocks: &[Block; LANES],
) -> States {
    let mut states: States = [[0; LANES]; 8];
    for (lane, (key, _)) in items.iter().enumerate() {
        states.iter_mut().zip(state(key)).for_each(|(words, word)| words[lane] = *word);
    }
    F::lanes(&mut states, &blocks.each_ref());
    states
}
