//! Replicated blocks and transactions against their baselines: the paper's figures 6, 7, 9 and 10.
//!
//! Servers are one process with one polling thread, which has the memories of all replicas, and of both
//! systems that are compared; clients are coroutines of one thread of another process, each with one
//! operation under way (closed loop). Turns alternate between the systems.

use super::{
    BenchError, Latencies, LatencySummary, Ratio, Transport, plot::Series, round, seconds_since,
};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tercio_prism::clock;
use tercio_prism::cluster::Cluster;
use tercio_prism::engine::Engine;
use tercio_prism::memory::Memory;
use tercio_prism::op::Capability;
use tercio_prism::rng::Rng;
use tercio_prism::rs::lock::{LockClient, LockOptions, LockServer};
use tercio_prism::rs::server::{Config as RsConfig, RsServer};
use tercio_prism::rs::{Options as RsOptions, RsClient};
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::Endpoint;
use tercio_prism::tx::farm::{FarmClient, FarmServer};
use tercio_prism::tx::server::{Config as TxConfig, TxServer};
use tercio_prism::tx::{Options as TxOptions, TxSession};
use tercio_prism::ycsb::Choice;

/// Replicas of a block: f = 1, as in the paper.
pub const REPLICAS: usize = 3;
/// Buffers beyond one an object.
const SPARE_BUFFERS: u32 = 16_384;
/// What a client's numbers for a key are filled with by so many clients at first.
const FILLERS: usize = 48;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// PRISM-RS.
    PrismRs,
    /// PRISM-RS whose GETs always write back, as the paper's.
    PrismRsPaper,
    /// ABD with locks.
    AbdLock,
    /// PRISM-TX.
    PrismTx,
    /// FaRM.
    Farm,
}

impl System {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PrismRs => "prism_rs",
            Self::PrismRsPaper => "prism_rs_paper",
            Self::AbdLock => "abd_lock",
            Self::PrismTx => "prism_tx",
            Self::Farm => "farm",
        }
    }
}

/// The servers that were started for measuring, as they report themselves.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServedGroup {
    /// How they are reached.
    pub transport: Transport,
    /// Where they listen: replicas, of which the first has the transactions' keys, too.
    pub endpoints: Vec<String>,
    /// What opens the memory of PRISM-RS, ABD with locks, PRISM-TX, and FaRM.
    pub capabilities: [String; 4],
    /// How many blocks, or keys, there are.
    pub objects: u64,
    /// The bytes of one.
    pub value: usize,
}

/// Makes the servers. They listen on loopback only. With `transactions`, PRISM-TX and FaRM on one shard;
/// otherwise PRISM-RS and ABD with locks on three replicas.
///
/// # Errors
/// When there is not so much memory, or the path cannot be used.
pub fn make(
    transactions: bool,
    (objects, value): (u32, usize),
    (transport, shm): (Transport, &Path),
    options: Options,
) -> io::Result<(Vec<Server>, ServedGroup)> {
    let random = || getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
    let mut capabilities = [Capability(0); 4];
    for capability in &mut capabilities {
        *capability = Capability(u128::from(random()?) << 64 | u128::from(random()?));
    }
    let [rs, lock, tx, farm] = capabilities;
    let (mut servers, mut endpoints) = (Vec::new(), Vec::new());
    for member in 0..if transactions { 1 } else { REPLICAS } {
        let memory = Arc::new(Memory::new());
        let mut engine = Engine::new(Arc::clone(&memory), 0, random()? as u32);
        if transactions {
            let config = TxConfig {
                keys: u64::from(objects),
                value_bytes: value,
                spare: SPARE_BUFFERS,
                shard: 0,
                shards: 1,
                instance: random()?,
                poison: false,
            };
            engine.serve(tx, Box::new(TxServer::new(&memory, tx, &config)?));
            engine.serve(farm, Box::new(FarmServer::new(&memory, farm, &config)?));
        } else {
            let config = RsConfig {
                blocks: u64::from(objects),
                block_bytes: value,
                spare: SPARE_BUFFERS,
                member,
                members: REPLICAS,
                new_group: true,
                poison: false,
            };
            engine.serve(rs, Box::new(RsServer::new(&memory, rs, &config)?));
            engine.serve(lock, Box::new(LockServer::new(&memory, lock, &config)?));
        }
        let path = shm.with_extension(member.to_string());
        let (port, endpoint) = transport.endpoint(&path).port()?;
        endpoints.push(endpoint.to_string());
        servers.push(Server::new(engine, vec![port], options));
    }
    let capabilities = capabilities.map(|capability| format!("{:032x}", capability.0));
    let objects = u64::from(objects);
    Ok((servers, ServedGroup { transport, endpoints, capabilities, objects, value }))
}

/// What clients do.
#[derive(Clone, Debug)]
pub struct Load {
    /// Of the operations on blocks in percent: PUTs. A transaction reads a key and writes it (YCSB-T).
    pub writes: u64,
    /// Zipf's exponent; 0: all alike.
    pub theta: f64,
    /// Clients at once.
    pub clients: usize,
}

/// What a load on a system gave.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The system.
    pub system: System,
    /// The transport.
    pub transport: Transport,
    /// Zipf's exponent.
    pub theta: f64,
    /// Clients at once.
    pub clients: usize,
    /// Latencies of all operations.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// Operations a second.
    pub rate_per_s: f64,
    /// Requests for each operation.
    pub requests: f64,
    /// Bytes sent and received for each operation, by clients.
    pub bytes: f64,
}

/// A system's clients, on connections of their own.
pub struct Runner {
    system: System,
    cluster: Cluster,
    objects: u64,
    value: Rc<Vec<u8>>,
    servers: Vec<usize>,
    rng: Rng,
    farm: Option<FarmClient>,
    sessions: Rc<RefCell<Vec<TxSession>>>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("system", &self.system).finish_non_exhaustive()
    }
}

/// What the clients of a turn share.
struct Turn {
    end_ns: u64,
    choice: Choice,
    writes: u64,
    latencies: RefCell<Latencies>,
    done: Cell<u64>,
    failure: RefCell<Option<String>>,
}

impl Turn {
    fn record(&self, began_ns: u64) {
        self.latencies.borrow_mut().record(clock::now_ns() - began_ns);
        self.done.set(self.done.get() + 1);
    }

    fn goes_on(&self) -> bool {
        clock::now_ns() < self.end_ns && self.failure.borrow().is_none()
    }

    fn fail<T, E: ToString>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| *self.failure.borrow_mut() = Some(error.to_string())).ok()
    }
}

impl Runner {
    /// Connects, and gives every object a value.
    ///
    /// # Errors
    /// When the servers cannot be reached.
    pub fn new(served: &ServedGroup, system: System) -> Result<Self, BenchError> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let capability = match system {
            System::PrismRs | System::PrismRsPaper => 0,
            System::AbdLock => 1,
            System::PrismTx => 2,
            System::Farm => 3,
        };
        let capability = u128::from_str_radix(&served.capabilities[capability], 16)
            .map_err(|error| wrong(error.to_string()))?;
        let mut servers = Vec::new();
        for endpoint in &served.endpoints {
            servers.push((endpoint.parse::<Endpoint>().map_err(wrong)?, Capability(capability)));
        }
        let mut runner = Self {
            system,
            cluster: Cluster::open(&servers)?,
            objects: served.objects,
            value: Rc::new(vec![3; served.value]),
            servers: (0..servers.len()).collect(),
            rng: Rng::new(2021),
            farm: None,
            sessions: Rc::default(),
        };
        if system == System::Farm {
            let (net, servers) = (runner.cluster.net().clone(), runner.servers.clone());
            let farm = runner.cluster.block_on(FarmClient::open(net, servers, 1));
            runner.farm = Some(farm.map_err(|error| BenchError::Wrong(error.to_string()))?);
        }
        runner.fill()?;
        Ok(runner)
    }

    /// Writes every object once, where nothing is not an object of zeros.
    fn fill(&mut self) -> Result<(), BenchError> {
        let next = Rc::new(Cell::new(0));
        let failure = Rc::new(RefCell::new(None));
        for _ in 0..FILLERS {
            let (next, failure, value) =
                (Rc::clone(&next), Rc::clone(&failure), Rc::clone(&self.value));
            let (objects, net) = (self.objects, self.cluster.net().clone());
            let take = move || {
                let key = next.replace(next.get() + 1);
                (key < objects).then_some(key)
            };
            match self.system {
                System::PrismRs | System::PrismRsPaper => {
                    let client = self.rs();
                    self.cluster.net().spawn(async move {
                        while let Some(key) = take() {
                            if let Err(error) = client.put(key, &value).await {
                                *failure.borrow_mut() = Some(error.to_string());
                            }
                        }
                        client.finish().await;
                    });
                }
                System::PrismTx => {
                    let servers = self.servers.clone();
                    self.cluster.net().spawn(async move {
                        let result = async {
                            let mut session =
                                TxSession::open(net, servers, TxOptions::default()).await?;
                            while let Some(key) = take() {
                                session.run(async |tx| tx.write(key, &value).await).await?;
                            }
                            session.finish().await
                        };
                        if let Err(error) = result.await {
                            *failure.borrow_mut() = Some(error.to_string());
                        }
                    });
                }
                System::AbdLock | System::Farm => {}
            }
        }
        self.cluster.drain();
        let failed = failure.borrow_mut().take();
        failed.map_or(Ok(()), |why| Err(BenchError::Wrong(why)))
    }

    fn rs(&mut self) -> RsClient {
        let always_write_back = self.system == System::PrismRsPaper;
        let options = RsOptions { always_write_back, ..RsOptions::default() };
        let writer = self.cluster.draw();
        RsClient::new(self.cluster.net(), self.servers.clone(), writer, options)
    }

    /// One turn of a load.
    ///
    /// # Errors
    /// When an operation failed.
    pub fn turn(&mut self, load: &Load, turn_ns: u64) -> Result<(LatencySummary, f64), BenchError> {
        let turn = Rc::new(Turn {
            end_ns: clock::now_ns() + turn_ns,
            choice: Choice::new(self.objects, load.theta),
            writes: load.writes,
            latencies: RefCell::default(),
            done: Cell::new(0),
            failure: RefCell::default(),
        });
        let start_ns = clock::now_ns();
        for _ in 0..load.clients {
            self.client(&turn);
        }
        self.cluster.drain();
        let elapsed = seconds_since(start_ns);
        if let Some(why) = turn.failure.borrow_mut().take() {
            return Err(BenchError::Wrong(why));
        }
        let rate = turn.done.get() as f64 / elapsed;
        Ok((turn.latencies.borrow_mut().summary(), round(rate, 0)))
    }

    fn client(&mut self, turn: &Rc<Turn>) {
        let turn = Rc::clone(turn);
        let (value, mut rng) = (Rc::clone(&self.value), Rng::new(self.rng.next_u64()));
        let net = self.cluster.net().clone();
        match self.system {
            System::PrismRs | System::PrismRsPaper => {
                let client = self.rs();
                net.spawn(async move {
                    while turn.goes_on() {
                        let (block, began_ns) = (turn.choice.key(&mut rng), clock::now_ns());
                        let put = rng.percent(turn.writes);
                        let result = if put {
                            client.put(block, &value).await
                        } else {
                            client.get(block).await.map(|_| ())
                        };
                        turn.fail(result);
                        turn.record(began_ns);
                    }
                    client.finish().await;
                });
            }
            System::AbdLock => {
                let name = self.cluster.draw();
                let servers = self.servers.clone();
                let client = LockClient::new(&net, servers, name, LockOptions::default());
                net.spawn(async move {
                    while turn.goes_on() {
                        let (block, began_ns) = (turn.choice.key(&mut rng), clock::now_ns());
                        let put = rng.percent(turn.writes);
                        let result = if put {
                            client.put(block, &value).await
                        } else {
                            client.get(block).await.map(|_| ())
                        };
                        turn.fail(result);
                        turn.record(began_ns);
                    }
                });
            }
            System::PrismTx => {
                // A client's number is for ever: sessions are kept from turn to turn.
                let (sessions, servers) = (Rc::clone(&self.sessions), self.servers.clone());
                net.clone().spawn(async move {
                    let session = sessions.borrow_mut().pop();
                    let mut session = match session {
                        Some(session) => session,
                        None => {
                            let opened = TxSession::open(net, servers, TxOptions::default());
                            let Some(session) = turn.fail(opened.await) else { return };
                            session
                        }
                    };
                    while turn.goes_on() {
                        let (key, began_ns) = (turn.choice.key(&mut rng), clock::now_ns());
                        let result = session.run(async |tx| {
                            tx.read(key).await?;
                            tx.write(key, &value).await
                        });
                        turn.fail(result.await);
                        turn.record(began_ns);
                    }
                    turn.fail(session.finish().await);
                    sessions.borrow_mut().push(session);
                });
            }
            System::Farm => {
                let client = self.farm.clone().expect("it was opened");
                net.spawn(async move {
                    while turn.goes_on() {
                        let (key, began_ns) = (turn.choice.key(&mut rng), clock::now_ns());
                        let result = client.run(async |tx| {
                            tx.read(key).await?;
                            tx.write(key, &value)
                        });
                        turn.fail(result.await);
                        turn.record(began_ns);
                    }
                });
            }
        }
    }
}

/// A system against another on the same transport, in the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The first.
    pub system: System,
    /// The one it is held against.
    pub against: System,
    /// The transport.
    pub transport: Transport,
    /// Zipf's exponent.
    pub theta: f64,
    /// Clients at once.
    pub clients: usize,
    /// The first's median latency over the other's.
    pub p50_ratio: Ratio,
    /// The first's rate over the other's.
    pub throughput_ratio: Ratio,
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Each turn, in nanoseconds.
    pub turn_ns: u64,
    /// Turns of each pair.
    pub pairs: usize,
}

impl Effort {
    /// Some seconds a point.
    pub const NORMAL: Self = Self { turn_ns: 200_000_000, pairs: 5 };
    /// As little as gives any figure.
    pub const SHORT: Self = Self { turn_ns: 30_000_000, pairs: 3 };
}

/// Measures systems under a load, in turns, each against the last one.
///
/// # Errors
/// When an operation failed.
pub fn compare(
    runners: &mut [Runner],
    transport: Transport,
    load: &Load,
    effort: Effort,
) -> Result<(Vec<Point>, Vec<Comparison>), BenchError> {
    let mut figures: Vec<Vec<(LatencySummary, f64)>> = vec![Vec::new(); runners.len()];
    let mut traffic = vec![(0.0, 0.0); runners.len()];
    // The first turn warms caches.
    for turn in 0..=effort.pairs {
        for (at, runner) in runners.iter_mut().enumerate() {
            let turn_ns = if turn == 0 { effort.turn_ns / 4 } else { effort.turn_ns };
            let (before, began_ns) = (runner.cluster.net().traffic(), clock::now_ns());
            let figure = runner.turn(load, turn_ns)?;
            if turn > 0 {
                let now = runner.cluster.net().traffic();
                let count = (figure.1 * seconds_since(began_ns)).max(1.0);
                let bytes =
                    now.sent_bytes + now.received_bytes - before.sent_bytes - before.received_bytes;
                traffic[at] =
                    ((now.requests - before.requests) as f64 / count, bytes as f64 / count);
                figures[at].push(figure);
            }
        }
    }
    let Load { theta, clients, .. } = *load;
    let base = figures.last().cloned().unwrap_or_default();
    let against = runners.last().map_or(System::PrismRs, |runner| runner.system);
    let (mut points, mut comparisons) = (Vec::new(), Vec::new());
    for ((runner, mut figures), (requests, bytes)) in runners.iter().zip(figures).zip(traffic) {
        let system = runner.system;
        if system != against {
            let pairs = || figures.iter().zip(&base);
            let p50 = pairs().map(|(a, b)| a.0.p50_us / b.0.p50_us.max(1e-3)).collect();
            let rate = pairs().map(|(a, b)| a.1 / b.1.max(1.0)).collect();
            let (p50_ratio, throughput_ratio) = (Ratio::of(p50), Ratio::of(rate));
            comparisons.push(Comparison {
                system,
                against,
                transport,
                theta,
                clients,
                p50_ratio,
                throughput_ratio,
            });
        }
        figures.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (latency, rate_per_s) = figures[figures.len() / 2];
        let (requests, bytes) = (round(requests, 1), round(bytes, 0));
        let point =
            Point { system, transport, theta, clients, latency, rate_per_s, requests, bytes };
        points.push(point);
    }
    Ok((points, comparisons))
}

/// The systems of a figure: what it is about first, the baseline last.
#[must_use]
pub fn systems(transactions: bool) -> &'static [System] {
    if transactions {
        &[System::PrismTx, System::Farm]
    } else {
        &[System::PrismRs, System::PrismRsPaper, System::AbdLock]
    }
}

/// Connects every system that is compared.
///
/// # Errors
/// When the servers cannot be reached.
pub fn runners(served: &ServedGroup, systems: &[System]) -> Result<Vec<Runner>, BenchError> {
    systems.iter().map(|system| Runner::new(served, *system)).collect()
}

/// Points as series of a picture, by system and transport.
#[must_use]
pub fn series(points: &[Point], at: impl Fn(&Point) -> (f64, f64)) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let name = format!("here: {}, {}", point.system.name(), point.transport.name());
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(at(point)),
            None => series.push(Series { name, points: vec![at(point)], marks: false }),
        }
    }
    series
}
