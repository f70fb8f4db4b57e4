//! What the measurements share: a network with clients, started, and all settings by name.

use crate::backlog::Backlog;
use crate::calibrate::{self, Calibration};
use crate::load::{self, LoadError, Moment, Ops, Outcome, Phase, Plan, Then};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_client::{Client, ConnectError};
use tercio_network::process::ProcessError;
use tercio_network::{Network, NetworkError, Replicas, Spec};
use tercio_replica::Durability;
use thiserror::Error;

/// A rate is kept up with when at least this part of what was offered was achieved, and what waits
/// does not grow.
const KEPT: f64 = 0.98;
/// How long a load runs before anything is counted.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);

/// A network and its clients.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The network.
    pub spec: Spec,
    /// Requests that share an authenticator.
    pub package: usize,
    /// The most packages of a client in flight.
    pub outstanding: usize,
    /// Bytes of a request.
    pub size: usize,
    /// Bytes of a result, as far as the application was told them; otherwise 0.
    pub reply: usize,
    /// How often the application's loop runs for a request, as far as the application was told that;
    /// otherwise 0.
    pub iterations: u64,
    /// The operations that clients send; without, always the same bytes, [`Self::size`] of them.
    pub ops: Option<Ops>,
}

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
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
    /// A file of a replica could not be handled.
    #[error("replica {id}: {error}")]
    Files {
        /// The replica.
        id: u16,
        /// Why not.
        error: io::Error,
    },
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
    /// The clients could not send what they were to send.
    #[error(
        "this is no result: the clients could not send {offered_rps:.0} requests/s; raise --package \
         or --clients"
    )]
    Generator {
        /// What was offered.
        offered_rps: f64,
    },
    /// Something that must come to pass did not.
    #[error("{what} within {} s", within.as_secs())]
    Hangs {
        /// What did not.
        what: String,
        /// How long was waited.
        within: Duration,
    },
}

impl BenchError {
    /// The file that this refers to, for whoever puts it elsewhere.
    pub fn log_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Process(error) | Self::Network(NetworkError::Process(error)) => error.log_mut(),
            _ => None,
        }
    }

    /// The end of a replica that has ended by itself, if there is one: whatever else went wrong
    /// followed from that.
    pub(crate) fn or_end_of(self, replicas: &mut Replicas) -> Self {
        replicas.check().map_or_else(Self::from, |()| self)
    }
}

/// Puts a load on ([`load::run`]). A replica that ends by itself meanwhile ends it, and is what the
/// error names: clients notice only that nobody answers.
pub(crate) fn put_on<T: Into<Then>>(
    replicas: &mut Replicas,
    clients: &mut [Client],
    plan: &Plan,
    mut watch: impl FnMut(Moment, &mut Replicas) -> T,
) -> Result<Vec<Outcome>, BenchError> {
    let mut all_run = Ok(());
    let outcomes = load::run(clients, plan, |moment| {
        let then = watch(moment, replicas).into();
        if all_run.is_ok() {
            all_run = replicas.check();
        }
        if all_run.is_ok() { then } else { Then::GiveUp }
    });
    all_run.and_then(|()| replicas.check())?;
    Ok(outcomes?)
}

/// A network that runs, with its clients.
pub(crate) struct Running {
    pub(crate) network: Network,
    pub(crate) replicas: Replicas,
    pub(crate) clients: Vec<Client>,
}

impl Setup {
    /// Measures the machine, then lays a network out in `dir` and starts it: processes of
    /// `program`, or threads of this one.
    pub(crate) fn start(
        &self,
        program: Option<&Path>,
        dir: &Path,
        said: &dyn Fn(&str),
    ) -> Result<(Running, Calibration), BenchError> {
        said("calibrating");
        let ceiling = calibrate::ceiling().map_err(BenchError::Calibrate)?;
        said("starting replicas");
        Ok((self.launch(program, dir)?, ceiling))
    }

    /// The same without measuring the machine.
    pub(crate) fn launch(&self, program: Option<&Path>, dir: &Path) -> Result<Running, BenchError> {
        let network = Network::lay_out(dir, &self.spec)?;
        let mut replicas = Replicas::start(dir, &self.spec, program)?;
        let mut core = self.spec.core_settings();
        core.max_outstanding = self.outstanding;
        let clients = (0..self.spec.clients)
            .map(|i| network.client(i, core.clone()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| BenchError::from(error).or_end_of(&mut replicas))?;
        Ok(Running { network, replicas, clients })
    }

    pub(crate) fn plan(&self, phases: Vec<Phase>) -> Plan {
        let Self { package, outstanding, .. } = *self;
        let ops = self.ops.clone().unwrap_or_else(|| Ops::of_size(self.size));
        Plan { phases, package, outstanding, ops, may_fail: false }
    }

    /// How many operations one package of each client is: they may fall on either side of an edge.
    fn step(&self) -> f64 {
        (self.package * self.spec.clients) as f64
    }

    /// What waited in a phase in which this many operations per second were offered.
    pub(crate) fn backlog(&self, outcome: &Outcome, rate: f64) -> Backlog {
        Backlog::of(outcome, rate, self.step())
    }

    /// Whether the network can do this many operations per second for good, as far as this phase
    /// tells.
    pub(crate) fn keeps_up(&self, outcome: &Outcome, rate: f64) -> bool {
        let offered = rate * outcome.elapsed.as_secs_f64();
        outcome.completed as f64 >= KEPT * offered - self.step()
            && self.backlog(outcome, rate).drained
    }

    /// All settings, by name.
    pub(crate) fn settings(&self, processes: bool, pace: &'static str) -> Settings {
        let Self { spec, package, outstanding, size, reply, iterations, .. } = self;
        let consensus = tercio_consensus::Settings::default();
        Settings {
            replicas: spec.replicas,
            processes,
            suite: spec.suite.name(),
            auth: spec.auth().name(),
            durability: match spec.durability {
                Durability::Group(pause) => format!("group:{}", pause.as_millis()),
                other => other.to_string(),
            },
            layout: spec.layout.under(spec.durability).to_string(),
            verify_threads: spec.verify_threads,
            size: *size,
            reply: *reply,
            package: *package,
            clients: spec.clients,
            outstanding: *outstanding,
            pace,
            batch_ops: spec.batch_ops,
            batch_time_us: spec.batch_time.as_micros() as u64,
            iterations: *iterations,
            pipeline: spec.pipeline,
            checkpoint_interval: consensus.checkpoint_interval,
        }
    }
}

/// All settings of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// How many replicas.
    pub replicas: u16,
    /// Whether each is a process of its own.
    pub processes: bool,
    /// How clients authenticate their packages: `mac`, or the scheme of a signature.
    pub auth: &'static str,
    /// The network's cryptography.
    pub suite: &'static str,
    /// `memory`, `group:N` (milliseconds) or `sync`.
    pub durability: String,
    /// Which stages have a thread of their own.
    pub layout: String,
    /// How many threads of their own verify; 0 for the loop's thread.
    pub verify_threads: usize,
    /// Bytes of a request.
    pub size: usize,
    /// Bytes of a result.
    pub reply: usize,
    /// Requests that share an authenticator.
    pub package: usize,
    /// Clients, each with a thread and links of its own.
    pub clients: usize,
    /// The most packages of a client in flight.
    pub outstanding: usize,
    /// `open` or `closed`.
    pub pace: &'static str,
    /// The most requests of a batch.
    pub batch_ops: usize,
    /// How long a batch waits for more requests at most, in microseconds.
    pub batch_time_us: u64,
    /// How often the application's loop runs for a request, its own work.
    pub iterations: u64,
    /// The most batches in flight.
    pub pipeline: u64,
    /// The checkpoint interval, in batches.
    pub checkpoint_interval: u64,
}
