//! `bench transfer`: how long a replica that lost its whole disk takes until it is current again,
//! and what clients notice of it.
//!
//! The key-value store is filled by ordered requests, so that nobody makes the state for itself.
//! Under a steady load of writes to it one backup is killed and its data directory removed; a while
//! later it is started again.

use crate::Machine;
use crate::bft;
use crate::fault::Fared;
use crate::figures::round;
use crate::load::{self, Moment, Ops, Pace, Phase, Plan};
use crate::network;
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP};
use crate::{now, poll_until};
use bytes::Bytes;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tercio_client::Client;
use tercio_kv::Command;
use tercio_replica::report::{ReplicaReport, TransferReport};
use tercio_wire::Encode;

/// Bytes of a value, and how many go in one request when the store is filled.
const VALUE: usize = 1024;
const FILLED_AT_ONCE: u64 = 16;
/// How long a lost replica may take until it is current.
const PATIENCE: Duration = Duration::from_secs(600);
/// A replica is current when it is at most so many checkpoint intervals behind the first.
const CURRENT: u64 = 1;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The network, of processes, whose application is the key-value store, and its clients.
    pub setup: Setup,
    /// How much state there is, in MiB of values.
    pub state_mb: u64,
    /// Requests per second that are offered; half of what a closed loop reaches without.
    pub rate: Option<f64>,
    /// How long the network is watched before, without the replica, and with it.
    pub measure: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct TransferResult {
    /// How much state there is, in MiB of values.
    pub state_mb: u64,
    /// Which replica lost its disk.
    pub replica: u16,
    /// Requests per second that were offered all along.
    pub offered_rps: f64,
    /// How long from its start until the replica was within a checkpoint of the others; absent when
    /// it was not while the load lasted and for ten minutes after.
    pub current_after_ms: Option<u64>,
    /// Whether the load still went on then.
    pub under_load: bool,
    /// Bytes of state that it fetched.
    pub fetched_bytes: u64,
    /// How the fetching went, as the replica says: who gave what, and who was dropped and why.
    pub transfer: Option<TransferReport>,
    /// Before.
    pub healthy: Fared,
    /// Without the replica.
    pub without: Fared,
    /// From its start on.
    pub during: Fared,
    /// 99 of 100 requests took so many times what they did before.
    pub p99_ratio: f64,
    /// How long each phase was.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

fn put(number: u64, round: u64) -> Bytes {
    let key = Bytes::from(format!("state/{number:012}"));
    // Bytes that differ from key to key and from round to round.
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let mut value = Vec::with_capacity(VALUE);
    while value.len() < VALUE {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        value.extend_from_slice(&word.to_le_bytes());
    }
    Command::Put { key, value: value.into() }.to_bytes()
}

/// Measures. The replicas are processes of `program`; their homes are made in `dir`.
///
/// # Errors
/// When the network fails or an operation is not executed.
pub fn run(
    transfer: &Transfer,
    program: &Path,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<TransferResult, BenchError> {
    let setup = &Setup { size: put(0, 0).len(), ..transfer.setup.clone() };
    let (mut running, ceiling) = setup.start(Some(program), dir, said)?;
    let keys = transfer.state_mb * 1024;
    said(&format!("writing {} MiB of state", transfer.state_mb));
    fill(&mut running.clients[0], keys)?;

    let ops = Ops::new(move |client, number| put((number * 31 + client as u64) % keys, number + 1));
    let plan = |phases| Plan { ops: ops.clone(), ..setup.plan(phases) };
    let rate = match transfer.rate {
        Some(rate) => rate,
        None => {
            said("searching for the peak");
            let pace = Pace::Closed;
            let phases = [WARM_UP, bft::TRIAL].map(|length| Phase { pace, length }).to_vec();
            load::run(&mut running.clients, &plan(phases), |_| {})?[1].rate() / 2.0
        }
    };
    let replica = setup.spec.replicas - 1;
    let pace = Pace::Open(rate);
    let measure = transfer.measure;
    let phases = [WARM_UP, measure, measure, measure];
    let phases = phases.map(|length| Phase { pace, length }).to_vec();
    let Running { replicas, clients, .. } = &mut running;
    let (mut struck, mut started) = (Ok(()), Ok(()));
    let (mut since, mut current) = (None::<Instant>, None::<Duration>);
    let outcomes = load::run(clients, &plan(phases), |moment| match moment {
        Moment::Begin(1) => said("under load, healthy"),
        Moment::Begin(2) => {
            said(&format!("under load, without replica {replica} and its disk"));
            let data = network::home(dir, replica).join("data");
            struck = replicas.kill(replica).and_then(|()| fs::remove_dir_all(data));
        }
        Moment::Begin(3) => {
            said(&format!("under load, replica {replica} starts again"));
            started = replicas.restart(program, dir, replica);
            since = Some(now());
        }
        Moment::Tick { phase: 3, .. } if current.is_none() => {
            current = since
                .filter(|_| is_current(&replicas.reports(), replica, setup))
                .map(|since| now() - since);
        }
        _ => {}
    })?;
    struck.map_err(|error| BenchError::Files { id: replica, error })?;
    started?;
    let under_load = current.is_some();
    if !under_load {
        said("waiting for the replica");
        current = poll_until(PATIENCE, || {
            is_current(&replicas.reports(), replica, setup).then(|| now() - since.expect("started"))
        });
    }
    let last = replicas.reports().into_iter().find(|report| report.id == replica);
    let report = last.and_then(|report| report.transfer);
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let [healthy, without, during] =
        [1, 2, 3].map(|phase| Fared::of(setup, &outcomes[phase], rate));
    let p99_ratio = during.latency_us.p99 / healthy.latency_us.p99.max(1e-3);
    Ok(TransferResult {
        state_mb: transfer.state_mb,
        replica,
        offered_rps: round(rate, 1),
        current_after_ms: current.map(|time| time.as_millis() as u64),
        under_load,
        fetched_bytes: report.as_ref().map_or(0, |report| report.bytes),
        transfer: report,
        healthy,
        without,
        during,
        p99_ratio: round(p99_ratio, 3),
        seconds: measure.as_secs_f64(),
        settings: setup.settings(true, "open"),
        machine: ceiling.machine,
    })
}

/// Writes every key once.
fn fill(client: &mut Client, keys: u64) -> Result<(), BenchError> {
    let mut number = 0;
    let mut failed = None;
    let next = || {
        let end = keys.min(number + FILLED_AT_ONCE);
        let ops: Vec<Bytes> = (number..end).map(|number| put(number, 0)).collect();
        number = end;
        (!ops.is_empty()).then_some(ops)
    };
    let done = |completion: tercio_client::Completion| {
        if let Err(failure) = completion.outcome {
            failed.get_or_insert(failure.to_string());
        }
    };
    client.pipeline(next, done).map_err(load::LoadError::Refused)?;
    match failed {
        Some(first) => Err(load::LoadError::Failed { failed: 1, first }.into()),
        None => Ok(()),
    }
}

/// Whether the replica is within a checkpoint of the one that is ahead of all.
fn is_current(reports: &[ReplicaReport], replica: u16, setup: &Setup) -> bool {
    let ahead = reports.iter().filter(|r| r.id != replica).map(|r| r.delivered).max();
    let Some(own) = reports.iter().find(|r| r.id == replica) else { return false };
    let interval = setup.settings(true, "open").checkpoint_interval;
    !own.catching_up
        && own.delivered > 0
        && ahead.is_some_and(|ahead| own.delivered + CURRENT * interval >= ahead)
}
