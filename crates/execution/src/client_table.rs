//! Exactly once: which of a client's numbers have been executed, and what they gave.
//!
//! A client has many requests under way, and they are ordered as they come, so 'the last number'
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
//! The digest is a [`MerkleMap`] by client over exactly what is agreed: executed numbers and kept
//! results. Its cost follows the clients that changed.

use crate::MerkleMap;
use crate::reply::decode_result;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tercio_crypto::{Hasher, hash};
use tercio_types::{ClientId, Digest, Package, RequestSeq, RequestWindow, Suite, WINDOW};
use tercio_wire::{DecodeError, Reader, list};

/// Of how many of a client's highest numbers the results are kept.
pub const KEPT_REPLIES: u64 = WINDOW;

/// The most bytes of results that are kept for a client, unless a single one is longer.
pub const KEPT_BYTES: usize = 1 << 20;

const WHAT: &str = "client table";

/// Whether an operation is to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Fresh,
    Duplicate,
    Beyond,
}

/// A result as it stands in a reply, status byte first.
#[derive(Clone, Debug)]
struct Kept {
    leaf: Digest,
    result: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// Which numbers are executed. The first that a client uses is 1.
    executed: RequestWindow,
    /// The number of the first slot.
    floor: u64,
    /// By number from `floor` on; the last slot is taken. `None` where nothing is executed.
    slots: VecDeque<Option<Kept>>,
    bytes: usize,
}

impl Entry {
    fn admission(&self, number: u64) -> Admission {
        if self.executed.contains(RequestSeq(number)) {
            Admission::Duplicate
        } else if self.executed.is_beyond(RequestSeq(number)) {
            Admission::Beyond
        } else {
            Admission::Fresh
        }
    }

    fn kept(&self, number: u64) -> Option<&Kept> {
        self.slots.get(usize::try_from(number.checked_sub(self.floor)?).ok()?)?.as_ref()
    }

    fn keep(&mut self, number: u64, kept: Kept) {
        if number < self.floor {
            return;
        }
        let slot = (number - self.floor) as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        self.bytes += kept.result.len();
        let old = self.slots[slot].replace(kept);
        assert!(old.is_none(), "a number is executed once");
        while self.slots.len() as u64 > KEPT_REPLIES
            || self.bytes > KEPT_BYTES && self.slots.len() > 1
        {
            let lowest = self.slots.pop_front().expect("there is more than one");
            self.bytes -= lowest.map_or(0, |kept| kept.result.len());
            self.floor += 1;
        }
    }

    fn digest(&self, suite: Suite) -> Digest {
        let mut hasher = Hasher::new(suite);
        hasher.update(&self.executed.low().0.to_le_bytes());
        self.executed.marks().iter().for_each(|word| hasher.update(&word.to_le_bytes()));
        hasher.update(&self.floor.to_le_bytes());
        for slot in &self.slots {
            hasher.update(&slot.as_ref().map_or(Digest::NULL, |kept| kept.leaf).0);
        }
        hasher.finish()
    }

    /// `low: u64 | marks: 16 u64 | floor: u64 | list of slots`, an empty item where nothing is
    /// executed.
    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(148 + 4 * self.slots.len() + self.bytes);
        out.extend_from_slice(&self.executed.low().0.to_le_bytes());
        self.executed.marks().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.floor.to_le_bytes());
        list::encode(&mut out, self.slots.len(), |i, out| {
            if let Some(kept) = &self.slots[i] {
                out.extend_from_slice(&kept.result);
            }
        });
        out.into()
    }

    fn decode(client: ClientId, bytes: &Bytes, suite: Suite) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes.clone(), suite);
        let low = RequestSeq(input.u64(WHAT)?);
        let mut marks = *RequestWindow::default().marks();
        for word in &mut marks {
            *word = input.u64(WHAT)?;
        }
        let executed =
            RequestWindow::from_parts(low, marks).ok_or(DecodeError::NotCanonical(WHAT))?;
        let floor = input.u64(WHAT)?;
        let items = list::List::decode(&mut input, KEPT_REPLIES as usize, WHAT)?;
        input.finish()?;
        if floor.checked_add(items.len() as u64).is_none() {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        let mut entry = Self { executed, floor, slots: VecDeque::new(), bytes: 0 };
        for (number, result) in (floor..).zip(items.iter()) {
            if result.is_empty() {
                entry.slots.push_back(None);
                continue;
            }
            if entry.admission(number) != Admission::Duplicate {
                return Err(DecodeError::NotCanonical(WHAT));
            }
            decode_result(result.clone())?;
            // A copy, so that the received chunk does not live as long as its last result.
            let result = Bytes::copy_from_slice(&result);
            let leaf = result_leaf(suite, client, RequestSeq(number), &result);
            entry.bytes += result.len();
            entry.slots.push_back(Some(Kept { leaf, result }));
        }
        Ok(entry)
    }
}

/// The leaf of an operation in its block's results tree. `result` starts with the status byte.
pub(crate) fn result_leaf(
    suite: Suite,
    client: ClientId,
    seq: RequestSeq,
    result: &[u8],
) -> Digest {
    hash(suite, &[&client.0.to_le_bytes(), &seq.0.to_le_bytes(), result])
}

/// The table of all clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientTable {
    suite: Suite,
    entries: BTreeMap<ClientId, Entry>,
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

    /// Decides on each operation of a package and takes the fresh ones as executed from here on.
    pub(crate) fn admit(&mut self, package: &Package, admissions: &mut Vec<Admission>) {
        let entry = self.entries.entry(package.client).or_default();
        admissions.extend(package.numbered().map(|(seq, _)| {
            let admission = entry.admission(seq.0);
            if admission == Admission::Fresh {
                entry.executed.insert(seq);
            }
            admission
        }));
        self.dirty.insert(package.client);
    }

    /// Whether the number was executed.
    pub(crate) fn executed(&self, client: ClientId, seq: RequestSeq) -> bool {
        self.entries.get(&client).is_some_and(|e| e.admission(seq.0) == Admission::Duplicate)
    }

    /// The result of an executed number with its status byte, while it is kept.
    pub(crate) fn kept(&self, client: ClientId, seq: RequestSeq) -> Option<&Bytes> {
        self.entries.get(&client)?.kept(seq.0).map(|kept| &kept.result)
    }

    /// Keeps the result of a number that was fresh. `leaf` is its [`result_leaf`].
    pub(crate) fn keep(&mut self, client: ClientId, seq: RequestSeq, leaf: Digest, result: Bytes) {
        let entry = self.entries.get_mut(&client).expect("it was admitted before");
        entry.keep(seq.0, Kept { leaf, result });
    }

    /// Which of each client's numbers are executed.
    pub(crate) fn windows(&self) -> BTreeMap<ClientId, RequestWindow> {
        self.entries.iter().map(|(client, entry)| (*client, entry.executed.clone())).collect()
    }

    pub(crate) fn digest(&mut self) -> Digest {
        while let Some(client) = self.dirty.pop_first() {
            let digest = self.entries[&client].digest(self.suite);
            self.tree.set(&client.0.to_be_bytes(), Some(digest));
        }
        self.tree.root()
    }

    /// One chunk a client, under its id in big-endian.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = ([u8; 8], Bytes)> {
        self.entries.iter().map(|(client, entry)| (client.0.to_be_bytes(), entry.encode()))
    }

    /// Adds a client from its chunk.
    pub(crate) fn restore(&mut self, label: &[u8], chunk: &Bytes) -> Result<(), DecodeError> {
        let label = label.try_into().map_err(|_| DecodeError::NotCanonical(WHAT))?;
        let client = ClientId(u64::from_be_bytes(label));
        let entry = Entry::decode(client, chunk, self.suite)?;
        self.entries.insert(client, entry);
        self.dirty.insert(client);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Authenticator, OpKind, ReplicaId, Tag};

    const SUITE: Suite = Suite::Sha256Ed25519;

    fn execute(table: &mut ClientTable, client: u64, first: u64) {
        let package = Package {
            client: ClientId(client),
            first: RequestSeq(first),
            kind: OpKind::User,
            replier: ReplicaId(0),
            ops: vec![Bytes::new()],
            digest: Digest::NULL,
            auth: Authenticator::Mac(Tag::default()),
        };
        let mut admissions = Vec::new();
        table.admit(&package, &mut admissions);
        assert_eq!(admissions, [Admission::Fresh]);
        let result = Bytes::from_static(b"\0result");
        let leaf = result_leaf(SUITE, package.client, package.first, &result);
        table.keep(package.client, package.first, leaf, result);
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
            assert!(cost <= 4 * u64::from(64 - clients.leading_zeros()), "{cost} of {clients}");
        }
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
        let (label, chunk) = table.snapshot().next().unwrap();
        for cut in 0..chunk.len() {
            assert!(table.clone().restore(&label, &chunk.slice(..cut)).is_err());
        }
        assert!(table.clone().restore(b"short", &chunk).is_err());
        let mut low = chunk.to_vec();
        low[..8].copy_from_slice(&[0xff; 8]);
        assert!(table.clone().restore(&label, &low.into()).is_err());
        let mut not_executed = chunk.to_vec();
        not_executed[0] = 2;
        assert!(table.clone().restore(&label, &not_executed.into()).is_err());
    }
}
