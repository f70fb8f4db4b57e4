//! The keyed store that the engine owns for [`crate::Transaction`]s: an ordered map of bytes with
//! an incremental digest and snapshots.
//!
//! Keys are kept in chunks, each a range of keys. Which chunks there are is a function of the
//! content alone, however it came about: a set of keys that takes at most [`CHUNK_BYTES`] (or is a
//! single key) is one chunk, and any other is split at the first bit in which its keys differ. No
//! choice of keys makes a chunk larger than that, except by a single value.
//!
//! ```text
//! chunk   list (tercio_wire::list) of key, value, key, value .. in ascending order of key
//! label   its first key
//! digest  MerkleMap of label -> H(chunk)
//! ```
//! A chunk that is not changed stands as its encoding, and its keys and values are slices of it.
//! So a snapshot shares memory with the store, and costs what changed since the last one.

use crate::key_bits::{bit, first_difference};
use crate::{AppError, MerkleMap, TreeTop};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tercio_crypto::hash;
use tercio_types::{Digest, Suite};
use tercio_wire::{DecodeError, Reader, list};

/// The most bytes in a chunk of more than one key, its list's count not counted.
pub const CHUNK_BYTES: usize = 4096;

type Entry = (Bytes, Bytes);

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// In ascending order of key; never empty.
    entries: Vec<Entry>,
    weight: usize,
    /// The chunk's bytes, from a flush until the next change.
    encoded: Option<Bytes>,
}

fn weight(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + 8
}

impl Chunk {
    fn new(entries: Vec<Entry>) -> Self {
        let weight = entries.iter().map(|(k, v)| weight(k, v)).sum();
        Self { entries, weight, encoded: None }
    }

    fn first(&self) -> &Bytes {
        &self.entries.first().expect("a chunk is not empty").0
    }

    fn last(&self) -> &Bytes {
        &self.entries.last().expect("a chunk is not empty").0
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| k.as_ref().cmp(key))
    }

    /// Whether `key`, which is outside the chunk, shares the prefix that all its keys share.
    fn shares_prefix(&self, key: &[u8]) -> bool {
        let own = first_difference(self.first(), self.last());
        own.is_some_and(|own| first_difference(self.first(), key).is_none_or(|d| d >= own))
    }

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(4 + self.weight);
        list::encode(&mut out, 2 * self.entries.len(), |i, out| {
            let (key, value) = &self.entries[i / 2];
            out.extend_from_slice(if i % 2 == 0 { key } else { value });
        });
        out.into()
    }

    fn decode(bytes: &Bytes, suite: Suite) -> Result<Vec<Entry>, DecodeError> {
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

/// Splits sorted entries into the chunks that stand for them.
fn partition(mut entries: Vec<Entry>) -> Vec<Chunk> {
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

/// An ordered map of bytes to bytes with an incremental digest.
#[derive(Clone, Debug)]
pub struct Store {
    suite: Suite,
    chunks: BTreeMap<Bytes, Chunk>,
    /// Labels that came, went or changed since the last flush.
    dirty: BTreeSet<Bytes>,
    tree: MerkleMap,
    len: usize,
}

impl Store {
    /// A store without keys.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self {
            suite,
            chunks: BTreeMap::new(),
            dirty: BTreeSet::new(),
            tree: MerkleMap::new(suite),
            len: 0,
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let chunk = self.at_or_before(key)?.1;
        chunk.find(key).ok().map(|i| &chunk.entries[i].1)
    }

    /// All keys from `from` on, with their values, in ascending order.
    pub fn range<'a>(&'a self, from: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        let start = self.at_or_before(from).map_or(from, |(label, _)| label);
        self.chunks
            .range::<[u8], _>((Bound::Included(start), Bound::Unbounded))
            .flat_map(|(_, chunk)| &chunk.entries)
            .skip_while(move |(key, _)| key.as_ref() < from)
            .map(|(key, value)| (key, value))
    }

    /// Gives a key a value and returns the one it had.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Option<Bytes> {
        let entry = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        let host = self.host(key);
        let mut chunk = host.map_or_else(Chunk::default, |label| self.take(&label));
        let old = match chunk.find(key) {
            Ok(i) => {
                let old = std::mem::replace(&mut chunk.entries[i], entry).1;
                chunk.weight -= weight(key, &old);
                Some(old)
            }
            Err(i) => {
                chunk.entries.insert(i, entry);
                self.len += 1;
                None
            }
        };
        chunk.weight += weight(key, value);
        let label = self.give(chunk);
        self.settle(label);
        old
    }

    /// Takes a key's value away and returns it.
    pub fn delete(&mut self, key: &[u8]) -> Option<Bytes> {
        let (label, chunk) = self.at_or_before(key)?;
        let i = chunk.find(key).ok()?;
        let label = label.clone();
        let mut chunk = self.take(&label);
        let (_, old) = chunk.entries.remove(i);
        chunk.weight -= weight(key, &old);
        self.len -= 1;
        if chunk.entries.is_empty() {
            let around = [self.before(&label), self.after(&label)];
            let around = around.map(|found| found.map(|(label, _)| label.clone()));
            // Settling one can merge it with the other.
            for label in around.into_iter().flatten() {
                if self.chunks.contains_key(&label) {
                    self.settle(label);
                }
            }
        } else {
            let label = self.give(chunk);
            self.settle(label);
        }
        Some(old)
    }

    fn at_or_before(&self, key: &[u8]) -> Option<(&Bytes, &Chunk)> {
        self.chunks.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    fn before(&self, key: &[u8]) -> Option<(&Bytes, &Chunk)> {
        self.chunks.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()
    }

    fn after(&self, key: &[u8]) -> Option<(&Bytes, &Chunk)> {
        self.chunks.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next()
    }

    /// The chunk that `key` is in or belongs into; none when it starts one of its own.
    fn host(&self, key: &[u8]) -> Option<Bytes> {
        let (before, after) = (self.at_or_before(key), self.after(key));
        let takes = |chunk: &Chunk| chunk.find(key).is_ok() || chunk.shares_prefix(key);
        [before, after].into_iter().flatten().find(|(_, c)| takes(c)).map(|(l, _)| l.clone())
    }

    fn take(&mut self, label: &Bytes) -> Chunk {
        self.dirty.insert(label.clone());
        let mut chunk = self.chunks.remove(label).expect("a label of the map");
        chunk.encoded = None;
        chunk
    }

    fn give(&mut self, chunk: Chunk) -> Bytes {
        let label = chunk.first().clone();
        self.dirty.insert(label.clone());
        self.chunks.insert(label.clone(), chunk);
        label
    }

    /// Splits or merges from a changed chunk on until the chunks are those of the content.
    fn settle(&mut self, mut label: Bytes) {
        let chunk = &self.chunks[&label];
        if chunk.weight > CHUNK_BYTES && chunk.entries.len() > 1 {
            let chunk = self.take(&label);
            for part in partition(chunk.entries) {
                self.give(part);
            }
            return;
        }
        while let Some(sibling) = self.sibling(&label) {
            if self.chunks[&label].weight + self.chunks[&sibling].weight > CHUNK_BYTES {
                return;
            }
            let (left, right) = if label < sibling { (label, sibling) } else { (sibling, label) };
            let (mut left, right) = (self.take(&left), self.take(&right));
            left.weight += right.weight;
            left.entries.extend(right.entries);
            label = self.give(left);
        }
    }

    /// The chunk that is the other half of this one's parent; none when that is several chunks.
    fn sibling(&self, label: &Bytes) -> Option<Bytes> {
        let gap = |left: Option<(&Bytes, &Chunk)>, right: Option<(&Bytes, &Chunk)>| {
            first_difference(left?.1.last(), right?.1.first())
        };
        let here = self.chunks.get_key_value(label);
        let (before, after) = (self.before(label), self.after(label));
        let (left, right) = (gap(before, here), gap(here, after));
        // The parent splits where the neighbours differ last; `None` sorts below all positions.
        let (other, beyond) = if left > right {
            let other = before?;
            (other, gap(self.before(other.0), before))
        } else {
            let other = after?;
            (other, gap(after, self.after(other.0)))
        };
        (beyond < left.max(right)).then(|| other.0.clone())
    }

    /// Encodes what changed and brings the tree up to date.
    fn flush(&mut self) {
        while let Some(label) = self.dirty.pop_first() {
            let Some(mut chunk) = self.chunks.remove(&label) else {
                self.tree.set(&label, None);
                continue;
            };
            let encoded = chunk.encode();
            self.tree.set(&label, Some(hash(self.suite, &[&encoded])));
            chunk.entries =
                Chunk::decode(&encoded, self.suite).expect("a chunk that was just written");
            chunk.encoded = Some(encoded);
            self.chunks.insert(chunk.first().clone(), chunk);
        }
    }

    /// The digest of the content. The cost follows what changed since the last call.
    pub fn digest(&mut self) -> Digest {
        self.flush();
        self.tree.root()
    }

    /// The upper part of the tree of chunks.
    pub fn top(&mut self) -> TreeTop {
        self.flush();
        self.tree.top()
    }

    /// The content as labelled chunks in ascending order. They share memory with the store, and
    /// stay as they are while it changes.
    pub fn snapshot(&mut self) -> Vec<(Bytes, Bytes)> {
        self.flush();
        let encoded = |chunk: &Chunk| chunk.encoded.clone().expect("it was just flushed");
        self.chunks.iter().map(|(label, chunk)| (label.clone(), encoded(chunk))).collect()
    }

    /// The store whose [`Self::snapshot`] this is.
    ///
    /// # Errors
    /// When the chunks are no snapshot.
    pub fn from_snapshot(suite: Suite, chunks: &[(Bytes, Bytes)]) -> Result<Self, AppError> {
        let mut entries: Vec<Entry> = Vec::new();
        for (label, chunk) in chunks {
            let decoded = Chunk::decode(chunk, suite).map_err(|e| AppError(e.to_string()))?;
            if decoded[0].0 != label {
                return Err(AppError(format!("store chunk {label:?} starts at another key")));
            }
            entries.extend(decoded);
        }
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(AppError("the keys of the snapshot are not in order".into()));
        }
        let mut store = Self::new(suite);
        store.len = entries.len();
        for (i, mut chunk) in partition(entries).into_iter().enumerate() {
            let label = chunk.first().clone();
            // A chunk that begins at the same key and is as long has the same entries. It stands as
            // it came, so that nothing is in memory twice.
            let as_it_came = |(given, bytes): &&(Bytes, Bytes)| {
                *given == label && bytes.len() == 4 + chunk.weight
            };
            match chunks.get(i).filter(as_it_came) {
                Some((_, bytes)) => {
                    store.tree.set(&label, Some(hash(suite, &[bytes])));
                    chunk.encoded = Some(bytes.clone());
                    store.chunks.insert(label, chunk);
                }
                None => drop(store.give(chunk)),
            }
        }
        store.flush();
        Ok(store)
    }

    /// How many hashes the tree of chunks has computed so far.
    #[cfg(test)]
    fn hashes(&self) -> u64 {
        self.tree.hashes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys with long common prefixes, some the prefix of others.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(0u8..3, 0..6),
            (0u16..400).prop_map(|i| i.to_be_bytes().to_vec()),
            (1usize..40).prop_map(|n| vec![7; n]),
        ]
    }

    fn change() -> impl Strategy<Value = (Vec<u8>, Option<Vec<u8>>)> {
        let value = prop_oneof![
            8 => (0usize..700).prop_map(|n| vec![n as u8; n]),
            1 => Just(vec![1; CHUNK_BYTES + 1]),
        ];
        (key(), prop::option::weighted(0.6, value))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Against a plain map: same content, and the chunks and digest of a store built from
        /// that content at once.
        #[test]
        fn chunks_are_a_function_of_the_content(
            changes in prop::collection::vec(change(), 1..250),
            flush_every in 1usize..60,
        ) {
            let suite = Suite::default();
            let mut store = Store::new(suite);
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for (i, (key, value)) in changes.iter().enumerate() {
                let (had, old) = match value {
                    Some(v) => (store.put(key, v), model.insert(key.clone(), v.clone())),
                    None => (store.delete(key), model.remove(key)),
                };
                prop_assert_eq!(had.as_deref(), old.as_deref());
                if i % flush_every == 0 {
                    store.digest();
                }
            }
            prop_assert_eq!(store.len(), model.len());
            let all: Vec<_> = store.range(b"").map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            prop_assert!(all.iter().map(|(k, v)| (k, v)).eq(model.iter()));
            for (key, _) in &changes {
                let has = store.get(key).map(|v| v.to_vec());
                prop_assert_eq!(has.as_ref(), model.get(key));
                let from = store.range(key).next().map(|(k, _)| k.to_vec());
                prop_assert_eq!(from.as_ref(), model.range(key.clone()..).next().map(|(k, _)| k));
            }
            let mut at_once = Store::new(suite);
            let entries = model.iter().map(|(k, v)| (k.clone().into(), v.clone().into()));
            for chunk in partition(entries.collect()) {
                at_once.give(chunk);
            }
            prop_assert_eq!(store.snapshot(), at_once.snapshot());
            prop_assert_eq!(store.digest(), at_once.digest());
            let mut restored = Store::from_snapshot(suite, &store.snapshot()).unwrap();
            prop_assert_eq!(restored.digest(), store.digest());
            prop_assert_eq!(restored.len(), store.len());
        }
    }

    fn filled(keys: u64) -> Store {
        let mut store = Store::new(Suite::default());
        for i in 0..keys {
            store.put(&i.to_be_bytes(), &[0; 32]);
        }
        store.digest();
        store
    }

    #[test]
    fn the_cost_of_a_digest_follows_the_changes() {
        for keys in [1_000, 100_000] {
            let mut store = filled(keys);
            let before = store.hashes();
            store.digest();
            assert_eq!(store.hashes(), before, "nothing changed");
            for i in 0..10 {
                store.put(&(i * keys / 10).to_be_bytes(), &[1; 32]);
            }
            store.digest();
            let depth = 64 - keys.leading_zeros() as u64;
            assert!(store.hashes() - before <= 10 * depth, "{keys} keys");
        }
    }

    #[test]
    fn a_snapshot_stays_and_shares_what_did_not_change() {
        let mut store = filled(10_000);
        let before = store.snapshot();
        let copy: Vec<_> = before.iter().map(|(l, c)| (l.to_vec(), c.to_vec())).collect();
        store.put(&5u64.to_be_bytes(), b"new");
        store.delete(&9_999u64.to_be_bytes());
        let after = store.snapshot();
        assert!(before.iter().zip(&copy).all(|((l, c), (cl, cc))| l == cl && c == cc));
        let shared = before.iter().zip(&after).filter(|(b, a)| b.1.as_ptr() == a.1.as_ptr());
        assert_eq!(shared.count(), before.len() - 2);
    }

    /// What is restored uses the snapshot's memory.
    #[test]
    fn a_restored_store_shares_the_snapshot() {
        let chunks = filled(10_000).snapshot();
        let copied: Vec<_> =
            chunks.iter().map(|(l, c)| (l.clone(), Bytes::copy_from_slice(c))).collect();
        let again = Store::from_snapshot(Suite::default(), &copied).unwrap().snapshot();
        assert!(again.iter().zip(&copied).all(|(a, c)| a == c && a.1.as_ptr() == c.1.as_ptr()));
        assert_eq!(again, chunks);
    }

    #[test]
    fn chosen_keys_do_not_make_large_chunks() {
        let mut store = Store::new(Suite::default());
        (0..3_000).for_each(|n| drop(store.put(&vec![9; n], b"")));
        let chunks = store.snapshot();
        assert!(chunks.iter().all(|(_, c)| c.len() <= 4 + CHUNK_BYTES || c.len() < 3_100));
        let mut back = Store::from_snapshot(Suite::default(), &chunks).unwrap();
        assert_eq!(back.digest(), store.digest());
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        let chunks = filled(1_000).snapshot();
        let refused = |chunks: &[(Bytes, Bytes)]| {
            Store::from_snapshot(Suite::default(), chunks).unwrap_err().0
        };
        let mut swapped = chunks.clone();
        swapped.swap(0, 1);
        assert!(refused(&swapped).contains("not in order"));
        let mut renamed = chunks.clone();
        renamed[0].0 = Bytes::from_static(b"x");
        assert!(refused(&renamed).contains("another key"));
        for cut in 0..chunks[0].1.len() {
            refused(&[(chunks[0].0.clone(), chunks[0].1.slice(..cut))]);
        }
    }
}
