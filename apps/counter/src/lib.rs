//! The counter service of Yang et al. (`docs/README.md`, sources): each operation adds one to a counter, after a loop whose
//! length stands for the application's own work.
//!
//! An operation's bytes are ignored; none at all is fine. Its result is the total after it, as a
//! 64-bit little-endian integer, cut or padded with zeros to the configured size.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use tercio_crypto::hash;
use tercio_execution::{
    AppError, Application, Context, MerkleMap, Operation, Replies, Snapshot, TreeTop,
};
use tercio_types::{ClientId, Digest, Suite};

/// What one operation costs and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often the loop runs for each operation.
    pub iterations: u64,
    /// The size of a result in bytes.
    pub reply: usize,
}

impl Default for Settings {
    /// No loop, and results of 8 bytes: the total and nothing else.
    fn default() -> Self {
        Self { iterations: 0, reply: 8 }
    }
}

/// A counter for each client, and their total.
#[derive(Debug)]
pub struct Counter {
    settings: Settings,
    suite: Suite,
    total: u64,
    clients: BTreeMap<ClientId, u64>,
    /// Clients whose counter changed since the last digest.
    dirty: BTreeSet<ClientId>,
    tree: MerkleMap,
}

impl Counter {
    /// All counters at zero.
    #[must_use]
    pub fn new(settings: Settings, suite: Suite) -> Self {
        Self {
            settings,
            suite,
            total: 0,
            clients: BTreeMap::new(),
            dirty: BTreeSet::new(),
            tree: MerkleMap::new(suite),
        }
    }
}

impl Application for Counter {
    fn execute(&mut self, _context: &Context, operations: &[Operation], replies: &mut Replies) {
        for operation in operations {
            for i in 0..self.settings.iterations {
                black_box(i);
            }
            self.total += 1;
            *self.clients.entry(operation.client).or_default() += 1;
            self.dirty.insert(operation.client);
            replies.push_with(|out| {
                let end = out.len() + self.settings.reply;
                out.extend_from_slice(&self.total.to_le_bytes());
                out.resize(end, 0);
            });
        }
    }

    /// No bytes ask for the total, eight bytes for the counter of the client with that id; ids and
    /// answers are 64-bit little-endian integers.
    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        let count = match <[u8; 8]>::try_from(question) {
            Ok(id) => self.clients.get(&ClientId(u64::from_le_bytes(id))).copied().unwrap_or(0),
            Err(_) if question.is_empty() => self.total,
            Err(_) => {
                return Err(AppError("ask with no bytes, or with a client's id in 8 bytes".into()));
            }
        };
        Ok(Bytes::copy_from_slice(&count.to_le_bytes()))
    }

    fn state_digest(&mut self) -> Digest {
        while let Some(client) = self.dirty.pop_first() {
            let value = hash(self.suite, &[&self.clients[&client].to_le_bytes()]);
            self.tree.set(&client.0.to_be_bytes(), Some(value));
        }
        self.tree.root()
    }

    fn state_top(&mut self) -> Option<TreeTop> {
        self.state_digest();
        Some(self.tree.top())
    }

    /// One chunk a client: its id in big-endian, and its count in little-endian. All at once: there are
    /// as few as clients.
    fn snapshot(&mut self) -> Snapshot {
        let label = |client: &ClientId| Bytes::copy_from_slice(&client.0.to_be_bytes());
        let chunk = |count: &u64| Bytes::copy_from_slice(&count.to_le_bytes());
        let chunks = self.clients.iter().map(|(client, count)| (label(client), chunk(count)));
        chunks.collect::<Vec<_>>().into()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        let mut counter = Self::new(self.settings, self.suite);
        for (label, chunk) in chunks {
            let word = |bytes: &Bytes| {
                let bytes = bytes.as_ref().try_into();
                bytes.map_err(|_| AppError("a counter's chunk is 8 bytes under 8 bytes".into()))
            };
            let client = ClientId(u64::from_be_bytes(word(label)?));
            let count = u64::from_le_bytes(word(chunk)?);
            let total = counter.total.checked_add(count);
            counter.total = total.ok_or_else(|| AppError("the counters overflow".into()))?;
            if counter.clients.insert(client, count).is_some() {
                return Err(AppError(format!("client {client} is there twice")));
            }
            counter.dirty.insert(client);
        }
        *self = counter;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Height, RequestSeq, Timestamp};

    fn run(counter: &mut Counter, clients: &[u64]) -> Vec<Vec<u8>> {
        let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
        let operation = |&client: &u64| Operation {
            client: ClientId(client),
            seq: RequestSeq(1),
            op: Bytes::new(),
        };
        let operations: Vec<_> = clients.iter().map(operation).collect();
        let mut replies = Replies::default();
        counter.execute(&context, &operations, &mut replies);
        (0..replies.len()).map(|i| replies.get(i).to_vec()).collect()
    }

    fn ask(counter: &Counter, question: &[u8]) -> u64 {
        u64::from_le_bytes(counter.query(question).unwrap().as_ref().try_into().unwrap())
    }

    #[test]
    fn counts_by_client_and_in_total() {
        let mut counter = Counter::new(Settings::default(), Suite::default());
        let replies = run(&mut counter, &[7, 8, 7]);
        assert_eq!(replies, [1u64, 2, 3].map(|n| n.to_le_bytes().to_vec()));
        assert_eq!(ask(&counter, b""), 3);
        assert_eq!(ask(&counter, &7u64.to_le_bytes()), 2);
        assert_eq!(ask(&counter, &9u64.to_le_bytes()), 0);
        assert!(counter.query(b"total").is_err());
    }

    #[test]
    fn the_loop_and_the_size_of_replies_change_nothing_else() {
        let mut plain = Counter::new(Settings::default(), Suite::default());
        run(&mut plain, &[1, 2]);
        for (iterations, reply) in [(1_000, 0), (10, 3), (0, 100)] {
            let settings = Settings { iterations, reply };
            let mut counter = Counter::new(settings, Suite::default());
            let replies = run(&mut counter, &[1, 2]);
            let expected: Vec<u8> = 2u64.to_le_bytes().into_iter().chain([0; 92]).collect();
            assert_eq!(replies[1], expected[..reply]);
            assert_eq!(counter.state_digest(), plain.state_digest());
        }
    }

    #[test]
    fn a_snapshot_restores_and_others_are_refused() {
        let mut counter = Counter::new(Settings::default(), Suite::default());
        run(&mut counter, &[1, 300, 1, 2]);
        let mut restored = Counter::new(Settings::default(), Suite::default());
        run(&mut restored, &[5]);
        restored.restore(&counter.snapshot().collect::<Vec<_>>()).unwrap();
        assert_eq!(restored.state_digest(), counter.state_digest());
        assert_eq!(run(&mut restored, &[2]), run(&mut counter, &[2]));
        assert_eq!(restored.state_digest(), counter.state_digest());
        assert!(restored.snapshot().eq(counter.snapshot()));

        let short = (Bytes::from_static(b"client"), Bytes::from_static(b"12345678"));
        assert!(restored.restore(&[short]).is_err());
        let full =
            |id: u64| (Bytes::copy_from_slice(&id.to_be_bytes()), Bytes::from(vec![0xff; 8]));
        assert!(restored.restore(&[full(1), full(2)]).is_err());
        let one = counter.snapshot().next().unwrap();
        assert!(restored.restore(&[one.clone(), one]).is_err());
    }

    #[test]
    fn the_contract_of_digest_and_snapshot_holds() {
        let mut counter = Counter::new(Settings::default(), Suite::default());
        for clients in [&[][..], &[1], &[2, 3, 300], &[1, 1]] {
            run(&mut counter, clients);
            let mut fresh = Counter::new(Settings::default(), Suite::default());
            tercio_execution::check_contract(&mut counter, &mut fresh, Suite::default()).unwrap();
        }
    }

    #[test]
    fn the_digest_follows_every_count() {
        let mut counter = Counter::new(Settings::default(), Suite::default());
        let mut seen = BTreeSet::from([counter.state_digest()]);
        for client in [1, 1, 2, 3, 1] {
            run(&mut counter, &[client]);
            assert!(seen.insert(counter.state_digest()));
        }
    }
}
