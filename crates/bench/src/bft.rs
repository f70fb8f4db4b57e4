//! `bench bft`: what ordering costs and how long it takes, with the counter as the application.
//!
//! Unless a rate is given, a closed loop finds out what the network takes, and open-loop trials the
//! highest of a few fractions of it that the network keeps up with. The measurement offers that; if
//! the network falls behind after all, the next lower fraction is tried.

use crate::Machine;
use crate::calibrate::{self, Calibration};
use crate::figures::{LatencyUs, round};
use crate::load::{self, LoadError, Outcome, Pace, Plan};
use crate::network::{Network, NetworkError, Replicas, Spec};
use crate::process::ProcessError;
use crate::usage::Usage;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_client::{Client, ConnectError};
use tercio_replica::Durability;
use tercio_replica::genesis::App;
use thiserror::Error;

/// The fractions of the closed loop's rate that are tried, in this order.
const FRACTIONS: [f64; 7] = [0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35];
/// How long a trial runs, and what of it is not counted.
const TRIAL: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(500);
/// A rate is kept up with when at least this part of what was offered was achieved, and what could
/// not be sent in time is at most the second part of it at the end.
const KEPT: f64 = 0.98;
const UNSENT: f64 = 0.005;
/// A generator that uses this much of a processor is the bottleneck itself.
const BUSY: f64 = 0.95;

/// How fast requests are offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offer {
    /// As many per second as the network keeps up with.
    Search,
    /// So many per second.
    Rate(f64),
    /// The next when one ends.
    Closed,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Bft {
    /// The network. Its application is the counter.
    pub spec: Spec,
    /// How fast requests are offered.
    pub offer: Offer,
    /// Requests that share an authenticator.
    pub package: usize,
    /// The most packages of a client under way.
    pub outstanding: usize,
    /// Bytes of a request.
    pub size: usize,
    /// How long the measurement takes.
    pub measure: Duration,
}

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BftError {
    /// The network could not be laid out or started.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A replica process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A client found no replicas.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The load did not go through.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The primitives could not be measured.
    #[error("the loopback network cannot be used: {0}")]
    Calibrate(io::Error),
    /// The network keeps up with no rate that was tried.
    #[error(
        "the network keeps up with no steady rate: closed-loop clients reach {closed_rps:.0} \
         requests/s, and it falls behind at {lowest_rps:.0}; give a --rate"
    )]
    NoRate {
        /// What closed-loop clients reached.
        closed_rps: f64,
        /// The lowest rate that was tried.
        lowest_rps: f64,
    },
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BftReport {
    /// Requests per second that were executed and answered.
    pub throughput_rps: f64,
    /// Requests per second that were offered; absent in a closed loop.
    pub offered_rps: Option<f64>,
    /// What closed-loop clients reached, when a rate was searched for.
    pub closed_loop_rps: Option<f64>,
    /// Whether less was achieved than offered: then this is no result.
    pub saturated: bool,
    /// Who held it up: `generator` or `network`.
    pub saturated_by: Option<&'static str>,
    /// From the intended time of a request to its result.
    pub latency_us: LatencyUs,
    /// Processor time that each replica used for a request.
    pub cpu_us_per_request_per_replica: Vec<f64>,
    /// The memory of each replica; with threads, that of the one process.
    pub rss_mb: Vec<f64>,
    /// The part of a processor that the busiest client used.
    pub busiest_client_cpu: f64,
    /// What this machine could do at most, measured before the load.
    pub ceiling_rps: f64,
    /// Throughput over ceiling.
    pub fraction_of_ceiling: f64,
    /// How many requests were executed and answered during the measurement.
    pub requests: u64,
    /// How long the measurement was.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// All settings of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// How many replicas.
    pub replicas: u16,
    /// Whether each is a process of its own.
    pub processes: bool,
    /// `mac` or `ed25519`: how clients authenticate their packages.
    pub auth: &'static str,
    /// `memory`, `group:N` (milliseconds) or `sync`.
    pub durability: String,
    /// Which stages have a thread of their own.
    pub layout: String,
    /// Bytes of a request.
    pub size: usize,
    /// Bytes of a result.
    pub reply: usize,
    /// Requests that share an authenticator.
    pub package: usize,
    /// Clients, each with a thread and links of its own.
    pub clients: usize,
    /// The most packages of a client under way.
    pub outstanding: usize,
    /// `open` or `closed`.
    pub pace: &'static str,
    /// The most requests of a batch.
    pub batch_ops: usize,
    /// The most batches under way.
    pub pipeline: u64,
    /// A checkpoint follows every so many batches.
    pub checkpoint_interval: u64,
}

/// Measures. The replicas are processes of `program`, or threads of this one; their homes are made
/// in `dir`. `said` is told what is going on.
///
/// # Errors
/// When the network fails or an operation is not executed.
pub fn run(
    bft: &Bft,
    program: Option<&Path>,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<BftReport, BftError> {
    said("calibrating");
    let ceiling = calibrate::ceiling().map_err(BftError::Calibrate)?;
    said("starting replicas");
    let network = Network::lay_out(dir, &bft.spec)?;
    let replicas = Replicas::start(dir, bft.spec.replicas, program)?;
    let mut core = bft.spec.core_settings();
    core.max_outstanding = bft.outstanding;
    let mut clients = (0..bft.spec.clients)
        .map(|i| network.client(i, core.clone()))
        .collect::<Result<Vec<_>, _>>()?;

    let mut used = vec![];
    let mut measure = |clients: &mut [Client], pace| {
        said("measuring");
        used.clear();
        load::run(clients, &plan(bft, pace, bft.measure), || used.push(replicas.usage()))
    };
    let mut closed_loop_rps = None;
    let (pace, outcome) = match bft.offer {
        Offer::Closed => (Pace::Closed, measure(&mut clients, Pace::Closed)?),
        Offer::Rate(rate) => (Pace::Open(rate), measure(&mut clients, Pace::Open(rate))?),
        Offer::Search => {
            said("searching for the rate that the network keeps up with");
            let closed = load::run(&mut clients, &plan(bft, Pace::Closed, TRIAL), || {})?.rate();
            closed_loop_rps = Some(round(closed, 1));
            let mut kept = None;
            for rate in FRACTIONS.map(|fraction| fraction * closed) {
                let pace = Pace::Open(rate);
                let trial = load::run(&mut clients, &plan(bft, pace, TRIAL), || {})?;
                if !keeps_up(bft, &trial, rate) {
                    continue;
                }
                let outcome = measure(&mut clients, pace)?;
                if keeps_up(bft, &outcome, rate) {
                    kept = Some((pace, outcome));
                    break;
                }
            }
            let lowest_rps = closed * FRACTIONS[FRACTIONS.len() - 1];
            kept.ok_or(BftError::NoRate { closed_rps: closed, lowest_rps })?
        }
    };
    let used = used.into_iter().collect::<Result<Vec<_>, _>>()?;
    drop(clients);
    replicas.stop()?;
    let context = Context { bft, pace, closed_loop_rps, processes: program.is_some() };
    Ok(context.report(&outcome, &used[0], &used[1], &ceiling))
}

fn plan(bft: &Bft, pace: Pace, measure: Duration) -> Plan {
    let Bft { package, outstanding, size, .. } = *bft;
    Plan { pace, package, outstanding, size, warm_up: WARM_UP, measure }
}

/// Whether as much was achieved as was offered, but for one package of each client, which may fall
/// on either side of an edge of the measurement.
fn keeps_up(bft: &Bft, outcome: &Outcome, rate: f64) -> bool {
    let offered = rate * outcome.elapsed.as_secs_f64();
    let edge = (bft.package * bft.spec.clients) as f64;
    outcome.completed as f64 >= KEPT * offered - edge
        && outcome.unsent as f64 <= UNSENT * offered + edge
}

/// How a measurement was made.
struct Context<'a> {
    bft: &'a Bft,
    pace: Pace,
    closed_loop_rps: Option<f64>,
    processes: bool,
}

impl Context<'_> {
    fn report(
        &self,
        outcome: &Outcome,
        before: &[Usage],
        after: &[Usage],
        ceiling: &Calibration,
    ) -> BftReport {
        let offered = match self.pace {
            Pace::Open(rate) => Some(rate),
            Pace::Closed => None,
        };
        let saturated = offered.is_some_and(|rate| !keeps_up(self.bft, outcome, rate));
        let by = if outcome.busiest_client >= BUSY { "generator" } else { "network" };
        let requests = outcome.completed;
        let cpu = |(before, after): (&Usage, &Usage)| {
            let used = after.cpu.saturating_sub(before.cpu);
            round(used.as_secs_f64() * 1e6 / requests.max(1) as f64, 3)
        };
        BftReport {
            throughput_rps: round(outcome.rate(), 1),
            offered_rps: offered.map(|rate| round(rate, 1)),
            closed_loop_rps: self.closed_loop_rps,
            saturated,
            saturated_by: saturated.then_some(by),
            latency_us: outcome.latency.latency(),
            cpu_us_per_request_per_replica: before.iter().zip(after).map(cpu).collect(),
            rss_mb: after.iter().map(|used| round(used.rss_mb(), 1)).collect(),
            busiest_client_cpu: round(outcome.busiest_client, 3),
            ceiling_rps: round(ceiling.ceiling_rps, 1),
            fraction_of_ceiling: round(outcome.rate() / ceiling.ceiling_rps, 4),
            requests,
            seconds: round(outcome.elapsed.as_secs_f64(), 3),
            settings: self.settings(),
            machine: ceiling.machine.clone(),
        }
    }

    fn settings(&self) -> Settings {
        let Bft { spec, package, outstanding, size, .. } = self.bft;
        let consensus = tercio_consensus::Settings::default();
        Settings {
            replicas: spec.replicas,
            processes: self.processes,
            auth: match spec.auth {
                ClientAuth::Mac => "mac",
                ClientAuth::Signature => "ed25519",
            },
            durability: match spec.durability {
                Durability::Group(pause) => format!("group:{}", pause.as_millis()),
                other => other.to_string(),
            },
            layout: spec.layout.under(spec.durability).to_string(),
            size: *size,
            reply: match &spec.app {
                App::Counter(counter) => counter.reply,
                _ => 0,
            },
            package: *package,
            clients: spec.clients,
            outstanding: *outstanding,
            pace: if self.pace == Pace::Closed { "closed" } else { "open" },
            batch_ops: spec.batch_ops,
            pipeline: consensus.pipeline,
            checkpoint_interval: consensus.checkpoint_interval,
        }
    }
}
