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
//! digest  the tree (tree.rs) of label -> H(chunk)
//! ```
//! So a chunk is what would otherwise be a subtree of the trie over the bits of all keys, and the
//! chunks are the leaves of what is left of that trie: one walk by the bits of a key finds the
//! chunk that it is in or belongs into, and all that a change can join or split.
//!
//! A chunk that is not changed stands as its encoding, and its keys and values are slices of it.
//! A snapshot shares the chunks, copy on write: to change one while a snapshot has it changes a copy
//! of its list of keys and values. To take one costs what changed since the last digest, and a
//! reference for some dozens of chunks; to go through it is for its holder. Only the [`OPEN`]
//! chunks that were changed last are not encoded and hashed: the digest after a hundred thousand
//! changes does not wait until all of them are. A lazy store
//! ([`Store::set_lazy`]) encodes nothing before it is asked: a chunk that is changed ten times until
//! then is encoded once. What it holds beside the encodings meanwhile is bounded ([`LAZY_BYTES`]).

use crate::chunk::{CHUNK_BYTES, Chunk, Entry, partition, weight};
use crate::trie::{Leaf, Trie};
use crate::{AppError, Snapshot, TreeTop};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tercio_crypto::hash;
use tercio_types::{Digest, Suite};

/// How many changed chunks stand as they are at most: what changes again and again is not encoded
/// each time.
const OPEN: usize = 256;

/// A lazy store has more of them, as long as the keys and values that were put since the last digest
/// are fewer bytes than this: they are in memory beside what they replaced.
const LAZY_BYTES: usize = 256 << 20;

/// An ordered map of bytes to bytes with an incremental digest.
#[derive(Clone, Debug)]
pub struct Store {
    suite: Suite,
    chunks: Trie<Arc<Chunk>>,
    /// Nodes whose chunks were changed and are not encoded, the oldest first; some are no chunks
    /// any more.
    open: VecDeque<u32>,
    len: usize,
    /// What all chunks weigh together.
    weight: u64,
    lazy: bool,
    /// How many bytes were put since all but [`OPEN`] chunks were encoded.
    put_bytes: usize,
}

impl Store {
    /// A store without keys.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        let (chunks, open) = (Trie::new(suite), VecDeque::new());
        Self { suite, chunks, open, len: 0, weight: 0, lazy: false, put_bytes: 0 }
    }

    /// Whether changed chunks are left as they are until the digest is asked for, which then takes
    /// as long as what changed.
    pub fn set_lazy(&mut self, lazy: bool) {
        self.lazy = lazy;
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
        let chunk = self.chunks.nearest(key)?;
        chunk.find(key).ok().map(|i| &chunk.entries[i].1)
    }

    /// All keys from `from` on, with their values, in ascending order.
    pub fn range<'a>(&'a self, from: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        self.chunks
            .leaves_from(from)
            .flat_map(|chunk| &chunk.entries)
            .skip_while(move |(key, _)| key.as_ref() < from)
            .map(|(key, value)| (key, value))
    }

    /// Gives a key a value and returns the one it had.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Option<Bytes> {
        self.set(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
    }

    /// The same of bytes that are nothing else's part: they are held as they are.
    pub(crate) fn set(&mut self, key: Bytes, value: Bytes) -> Option<Bytes> {
        let (value_len, new) = (value.len(), weight(&key, &value));
        self.put_bytes += new;
        self.weight += new as u64;
        let Some(at) = self.chunks.seek(&key) else {
            let at = self.chunks.add(Arc::new(Chunk::new(vec![(key, value)])));
            self.open.push_back(at);
            self.len = 1;
            return None;
        };
        let old = match self.chunks.leaf(at).leaves_out(&key) {
            Some(position) => {
                let chunk = Arc::new(Chunk::new(vec![(key, value)]));
                let at = self.chunks.hang(at, position, chunk);
                self.open.push_back(at);
                self.join_small(at);
                None
            }
            None => {
                let chunk = self.change(at);
                let before = chunk.weight;
                let old = chunk.put((key, value));
                if chunk.weight > before {
                    self.split_large(at);
                } else {
                    self.join_small(at);
                }
                old
            }
        };
        match &old {
            Some(old) => self.weight -= (new - value_len + old.len()) as u64,
            None => self.len += 1,
        }
        self.close_surplus();
        old
    }

    /// Takes a key's value away and returns it.
    pub fn delete(&mut self, key: &[u8]) -> Option<Bytes> {
        let at = self.chunks.seek(key)?;
        let i = self.chunks.leaf(at).find(key).ok()?;
        let chunk = self.change(at);
        let old = chunk.remove(i);
        let left = if chunk.entries.is_empty() { self.chunks.remove(at) } else { Some(at) };
        self.len -= 1;
        self.weight -= weight(key, &old) as u64;
        if let Some(at) = left {
            self.join_small(at);
        }
        self.close_surplus();
        Some(old)
    }

    /// The chunk at the end of the way, to be changed.
    fn change(&mut self, at: u32) -> &mut Chunk {
        self.chunks.touch(at);
        let chunk = Arc::make_mut(self.chunks.leaf_mut(at));
        if chunk.encoded.take().is_some() {
            self.open.push_back(at);
        }
        chunk
    }

    /// Splits a chunk that grew until the chunks are those of the content.
    fn split_large(&mut self, at: u32) {
        let mut large = Vec::from_iter(self.chunks.leaf(at).is_large().then_some(at));
        while let Some(at) = large.pop() {
            if let Some((position, halves)) = Arc::make_mut(self.chunks.leaf_mut(at)).halves() {
                let halves = self.chunks.split(at, position, halves.map(Arc::new));
                large.extend(halves);
                self.open.extend(halves);
            }
        }
    }

    /// Joins the chunk at the end of the way, which is new or not larger than it was, until the chunks
    /// are those of the content. (One that grew was too large for that before.)
    fn join_small(&mut self, mut at: u32) {
        while let Some(sibling) = self.chunks.sibling(at)
            && self.chunks.leaf(at).weight + self.chunks.leaf(sibling).weight <= CHUNK_BYTES
        {
            at = self.chunks.join(|left, right| {
                Arc::make_mut(left).append(Arc::unwrap_or_clone(right));
            });
            self.open.push_back(at);
        }
    }

    /// Encodes changed chunks until as few are left as the store may have.
    fn close_surplus(&mut self) {
        if !self.lazy || self.put_bytes > LAZY_BYTES {
            while self.open.len() > OPEN {
                self.close_oldest();
            }
            self.put_bytes = 0;
        }
    }

    /// Encodes some hundred of the changed chunks, those that were changed first; whether any is
    /// left.
    pub fn encode_some(&mut self) -> bool {
        (0..OPEN).for_each(|_| self.close_oldest());
        !self.open.is_empty()
    }

    /// Encodes the chunk that was changed first.
    fn close_oldest(&mut self) {
        if let Some(chunk) = self.open.pop_front().and_then(|at| self.chunks.leaf_if(at)) {
            chunk.value(self.suite);
        }
    }

    /// The digest of the content. The cost follows what changed since the last call.
    pub fn digest(&mut self) -> Digest {
        self.close_all();
        self.chunks.root()
    }

    /// Nothing is open any more: whoever takes the root of the tree encodes all that was.
    fn close_all(&mut self) {
        self.open.clear();
        self.put_bytes = 0;
    }

    /// The upper part of the tree of chunks.
    pub fn top(&mut self) -> TreeTop {
        self.close_all();
        self.chunks.top()
    }

    /// The content as labelled chunks. They share memory with the store, and stay as they are while
    /// it changes.
    pub fn snapshot(&mut self) -> Snapshot {
        self.digest();
        let bytes = self.weight + 4 * self.chunks.len() as u64;
        Snapshot::new(
            bytes,
            self.chunks.leaves().map(|chunk| {
                let (encoded, _) = chunk.encoded.as_ref().expect("the digest encodes all");
                (chunk.first().clone(), encoded.clone())
            }),
        )
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
        store.weight = entries.iter().map(|(key, value)| weight(key, value) as u64).sum();
        for (i, mut chunk) in partition(entries).into_iter().enumerate() {
            // A chunk that begins at the same key and is as long has the same entries. It stands as
            // it came, so that nothing is in memory twice.
            let as_it_came = |(label, bytes): &&(Bytes, Bytes)| {
                label == chunk.first() && bytes.len() == 4 + chunk.weight
            };
            if let Some((_, bytes)) = chunks.get(i).filter(as_it_came) {
                chunk.encoded = Some((bytes.clone(), hash(suite, &[bytes])));
            }
            store.chunks.add(Arc::new(chunk));
        }
        store.digest();
        Ok(store)
    }

    /// How many hashes the tree of chunks has computed so far.
    #[cfg(test)]
    fn hashes(&self) -> u64 {
        self.chunks.hashes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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

    fn chunks(store: &mut Store) -> Vec<(Bytes, Bytes)> {
        store.snapshot().collect()
    }

    /// A store that was never changed.
    fn at_once(content: &BTreeMap<Vec<u8>, Vec<u8>>) -> Store {
        let mut store = Store::new(Suite::default());
        let entries = content.iter().map(|(k, v)| (k.clone().into(), v.clone().into()));
        for chunk in partition(entries.collect()) {
            store.weight += chunk.weight as u64;
            store.chunks.add(Arc::new(chunk));
        }
        store
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Against a plain map: same content, and the chunks and digest of a store built from
        /// that content at once. Snapshots that were taken on the way, and some chunks of them gone
        /// through, are what they were then.
        #[test]
        fn chunks_are_a_function_of_the_content(
            changes in prop::collection::vec(change(), 1..250),
            flush_every in 1usize..60,
            taken_every in 1usize..90,
            lazy: bool,
        ) {
            let suite = Suite::default();
            let mut store = Store::new(suite);
            store.set_lazy(lazy);
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut taken = Vec::new();
            for (i, (key, value)) in changes.iter().enumerate() {
                let (had, old) = match value {
                    Some(v) => (store.put(key, v), model.insert(key.clone(), v.clone())),
                    None => (store.delete(key), model.remove(key)),
                };
                prop_assert_eq!(had.as_deref(), old.as_deref());
                if i % flush_every == 0 {
                    store.digest();
                }
                if i % taken_every == 0 {
                    let mut snapshot = store.snapshot();
                    let first: Vec<_> = snapshot.by_ref().take(i % 7).collect();
                    taken.push((snapshot, first, at_once(&model)));
                }
            }
            for (snapshot, mut first, mut then) in taken {
                let bytes = snapshot.bytes();
                first.extend(snapshot);
                prop_assert_eq!(bytes, first.iter().map(|(_, chunk)| chunk.len() as u64).sum());
                prop_assert_eq!(first, chunks(&mut then));
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
            let mut at_once = at_once(&model);
            let chunks = chunks(&mut store);
            prop_assert_eq!(&chunks, &self::chunks(&mut at_once));
            prop_assert_eq!(store.digest(), at_once.digest());
            let mut restored = Store::from_snapshot(suite, &chunks).unwrap();
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

    /// A lazy store has the same content and digest, and encodes a chunk when it is asked for the
    /// digest, not as others change; but what it puts off is bounded.
    #[test]
    fn a_lazy_store_puts_off_what_the_digest_takes() {
        let suite = Suite::default();
        let (mut store, mut lazy) = (Store::new(suite), Store::new(suite));
        lazy.set_lazy(true);
        let key = |i: u32| i.to_be_bytes();
        for round in 0..3u8 {
            for i in 0..4 * OPEN as u32 {
                for store in [&mut store, &mut lazy] {
                    store.put(&key(i), &[round; 3000]);
                }
            }
        }
        assert!(store.open.len() <= OPEN && lazy.open.len() > 3 * OPEN);
        assert_eq!(store.digest(), lazy.digest());
        assert!(lazy.open.is_empty());
        for i in 0..2 * OPEN as u32 {
            lazy.put(&key(i), b"small");
        }
        let large = vec![7; LAZY_BYTES / 8];
        let before = lazy.open.len();
        (0..7).for_each(|_| drop(lazy.put(&key(u32::MAX), &large)));
        assert!(lazy.open.len() >= before, "that was not too much");
        (0..2).for_each(|_| drop(lazy.put(&key(u32::MAX), &large)));
        assert!(lazy.open.len() <= OPEN);
        (0..OPEN as u32 + 1).for_each(|i| drop(lazy.put(&key(i), b"again")));
        let (before, hashes) = (lazy.open.len(), lazy.hashes());
        assert!(lazy.encode_some() && lazy.open.len() == before - OPEN, "a little at a time");
        while lazy.encode_some() {}
        assert!(lazy.open.is_empty() && lazy.hashes() == hashes, "the tree is not a part of it");
        lazy.set_lazy(false);
        lazy.put(&key(1), b"");
        assert!(lazy.open.len() <= OPEN);
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

    /// Whoever asks for the digest waits for few chunks to be encoded, whatever was changed.
    #[test]
    fn few_chunks_wait_for_the_digest() {
        let mut store = Store::new(Suite::default());
        for i in 0..100_000u64 {
            store.put(&(i.wrapping_mul(0x9e37_79b9) % 100_000).to_be_bytes(), &[0; 32]);
        }
        let open = |store: &Store| {
            store.chunks.leaves_from(b"").filter(|chunk| chunk.encoded.is_none()).count()
        };
        assert!((1..=OPEN).contains(&open(&store)), "{}", open(&store));
        store.digest();
        assert_eq!(open(&store), 0);
        // What changes again and again is encoded once.
        (0..1000).for_each(|i: u32| drop(store.put(&[0; 8], &i.to_be_bytes())));
        assert_eq!(open(&store), 1);
    }

    #[test]
    fn a_snapshot_stays_and_shares_what_did_not_change() {
        let mut store = filled(10_000);
        let copy: Vec<_> = store.snapshot().map(|(l, c)| (l.to_vec(), c.to_vec())).collect();
        let before = store.snapshot();
        store.put(&5u64.to_be_bytes(), b"new");
        store.delete(&9_999u64.to_be_bytes());
        let before: Vec<_> = before.collect();
        let after = chunks(&mut store);
        assert!(before.iter().zip(&copy).all(|((l, c), (cl, cc))| l == cl && c == cc));
        let shared = before.iter().zip(&after).filter(|(b, a)| b.1.as_ptr() == a.1.as_ptr());
        assert_eq!(shared.count(), before.len() - 2);
    }

    /// Of what changes while a snapshot is gone through, nobody has the old chunk any more when it
    /// was handed out; and until then the snapshot alone has it.
    #[test]
    fn a_snapshot_lets_go_of_what_it_handed_out() {
        let mut store = filled(10_000);
        let mut snapshot = store.snapshot();
        let (_, shared) = snapshot.next().unwrap();
        assert!(!shared.is_unique(), "the store has it, too");
        (0..10_000u64).for_each(|i| drop(store.put(&i.to_be_bytes(), b"new")));
        store.digest();
        let rest: Vec<_> = snapshot.by_ref().map(|(_, chunk)| chunk).collect();
        assert!(rest.len() > 100 && rest.iter().all(Bytes::is_unique));
    }

    /// What is restored uses the snapshot's memory.
    #[test]
    fn a_restored_store_shares_the_snapshot() {
        let chunks = chunks(&mut filled(10_000));
        let copied: Vec<_> =
            chunks.iter().map(|(l, c)| (l.clone(), Bytes::copy_from_slice(c))).collect();
        let again = self::chunks(&mut Store::from_snapshot(Suite::default(), &copied).unwrap());
        assert!(again.iter().zip(&copied).all(|(a, c)| a == c && a.1.as_ptr() == c.1.as_ptr()));
        assert_eq!(again, chunks);
    }

    #[test]
    fn chosen_keys_do_not_make_large_chunks() {
        let mut store = Store::new(Suite::default());
        (0..3_000).for_each(|n| drop(store.put(&vec![9; n], b"")));
        let chunks = chunks(&mut store);
        assert!(chunks.iter().all(|(_, c)| c.len() <= 4 + CHUNK_BYTES || c.len() < 3_100));
        let mut back = Store::from_snapshot(Suite::default(), &chunks).unwrap();
        assert_eq!(back.digest(), store.digest());
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        let chunks = chunks(&mut filled(1_000));
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
