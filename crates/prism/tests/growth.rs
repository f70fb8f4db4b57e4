//! The table grows a few slots at a time, under the hands of clients whose commands are in flight.

use crate::common;

use common::{Direct, Ended, word};
use std::sync::{Arc, Mutex};
use tercio_prism::client::{Draft, Session};
use tercio_prism::kv::prism::{PrismClient, PrismTask};
use tercio_prism::kv::server::{Class, Config, KvServer, Shared, StoreCount};
use tercio_prism::kv::{Command, Hash, Progress, StoreClient};
use tercio_prism::memory::Memory;
use tercio_prism::op::Capability;
use tercio_prism::wire::Answer;

const OURS: Capability = Capability(5);

struct World {
    memory: Arc<Memory>,
    server: Arc<Mutex<KvServer>>,
    direct: Direct,
    now_ns: u64,
}

/// A store of eight slots, where the key `n` belongs into slot `n` modulo the table's length.
fn world(growth_step: u64) -> World {
    let memory = Arc::new(Memory::new());
    let classes = vec![Class { payload: 56, posted: 4096, limit: 4096 }];
    let config = Config { slots: 8, hash: Hash::Collisionless, classes, poison: true, growth_step };
    let server = Arc::new(Mutex::new(KvServer::new(&memory, OURS, 0, &config).unwrap()));
    let mut direct = Direct::with(&memory, OURS);
    direct.engine.serve(OURS, Box::new(Shared(Arc::clone(&server))));
    World { memory, server, direct, now_ns: 0 }
}

impl World {
    /// Runs a request and gives the answer to it.
    fn answer(&mut self, draft: &Draft) -> Vec<u64> {
        let mut frame = Vec::new();
        let mut session = Session::new(self.direct.connection, OURS, true);
        session.send(draft, 0, |words| frame.extend_from_slice(words)).unwrap();
        self.direct.frame(&frame).unwrap()
    }

    fn upkeep(&mut self) {
        self.now_ns += 1_000_000;
        self.memory.collect();
        self.direct.engine.maintain(self.now_ns);
    }

    fn count(&self) -> StoreCount {
        self.server.lock().unwrap().count(&self.memory, &self.memory.view(0))
    }
}

/// One command of a client that may have others in flight.
#[derive(Default)]
struct Running {
    task: PrismTask,
    draft: Draft,
    ended: Option<Ended>,
}

impl Running {
    fn begin(store: &mut PrismClient, command: Command<'_>) -> Self {
        let mut running = Self::default();
        let progress = store.begin(&mut running.task, command, &mut running.draft);
        assert_eq!(progress, Progress::Send);
        running
    }

    fn go_on(&mut self, store: &mut PrismClient, answer: &[u64]) {
        let answer = Answer::decode(answer).unwrap();
        match store.proceed(&mut self.task, &answer, &mut self.draft) {
            Progress::Ended(result) => self.ended = Some(result.unwrap().into()),
            Progress::Send | Progress::SendAfter(_) => {}
        }
    }

    fn finish(&mut self, store: &mut PrismClient, world: &mut World) -> Ended {
        while self.ended.is_none() {
            let answer = world.answer(&self.draft);
            self.go_on(store, &answer);
        }
        self.ended.clone().unwrap()
    }
}

fn put(store: &mut PrismClient, world: &mut World, key: u64, value: u64) {
    let (key, value) = (key.to_le_bytes(), value.to_le_bytes());
    let mut running = Running::begin(store, Command::Put(&key, &value));
    assert_eq!(running.finish(store, world), Ended::Stored);
}

fn get(store: &mut PrismClient, world: &mut World, key: u64) -> Option<u64> {
    let mut running = Running::begin(store, Command::Get(&key.to_le_bytes()));
    match running.finish(store, world) {
        Ended::Found(value) => Some(word(&value)),
        _ => None,
    }
}

#[test]
fn clients_go_on_while_slots_move_one_by_one() {
    let mut world = world(1);
    let (mut one, mut other) = (PrismClient::new(), PrismClient::new().two_rounds());
    let mut most = 0;
    for key in 0..500 {
        // Runs of neighbours, and keys that go round the table's end.
        let key = key * 7;
        put(&mut one, &mut world, key, key);
        put(&mut other, &mut world, key, key + 1);
        world.upkeep();
        most = most.max(world.count().to_move);
        assert_eq!(get(&mut one, &mut world, key), Some(key + 1));
        for earlier in (0..=key).step_by(7 * 31) {
            assert_eq!(get(&mut other, &mut world, earlier), Some(earlier + 1), "{key}");
        }
    }
    assert!(world.count().growths >= 7 && most > 64, "{most} slots were to move at once");
    while world.count().to_move > 0 {
        world.upkeep();
    }
    for key in (0..500).map(|key| key * 7) {
        assert_eq!(get(&mut PrismClient::new(), &mut world, key), Some(key + 1));
        assert_eq!(get(&mut one, &mut world, key + 1), None);
    }
    assert_eq!(world.count().items, 500);
}

#[test]
fn each_upkeep_moves_a_few_slots() {
    let mut world = world(16);
    let mut store = PrismClient::new();
    let mut most_left = 0;
    for key in 0..3000 {
        // Every other slot stays empty: no run is longer than one slot and its end.
        put(&mut store, &mut world, key * 2, key);
        let before = world.count();
        world.upkeep();
        let after = world.count();
        if before.to_move > 0 {
            assert_eq!(before.growths, after.growths, "one after the other");
            let moved = before.to_move - after.to_move;
            assert!(moved >= 16.min(before.to_move), "{moved} is no progress");
            assert!(moved <= 16 + 4 + 2, "{moved} at once, for one item more");
        }
        most_left = most_left.max(after.to_move);
    }
    let count = world.count();
    assert_eq!(count.items, 3000);
    assert!(count.slots >= 8192 && most_left > 3000, "{count:?}");
}

/// What another command of the same client learns must not mislead one that is in flight.
#[test]
fn a_command_under_way_is_not_led_astray_by_news() {
    let mut world = world(1 << 20);
    let (mut store, mut other) = (PrismClient::new().two_rounds(), PrismClient::new());
    put(&mut store, &mut world, 0, 0);
    // Belongs into slot 0 of eight, which is taken, or into slot 8 of sixteen.
    let mut slow = Running::begin(&mut store, Command::Put(&8u64.to_le_bytes(), &[8; 8]));
    let answer = world.answer(&slow.draft);
    slow.go_on(&mut store, &answer);
    // It looks at slot 1, which is empty; the answer is late.
    let late = world.answer(&slow.draft);
    for key in 2..6 {
        put(&mut other, &mut world, key, key);
    }
    world.upkeep();
    assert_eq!((world.count().growths, world.count().to_move), (1, 0));
    // Another command of the same client finds out.
    assert_eq!(get(&mut store, &mut world, 2), Some(2));
    slow.go_on(&mut store, &late);
    assert_eq!(slow.finish(&mut store, &mut world), Ended::Stored);
    assert_eq!(get(&mut other, &mut world, 8), Some(u64::from_le_bytes([8; 8])));
}
