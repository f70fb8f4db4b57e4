//! Persist before send, with the log on a thread of its own: what a client was told is on the disk,
//! whenever the power fails.

use crate::running;

use bytes::Bytes;
use running::{CLIENT, client_secret, counter, genesis, listener, number, secret, wait};
use std::net::TcpListener;
use std::time::Duration;
use tercio_client::{Client, CoreSettings, Settings};
use tercio_genesis::Genesis;
use tercio_ledger::{MemStorage, Storage, Wal, WalSettings};
use tercio_replica::{Data, Durability, Layout, NodeSettings, ReplicaConfig, ReplicaHandle, start};
use tercio_types::ReplicaId;

/// How many operations a client sends, one after the other.
const OPS: u64 = 40;

/// The only replica of a network, on this disk.
fn alone(
    genesis: &Genesis,
    listener: TcpListener,
    storage: MemStorage,
    durability: Durability,
) -> ReplicaHandle {
    let membership = genesis.membership().unwrap();
    let mut node = NodeSettings::new(ReplicaId(0), secret(0), membership);
    genesis.consensus.apply(&mut node.consensus);
    node.durability = durability;
    // Files are lengthened, closed and pruned often.
    node.ledger.wal.file_bytes = 8 << 10;
    node.ledger.wal.ahead_bytes = 2 << 10;
    let config = ReplicaConfig::new(node, listener.local_addr().unwrap());
    let (listen, data, layout) = (listener.into(), Data::Memory(storage), Layout::LogApart);
    start(ReplicaConfig { listen, data, layout, ..config }, counter()).unwrap()
}

/// After each result the power fails on a copy of the disk. How many of the copies lack what the
/// client was told the outcome of.
fn forgotten(durability: Durability) -> usize {
    let storage = MemStorage::new();
    let listening = listener();
    let genesis = genesis("power", &[listening.local_addr().unwrap()]);
    let replica = alone(&genesis, listening, storage.clone(), durability);
    let settings = Settings {
        core: CoreSettings::unused_id(),
        ..Settings::new(CLIENT, client_secret(CLIENT), genesis.membership().unwrap())
    };
    let mut client = Client::connect(settings).unwrap();
    let mut state: u64 = 1;
    let mut choose = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    let mut copies = vec![];
    for i in 1..=OPS {
        let op = format!("operation {i:04}");
        assert_eq!(number(&client.call(Bytes::from(op.clone())).unwrap()), i);
        copies.push((op, storage.after_crash(&mut choose)));
    }
    replica.stop().unwrap();
    if durability.syncs() {
        let (_, disk) = copies.last().unwrap();
        let again = alone(&genesis, listener(), disk.fork(), durability);
        wait("what was told is executed again", || again.status().height.0 >= OPS);
        again.stop().unwrap();
    }
    let holds = |bytes: &[u8], op: &str| bytes.windows(op.len()).any(|w| w == op.as_bytes());
    let lost = |(op, disk): &&(String, MemStorage)| {
        // Of records that were never synced a hole may be left, which is refused.
        let opened = Wal::open(Box::new(disk.clone()), genesis.chain(), WalSettings::default());
        let records = opened.map_or(vec![], |(_, records)| records);
        let in_blocks = || {
            let blocks = disk.list().unwrap().into_iter().filter(|n| n.starts_with("blocks-"));
            blocks.filter_map(|name| disk.contents(&name)).any(|bytes| holds(&bytes, op))
        };
        !records.iter().any(|record| holds(&record.bytes, op)) && !in_blocks()
    };
    copies.iter().filter(lost).count()
}

#[test]
fn what_was_told_survives_a_power_failure() {
    for durability in [Durability::Group(Duration::from_millis(2)), Durability::Sync] {
        assert_eq!(forgotten(durability), 0, "{durability}");
    }
    assert!(forgotten(Durability::Memory) > 0, "this test would notice");
}
