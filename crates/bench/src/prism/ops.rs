//! What single operations cost: latency with one request in flight, rate with many.

use super::floor::{Bare, Shape};
use super::loads::closed_loop;
use super::{
    BenchError, Latencies, LatencySummary, Ratio, Served, Transport, median, round, seconds_since,
};
use serde::Serialize;
use tercio_prism::client::{Client, Draft};
use tercio_prism::clock;
use tercio_prism::engine::FREE;
use tercio_prism::kv::Command;
use tercio_prism::kv::driver::Driver;
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::op::{
    Action, Addr, Cas, Deref, Masks, Mode, Op, Operand, Payload, Source, Status,
};
use tercio_prism::rng::Rng;

/// How many words the measured CAS compares and swaps.
const CAS_WORDS: usize = 4;

/// The echo's method.
pub(super) const ECHO: u64 = 1;

/// An operation to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// READ of a random object: what the rate of a GET is held against.
    Read,
    /// WRITE of a random object.
    Write,
    /// READ of a random object through a table of bounded pointers.
    IndirectRead,
    /// ALLOCATE with one object's bytes; the buffers are given back in batches.
    Allocate,
    /// CAS of 32 bytes.
    Cas,
    /// A call whose arguments, one object, come back: what a two-sided operation costs before it does
    /// anything (the paper's section 2.1).
    Echo,
    /// A GET of PRISM-KV.
    KvGet,
    /// A PUT of PRISM-KV.
    KvPut,
    /// A PUT of PRISM-KV in the paper's two round trips.
    KvPutTwoRounds,
}

impl Measured {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::IndirectRead,
        Self::Allocate,
        Self::Cas,
        Self::Echo,
        Self::KvGet,
        Self::KvPut,
        Self::KvPutTwoRounds,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::IndirectRead => "indirect_read",
            Self::Allocate => "allocate",
            Self::Cas => "cas",
            Self::Echo => "rpc_echo",
            Self::KvGet => "kv_get",
            Self::KvPut => "kv_put",
            Self::KvPutTwoRounds => "kv_put_two_rounds",
        }
    }
}

impl Measured {
    /// What its bare exchange moves, for objects of `words` words. A PUT's is that of what it cannot
    /// do without: a pointer, and an object that is stored.
    fn shape(self, words: usize) -> Shape {
        let (pointer, read, write) = match self {
            Self::Read => (false, words, 0),
            Self::Write | Self::Allocate => (false, 0, words),
            Self::IndirectRead | Self::KvGet => (true, words, 0),
            Self::Cas => (false, CAS_WORDS, CAS_WORDS),
            Self::Echo => (false, words, words),
            Self::KvPut | Self::KvPutTwoRounds => (true, 0, words),
        };
        Shape { pointer, read, write }
    }

    fn command<'a>(self, key: &'a [u8], value: &'a [u8]) -> Command<'a> {
        if self == Self::KvGet { Command::Get(key) } else { Command::Put(key, value) }
    }
}

/// What an operation costs on a transport.
#[derive(Clone, Debug, Serialize)]
pub struct OpFigure {
    /// The operation.
    pub op: &'static str,
    /// The transport.
    pub transport: Transport,
    /// The latency of half, with one request in flight, in microseconds.
    pub p50_us: f64,
    /// Of 99 of 100.
    pub p99_us: f64,
    /// On average.
    pub mean_us: f64,
    /// [`OpFigure::p50_us`] of the bare exchange of the operation's shape, interleaved with it:
    /// rings, cache lines and the two processors, without a protocol. `None` where the transport has
    /// no rings.
    pub floor_us: Option<f64>,
    /// What of that the server's thread spends in the memory: p50 of the same accesses by itself, without
    /// rings.
    pub memory_us: Option<f64>,
    /// The operation's p50 over the bare exchange's: the median of the turns.
    pub of_floor: Option<f64>,
    /// The spread of that.
    pub floor_ratio: Option<Ratio>,
    /// Operations a second with [`OpFigure::window`] in flight: the median of the rounds.
    pub rate_per_s: f64,
    /// The rate as a fraction of that of random READs on the same transport, measured in turns.
    pub random_read_fraction: f64,
    /// The fraction's spread.
    pub fraction: Ratio,
    /// How many requests are in flight when the rate is measured.
    pub window: usize,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// For a latency, in nanoseconds.
    pub latency_ns: u64,
    /// For each round of a rate, in nanoseconds.
    pub round_ns: u64,
    /// Rounds.
    pub rounds: usize,
}

impl Effort {
    /// A second or two an operation.
    pub const NORMAL: Self = Self { latency_ns: 150_000_000, round_ns: 60_000_000, rounds: 7 };
    /// As little as gives any figure.
    pub const SHORT: Self = Self { latency_ns: 10_000_000, round_ns: 10_000_000, rounds: 3 };
}

/// One operation, sent again and again.
trait Load {
    /// Of one after another until then, of one at least.
    fn latency(&mut self, until_ns: u64) -> Result<Latencies, BenchError>;
    /// Operations a second.
    fn rate(&mut self, window: usize, duration_ns: u64) -> Result<f64, BenchError>;
}

/// Measures operations on a transport.
///
/// # Errors
/// When the server cannot be reached, or what it reads is wrong.
pub fn measure(
    served: &Served,
    which: &[Measured],
    effort: Effort,
) -> Result<Vec<OpFigure>, BenchError> {
    let transport = served.transport;
    let window = transport.window();
    let mut reads = Plain::new(served, Measured::Read)?;
    let mut bare = Bare::new(served)?;
    let mut figures = Vec::new();
    for measured in which {
        let mut load: Box<dyn Load> = match measured {
            Measured::KvGet | Measured::KvPut | Measured::KvPutTwoRounds => {
                Box::new(Kv::new(served, *measured)?)
            }
            _ => Box::new(Plain::new(served, *measured)?),
        };
        load.rate(window, effort.round_ns / 4)?;
        let shape = measured.shape(served.value / 8);
        let turn_ns = effort.latency_ns / effort.rounds as u64;
        let (mut latencies, mut floors) = (Latencies::default(), Latencies::default());
        let (mut multiples, mut memory) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            let mut turn = load.latency(clock::now_ns() + turn_ns)?;
            if let Some(bare) = &mut bare {
                let mut floor = bare.latency(shape, turn_ns)?;
                multiples.push(turn.summary().p50_us / floor.summary().p50_us);
                floors.merge(floor);
                memory.push(bare.memory_us(shape, turn_ns / 4)?);
            }
            latencies.merge(turn);
        }
        let LatencySummary { p50_us, p99_us, mean_us } = latencies.summary();
        let floor_ratio = bare.is_some().then(|| Ratio::of(multiples));
        let (mut rates, mut fractions) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            let base = reads.rate(window, effort.round_ns)?;
            let rate = load.rate(window, effort.round_ns)?;
            rates.push(rate);
            fractions.push(rate / base);
        }
        let fraction = Ratio::of(fractions);
        figures.push(OpFigure {
            op: measured.name(),
            transport,
            p50_us,
            p99_us,
            mean_us,
            floor_us: bare.is_some().then(|| floors.summary().p50_us),
            memory_us: bare.is_some().then(|| round(median(memory), 3)),
            of_floor: floor_ratio.map(|ratio| ratio.median),
            floor_ratio,
            rate_per_s: round(median(rates), 0),
            random_read_fraction: fraction.median,
            fraction,
            window,
        });
    }
    Ok(figures)
}

struct Plain<'a> {
    served: &'a Served,
    measured: Measured,
    client: Client,
    rng: Rng,
    draft: Draft,
    object: Vec<u64>,
    frees: Vec<u64>,
    /// How often to flush: without GSO each request has a system call of its own.
    each: bool,
}

impl<'a> Plain<'a> {
    fn new(served: &'a Served, measured: Measured) -> Result<Self, BenchError> {
        Ok(Self {
            served,
            measured,
            client: served.client(match measured {
                Measured::Echo => &served.echo,
                _ => &served.plain,
            })?,
            rng: Rng::new(measured as u64),
            draft: Draft::default(),
            object: vec![7; served.value / 8],
            frees: Vec::new(),
            each: served.transport == Transport::Udp,
        })
    }

    fn draft(&mut self) {
        let key = self.rng.below(self.served.objects);
        let len = self.served.value as u32;
        let object = Addr(self.served.region).plus(key * self.served.stride);
        let slot = Addr(self.served.table).plus(key * 16);
        let op: Op<'_> = match self.measured {
            Measured::IndirectRead => {
                Action::Read { addr: slot, len, deref: Deref::Bounded, redirect: None }.into()
            }
            Measured::Write => Action::Write {
                addr: object,
                deref: Deref::Direct,
                source: Source::Inline(Payload::of_words(&self.object)),
            }
            .into(),
            Measured::Allocate => Action::Allocate {
                pool: self.served.pool,
                data: Payload::of_words(&self.object),
                redirect: None,
            }
            .into(),
            Measured::Cas => Action::Cas(Cas {
                mode: Mode::Equal,
                target: object,
                indirect: false,
                words: CAS_WORDS as u8,
                data: Operand::Inline(&self.object[..CAS_WORDS]),
                comparand: None,
                masks: Masks::Words { compare: 0, swap: 0b1111 },
            })
            .into(),
            _ => Action::Read { addr: object, len, deref: Deref::Direct, redirect: None }.into(),
        };
        self.draft.clear();
        match self.measured {
            Measured::Echo => self.draft.call(ECHO, &self.object),
            _ => self.draft.op(op),
        }
    }

    /// Looks once for an answer; true when one came.
    fn take(&mut self) -> Result<bool, BenchError> {
        let (frees, allocates) = (&mut self.frees, self.measured == Measured::Allocate);
        let bytes = match self.measured {
            Measured::Read | Measured::IndirectRead => self.served.value,
            _ => 0,
        };
        let echoed = (self.measured == Measured::Echo).then_some(self.object.len());
        let answered = self.client.poll(|answer| match answer.take() {
            None if echoed.is_some() => match answer.rejected {
                None if echoed == Some(answer.body().len()) => Ok(true),
                _ => Err(BenchError::Wrong("an echo is not what was sent".into())),
            },
            // The answer to buffers that were given back, for which nobody waits.
            None => Ok(false),
            Some([outcome]) => {
                if outcome.status != Status::Ok || bytes > outcome.data.len() {
                    return Err(BenchError::Wrong(outcome.status.to_string()));
                }
                if allocates {
                    frees.extend(outcome.data.words());
                }
                Ok(true)
            }
        })?;
        if self.frees.len() >= 256 && self.client.has_room() {
            self.draft.clear();
            self.draft.call(FREE, &self.frees);
            self.client.submit(&self.draft, clock::now_ns())?;
            self.client.flush()?;
            self.frees.clear();
        }
        answered.unwrap_or(Ok(false))
    }
}

impl Load for Plain<'_> {
    fn latency(&mut self, until_ns: u64) -> Result<Latencies, BenchError> {
        let mut latencies = Latencies::default();
        let mut start = 0;
        while start < until_ns {
            self.draft();
            start = clock::now_ns();
            self.client.submit(&self.draft, start)?;
            self.client.flush()?;
            while !self.take()? {}
            latencies.record(clock::now_ns() - start);
        }
        Ok(latencies)
    }

    fn rate(&mut self, window: usize, duration_ns: u64) -> Result<f64, BenchError> {
        let start = clock::now_ns();
        let (mut done, mut under_way) = (0u64, 0usize);
        let mut now = start;
        while now < start + duration_ns || under_way > 0 {
            // In bursts: what is at hand goes out together.
            if now < start + duration_ns && under_way <= window / 2 {
                while under_way < window && self.client.has_room() {
                    self.draft();
                    self.client.submit(&self.draft, now)?;
                    under_way += 1;
                    if self.each {
                        self.client.flush()?;
                    }
                }
                self.client.flush()?;
            }
            while self.take()? {
                done += 1;
                under_way -= 1;
            }
            now = clock::now_ns();
        }
        Ok(done as f64 / seconds_since(start))
    }
}

struct Kv {
    driver: Driver<PrismClient>,
    measured: Measured,
    objects: u64,
    value: Vec<u8>,
    rng: Rng,
    each: bool,
}

impl Kv {
    fn new(served: &Served, measured: Measured) -> Result<Self, BenchError> {
        let client = served.client(&served.prism)?;
        let store = PrismClient::new();
        let store = if measured == Measured::KvPutTwoRounds { store.two_rounds() } else { store };
        Ok(Self {
            driver: Driver::new(store, client),
            measured,
            objects: served.objects,
            value: vec![1; served.value],
            rng: Rng::new(99),
            each: served.transport == Transport::Udp,
        })
    }
}

impl Load for Kv {
    fn latency(&mut self, until_ns: u64) -> Result<Latencies, BenchError> {
        let mut latencies = Latencies::default();
        let mut start = 0;
        while start < until_ns {
            start = clock::now_ns();
            let key = self.rng.below(self.objects).to_le_bytes();
            let command = self.measured.command(&key, &self.value);
            self.driver.begin(0, command, clock::now_ns())?;
            let mut took = None;
            while took.is_none() {
                self.driver.flush()?;
                self.driver.poll(|ended| took = Some(clock::now_ns() - ended.began_ns))?;
            }
            self.driver.flush()?;
            latencies.record(took.expect("the loop ends with it"));
        }
        Ok(latencies)
    }

    fn rate(&mut self, window: usize, duration_ns: u64) -> Result<f64, BenchError> {
        let start = clock::now_ns();
        let (each, measured) = (self.each, self.measured);
        let done = closed_loop(
            &mut self.driver,
            (window, each),
            |driver, now_ns| {
                if now_ns >= start + duration_ns {
                    return Ok(false);
                }
                let key = self.rng.below(self.objects).to_le_bytes();
                driver.begin(0, measured.command(&key, &self.value), now_ns)?;
                Ok(true)
            },
            |_| (),
        )?;
        Ok(done as f64 / seconds_since(start))
    }
}
