//! `bench overload`: what a network does when more is asked of it than it can do.
//!
//! A closed loop with few requests in flight saturates it. Half of that is offered a while, on a
//! schedule; then several times as much, with as much in flight as clients may have; and after that
//! half of it again, which shows what of the overload stays. A client that ignores what replicas
//! tell it may join: it sends the same thousand requests over and over, as fast as its link takes
//! them.

use crate::Machine;
use crate::bft::{self, cpu_us_per_request};
use crate::fault::Fared;
use crate::figures::round;
use crate::load::{Moment, Outcome, PIECE, Pace, Phase, Piece, Plan};
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP, put_on};
use bytes::Bytes;
use serde::Serialize;
use std::iter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tercio_client::{Client, ClientCore, Nanos};
use tercio_network::usage::Usage;
use tercio_network::{Network, Replicas};
use tercio_replica::report::ReplicaReport;
use tercio_transport::{Limits, Transport};
use tercio_types::{Principal, View, WINDOW};

/// The most packages in flight, of all clients together, when the network is saturated.
const SATURATING: usize = 1024;
/// What is offered before and after the overload, as a part of what saturated the network.
const HALF: f64 = 0.5;
/// Latency is back when a tenth of a second's mean is at most this many times the greatest before.
const CALM: f64 = 2.0;
/// How long the overload runs before anything is counted.
const SETTLING: Duration = Duration::from_secs(1);
/// The length of a slice.
const SLICE_MS: u64 = PIECE.as_millis() as u64;
/// How many bytes a flooder has before its socket.
const QUEUED: usize = 1 << 20;
/// How long the load before and after the overload is watched.
const WATCHED: Duration = Duration::from_secs(3);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Overload {
    /// The network, of processes, and its clients.
    pub setup: Setup,
    /// How many times the saturating load is offered.
    pub times: f64,
    /// How many of the clients ignore what replicas say.
    pub flooders: usize,
    /// How long each load is measured.
    pub measure: Duration,
}

/// Replicas under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Under {
    /// How clients fared.
    #[serde(flatten)]
    pub fared: Fared,
    /// Requests per second that were offered; absent in a closed loop.
    pub offered_rps: Option<f64>,
    /// Processor time that each replica used for a request that was executed and answered.
    pub cpu_us_per_request_per_replica: Vec<f64>,
    /// The sum of that.
    pub cpu_us_per_request: f64,
    /// The memory of each replica at the end.
    pub rss_mb: Vec<f64>,
    /// How often replicas told a client that they are busy.
    pub busy_replies: u64,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slice {
    /// When it began, since the load did.
    pub at_ms: u64,
    /// Requests per second whose results came in it.
    pub throughput_rps: f64,
    /// How long these took on average, from their intended times, whenever those were.
    pub mean_ms: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadReport {
    /// How many times the saturating load was offered.
    pub times: f64,
    /// Under the load that saturates.
    pub saturation: Under,
    /// At half of that, before the overload.
    pub before: Under,
    /// Under the overload.
    pub overload: Under,
    /// Processor time for a request under the overload, over that at saturation.
    pub cpu_ratio: f64,
    /// How long after the overload until throughput had returned: from then on what came was never
    /// behind what was offered by more than a tenth of a second's worth.
    pub recovery_ms: u64,
    /// How long after it until latency had: the end of the last tenth of a second whose mean was
    /// more than twice the greatest before the overload.
    pub latency_recovery_ms: u64,
    /// At half of what saturates, after it.
    pub after: Under,
    /// The load before it, slice by slice.
    pub before_slices: Vec<Slice>,
    /// The load after it, slice by slice.
    pub after_slices: Vec<Slice>,
    /// Operations without a result.
    pub failed: u64,
    /// How many frames per second flooders sent during the overload.
    pub flooded_per_s: f64,
    /// How often views changed; load is no reason to.
    pub view_changes: u64,
    /// How long each load was measured.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// What replicas had used and said at an edge.
#[derive(Clone)]
struct Edge {
    usage: Vec<Usage>,
    busy: u64,
}

/// Measures. The replicas are processes of `program`; their homes are made in `dir`.
///
/// # Errors
/// When the network fails.
pub fn run(
    overload: &Overload,
    program: &Path,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<OverloadReport, BenchError> {
    let setup = &overload.setup;
    let (mut running, ceiling) = setup.start(Some(program), dir, said)?;
    let honest = setup.spec.clients - overload.flooders;
    running.clients.truncate(honest);
    let few = Setup { outstanding: (SATURATING / honest).max(1), ..setup.clone() };
    let (length, pace) = (overload.measure, Pace::Closed);

    said("saturating");
    bft::trial(&mut running, &few, pace, bft::TRIAL)?;
    let phases = vec![Phase { pace, length: WARM_UP }, Phase { pace, length }];
    let (outcomes, edges) = watched(&mut running, few.plan(phases), 1)?;
    let peak = outcomes[1].rate();
    let saturation = under(&few, &outcomes[1], None, &edges[0]);
    let (rate, half) = (peak * overload.times, peak * HALF);

    said("offering half of it");
    let pace = Pace::Open(half);
    let phases = vec![Phase { pace, length: WARM_UP }, Phase { pace, length: WATCHED }];
    let (outcomes, edges) = watched(&mut running, setup.plan(phases), 1)?;
    let before = under(setup, &outcomes[1], Some(half), &edges[0]);
    let before_slices = slices(&outcomes[1]);

    said(&format!("offering {} times as much", overload.times));
    let phases = vec![
        Phase { pace: Pace::Open(rate), length: SETTLING },
        Phase { pace: Pace::Open(rate), length },
        Phase { pace: Pace::Open(half), length: WATCHED },
    ];
    let plan = Plan { may_fail: true, ..setup.plan(phases) };
    let flood = Flood::default();
    let (outcomes, edges) = thread::scope(|scope| {
        let Running { network, replicas, clients } = &mut running;
        let (network, flood) = (&*network, &flood);
        for i in honest..setup.spec.clients {
            scope.spawn(move || flood.run(network, i, setup));
        }
        let result = watch(replicas, clients, plan, 1, |moment| {
            if matches!(moment, Moment::Begin(2)) {
                flood.stop();
            }
        });
        flood.stop();
        result
    })?;
    let flooded = flood.sent() as f64 / (SETTLING + length).as_secs_f64();
    let overloaded = under(setup, &outcomes[1], Some(rate), &edges[0]);
    let after = under(setup, &outcomes[2], Some(half), &edges[1]);
    let view_changes = running.replicas.reports().iter().map(|r| r.view_changes).max();
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let cpu_ratio = overloaded.cpu_us_per_request / saturation.cpu_us_per_request.max(1e-9);
    let after_slices = slices(&outcomes[2]);
    Ok(OverloadReport {
        times: overload.times,
        saturation,
        before,
        overload: overloaded,
        cpu_ratio: round(cpu_ratio, 3),
        recovery_ms: returned(&after_slices, half),
        latency_recovery_ms: calm(&before_slices, &after_slices),
        after,
        before_slices,
        after_slices,
        failed: outcomes.iter().map(|outcome| outcome.failed).sum(),
        flooded_per_s: round(flooded, 1),
        view_changes: view_changes.unwrap_or(0),
        seconds: length.as_secs_f64(),
        settings: setup.settings(true, "open"),
        machine: ceiling.machine,
    })
}

/// The slices of a phase, but for the last, which is cut short by the end.
fn slices(outcome: &Outcome) -> Vec<Slice> {
    let slice = |(i, piece): (usize, &Piece)| Slice {
        at_ms: i as u64 * SLICE_MS,
        throughput_rps: round(piece.completed as f64 / PIECE.as_secs_f64(), 1),
        mean_ms: round(piece.taken.as_secs_f64() * 1e3 / (piece.completed as f64).max(1.0), 3),
    };
    let whole = outcome.pieces.len().saturating_sub(1);
    outcome.pieces[..whole].iter().enumerate().map(slice).collect()
}

/// When the throughput is back: the first time from which on the slices together are never more
/// than one slice's worth behind what is offered.
fn returned(slices: &[Slice], offered_rps: f64) -> u64 {
    let mut since = slices.len();
    let mut behind = 0.0f64;
    for (i, slice) in slices.iter().enumerate().rev() {
        behind = (behind + offered_rps - slice.throughput_rps).max(0.0);
        if behind > offered_rps {
            break;
        }
        since = i;
    }
    since as u64 * SLICE_MS
}

/// When the latency is back: behind the last slice that was slower than any `before`.
fn calm(before: &[Slice], slices: &[Slice]) -> u64 {
    let usual = before.iter().map(|slice| slice.mean_ms).fold(0.0, f64::max);
    let last = slices.iter().rposition(|slice| slice.mean_ms > usual * CALM);
    last.map_or(0, |i| (i as u64 + 1) * SLICE_MS)
}

/// A load, and what replicas used and said during each phase of it from one on.
fn watched(
    running: &mut Running,
    plan: Plan,
    from: usize,
) -> Result<(Vec<Outcome>, Vec<[Edge; 2]>), BenchError> {
    watch(&mut running.replicas, &mut running.clients, plan, from, |_| {})
}

fn watch(
    replicas: &mut Replicas,
    clients: &mut [Client],
    plan: Plan,
    from: usize,
    mut also: impl FnMut(Moment),
) -> Result<(Vec<Outcome>, Vec<[Edge; 2]>), BenchError> {
    let mut edges = vec![];
    let outcomes = put_on(replicas, clients, &plan, |moment, replicas| {
        if matches!(moment, Moment::Begin(phase) if phase >= from) || moment == Moment::End {
            edges.push(Edge::of(replicas));
        }
        also(moment);
    })?;
    let edges = edges.into_iter().collect::<Result<Vec<_>, _>>()?;
    let pairs = edges.windows(2).map(|pair| [pair[0].clone(), pair[1].clone()]);
    Ok((outcomes, pairs.collect()))
}

impl Edge {
    fn of(replicas: &Replicas) -> Result<Self, BenchError> {
        let busy = |report: ReplicaReport| report.dropped.get("declined_busy").copied();
        let busy = replicas.reports().into_iter().filter_map(busy).sum();
        Ok(Self { usage: replicas.usage()?, busy })
    }
}

fn under(setup: &Setup, outcome: &Outcome, rate: Option<f64>, edges: &[Edge; 2]) -> Under {
    let [before, after] = edges;
    let cpu = cpu_us_per_request(&before.usage, &after.usage, outcome.completed);
    Under {
        fared: Fared::of(setup, outcome, rate.unwrap_or_default()),
        offered_rps: rate.map(|rate| round(rate, 1)),
        cpu_us_per_request: round(cpu.iter().sum(), 3),
        cpu_us_per_request_per_replica: cpu,
        rss_mb: after.usage.iter().map(|used| round(used.rss_mb(), 1)).collect(),
        busy_replies: after.busy.saturating_sub(before.busy),
    }
}

/// Clients that ignore what replicas say.
#[derive(Default)]
struct Flood {
    over: AtomicBool,
    sent: AtomicU64,
}

impl Flood {
    fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Sends the first requests that client `i` may have in flight to the first primary, over and
    /// over, and listens to nothing, until it is over.
    fn run(&self, network: &Network, i: usize, setup: &Setup) {
        let (secret, membership) = (network.client_secret(i).clone(), network.membership().clone());
        let (me, primary) = (tercio_network::client_id(i), membership.primary(View(0)));
        let mut settings = setup.spec.core_settings();
        settings.max_outstanding = WINDOW as usize;
        let mut core = ClientCore::new(me, secret.clone(), membership.clone(), settings);
        core.handle_connected(primary);
        let op = Bytes::from(vec![0; setup.size]);
        while core.submit(vec![op.clone(); setup.package], Nanos(0)).is_ok() {}
        let frames: Vec<Bytes> = iter::from_fn(|| core.poll_send()).map(|(_, f)| f).collect();
        let me = Principal::Client(me);
        let (listen, limits) = (None, Limits::default());
        let settings = tercio_transport::Settings { me, secret, membership, listen, limits };
        let Ok(mut transport) = Transport::bind(settings) else { return };
        let (to, mut events) = (Principal::Replica(primary), vec![]);
        while !self.over.load(Ordering::SeqCst) {
            if transport.is_connected(to) && transport.queued_bytes(to) < QUEUED {
                for frame in &frames {
                    let sent = transport.send(to, frame.clone());
                    self.sent.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
                }
            }
            transport.poll(Some(Duration::from_millis(1)), &mut events);
            events.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(of: &[(f64, f64)]) -> Vec<Slice> {
        let slice = |(i, &(throughput_rps, mean_ms)): (usize, &(f64, f64))| Slice {
            at_ms: i as u64 * SLICE_MS,
            throughput_rps,
            mean_ms,
        };
        of.iter().enumerate().map(slice).collect()
    }

    #[test]
    fn throughput_is_back_when_it_stays() {
        let rates = |rates: &[f64]| slices(&rates.iter().map(|r| (*r, 1.0)).collect::<Vec<_>>());
        assert_eq!(returned(&rates(&[100.0; 10]), 100.0), 0);
        // Up and down is no loss as long as it evens out.
        assert_eq!(returned(&rates(&[60.0, 140.0, 50.0, 150.0, 100.0]), 100.0), 0);
        // Nothing for half a second.
        let pause = [0.0, 0.0, 0.0, 0.0, 0.0, 200.0, 200.0, 100.0, 100.0];
        assert_eq!(returned(&rates(&pause), 100.0), 400);
        // A steady lack is none either, however small.
        assert_eq!(returned(&rates(&[80.0; 10]), 100.0), 500);
        assert_eq!(returned(&rates(&[]), 100.0), 0);
    }

    #[test]
    fn latency_is_back_when_it_is_what_it_was() {
        let means = |means: &[f64]| slices(&means.iter().map(|m| (1.0, *m)).collect::<Vec<_>>());
        let before = means(&[5.0, 8.0, 4.0]);
        assert_eq!(calm(&before, &means(&[900.0, 100.0, 17.0, 5.0, 15.0])), 300);
        assert_eq!(calm(&before, &means(&[5.0, 16.0])), 0);
    }
}
