//! Chunks of the keyed store ([`crate::store`]): which keys and values are one, as a list in memory
//! and as bytes.

use crate::key_bits::{bit, first_difference};
use crate::trie::Leaf;
use bytes::Bytes;
use std::sync::Arc;
use tercio_crypto::hash;
use tercio_types::{Digest, Suite};
use tercio_wire::{DecodeError, Reader, list};

/// The most bytes in a chunk of more than one key, its list's count not counted.
pub const CHUNK_BYTES: usize = 4096;

/// A key with its value.
pub(crate) type Entry = (Bytes, Bytes);

/// Keys that are one leaf of the tree, with their values.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// In ascending order of key; never empty in the tree.
    pub(crate) entries: Vec<Entry>,
    /// Of all of them.
    pub(crate) weight: usize,
    /// The chunk's bytes with their digest, until the next change.
    pub(crate) encoded: Option<(Bytes, Digest)>,
}

/// What an entry takes in a chunk, in bytes.
pub(crate) fn weight(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + 8
}

impl Chunk {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let weight = entries.iter().map(|(k, v)| weight(k, v)).sum();
        Self { entries, weight, encoded: None }
    }

    pub(crate) fn first(&self) -> &Bytes {
        &self.entries.first().expect("a chunk is not empty").0
    }

    fn last(&self) -> &Bytes {
        &self.entries.last().expect("a chunk is not empty").0
    }

    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| k.as_ref().cmp(key))
    }

    /// Where `key` differs from what all keys of the chunk share; none when it belongs in here.
    pub(crate) fn leaves_out(&self, key: &[u8]) -> Option<u32> {
        let differs = first_difference(self.first(), key)?;
        let own = first_difference(self.first(), self.last());
        own.is_none_or(|own| differs < own).then_some(differs)
    }

    pub(crate) fn put(&mut self, entry: Entry) -> Option<Bytes> {
        self.weight += weight(&entry.0, &entry.1);
        match self.find(&entry.0) {
            Ok(i) => {
                let (key, old) = std::mem::replace(&mut self.entries[i], entry);
                self.weight -= weight(&key, &old);
                Some(old)
            }
            Err(i) => {
                self.entries.insert(i, entry);
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, i: usize) -> Bytes {
        let (key, old) = self.entries.remove(i);
        self.weight -= weight(&key, &old);
        old
    }

    /// Adds the keys of the chunk that follows.
    pub(crate) fn append(&mut self, next: Self) {
        self.weight += next.weight;
        self.entries.extend(next.entries);
        self.encoded = None;
    }

    /// Whether it must be two.
    pub(crate) fn is_large(&self) -> bool {
        self.weight > CHUNK_BYTES && self.entries.len() > 1
    }

    /// The two that it must be, and the bit in which their keys differ, if it is too large for one.
    pub(crate) fn halves(&mut self) -> Option<(u32, [Self; 2])> {
        if !self.is_large() {
            return None;
        }
        let position = first_difference(self.first(), self.last())?;
        let mut left = std::mem::take(&mut self.entries);
        let right = left.split_off(left.partition_point(|(key, _)| !bit(key, position)));
        Some((position, [Self::new(left), Self::new(right)]))
    }

    /// Its bytes and their digest. The keys and values are slices of those from then on.
    fn encoded(&mut self, suite: Suite) -> &(Bytes, Digest) {
        if self.encoded.is_none() {
            let encoded = self.encode();
            self.entries = Self::decode(&encoded, suite).expect("a chunk that was just written");
            let digest = hash(suite, &[&encoded]);
            self.encoded = Some((encoded, digest));
        }
        self.encoded.as_ref().expect("just made")
    }

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(4 + self.weight);
        list::encode(&mut out, 2 * self.entries.len(), |i, out| {
            let (key, value) = &self.entries[i / 2];
            out.extend_from_slice(if i % 2 == 0 { key } else { value });
        });
        out.into()
    }

    pub(crate) fn decode(bytes: &Bytes, suite: Suite) -> Result<Vec<Entry>, DecodeError> {
        const WHAT: &str = "store chunk";
        let mut input = Reader::new(bytes.clone(), suite);
        let items = list::List::decode(&mut input, usize::MAX, WHAT)?;
        input.finish()?;
        if items.is_empty() || !items.len().is_multiple_of(2) {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        let item = |i| items.get(i).ok_or(DecodeError::Truncated(WHAT));
        (0..items.len()).step_by(2).map(|i| Ok((item(i)?, item(i + 1)?))).collect()
    }
}

impl Leaf for Arc<Chunk> {
    /// The first key. Another first key differs from the old one only behind what all keys of the
    /// chunk share.
    fn label(&self) -> &Bytes {
        self.first()
    }

    fn value(&mut self, suite: Suite) -> Digest {
        match &self.encoded {
            Some((_, digest)) => *digest,
            None => Arc::make_mut(self).encoded(suite).1,
        }
    }
}

/// Splits sorted entries into the chunks that stand for them.
pub(crate) fn partition(mut entries: Vec<Entry>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    // The ranges still to be split, the last one first; cut off the end of `entries`. A stack of
    // our own: hostile keys can nest as deep as a key has bits.
    let mut starts = vec![0];
    while let Some(&start) = starts.last() {
        let range = &entries[start..];
        let (Some((first, _)), Some((last, _))) = (range.first(), range.last()) else { break };
        let weight: usize = range.iter().map(|(k, v)| weight(k, v)).sum();
        match first_difference(first, last) {
            Some(position) if weight > CHUNK_BYTES => {
                starts.push(start + range.partition_point(|(key, _)| !bit(key, position)));
            }
            _ => {
                chunks.push(Chunk::new(entries.split_off(start)));
                starts.pop();
            }
        }
    }
    chunks.reverse();
    chunks
}
