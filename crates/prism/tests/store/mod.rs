//! Clients of a store over a simulated network: a run is determined by its seed.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tercio_prism::check::{Act, Event, linearizable};
use tercio_prism::client::{Draft, Session};
use tercio_prism::engine::{Batch, Engine, Peer, Service};
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::kv::server::{KvServer, Shared, StoreCount};
use tercio_prism::kv::{Command, Done, Progress, StoreClient, StoreError};
use tercio_prism::memory::{Buffers, Memory};
use tercio_prism::op::Capability;
use tercio_prism::rng::Rng;
use tercio_prism::transport::sim::{Faults, Network, Way};
use tercio_prism::wire::Answer;

pub(crate) const OURS: Capability = Capability(77);

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) clients: usize,
    pub(crate) commands: u64,
    pub(crate) keys: u64,
    pub(crate) faults: Faults,
    /// In percent of the requests: a client dies with it in flight, and another takes its place.
    pub(crate) crashes: u64,
    pub(crate) deletes: bool,
    /// Bytes of a value: at most, and at least eight.
    pub(crate) value: usize,
}

impl Settings {
    pub(crate) const ROUGH: Self = Self {
        clients: 4,
        commands: 60,
        keys: 3,
        faults: Faults { loss: 5, duplicates: 10, delay_ns: 10_000, late_ns: 3_000_000 },
        crashes: 1,
        deletes: true,
        value: 200,
    };
}

/// What a run was like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) histories: u64,
    pub(crate) events: u64,
    pub(crate) states: u64,
    pub(crate) crashes: u64,
    pub(crate) repeated: u64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.histories += other.histories;
        self.events += other.events;
        self.states += other.states;
        self.crashes += other.crashes;
        self.repeated += other.repeated;
    }
}

struct Player<S: StoreClient> {
    store: S,
    task: S::Task,
    session: Option<Session>,
    /// The client's address: a new one after each crash.
    address: SocketAddr,
    nonce: u64,
    draft: Draft,
    /// The request that the command waits for.
    waits_for: Option<u64>,
    /// The command in flight: its key and its place among the key's events.
    current: Option<(u64, usize)>,
    left: u64,
    /// To send the draft, or to begin the next command, then.
    wakes_ns: u64,
    paused: bool,
    finished: bool,
}

/// A server and its clients in virtual time.
pub(crate) struct World<S: StoreClient> {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<Memory>,
    network: Network,
    players: Vec<Player<S>>,
    make: Box<dyn Fn() -> S>,
    rng: Rng,
    settings: Settings,
    pub(crate) now_ns: u64,
    /// Distinct times for begins and returns.
    tick: u64,
    next_value: u64,
    next_port: u16,
    histories: BTreeMap<u64, Vec<Event>>,
    crashes: u64,
    /// Why the run failed, where that is not the history's affair.
    pub(crate) trouble: Option<String>,
}

pub(crate) fn key_bytes(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

impl<S: StoreClient> World<S> {
    pub(crate) fn new(
        seed: u64,
        settings: Settings,
        memory: Arc<Memory>,
        service: Box<dyn Service>,
        make: impl Fn() -> S + 'static,
    ) -> Self {
        let mut engine = Engine::new(Arc::clone(&memory), 0, 1);
        engine.serve(OURS, service);
        let mut world = Self {
            engine,
            memory,
            network: Network::new(seed, settings.faults),
            players: Vec::new(),
            make: Box::new(make),
            rng: Rng::new(seed ^ 0xfeed),
            settings,
            now_ns: 0,
            tick: 0,
            next_value: 0,
            next_port: 1000,
            histories: BTreeMap::new(),
            crashes: 0,
            trouble: None,
        };
        for _ in 0..settings.clients {
            let player = world.player(settings.commands);
            world.players.push(player);
        }
        world
    }

    fn player(&mut self, left: u64) -> Player<S> {
        self.next_port += 1;
        Player {
            store: (self.make)(),
            task: S::Task::default(),
            session: None,
            address: ([127, 0, 0, 1], self.next_port).into(),
            nonce: self.rng.next_u64(),
            draft: Draft::default(),
            waits_for: None,
            current: None,
            left,
            wakes_ns: self.now_ns,
            paused: false,
            finished: false,
        }
    }

    /// Runs until all clients are done; gives what they stored.
    pub(crate) fn run(&mut self) {
        let mut maintained_ns = 0;
        while self.trouble.is_none() && !self.players.iter().all(|player| player.finished) {
            let wake = self.players.iter().filter(|p| !p.finished).map(|p| p.wakes_ns).min();
            let wake = wake.unwrap_or(u64::MAX);
            let next = self.network.next_ns().unwrap_or(u64::MAX).min(wake);
            self.now_ns = self.now_ns.max(next);
            if self.now_ns > 600_000_000_000 {
                self.trouble = Some("no end in sight".into());
            }
            if self.network.next_ns() == Some(next) {
                match self.network.take() {
                    Some((Way::ToServer(port), frame)) => self.at_server(port, &frame),
                    Some((Way::ToClient(port), frame)) => self.at_client(port, &frame),
                    None => {}
                }
            } else if let Some(i) =
                self.players.iter().position(|p| !p.finished && p.wakes_ns == wake)
            {
                self.wake(i);
            }
            if self.now_ns >= maintained_ns + 1_000_000 {
                maintained_ns = self.now_ns;
                self.upkeep();
            }
        }
    }

    pub(crate) fn upkeep(&mut self) {
        self.memory.collect();
        self.engine.maintain(self.now_ns);
        let buffers = self.engine.buffers();
        if !buffers.iter().all(Buffers::are_conserved) {
            self.trouble = Some(format!("buffers are missing, or in two places: {buffers:?}"));
        }
    }

    fn at_server(&mut self, port: usize, frame: &[u64]) {
        let from = Peer::Address(([127, 0, 0, 1], port as u16).into());
        let mut batch = Batch::default();
        batch.push(from, frame);
        let (network, now) = (&mut self.network, self.now_ns);
        self.engine.run(&self.memory.view(0), &batch, false, now, |to, answer| {
            let Peer::Address(to) = to else { unreachable!("clients have addresses") };
            network.send(now, Way::ToClient(usize::from(to.port())), answer);
        });
    }

    fn at_client(&mut self, port: usize, frame: &[u64]) {
        let at = self.players.iter().position(|p| usize::from(p.address.port()) == port);
        // One that has crashed hears nothing.
        let Some(at) = at else { return };
        let player = &mut self.players[at];
        match &mut player.session {
            None => {
                if let Some(answer) = Answer::decode(frame)
                    && answer.number == player.nonce
                    && answer.rejected.is_none()
                {
                    player.session = Some(Session::new(answer.connection, OURS, false));
                    self.begin(at);
                }
            }
            Some(session) => {
                let Some(answer) = session.receive(frame) else { return };
                if player.waits_for != Some(answer.number) {
                    if player.left == 0 && player.current.is_none() {
                        player.finished |= session.under_way() == 0;
                    }
                    return;
                }
                player.waits_for = None;
                let progress = player.store.proceed(&mut player.task, &answer, &mut player.draft);
                self.progress(at, progress);
            }
        }
    }

    fn wake(&mut self, at: usize) {
        let now = self.now_ns;
        let player = &mut self.players[at];
        let way = Way::ToServer(usize::from(player.address.port()));
        if player.paused {
            player.paused = false;
            return self.send(at);
        }
        match &mut player.session {
            None => {
                self.network.send(now, way, &Session::greeting(OURS, player.nonce));
                player.wakes_ns = now + 20_000_000;
            }
            Some(session) => {
                let network = &mut self.network;
                if session.resend(now, |frame| network.send(now, way, frame)).is_err() {
                    self.trouble = Some("a request stays without an answer".into());
                }
                player.wakes_ns = session.due_ns();
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let player = &mut self.players[at];
        if player.left == 0 {
            return self.finish(at);
        }
        player.left -= 1;
        let key = self.rng.below(self.settings.keys);
        let deletes = if self.settings.deletes { 15 } else { 0 };
        self.tick += 1;
        let (act, value) = match self.rng.below(100) {
            0..45 => (Act::Get(None), Vec::new()),
            n if n < 45 + deletes => (Act::Delete(false), Vec::new()),
            _ => {
                self.next_value += 1;
                // The value's number in every word of it: a mixture would be seen.
                let words = 1 + self.rng.below(self.settings.value as u64 / 8) as usize;
                let value = self.next_value.to_le_bytes().repeat(words);
                (Act::Put(self.next_value), value)
            }
        };
        let events = self.histories.entry(key).or_default();
        events.push(Event { act, began: self.tick, returned: None });
        player.current = Some((key, events.len() - 1));
        let bytes = key_bytes(key);
        let command = match act {
            Act::Get(_) => Command::Get(&bytes),
            Act::Delete(_) => Command::Delete(&bytes),
            Act::Put(_) => Command::Put(&bytes, &value),
        };
        player.draft.clear();
        let progress = player.store.begin(&mut player.task, command, &mut player.draft);
        self.progress(at, progress);
    }

    fn progress(&mut self, at: usize, progress: Progress<'_>) {
        match progress {
            Progress::Send => self.send(at),
            Progress::SendAfter(pause_ns) => {
                let player = &mut self.players[at];
                player.paused = true;
                player.wakes_ns = self.now_ns + pause_ns;
            }
            Progress::Ended(result) => self.ended(at, result),
        }
    }

    fn ended(&mut self, at: usize, result: Result<Done<'_>, StoreError>) {
        let player = &mut self.players[at];
        let (key, index) = player.current.take().expect("a command is under way");
        self.tick += 1;
        let event = &mut self.histories.get_mut(&key).expect("it began")[index];
        match (&mut event.act, result) {
            (Act::Get(got), Ok(Done::Found(value))) => {
                let (words, rest) = value.as_chunks::<8>();
                if !rest.is_empty() || words.is_empty() || words.iter().any(|w| *w != words[0]) {
                    self.trouble = Some(format!("a value that nobody wrote: {words:x?}"));
                    return;
                }
                *got = Some(u64::from_le_bytes(words[0]));
            }
            (Act::Get(_), Ok(Done::Absent)) | (Act::Put(_), Ok(Done::Stored)) => {}
            (Act::Delete(was), Ok(done)) => *was = done == Done::Stored,
            (act, result) => {
                self.trouble = Some(format!("{act:?} ended with {result:?}"));
                return;
            }
        }
        event.returned = Some(self.tick);
        if player.store.background(&mut player.draft, false) {
            self.send_unwaited(at);
            self.players[at].waits_for = None;
        }
        self.begin(at);
    }

    fn send_unwaited(&mut self, at: usize) {
        let now = self.now_ns;
        let player = &mut self.players[at];
        let way = Way::ToServer(usize::from(player.address.port()));
        let session = player.session.as_mut().expect("it is connected");
        let network = &mut self.network;
        let sent = session.send(&player.draft, now, |frame| network.send(now, way, frame));
        let (number, ()) = sent.expect("drafts are within the limits");
        player.waits_for = Some(number);
        player.wakes_ns = session.due_ns();
    }

    fn send(&mut self, at: usize) {
        self.send_unwaited(at);
        if self.rng.percent(self.settings.crashes) {
            // It dies with the request in flight; somebody else takes its place.
            self.crashes += 1;
            let left = self.players[at].left;
            let old = self.players[at].address;
            self.players[at] = self.player(left);
            // The server finds out some time later, as it would from a long silence.
            self.engine.peer_lost(Peer::Address(old));
        }
    }

    fn finish(&mut self, at: usize) {
        let player = &mut self.players[at];
        if player.store.background(&mut player.draft, true) {
            self.send_unwaited(at);
            self.players[at].waits_for = None;
        }
        // It stays for the answer to what nobody waits for.
        let under_way = self.players[at].session.as_ref().map_or(0, Session::under_way);
        if under_way == 0 {
            self.players[at].finished = true;
        }
    }

    /// Lets what is in flight arrive, and answers what is left.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2000 {
            self.now_ns += 1_000_000;
            while self.network.next_ns().is_some_and(|at| at <= self.now_ns) {
                match self.network.take() {
                    Some((Way::ToServer(port), frame)) => self.at_server(port, &frame),
                    Some((Way::ToClient(_), _)) | None => {}
                }
            }
            self.upkeep();
        }
    }

    /// Whether all keys' histories are linearizable.
    pub(crate) fn check(&self) -> Result<Outcome, String> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let counters = self.engine.counters();
        let mut outcome =
            Outcome { crashes: self.crashes, repeated: counters.repeated, ..Outcome::default() };
        for (key, events) in &self.histories {
            outcome.histories += 1;
            outcome.events += events.len() as u64;
            match linearizable(events) {
                Some(states) => outcome.states += states as u64,
                None => return Err(format!("key {key} is not linearizable: {events:#?}")),
            }
        }
        Ok(outcome)
    }
}

/// A world of PRISM-KV: few slots, so that keys collide and the table grows; few buffers, so that
/// they are used again at once.
pub(crate) fn prism_world(
    seed: u64,
    settings: Settings,
    two_rounds: bool,
) -> (World<PrismClient>, Arc<Mutex<KvServer>>) {
    use tercio_prism::kv::Hash;
    use tercio_prism::kv::server::{Class, Config};
    let memory = Arc::new(Memory::new());
    let config = Config {
        slots: 8,
        hash: Hash::Mixed,
        classes: vec![
            Class { payload: 56, posted: 6, limit: 200 },
            Class { payload: 248, posted: 6, limit: 200 },
        ],
        poison: true,
        // Commands take less time than a table of these sizes takes to move.
        growth_step: 1,
    };
    let server = KvServer::new(&memory, OURS, seed, &config).expect("there is memory");
    let server = Arc::new(Mutex::new(server));
    let make = move || {
        let client = PrismClient::new();
        if two_rounds { client.two_rounds() } else { client }
    };
    let service = Box::new(Shared(Arc::clone(&server)));
    (World::new(seed, settings, memory, service, make), server)
}

/// Whether every buffer is free, or in the table.
pub(crate) fn conserved(memory: &Memory, server: &Mutex<KvServer>) -> Result<StoreCount, String> {
    let view = memory.view(0);
    let count = server.lock().expect("no other thread").count(memory, &view);
    if count.taken == count.items + count.tombstones {
        Ok(count)
    } else {
        Err(format!("buffers that nobody can reach: {count:?}"))
    }
}
