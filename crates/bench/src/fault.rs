//! `bench fault`: what clients notice of a replica that dies under a steady load.
//!
//! The network runs at a part of its peak, healthy at first; then the primary or a backup is killed, or
//! a backup stopped so that its links stay open and nothing comes, and the same load goes on.
//! [`closed`] does it under all the load that closed-loop clients make.

pub mod closed;

use crate::Machine;
use crate::bft;
use crate::figures::{LatencyUs, round};
use crate::load::{Moment, Outcome, Pace, Phase};
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP, put_on};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::Duration;
use tercio_network::Replicas;
use tercio_types::View;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The primary is killed: its links break, and another view must begin.
    DeadPrimary,
    /// A backup is killed: its links break.
    DeadBackup,
    /// A backup stops running: its links stay open, and nothing comes.
    HaltedBackup,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::DeadPrimary => "dead-primary",
            Self::DeadBackup => "dead-backup",
            Self::HaltedBackup => "halted-backup",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The network, of processes, and its clients.
    pub setup: Setup,
    /// What happens.
    pub kind: Kind,
    /// Requests per second that are offered; half of what a closed loop reaches without. A closed
    /// loop takes no notice of it.
    pub rate: Option<f64>,
    /// How long the network is watched before, and again after.
    pub measure: Duration,
}

impl Fault {
    /// Which replica it is to happen to, and the view in which it is chosen.
    fn whom(&self, running: &Running) -> (u16, u64) {
        let view = running.replicas.reports().iter().map(|report| report.view).max().unwrap_or(0);
        let replica = match self.kind {
            Kind::DeadPrimary => running.network.membership().primary(View(view)).0,
            Kind::DeadBackup | Kind::HaltedBackup => self.setup.spec.replicas - 1,
        };
        (replica, view)
    }

    /// Stops what is left of the network.
    fn end(&self, running: Running, replica: u16) -> Result<(), BenchError> {
        let Running { mut replicas, clients, .. } = running;
        drop(clients);
        if self.kind == Kind::HaltedBackup {
            replicas.kill(replica).map_err(|error| BenchError::Files { id: replica, error })?;
        }
        Ok(replicas.stop()?)
    }
}

/// Lets it happen.
fn strike(kind: Kind, replicas: &mut Replicas, replica: u16) -> io::Result<()> {
    match kind {
        Kind::DeadPrimary | Kind::DeadBackup => replicas.kill(replica),
        Kind::HaltedBackup => replicas.halt(replica),
    }
}

/// How clients fared in a phase.
#[derive(Clone, Debug, Serialize)]
pub struct Fared {
    /// Requests per second that were executed and answered.
    pub throughput_rps: f64,
    /// From the intended time of a request to its result.
    pub latency_us: LatencyUs,
    /// Packages that were retransmitted on time-out.
    pub resent_packages: u64,
    /// The most retransmissions of one package.
    pub most_resent: u32,
    /// Whether less was achieved than offered, or what waited grew.
    pub saturated: bool,
    /// The longest time in which no result came to any client.
    pub longest_gap_ms: f64,
    /// Requests that have no result.
    pub failed: u64,
    /// How long the phase was.
    pub seconds: f64,
}

impl Fared {
    pub(crate) fn of(setup: &Setup, outcome: &Outcome, rate: f64) -> Self {
        Self {
            throughput_rps: round(outcome.rate(), 1),
            latency_us: outcome.latency.latency(),
            resent_packages: outcome.resent_packages,
            most_resent: outcome.most_resent,
            saturated: rate > 0.0 && !setup.keeps_up(outcome, rate),
            longest_gap_ms: round(outcome.longest_gap.as_secs_f64() * 1e3, 1),
            failed: outcome.failed,
            seconds: round(outcome.elapsed.as_secs_f64(), 3),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// `dead-primary`, `dead-backup` or `halted-backup`.
    pub kind: &'static str,
    /// Which replica it was.
    pub replica: u16,
    /// Requests per second that were offered all along.
    pub offered_rps: f64,
    /// What closed-loop clients reached before.
    pub closed_loop_rps: Option<f64>,
    /// Before.
    pub healthy: Fared,
    /// From the moment on at which the replica went.
    pub faulty: Fared,
    /// p99 over p99 before.
    pub p99_ratio: f64,
    /// How often views changed; a backup is no reason to.
    pub view_changes: u64,
    /// How long each phase was.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// Measures. The replicas are processes of `program`; their homes are made in `dir`.
///
/// # Errors
/// When the network fails or an operation is not executed.
pub fn run(
    fault: &Fault,
    program: &Path,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<FaultReport, BenchError> {
    let setup = &fault.setup;
    let (mut running, ceiling) = setup.start(Some(program), dir, said)?;
    let mut closed_loop_rps = None;
    let rate = match fault.rate {
        Some(rate) => rate,
        None => {
            said("searching for the peak");
            let peak = bft::trial(&mut running, setup, Pace::Closed, bft::TRIAL)?.rate();
            closed_loop_rps = Some(round(peak, 1));
            peak / 2.0
        }
    };
    let (replica, _) = fault.whom(&running);
    let pace = Pace::Open(rate);
    let phases = [WARM_UP, fault.measure, fault.measure];
    let phases = phases.map(|length| Phase { pace, length }).to_vec();
    said(&format!("{rate:.0} requests/s, healthy"));
    let Running { replicas, clients, .. } = &mut running;
    let mut struck = Ok(());
    let outcomes = put_on(replicas, clients, &setup.plan(phases), |moment, replicas| {
        if moment == Moment::Begin(2) {
            said(&format!("{rate:.0} requests/s, without replica {replica}"));
            struck = strike(fault.kind, replicas, replica);
        }
    })?;
    struck.map_err(|error| BenchError::Files { id: replica, error })?;
    let view_changes = replicas.reports().iter().map(|report| report.view_changes).max();
    fault.end(running, replica)?;
    let [healthy, faulty] = [1, 2].map(|phase| Fared::of(setup, &outcomes[phase], rate));
    let p99_ratio = faulty.latency_us.p99 / healthy.latency_us.p99.max(1e-3);
    Ok(FaultReport {
        kind: fault.kind.name(),
        replica,
        offered_rps: round(rate, 1),
        closed_loop_rps,
        healthy,
        faulty,
        p99_ratio: round(p99_ratio, 3),
        view_changes: view_changes.unwrap_or(0),
        seconds: fault.measure.as_secs_f64(),
        settings: setup.settings(true, "open"),
        machine: ceiling.machine,
    })
}
