//! `bench transfer`: how long a replica that lost its whole disk takes until it is current again,
//! and what clients notice of it.
//!
//! The key-value store is filled by ordered requests, so that nobody makes the state for itself.
//! Under a steady load of writes all over it one backup is killed and its data directory removed; a
//! while later it is started again, and the load goes on until it is current and for a while after.
//!
//! The load is an open loop, or, with [`Offer::Closed`], full load in the literal sense: clients that
//! send the next write when one ends. Such clients send little while the network is slow, so what
//! they notice is also given corrected for that ([`Corrected`]).

use crate::Machine;
use crate::bft::{self, Offer};
use crate::fault::Fared;
use crate::figures::{LatencyUs, round};
use crate::load::{self, Moment, Ops, Outcome, Pace, Phase, Then};
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP, put_on};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tercio_client::Client;
use tercio_kv::Command;
use tercio_network::{Replicas, now, pause, poll_until};
use tercio_replica::report::{ReplicaReport, TransferReport};
use tercio_wire::Encode;

/// Bytes of a value, and how many go in one request when the store is filled.
const VALUE: usize = 1024;
const FILLED_AT_ONCE: usize = 16;
/// How long that may take: nobody knows how fast the network is.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(1 << 30);
/// How long a lost replica may take until it is current.
const PATIENCE: Duration = Duration::from_secs(600);
/// Nobody writes a snapshot who was seen to write none so often in such a time.
const QUIET: Duration = Duration::from_secs(2);
const LOOKS: u32 = 8;
/// A replica is current when it is at most this many checkpoint intervals behind the first.
const CURRENT: u64 = 1;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The network, of processes, whose application is the key-value store, and its clients.
    pub setup: Setup,
    /// How much state there is, in MiB of values.
    pub state_mb: u64,
    /// How fast writes are offered.
    pub offer: Offer,
    /// How long the network is watched before, without the replica, and after it is current.
    pub measure: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct TransferResult {
    /// How much state there is, in MiB of values.
    pub state_mb: u64,
    /// Which replica lost its disk.
    pub replica: u16,
    /// Requests per second that were offered all along; absent in a closed loop.
    pub offered_rps: Option<f64>,
    /// What closed-loop clients reached, when a rate was searched for.
    pub closed_loop_rps: Option<f64>,
    /// How long from its start until the replica had installed a state.
    pub state_after_ms: Option<u64>,
    /// How long from its start until the replica was within a checkpoint of the others, all the time
    /// under load; absent when it was not in ten minutes.
    pub current_after_ms: Option<u64>,
    /// Bytes of state that it fetched.
    pub state_bytes: u64,
    /// Bytes of blocks that it fetched.
    pub block_bytes: u64,
    /// How the fetching went, as the replica says: who gave what, and who was dropped and why.
    pub transfer: Option<TransferReport>,
    /// What the replica dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Before.
    pub before: Fared,
    /// Without the replica.
    pub without: Fared,
    /// From its start until it was current.
    pub during: Fared,
    /// The part of that until it had installed a state.
    pub installing: Fared,
    /// The rest of it: it executed the blocks since.
    pub replaying: Fared,
    /// From then on.
    pub after: Fared,
    /// p99 over p99 before.
    pub p99_ratio: f64,
    /// Throughput over throughput before.
    pub throughput_ratio: f64,
    /// Latencies with what closed-loop clients did not send while they waited; absent in an open
    /// loop, whose latencies count from the intended time.
    pub corrected: Option<Corrected>,
    /// The memory of each replica before, that of the lost one last.
    pub rss_mb: Vec<f64>,
    /// The most that it was later.
    pub rss_peak_mb: Vec<f64>,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// Latencies of closed-loop clients, corrected for coordinated omission: with those of the requests
/// that were not sent because an earlier one took longer than the interval.
#[derive(Clone, Debug, Serialize)]
pub struct Corrected {
    /// The time from one package to the next of the same place in a client's window, at the rate
    /// before.
    pub interval_us: f64,
    /// Before.
    pub before: LatencyUs,
    /// Without the replica.
    pub without: LatencyUs,
    /// From its start until it was current.
    pub during: LatencyUs,
    /// From then on.
    pub after: LatencyUs,
    /// p99 over p99 before.
    pub p99_ratio: f64,
}

impl Corrected {
    /// Of clients that had `under_way` operations in flight together.
    fn of(under_way: usize, [before, without, during, after]: [&Outcome; 4]) -> Self {
        let interval = Duration::from_secs_f64(under_way as f64 / before.rate().max(1.0));
        let of = |outcome: &Outcome| outcome.latency.corrected(interval).latency();
        let (before, during) = (of(before), of(during));
        Self {
            interval_us: round(interval.as_secs_f64() * 1e6, 1),
            before,
            without: of(without),
            during,
            after: of(after),
            p99_ratio: round(during.p99 / before.p99.max(1e-3), 3),
        }
    }
}

/// The key of a value of the state.
fn key(number: u64) -> String {
    format!("state/{number:012}")
}

/// Writes `len` bytes that differ from key to key and from round to round.
fn put(key: String, len: usize, number: u64, round: u64) -> Bytes {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(len);
    Command::Put { key: key.into(), value: value.into() }.to_bytes()
}

/// The load: operations of `size` bytes, or a little more where that is too short for one. Each
/// writes a key of its own beside one of the `keys` of the state, one after the other, so that in
/// time every piece of the state changes, and it does not grow without end.
fn writes(keys: u64, size: usize) -> Ops {
    let least = put(key(0) + "+", 0, 0, 0).len();
    let len = size.saturating_sub(least);
    Ops::new(move |client, number| {
        let at = number.wrapping_mul(0x9e37_79b1).wrapping_add(client as u64) % keys;
        put(key(at) + "+", len, at, number)
    })
}

/// What is seen of a replica that comes back.
struct Watch {
    since: Option<Instant>,
    state: Option<Duration>,
    current: Option<Duration>,
    rss_peak_mb: Vec<f64>,
}

impl Watch {
    fn look(&mut self, replicas: &Replicas, replica: u16, setup: &Setup) -> Result<(), BenchError> {
        for (peak, usage) in self.rss_peak_mb.iter_mut().zip(replicas.usage()?) {
            *peak = peak.max(round(usage.rss_mb(), 1));
        }
        let Some(since) = self.since else { return Ok(()) };
        let reports = replicas.reports();
        let has_state = |report: &ReplicaReport| {
            report.transfer.as_ref().is_some_and(|transfer| transfer.phase == "done")
        };
        if reports.iter().any(|report| report.id == replica && has_state(report)) {
            self.state.get_or_insert_with(|| now() - since);
        }
        if is_current(&reports, replica, setup) {
            self.current.get_or_insert_with(|| now() - since);
        }
        Ok(())
    }
}

/// Measures. The replicas are processes of `program`; their homes are made in `dir`.
///
/// # Errors
/// When the network fails.
pub fn run(
    transfer: &Transfer,
    program: &Path,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<TransferResult, BenchError> {
    let keys = transfer.state_mb * 1024;
    let ops = Some(writes(keys, transfer.setup.size));
    let setup = &Setup { ops, ..transfer.setup.clone() };
    let (mut running, ceiling) = setup.start(Some(program), dir, said)?;
    said(&format!("writing {} MiB of state", transfer.state_mb));
    fill(&mut running.replicas, &mut running.clients[..1], setup.outstanding, keys)?;
    said("waiting for the snapshots of it");
    settle(setup, dir, &mut running.replicas)?;

    let mut closed_loop_rps = None;
    let pace = match transfer.offer {
        Offer::Closed => Pace::Closed,
        Offer::Rate(rate) => Pace::Open(rate),
        Offer::Search => {
            said("searching for the rate that the network keeps up with");
            let closed = bft::trial(&mut running, setup, Pace::Closed, bft::TRIAL)?.rate();
            closed_loop_rps = Some(round(closed, 1));
            let below = (closed, f64::INFINITY);
            Pace::Open(bft::search(&mut running, setup, below, bft::TRIAL, said)?)
        }
    };
    let replica = setup.spec.replicas - 1;
    let measure = transfer.measure;
    let phases = [WARM_UP, measure, measure, PATIENCE, PATIENCE, measure];
    let phases = phases.map(|length| Phase { pace, length }).to_vec();
    let plan = load::Plan { may_fail: true, ..setup.plan(phases) };
    let Running { replicas, clients, .. } = &mut running;
    let usage = replicas.usage()?;
    let rss_mb: Vec<f64> = usage.iter().map(|used| round(used.rss_mb(), 1)).collect();
    let rss_peak_mb = rss_mb.clone();
    let mut watch = Watch { since: None, state: None, current: None, rss_peak_mb };
    let mut seen = Ok(());
    let mut look = |watch: &mut Watch, replicas: &Replicas| {
        if let (true, Err(error)) = (seen.is_ok(), watch.look(replicas, replica, setup)) {
            seen = Err(error);
        }
    };
    let (mut struck, mut started) = (Ok(()), Ok(()));
    let outcomes = put_on(replicas, clients, &plan, |moment, replicas| {
        match moment {
            Moment::Begin(1) => said("under load, healthy"),
            Moment::Begin(2) => {
                said(&format!("under load, without replica {replica} and its disk"));
                let data = tercio_network::home(dir, replica).join("data");
                struck = replicas.kill(replica).and_then(|()| fs::remove_dir_all(data));
            }
            Moment::Begin(3) => {
                said(&format!("under load, replica {replica} starts again"));
                started = replicas.restart(program, dir, replica);
                watch.since = Some(now());
            }
            Moment::Begin(4) => said(&format!("under load, replica {replica} executes blocks")),
            Moment::Begin(5) => said("under load, all there"),
            Moment::Tick { phase, .. } => {
                look(&mut watch, replicas);
                let over = watch.current.is_some() || started.is_err();
                if phase == 3 && (over || watch.state.is_some()) || phase == 4 && over {
                    return Then::EndPhase;
                }
            }
            _ => {}
        }
        Then::GoOn
    })?;
    struck.map_err(|error| BenchError::Files { id: replica, error })?;
    started?;
    seen?;
    let last = replicas.reports().into_iter().find(|report| report.id == replica);
    let last = last.unwrap_or_default();
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let (offered, name) = match pace {
        Pace::Open(rate) => (Some(rate), "open"),
        Pace::Closed => (None, "closed"),
    };
    let [_, before, without, installing, replaying, after] = &outcomes[..] else {
        unreachable!("an outcome for each phase")
    };
    let during = &installing.then(replaying);
    let under_way = setup.spec.clients * setup.outstanding * setup.package;
    let corrected =
        offered.is_none().then(|| Corrected::of(under_way, [before, without, during, after]));
    let [before, without, during, installing, replaying, after] =
        [before, without, during, installing, replaying, after]
            .map(|outcome| Fared::of(setup, outcome, offered.unwrap_or(0.0)));
    let millis = |time: Duration| time.as_millis() as u64;
    Ok(TransferResult {
        state_mb: transfer.state_mb,
        replica,
        offered_rps: offered.map(|rate| round(rate, 1)),
        closed_loop_rps,
        state_after_ms: watch.state.map(millis),
        current_after_ms: watch.current.map(millis),
        state_bytes: last.transfer.as_ref().map_or(0, |transfer| transfer.bytes),
        block_bytes: last.fetched_block_bytes,
        transfer: last.transfer,
        dropped: last.dropped,
        p99_ratio: round(during.latency_us.p99 / before.latency_us.p99.max(1e-3), 3),
        throughput_ratio: round(during.throughput_rps / before.throughput_rps.max(1e-3), 3),
        corrected,
        before,
        without,
        during,
        installing,
        replaying,
        after,
        rss_mb,
        rss_peak_mb: watch.rss_peak_mb,
        settings: setup.settings(true, name),
        machine: ceiling.machine,
    })
}

/// Writes every key, some of them twice.
fn fill(
    replicas: &mut Replicas,
    client: &mut [Client],
    outstanding: usize,
    keys: u64,
) -> Result<(), BenchError> {
    let written = Arc::new(AtomicU64::new(0));
    let next = written.clone();
    let ops = Ops::new(move |_, number| {
        next.fetch_max(number + 1, Ordering::Relaxed);
        put(key(number % keys), VALUE, number % keys, 0)
    });
    let phases = vec![Phase { pace: Pace::Closed, length: AS_LONG_AS_IT_TAKES }];
    let plan = load::Plan { phases, package: FILLED_AT_ONCE, outstanding, ops, may_fail: false };
    put_on(replicas, client, &plan, |_, _| match written.load(Ordering::Relaxed) < keys {
        true => Then::GoOn,
        false => Then::EndPhase,
    })?;
    Ok(())
}

/// Waits until no replica writes a snapshot and the disk has what was written: the load begins on
/// a machine that has nothing else to do.
fn settle(setup: &Setup, dir: &Path, replicas: &mut Replicas) -> Result<(), BenchError> {
    let mut quiet = 0;
    let done = poll_until(PATIENCE, || {
        pause(QUIET / LOOKS);
        let writes = |id: u16| -> io::Result<bool> {
            for file in fs::read_dir(tercio_network::home(dir, id).join("data/snapshots"))? {
                if file?.path().extension().is_some_and(|extension| extension == "tmp") {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        if let Err(ended) = replicas.check() {
            return Some(Err(ended.into()));
        }
        for id in 0..setup.spec.replicas {
            match writes(id) {
                Ok(false) => {}
                Ok(true) => {
                    quiet = 0;
                    return None;
                }
                Err(error) => return Some(Err(BenchError::Files { id, error })),
            }
        }
        quiet += 1;
        (quiet >= LOOKS).then_some(Ok(()))
    });
    let what = "the replicas did not end their snapshots".to_owned();
    done.unwrap_or(Err(BenchError::Hangs { what, within: PATIENCE }))?;
    rustix::fs::sync();
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;
    use tercio_client::CoreSettings;
    use tercio_network::LocalNetwork;
    use tercio_network::process::{ProcessError, ReplicaProcess};
    use tercio_network::{NetworkError, Spec};

    /// The client would wait for its results for an hour.
    #[test]
    fn a_replica_that_ends_while_the_store_is_filled_is_noticed_before_the_client_gives_up() {
        let folder = tempfile::tempdir().unwrap();
        let network = LocalNetwork::start(Spec::new(tercio_registry::apps().first())).unwrap();
        let hour = Duration::from_secs(3600);
        let core = CoreSettings { deadline: hour, ..CoreSettings::unused_id() };
        let mut clients = [network.network().client(0, core).unwrap()];
        network.stop().unwrap();
        // A shell finds no script named `start`, says so and ends.
        let ended = ReplicaProcess::spawn(Path::new("sh"), 3, folder.path()).unwrap();
        let (filled, result) = mpsc::channel();
        thread::spawn(move || {
            // More than may be in flight.
            filled.send(fill(&mut Replicas::Processes(vec![ended]), &mut clients, 4, 1024))
        });
        let error = result.recv_timeout(hour / 60).expect("it is noticed").unwrap_err();
        let BenchError::Network(NetworkError::Process(ProcessError::Ended { id: 3, .. })) = &error
        else {
            panic!("{error}")
        };
    }

    /// Ten places in a window, a thousand results a second: each place sends every 10 ms.
    #[test]
    fn a_stall_shows_when_corrected_and_hardly_else() {
        let ms = Duration::from_millis;
        let mut before = Outcome { completed: 1000, elapsed: ms(1000), ..Outcome::default() };
        before.latency.record(ms(10), 1000);
        let mut during = before.clone();
        during.latency.record(ms(500), 5);
        let corrected = Corrected::of(10, [&before, &before, &during, &before]);
        assert!((corrected.interval_us - 10_000.0).abs() < 1.0);
        let seen = during.latency.latency().p99 / before.latency.latency().p99;
        assert!(seen < 1.1 && corrected.p99_ratio > 20.0, "{seen} {corrected:?}");
    }

    #[test]
    fn writes_go_all_over_the_state_and_have_the_size() {
        let ops = writes(64, 100);
        // A byte for the kind, two for the length of the key, the key.
        let keys = |number| ops.of(1, number).slice(..3 + key(0).len() + 1);
        assert_eq!((0..256).map(keys).collect::<BTreeSet<Bytes>>().len(), 64);
        assert!((0..256).all(|number| ops.of(0, number).len() == 100));
        assert_ne!(ops.of(0, 3), ops.of(0, 3 + 64));
    }
}
