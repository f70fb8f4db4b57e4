//! Loads on PRISM-KV and on Pilaf, interleaved (A B A B): the paper's figures 3 and 4, and its figure 2 from
//! single operations over the delay line.

use super::{
    BenchError, Latencies, LatencySummary, Ratio, Served, Transport, round, seconds_since,
};
use serde::Serialize;
use tercio_prism::client::Client;
use tercio_prism::clock;
use tercio_prism::kv::driver::Driver;
use tercio_prism::kv::pilaf::PilafClient;
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::kv::{Command, Done, StoreClient};
use tercio_prism::op::{Action, Addr, Deref, Op, Status};
use tercio_prism::rng::Rng;
use tercio_prism::ycsb::{Choice, Step, Workload};

/// A store to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// PRISM-KV.
    PrismKv,
    /// PRISM-KV with the paper's PUTs, of two round trips.
    PrismKvTwoRounds,
    /// Pilaf, both READs over the same transport.
    Pilaf,
}

impl System {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PrismKv => "prism_kv",
            Self::PrismKvTwoRounds => "prism_kv_two_rounds",
            Self::Pilaf => "pilaf",
        }
    }
}

/// What a load on a store gave.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The store.
    pub system: System,
    /// The transport.
    pub transport: Transport,
    /// How many commands are in flight.
    pub window: usize,
    /// Latencies of all commands.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// Commands a second.
    pub rate_per_s: f64,
}

/// A store against Pilaf on the same transport, in the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The store.
    pub system: System,
    /// The transport.
    pub transport: Transport,
    /// Its mean latency over Pilaf's, with one command in flight.
    pub latency_ratio: Ratio,
    /// Its throughput over Pilaf's, with the transport's window in flight.
    pub throughput_ratio: Ratio,
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Each turn, in nanoseconds.
    pub turn_ns: u64,
    /// Turns of each pair.
    pub pairs: usize,
    /// Windows of the curve beside 1 and the transport's own.
    pub windows: &'static [usize],
}

impl Effort {
    /// Some ten seconds a transport.
    pub const NORMAL: Self = Self { turn_ns: 80_000_000, pairs: 7, windows: &[2, 4, 8, 16, 32] };
    /// As little as gives any figure.
    pub const SHORT: Self = Self { turn_ns: 15_000_000, pairs: 3, windows: &[8] };
}

/// What clients do and with which keys.
#[derive(Clone, Debug)]
pub struct Load {
    /// What they do.
    pub workload: Workload,
    /// Zipf's exponent; 0: all keys alike.
    pub theta: f64,
}

enum Runner {
    Prism(System, Box<Driver<PrismClient>>),
    Pilaf(Box<Driver<PilafClient>>),
}

impl Runner {
    fn new(served: &Served, system: System) -> Result<Self, BenchError> {
        let prism = || served.client(&served.prism);
        Ok(match system {
            System::PrismKv => {
                Self::Prism(system, Box::new(Driver::new(PrismClient::new(), prism()?)))
            }
            System::PrismKvTwoRounds => {
                let store = PrismClient::new().two_rounds();
                Self::Prism(system, Box::new(Driver::new(store, prism()?)))
            }
            System::Pilaf => {
                let client = served.client(&served.pilaf)?;
                Self::Pilaf(Box::new(Driver::new(PilafClient::new(), client)))
            }
        })
    }

    const fn system(&self) -> System {
        match self {
            Self::Prism(system, _) => *system,
            Self::Pilaf(_) => System::Pilaf,
        }
    }

    fn turn(&mut self, run: &mut Run<'_>) -> Result<(LatencySummary, f64), BenchError> {
        match self {
            Self::Prism(_, driver) => run.turn(driver),
            Self::Pilaf(driver) => run.turn(driver),
        }
    }
}

struct Run<'a> {
    load: &'a Load,
    choice: &'a Choice,
    rng: &'a mut Rng,
    value: &'a [u8],
    window: usize,
    each: bool,
    turn_ns: u64,
}

impl Run<'_> {
    fn turn<S: StoreClient>(
        &mut self,
        driver: &mut Driver<S>,
    ) -> Result<(LatencySummary, f64), BenchError> {
        let mut latencies = Latencies::default();
        let start = clock::now_ns();
        // A step that reads and then writes is two commands, the second after the first.
        let mut then_update = None;
        let commands = closed_loop(
            driver,
            (self.window, self.each),
            |driver, now_ns| {
                if now_ns >= start + self.turn_ns {
                    return Ok(false);
                }
                let (key, step) = match then_update.take() {
                    Some(key) => (key, Step::Update),
                    None => (self.choice.key(self.rng), self.load.workload.step(self.rng)),
                };
                let bytes = u64::to_le_bytes(key);
                let command = match step {
                    Step::Update => Command::Put(&bytes, self.value),
                    Step::Read | Step::ReadUpdate => Command::Get(&bytes),
                };
                if step == Step::ReadUpdate {
                    then_update = Some(key);
                }
                driver.begin(0, command, now_ns)?;
                Ok(true)
            },
            |took_ns| latencies.record(took_ns),
        )?;
        let rate = commands as f64 / seconds_since(start);
        Ok((latencies.summary(), round(rate, 0)))
    }
}

/// Keeps up to `window` commands in flight as long as `next` begins them; tells `ended` what each
/// took, and gives how many there were. With `each`, every request leaves by itself.
pub(super) fn closed_loop<S: StoreClient>(
    driver: &mut Driver<S>,
    (window, each): (usize, bool),
    mut next: impl FnMut(&mut Driver<S>, u64) -> Result<bool, BenchError>,
    mut ended: impl FnMut(u64),
) -> Result<u64, BenchError> {
    let (mut done, mut under_way, mut open) = (0u64, 0usize, true);
    while open || under_way > 0 {
        // In bursts: what is at hand goes out together.
        if open && under_way <= window / 2 {
            let mut now = clock::now_ns();
            while open && under_way < window && driver.has_room() {
                open = next(driver, now)?;
                under_way += usize::from(open);
                if each {
                    driver.flush()?;
                    now = clock::now_ns();
                }
            }
        }
        driver.flush()?;
        let mut failed = None;
        // One reading of the clock for what arrived together; alone, a command has its own.
        let mut arrived_ns = None;
        while driver.poll(|end| {
            done += 1;
            under_way -= 1;
            let now_ns = *arrived_ns.get_or_insert_with(clock::now_ns);
            match end.result {
                Ok(Done::Found(_) | Done::Stored) => ended(now_ns.saturating_sub(end.began_ns)),
                Ok(Done::Absent) => failed = Some("a key is missing".to_owned()),
                Err(why) => failed = Some(why.to_string()),
            }
        })? {
            if each {
                driver.flush()?;
            }
        }
        if let Some(why) = failed {
            return Err(BenchError::Wrong(why));
        }
    }
    Ok(done)
}

/// Measures stores on a transport, in turns, each against Pilaf: with one command in flight, the
/// transport's window, and the curve between.
///
/// # Errors
/// When the server cannot be reached, or a store fails.
pub fn compare(
    served: &Served,
    systems: &[System],
    load: &Load,
    effort: Effort,
) -> Result<(Vec<Point>, Vec<Comparison>), BenchError> {
    let transport = served.transport;
    let choice = Choice::new(served.objects, load.theta);
    let mut rng = Rng::new(2021);
    let value = vec![3; served.value];
    let mut runners = Vec::new();
    for system in systems.iter().chain([&System::Pilaf]) {
        runners.push(Runner::new(served, *system)?);
    }
    let mut points = Vec::new();
    let mut ratios = vec![(Vec::new(), Vec::new()); systems.len()];
    let mut windows = vec![1, transport.window()];
    windows.extend(effort.windows.iter().filter(|window| **window < transport.window()));
    for window in windows {
        let compared = window == 1 || window == transport.window();
        let turns = if compared { effort.pairs } else { 1 };
        // The first turn warms caches and asks for the table.
        let mut figures: Vec<Vec<(LatencySummary, f64)>> = vec![Vec::new(); runners.len()];
        for turn in 0..=turns {
            for (runner, figures) in runners.iter_mut().zip(&mut figures) {
                let mut run = Run {
                    load,
                    choice: &choice,
                    rng: &mut rng,
                    value: &value,
                    window,
                    each: served.transport == Transport::Udp,
                    turn_ns: if turn == 0 { effort.turn_ns / 4 } else { effort.turn_ns },
                };
                let figure = runner.turn(&mut run)?;
                if turn > 0 {
                    figures.push(figure);
                }
            }
        }
        let base = figures.last().expect("Pilaf is always there").clone();
        for (figures, (latency, throughput)) in figures.iter().zip(&mut ratios) {
            for (figure, base) in figures.iter().zip(&base) {
                if window == 1 {
                    latency.push(figure.0.mean_us / base.0.mean_us);
                }
                if window == transport.window() {
                    throughput.push(figure.1 / base.1);
                }
            }
        }
        for (runner, mut figures) in runners.iter().zip(figures) {
            figures.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (latency, rate_per_s) = figures[figures.len() / 2];
            let system = runner.system();
            points.push(Point { system, transport, window, latency, rate_per_s });
        }
    }
    points.sort_by_key(|point| (point.system as usize, point.window));
    let comparisons = systems.iter().zip(ratios).map(|(system, (latency, throughput))| {
        let (latency_ratio, throughput_ratio) = (Ratio::of(latency), Ratio::of(throughput));
        Comparison { system: *system, transport, latency_ratio, throughput_ratio }
    });
    Ok((points, comparisons.collect()))
}

/// What two READs, and one indirect READ, of the same object take at a distance.
#[derive(Clone, Debug, Serialize)]
pub struct Distance {
    /// What the delay line adds to each round trip, in microseconds.
    pub distance_us: f64,
    /// The transport below it.
    pub transport: Transport,
    /// A READ of the pointer, then one of the object.
    pub two_reads: LatencySummary,
    /// One indirect READ.
    pub indirect_read: LatencySummary,
    /// The second over the first, of their medians.
    pub ratio: f64,
}

/// Measures both, interleaved, on a server that has this delay.
///
/// # Errors
/// When the server cannot be reached, or what it reads is wrong.
pub fn distance(
    served: &Served,
    distance_us: f64,
    duration_ns: u64,
) -> Result<Distance, BenchError> {
    let mut client = served.client(&served.plain)?;
    let mut rng = Rng::new(5);
    let (mut two, mut one) = (Latencies::default(), Latencies::default());
    let end = clock::now_ns() + duration_ns;
    let len = served.value as u32;
    let mut now = clock::now_ns();
    while now < end {
        for _ in 0..100 {
            let slot = Addr(served.table).plus(rng.below(served.objects) * 16);
            let start = clock::now_ns();
            let pointer = read(&mut client, slot, 8, Deref::Direct)?;
            read(&mut client, Addr(pointer), len, Deref::Direct)?;
            two.record(clock::now_ns() - start);
        }
        for _ in 0..100 {
            let slot = Addr(served.table).plus(rng.below(served.objects) * 16);
            let start = clock::now_ns();
            read(&mut client, slot, len, Deref::Bounded)?;
            one.record(clock::now_ns() - start);
        }
        now = clock::now_ns();
    }
    let (two_reads, indirect_read) = (two.summary(), one.summary());
    let ratio = round(indirect_read.p50_us / two_reads.p50_us, 3);
    let transport = served.transport;
    Ok(Distance { distance_us, transport, two_reads, indirect_read, ratio })
}

/// Reads; gives the first word.
fn read(client: &mut Client, addr: Addr, len: u32, deref: Deref) -> Result<u64, BenchError> {
    let op: Op<'_> = Action::Read { addr, len, deref, redirect: None }.into();
    client.run(&[op], |answer| match answer.take() {
        Some([outcome]) if outcome.status == Status::Ok && outcome.data.len() == len as usize => {
            Ok(outcome.data.words()[0])
        }
        _ => Err(BenchError::Wrong("a READ failed".into())),
    })?
}

/// What a load on a store that is being served gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OnServed {
    /// Latencies of all commands.
    #[serde(flatten)]
    pub latency: LatencySummary,
    /// Commands a second.
    pub rate_per_s: f64,
    /// How many requests, those that set the keys included, were run without the server.
    pub without_server: u64,
}

/// Runs a load on a store that is being served, for `tercio prism bench`.
///
/// # Errors
/// When the store cannot be reached or fails.
pub fn run_on(
    client: Client,
    load: &Load,
    keys: u64,
    value: usize,
    window: usize,
    duration_ns: u64,
) -> Result<OnServed, BenchError> {
    let mut driver = Driver::new(PrismClient::new(), client);
    let value = vec![3; value];
    let choice = Choice::new(keys, load.theta);
    // Every key has a value before it is read.
    let mut next = 0..keys;
    closed_loop(
        &mut driver,
        (window, false),
        |driver, now_ns| match next.next() {
            Some(key) => {
                driver.begin(0, Command::Put(&key.to_le_bytes(), &value), now_ns)?;
                Ok(true)
            }
            None => Ok(false),
        },
        |_| (),
    )?;
    let mut run = Run {
        load,
        choice: &choice,
        rng: &mut Rng::new(1),
        value: &value,
        window,
        each: false,
        turn_ns: duration_ns,
    };
    let (latency, rate_per_s) = run.turn(&mut driver)?;
    driver.finish()?;
    let without_server = driver.into_client().answered_directly();
    Ok(OnServed { latency, rate_per_s, without_server })
}
