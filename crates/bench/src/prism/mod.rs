//! Measurements against a running server, for the paper's figures: what each operation costs
//! ([`ops`]), what loads reach on PRISM-KV and on Pilaf ([`loads`]), and on replicated blocks and
//! transactions and their baselines ([`groups`]). Everything here measures and
//! returns plain data with units in the field names; [`plot`] draws it.
//!
//! Client and server each keep a processor busy. Comparisons are interleaved, A B A B, and reported
//! as the median of the pairs' ratios with their spread.

mod floor;
pub mod groups;
pub mod loads;
pub mod ops;
pub mod paper;
pub mod plot;
pub mod server;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use tercio_prism::client::{Client, ClientError};
use tercio_prism::clock;
use tercio_prism::engine::WINDOW;
use tercio_prism::op::Capability;
use tercio_prism::transport::udp::UdpLink;
use tercio_prism::transport::{Endpoint, Link};

/// How a measurement reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Transport {
    /// Rings in shared memory.
    #[serde(rename = "shm")]
    Shm,
    /// The same, where clients read by themselves ([`Client::read_directly`]).
    #[serde(rename = "shm-direct")]
    ShmDirect,
    /// Datagrams, each with system calls of its own at the client.
    #[serde(rename = "udp")]
    Udp,
    /// Datagrams, many a system call, with GSO and GRO.
    #[serde(rename = "udp-gso")]
    UdpGso,
    /// A stream.
    #[serde(rename = "tcp")]
    Tcp,
    /// An RDMA card, if there were one.
    #[serde(rename = "verbs")]
    Verbs,
}

impl Transport {
    /// Those that can be measured on any machine.
    pub const ALL: [Self; 5] = [Self::Shm, Self::ShmDirect, Self::Udp, Self::UdpGso, Self::Tcp];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::ShmDirect => "shm-direct",
            Self::Udp => "udp",
            Self::UdpGso => "udp-gso",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }

    /// The transport with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Verbs]).find(|t| t.name() == name)
    }

    /// Where a server of its own can listen, on this machine only; at `shm` when that is a path.
    #[must_use]
    pub fn endpoint(self, shm: &Path) -> Endpoint {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        match self {
            Self::Shm | Self::ShmDirect => Endpoint::Shm(shm.to_owned()),
            Self::Udp | Self::UdpGso => Endpoint::Udp(loopback),
            Self::Tcp => Endpoint::Tcp(loopback),
            Self::Verbs => Endpoint::Verbs("any".into()),
        }
    }

    /// How many requests a throughput measurement has under way.
    #[must_use]
    pub const fn window(self) -> usize {
        match self {
            Self::Udp => 8,
            Self::Shm | Self::ShmDirect => WINDOW,
            Self::UdpGso | Self::Tcp | Self::Verbs => 48,
        }
    }
}

/// A server that was started for measuring, as it reports itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Served {
    /// How it is reached.
    pub transport: Transport,
    /// Where it listens.
    pub endpoint: String,
    /// What opens PRISM-KV's memory and calls, in hexadecimal.
    pub prism: String,
    /// What opens Pilaf's.
    pub pilaf: String,
    /// What opens the memory that single operations are measured on.
    pub plain: String,
    /// What opens the calls that echo.
    pub echo: String,
    /// The address of a region of `objects` objects of [`Served::stride`] bytes.
    pub region: u64,
    /// The address of a table of pointers to them.
    pub table: u64,
    /// A pool whose buffers hold one object.
    pub pool: u8,
    /// How many objects there are, in each of them.
    pub objects: u64,
    /// The bytes of an object.
    pub value: usize,
    /// The distance of objects in bytes.
    pub stride: u64,
    /// Where the rings for the bare exchange (`floor`) are handed over, where the transport has rings.
    pub floor: Option<PathBuf>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The server cannot be reached.
    #[error("the measurement's server cannot be reached: {0}")]
    Io(#[from] io::Error),
    /// A request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A command failed.
    #[error(transparent)]
    Driver(#[from] tercio_prism::kv::driver::DriverError),
    /// What was read is not what was stored.
    #[error("a measurement read what was never stored, or an operation failed: {0}")]
    Wrong(String),
}

impl Served {
    fn link(&self) -> Result<Box<dyn Link>, BenchError> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let endpoint: Endpoint = self.endpoint.parse().map_err(wrong)?;
        Ok(match (self.transport, endpoint) {
            (Transport::Udp, Endpoint::Udp(address)) => Box::new(UdpLink::open(address, false)?),
            (_, endpoint) => endpoint.link()?,
        })
    }

    /// Connects under one of its capabilities.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn client(&self, capability: &str) -> Result<Client, BenchError> {
        let capability = u128::from_str_radix(capability, 16)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let mut client = Client::connect(self.link()?, Capability(capability))?;
        if self.transport == Transport::ShmDirect {
            client.read_directly()?;
        }
        Ok(client)
    }
}

/// Latencies of single requests, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    /// Records one.
    pub fn record(&mut self, nanos: u64) {
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
    }

    /// Takes in what another recorded.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Of this many of a thousand, the longest, in microseconds; and the mean.
    #[must_use]
    pub fn summary(&mut self) -> LatencySummary {
        self.0.sort_unstable();
        let at = |permille: usize| {
            let index = (self.0.len() * permille / 1000).min(self.0.len().saturating_sub(1));
            self.0.get(index).map_or(0.0, |nanos| round(f64::from(*nanos) / 1e3, 3))
        };
        let sum: f64 = self.0.iter().map(|nanos| f64::from(*nanos)).sum();
        let mean_us = round(sum / self.0.len().max(1) as f64 / 1e3, 3);
        LatencySummary { p50_us: at(500), p99_us: at(990), mean_us }
    }
}

/// A distribution of latencies.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct LatencySummary {
    /// Half took at most this.
    pub p50_us: f64,
    /// 99 of 100 took at most this.
    pub p99_us: f64,
    /// On average.
    pub mean_us: f64,
}

/// The median of pairs' ratios.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Of these ratios.
    #[must_use]
    pub fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        let median = median_of_sorted(&ratios);
        let (min, max) = (ratios.first(), ratios.last());
        let value = |v: Option<&f64>| round(v.copied().unwrap_or(0.0), 3);
        Self { median: round(median, 3), min: value(min), max: value(max), pairs: ratios.len() }
    }
}

/// The median.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// `value` with this many decimals.
#[must_use]
pub fn round(value: f64, decimals: i32) -> f64 {
    let unit = 10f64.powi(decimals);
    (value * unit).round() / unit
}

/// Keeps this thread on one processor, if the system lets it.
pub fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    set.set(processor % count);
    // Without it the figures are noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// A cache line's way from one processor to another and back, in nanoseconds, the median of many:
/// the least that an exchange through shared memory takes here. Two virtual processors may be near or
/// far, and elsewhere after the next start. `None` where there is one processor. To be asked before
/// [`pin`].
#[must_use]
pub fn line_round_trip_ns() -> Option<u64> {
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicU64);
    const TIMES: u64 = 100_000;
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            for i in 1..=TIMES {
                while there.0.load(Acquire) < i {}
                back.0.store(i, Release);
            }
        });
        let asker = scope.spawn(|| {
            pin(1);
            let mut latencies = Latencies::default();
            for i in 1..=TIMES {
                let start = clock::now_ns();
                there.0.store(i, Release);
                while back.0.load(Acquire) < i {}
                latencies.record(clock::now_ns() - start);
            }
            latencies.0.sort_unstable();
            u64::from(latencies.0[latencies.0.len() / 2])
        });
        asker.join().ok()
    })
}

pub(crate) fn seconds_since(start_ns: u64) -> f64 {
    (clock::now_ns() - start_ns) as f64 / 1e9
}
