//! Exactly once: which of a client's numbers have been executed, and what they gave.
//!
//! A client has many requests in flight, and they are ordered as they come, so 'the last number'
//! is not enough. Per client the table knows `low`, up to which every number is executed, and
//! which of the [`WINDOW`] numbers above it are. A number beyond is not executed and is answered
//! so; the answer depends on agreed state alone.
//!
//! The results of the highest [`KEPT_REPLIES`] numbers are kept for retransmissions, at most
//! [`KEPT_BYTES`] a client. A client that spreads its unanswered numbers over fewer than
//! [`WINDOW`] finds every one of its results, since no executed number is further than that above
//! an unanswered one; therefore both constants are the same. (The bound in bytes can take a result
//! away earlier, the lowest number first, and never changes what is executed.)
//!
//! The digest is the tree over exactly what [`ClientTable::snapshot`] gives, and its cost follows
//! what changed: a result is hashed about once, with those of its page.
//!
//! ```text
//! label  client: u64 big-endian                          executed numbers
//! chunk  low: u64 | marks: 16 u64 | floor: u64
//! label  client: u64 big-endian | 0: u8                  keys of a client that was added
//! chunk  the client's entry in the membership
//! label  client: u64 big-endian | page: u64 big-endian   kept results
//! chunk  list of the results of the numbers from 64 page (or the floor) on, up to 64 of them or
//!        the highest one executed; an empty item where nothing is executed
//! ```

use crate::chain::Admission;
use crate::contents::Contents;
use crate::{MerkleMap, Snapshot};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tercio_crypto::hash;
use tercio_types::{
    ClientId, ClientInfo, Digest, Package, RequestSeq, RequestWindow, Suite, WINDOW,
};
use tercio_wire::{Arena, Decode, DecodeError, Encode, Reader, decode_result, list};

/// Of how many of a client's highest numbers the results are kept.
pub const KEPT_REPLIES: u64 = WINDOW;

/// The most bytes of results that are kept for a client, unless a single one is longer.
pub const KEPT_BYTES: usize = 1 << 20;

/// The bytes of the allocations that a client's results share.
const ARENA: usize = 4 << 10;

const WHAT: &str = "client table";

/// A result as it stands in a reply, status byte first.
type Kept = Bytes;

/// How long the chunk of a client's executed numbers is.
const WINDOW_BYTES: usize = 8 + WINDOW as usize / 8 + 8;

/// How many numbers share a chunk of results.
const PAGE: u64 = 64;

#[derive(Clone, Debug, Default)]
struct Entry {
    /// Which numbers are executed. The first that a client uses is 1.
    executed: RequestWindow,
    /// The number of the first slot.
    floor: u64,
    /// By number from `floor` on; the last slot is taken. `None` where nothing is executed.
    slots: VecDeque<Option<Kept>>,
    bytes: usize,
    /// Where results are kept: the numbers of one client come and go about in order, so that they
    /// hold on to few of each other.
    arena: Option<Arena>,
    /// The floor at the last digest.
    hashed_floor: u64,
    /// The lowest and the highest number whose result came since then.
    touched: Option<(u64, u64)>,
    /// The keys, of a client that was added to those of the genesis.
    info: Option<Box<ClientInfo>>,
    /// Whether those came since the last digest.
    info_is_new: bool,
    /// What the numbers were used for; in no chunk, and in no digest.
    contents: Contents,
}

impl Entry {
    fn kept(&self, number: u64) -> Option<&Kept> {
        self.slots.get(usize::try_from(number.checked_sub(self.floor)?).ok()?)?.as_ref()
    }

    fn keep(&mut self, number: u64, result: &[u8]) {
        if number < self.floor {
            return;
        }
        let kept = self.arena.get_or_insert_with(|| Arena::new(ARENA)).copy(result);
        // Empty slots below it count as results that came: they are written down, too.
        let first = number.min(self.end());
        let slot = (number - self.floor) as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.bytes += kept.len();
        let (low, high) = self.touched.unwrap_or((first, number));
        self.touched = Some((low.min(first), high.max(number)));
        let old = self.slots[slot].replace(kept);
        assert!(old.is_none(), "a number is executed once");
        while self.slots.len() as u64 > KEPT_REPLIES
            || self.bytes > KEPT_BYTES && self.slots.len() > 1
        {
            let lowest = self.slots.pop_front().expect("there is more than one");
            self.bytes -= lowest.map_or(0, |kept| kept.len());
            self.floor += 1;
        }
    }

    /// The number after the last slot.
    fn end(&self) -> u64 {
        self.floor + self.slots.len() as u64
    }

    /// The pages with results.
    fn pages(&self) -> std::ops::Range<u64> {
        let end =
            if self.slots.is_empty() { self.floor } else { self.end().next_multiple_of(PAGE) };
        self.floor / PAGE..end / PAGE
    }

    fn encode_window(&self) -> Bytes {
        let mut out = Vec::with_capacity(WINDOW_BYTES);
        self.executed.encode(&mut out);
        out.extend_from_slice(&self.floor.to_le_bytes());
        out.into()
    }

    fn encode_page(&self, page: u64) -> Bytes {
        let first = self.floor.max(page * PAGE) - self.floor;
        let end = self.end().min((page + 1) * PAGE) - self.floor;
        let slots = || self.slots.range(first as usize..end as usize);
        let bytes: usize = slots().flatten().map(Bytes::len).sum();
        let mut out = Vec::with_capacity(4 + 4 * PAGE as usize + bytes);
        let mut next = slots();
        list::encode(&mut out, (end - first) as usize, |_, out| {
            if let Some(Some(result)) = next.next() {
                out.extend_from_slice(result);
            }
        });
        out.into()
    }

    /// All of it as labelled chunks, in ascending order.
    fn chunks(&self, client: ClientId) -> Vec<(Bytes, Bytes)> {
        let label = |label: &[u8]| Bytes::copy_from_slice(label);
        let mut chunks = vec![(label(&client.0.to_be_bytes()), self.encode_window())];
        chunks.extend(self.info.as_ref().map(|i| (label(&info_label(client)), i.to_bytes())));
        let page = |page| (label(&page_label(client, page)), self.encode_page(page));
        chunks.extend(self.pages().map(page));
        chunks
    }

    /// How long the data of [`Self::chunks`] are together.
    fn encoded_len(&self) -> u64 {
        let info = self.info.as_ref().map_or(0, |info| info.to_bytes().len());
        let pages = 4 * self.pages().count() + 4 * self.slots.len() + self.bytes;
        (WINDOW_BYTES + info + pages) as u64
    }

    /// Brings the tree up to date with what changed since the last time.
    fn update(&mut self, client: ClientId, suite: Suite, tree: &mut MerkleMap) {
        let digest = |chunk: Bytes| Some(hash(suite, &[&chunk]));
        tree.set(&client.0.to_be_bytes(), digest(self.encode_window()));
        if let Some(info) = self.info.as_ref().filter(|_| self.info_is_new) {
            tree.set(&info_label(client), digest(info.to_bytes()));
            self.info_is_new = false;
        }
        for page in self.hashed_floor / PAGE..self.floor / PAGE {
            tree.set(&page_label(client, page), None);
        }
        let touched = self.touched.take().map(|(low, high)| low / PAGE..=high / PAGE);
        let cut = self.hashed_floor != self.floor;
        for page in self.pages() {
            let is_touched = touched.as_ref().is_some_and(|touched| touched.contains(&page));
            if is_touched || cut && page == self.floor / PAGE {
                tree.set(&page_label(client, page), digest(self.encode_page(page)));
            }
        }
        self.hashed_floor = self.floor;
    }

    fn decode_window(bytes: &Bytes, suite: Suite) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes.clone(), suite);
        let executed = RequestWindow::decode(&mut input)?;
        let floor = input.u64(WHAT)?;
        input.finish()?;
        let out_of_reach = floor.checked_add(2 * KEPT_REPLIES).is_none();
        if out_of_reach {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        Ok(Self { executed, floor, hashed_floor: floor, ..Self::default() })
    }

    /// Adds the results of the page that follows those that are there.
    fn decode_page(&mut self, page: u64, bytes: &Bytes, suite: Suite) -> Result<(), DecodeError> {
        let mut input = Reader::new(bytes.clone(), suite);
        let items = list::List::decode(&mut input, PAGE as usize, WHAT)?;
        input.finish()?;
        let first = self.end();
        let kept = first - self.floor + items.len() as u64;
        let room = PAGE - first % PAGE;
        let follows = first / PAGE == page && (first == self.floor || first.is_multiple_of(PAGE));
        if !follows || items.is_empty() || items.len() as u64 > room || kept > KEPT_REPLIES {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        for (number, result) in (first..).zip(items.iter()) {
            if result.is_empty() {
                self.slots.push_back(None);
                continue;
            }
            if !self.executed.contains(RequestSeq(number)) {
                return Err(DecodeError::NotCanonical(WHAT));
            }
            decode_result(result.clone())?;
            // A copy, so that the received chunk does not live as long as its last result.
            let result = Bytes::copy_from_slice(&result);
            self.bytes += result.len();
            self.slots.push_back(Some(result));
        }
        self.touched = Some((self.floor, self.end() - 1));
        Ok(())
    }
}

fn info_label(client: ClientId) -> [u8; 9] {
    let mut label = [0; 9];
    label[..8].copy_from_slice(&client.0.to_be_bytes());
    label
}

fn page_label(client: ClientId, page: u64) -> [u8; 16] {
    let mut label = [0; 16];
    label[..8].copy_from_slice(&client.0.to_be_bytes());
    label[8..].copy_from_slice(&page.to_be_bytes());
    label
}

/// The table of all clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientTable {
    suite: Suite,
    /// A snapshot has the entries, too; whoever changes one then changes a copy.
    entries: BTreeMap<ClientId, Arc<Entry>>,
    /// Clients whose entry changed since the last digest.
    dirty: BTreeSet<ClientId>,
    tree: MerkleMap,
}

impl ClientTable {
    pub(crate) fn new(suite: Suite) -> Self {
        Self {
            suite,
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
            tree: MerkleMap::new(suite),
        }
    }

    /// Takes the numbers of a package that were found fresh as executed from here on.
    /// Gives whether all that is left of it is to say that its numbers were used by another one.
    pub(crate) fn take(&mut self, package: &Package, admissions: &[Admission]) -> bool {
        let entry = Arc::make_mut(self.entries.entry(package.client).or_default());
        let numbers = package.first.0..package.end().0;
        let reuses = admissions.contains(&Admission::Duplicate)
            && entry.contents.reuses(numbers.clone(), &package.digest);
        let fresh = |admission: &Admission| *admission == Admission::Fresh;
        for (seq, _) in package.numbers().zip(admissions).filter(|(_, admission)| fresh(admission))
        {
            assert!(entry.executed.insert(seq), "the chain and the table know the same numbers");
        }
        if let (Some(from), Some(last)) =
            (admissions.iter().position(fresh), admissions.iter().rposition(fresh))
        {
            let (from, end) = (numbers.start + from as u64, numbers.start + last as u64 + 1);
            let digest = &package.digest;
            entry.contents.executed(numbers.start, from..end, digest, reuses, entry.floor);
        }
        let beyond = admissions.contains(&Admission::Beyond);
        self.dirty.insert(package.client);
        reuses && !beyond
    }

    /// Whether a number of the package of `client` with this digest was used by another one, as far
    /// as that is known.
    pub(crate) fn reuses(&self, client: ClientId, numbers: Range<u64>, digest: &Digest) -> bool {
        self.entries.get(&client).is_some_and(|entry| entry.contents.reuses(numbers, digest))
    }

    /// Keeps the keys of a client that was added.
    pub(crate) fn add(&mut self, client: ClientId, info: ClientInfo) {
        let entry = Arc::make_mut(self.entries.entry(client).or_default());
        entry.info = Some(Box::new(info));
        entry.info_is_new = true;
        self.dirty.insert(client);
    }

    /// The clients that were added, in order.
    pub(crate) fn added(&self) -> impl Iterator<Item = (ClientId, &ClientInfo)> {
        self.entries.iter().filter_map(|(client, entry)| Some((*client, entry.info.as_deref()?)))
    }

    /// Whether the number was executed.
    pub(crate) fn executed(&self, client: ClientId, seq: RequestSeq) -> bool {
        self.entries.get(&client).is_some_and(|entry| entry.executed.contains(seq))
    }

    /// The result of an executed number with its status byte, while it is kept.
    pub(crate) fn kept(&self, client: ClientId, seq: RequestSeq) -> Option<&Bytes> {
        self.entries.get(&client)?.kept(seq.0)
    }

    /// Keeps the result of a number that was fresh.
    pub(crate) fn keep(&mut self, client: ClientId, seq: RequestSeq, result: &[u8]) {
        let entry = self.entries.get_mut(&client).expect("it was admitted before");
        Arc::make_mut(entry).keep(seq.0, result);
    }

    /// Which of each client's numbers are executed.
    pub(crate) fn windows(&self) -> BTreeMap<ClientId, RequestWindow> {
        self.entries.iter().map(|(client, entry)| (*client, entry.executed.clone())).collect()
    }

    /// Which of a client's numbers are executed.
    pub(crate) fn window(&self, client: ClientId) -> RequestWindow {
        self.entries.get(&client).map_or_else(RequestWindow::default, |e| e.executed.clone())
    }

    pub(crate) fn digest(&mut self) -> Digest {
        while let Some(client) = self.dirty.pop_first() {
            let entry = self.entries.get_mut(&client).expect("a client that changed is there");
            Arc::make_mut(entry).update(client, self.suite, &mut self.tree);
        }
        self.tree.root()
    }

    /// The labelled chunks. To take them costs a reference to each client's entry.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let bytes = self.entries.values().map(|entry| entry.encoded_len()).sum();
        let chunks = |(client, entry): (ClientId, Arc<Entry>)| entry.chunks(client);
        Snapshot::new(bytes, self.entries.clone().into_iter().flat_map(chunks))
    }

    /// Adds a chunk to the table; chunks come in ascending order of label.
    pub(crate) fn restore(&mut self, label: &[u8], chunk: &Bytes) -> Result<(), DecodeError> {
        let misplaced = DecodeError::NotCanonical(WHAT);
        let (client, page) = label.split_first_chunk().ok_or(misplaced)?;
        let client = ClientId(u64::from_be_bytes(*client));
        if page.is_empty() {
            let entry = Entry::decode_window(chunk, self.suite)?;
            self.entries.insert(client, Arc::new(entry));
            self.dirty.insert(client);
            return Ok(());
        }
        if page == [0] {
            let info = ClientInfo::from_bytes(chunk, self.suite)?;
            // Labels ascend: there is an entry for a window, and no result yet.
            self.entries.get(&client).ok_or(misplaced)?;
            self.add(client, info);
            return Ok(());
        }
        let page = page.try_into().map_err(|_| misplaced)?;
        let entry = self.entries.get_mut(&client).ok_or(misplaced)?;
        Arc::make_mut(entry).decode_page(u64::from_be_bytes(page), chunk, self.suite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Authenticator, OpKind, Ops, ReplicaId, Tag};

    const SUITE: Suite = Suite::Sha256Ed25519;

    fn execute(table: &mut ClientTable, client: u64, first: u64) {
        let package = Package {
            client: ClientId(client),
            first: RequestSeq(first),
            kind: OpKind::User,
            replier: ReplicaId(0),
            ops: Ops::new(&[b""]),
            digest: Digest::NULL,
            auth: Authenticator::Mac(Tag::default()),
        };
        table.take(&package, &[Admission::Fresh]);
        table.keep(package.client, package.first, b"\0result");
    }

    #[test]
    fn the_cost_of_the_digest_follows_the_clients_that_changed() {
        for clients in [64u64, 16_384] {
            let mut table = ClientTable::new(SUITE);
            (0..clients).for_each(|client| execute(&mut table, client, 1));
            table.digest();
            let before = table.tree.hashes();
            (0..4).for_each(|i| execute(&mut table, i * clients / 4, 2));
            table.digest();
            let cost = table.tree.hashes() - before;
            // Two leaves a client: its window and a page of results.
            let depth = u64::from(64 - clients.leading_zeros()) + 1;
            assert!(cost <= 2 * 4 * depth, "{cost} of {clients}");
        }
    }

    #[test]
    fn keys_of_added_clients_are_part_of_the_table() {
        let info = |i: u8| ClientInfo::new(tercio_types::PublicKey::new(&[i; 32]).unwrap());
        let mut table = ClientTable::new(SUITE);
        execute(&mut table, 1, 1);
        let mut seen = BTreeSet::from([table.digest()]);
        for (client, key) in [(5, 1), (6, 2)] {
            table.add(ClientId(client), info(key));
            assert!(seen.insert(table.digest()));
            execute(&mut table, client, 1);
            assert!(seen.insert(table.digest()));
            let chunks: Vec<_> = table.snapshot().collect();
            assert_eq!(table.digest(), crate::chunks_root(SUITE, &chunks));
            let mut restored = ClientTable::new(SUITE);
            for (label, chunk) in &chunks {
                restored.restore(label, chunk).unwrap();
            }
            assert_eq!(restored.digest(), table.digest());
            assert!(restored.added().eq(table.added()));
        }
        assert!(table.added().eq([(ClientId(5), &info(1)), (ClientId(6), &info(2))]));
        let stray = (info_label(ClientId(9)), info(1).to_bytes());
        assert!(ClientTable::new(SUITE).restore(&stray.0, &stray.1).is_err(), "keys of nobody");
        assert!(table.restore(&info_label(ClientId(5)), &Bytes::from_static(b"no")).is_err());
    }

    #[test]
    fn the_digest_is_that_of_the_content_and_covers_all_of_it() {
        let mut table = ClientTable::new(SUITE);
        let mut seen = BTreeSet::from([table.digest()]);
        for (client, number) in [(1, 3), (1, 1), (2, 1), (1, 2), (1, WINDOW + 2), (1, 4)] {
            execute(&mut table, client, number);
            assert!(seen.insert(table.digest()), "client {client}, number {number}");
            let mut restored = ClientTable::new(SUITE);
            for (label, chunk) in table.snapshot() {
                restored.restore(&label, &chunk).unwrap();
            }
            assert_eq!(restored.digest(), table.digest());
        }
    }

    #[test]
    fn a_chunk_that_is_none_is_refused() {
        let mut table = ClientTable::new(SUITE);
        (1..5).for_each(|number| execute(&mut table, 1, number));
        let chunks: Vec<_> = table.snapshot().collect();
        let restored = |chunks: &[(Bytes, Bytes)]| {
            let mut table = ClientTable::new(SUITE);
            chunks.iter().try_for_each(|(label, chunk)| table.restore(label, chunk))
        };
        restored(&chunks).unwrap();
        for (i, (_, chunk)) in chunks.iter().enumerate() {
            for cut in 0..chunk.len() {
                let mut chunks = chunks.clone();
                chunks[i].1.truncate(cut);
                assert!(restored(&chunks).is_err());
            }
            let mut elsewhere = chunks.clone();
            elsewhere[i].0 = Bytes::from_static(b"short");
            assert!(restored(&elsewhere).is_err());
        }
        assert!(restored(&chunks[1..]).is_err(), "results of nobody");
        let with_low = |low: u64| {
            let mut chunks = chunks.clone();
            let mut window = chunks[0].1.to_vec();
            window[..8].copy_from_slice(&low.to_le_bytes());
            chunks[0].1 = window.into();
            restored(&chunks)
        };
        assert!(with_low(u64::MAX).is_err());
        assert!(with_low(2).is_err(), "a result of what was not executed");
    }

    /// However the numbers come, the digest is the root over the chunks, and they restore.
    #[test]
    fn the_digest_is_the_root_over_the_chunks() {
        let mut table = ClientTable::new(SUITE);
        let mut x = 7u64;
        let mut next = [1u64; 3];
        for round in 0..4_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let client = (x >> 33) % 3;
            let ahead = if (x >> 40).is_multiple_of(9) { (x >> 44) % 200 } else { 0 };
            let mut number = next[client as usize] + ahead;
            while table.executed(ClientId(client), RequestSeq(number)) {
                number += 1;
            }
            execute(&mut table, client, number);
            while table.executed(ClientId(client), RequestSeq(next[client as usize])) {
                next[client as usize] += 1;
            }
            if round.is_multiple_of(37) {
                let chunks: Vec<_> = table.snapshot().collect();
                let digest = table.digest();
                assert_eq!(digest, crate::chunks_root(SUITE, &chunks), "round {round}");
                let mut restored = ClientTable::new(SUITE);
                for (label, chunk) in &chunks {
                    restored.restore(label, chunk).unwrap();
                }
                assert_eq!(restored.digest(), digest);
                execute(&mut restored, 2, next[2]);
                let chunks: Vec<_> = restored.snapshot().collect();
                assert_eq!(restored.digest(), crate::chunks_root(SUITE, &chunks));
            }
        }
    }
}
