//! Taking a snapshot does not hold up whoever executes: it touches few of the chunks, of state and
//! client table, however many there are. Whoever goes through them pays, on another thread.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{SecretKey, hash};
use tercio_execution::{
    AppError, Context, Engine, Keyed, Operation, Outcome, StateView, Store, Transaction,
};
use tercio_types::{
    Authenticator, Batch, ChainId, ClientId, Digest, Epoch, FaultModel, Member, Membership, OpKind,
    Ops, Package, ReplicaId, RequestSeq, SeqNum, Suite, Tag, Timestamp,
};
use tercio_unsafe_alloc_count::{Counting, allocated_bytes, allocations};
use tercio_wire::Encode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SUITE: Suite = Suite::Sha256Ed25519;
/// About two fit into a chunk.
const VALUE: usize = 1500;

/// Begins with many keys; an operation is a key that gets another value.
struct Filled {
    keys: u64,
}

impl Transaction for Filled {
    fn genesis(&self, store: &mut Store) {
        (0..self.keys).for_each(|i| drop(store.put(&i.to_be_bytes(), &[0; VALUE])));
    }

    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        _: &mut Vec<u8>,
    ) -> Outcome {
        view.put(&tx.op, &[1; VALUE]);
        Outcome::Commit
    }

    fn query(&self, _: &[u8], _: &Store) -> Result<Bytes, AppError> {
        Ok(Bytes::new())
    }
}

/// An engine over this many keys.
fn engine(keys: u64) -> Engine {
    let member = |i| Member { key: SecretKey::from_seed([i; 32]).public(), address: String::new() };
    let (model, members) = (FaultModel::Byzantine, (0..4).map(member).collect());
    let chain = ChainId([3; 32]);
    let membership = Membership::new(chain, Epoch(1), SUITE, model, members, BTreeMap::new());
    Engine::new(Box::new(Keyed::new(Filled { keys }, SUITE)), Arc::new(membership.unwrap()), 0)
}

/// Each of `clients` writes the key of its own number, as its next operation.
fn execute(engine: &mut Engine, clients: u64, number: u64) {
    let package = |client: u64| Package {
        client: ClientId(client),
        first: RequestSeq(number),
        kind: OpKind::User,
        replier: ReplicaId(0),
        ops: Ops::new(&[Bytes::copy_from_slice(&client.to_be_bytes())]),
        digest: Digest::NULL,
        auth: Authenticator::Mac(Tag::default()),
    };
    let packages = (0..clients).map(package).collect();
    let batch = Batch { time: Timestamp(number), checkpoint: false, packages };
    let digest = hash(SUITE, &[&batch.to_bytes()]);
    engine.execute(engine.seq().next(), &batch, digest);
}

#[test]
fn taking_one_costs_little_and_going_through_it_is_for_another_thread() {
    const KEYS: u64 = 20_000;
    const CLIENTS: u64 = 400;
    let mut engine = engine(KEYS);
    (1..=3).for_each(|number| execute(&mut engine, CLIENTS, number));
    let checkpoint = engine.checkpoint(SeqNum(3));
    let before = (allocations(), allocated_bytes());
    let snapshot = engine.snapshot();
    let taking = (allocations() - before.0, allocated_bytes() - before.1);
    // Everything changes while another thread goes through it.
    let bytes = snapshot.bytes();
    let walk = std::thread::spawn(move || {
        let before = allocations();
        let chunks: Vec<_> = snapshot.collect();
        (chunks, allocations() - before)
    });
    execute(&mut engine, KEYS, 4);
    engine.checkpoint(SeqNum(4));
    let (chunks, walking) = walk.join().unwrap();
    assert!(chunks.len() as u64 > KEYS / 2 + CLIENTS, "{} chunks", chunks.len());
    assert!(walking > chunks.len() as u64);
    // A few for the whole, and nodes of a map with the clients; not even a reference for each chunk.
    assert!(taking.0 < 100 && taking.1 < 2 * chunks.len() as u64, "{taking:?}");
    assert_eq!(bytes, chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum());
    self::engine(0).restore(&checkpoint, &chunks).unwrap();
}
