//! `bench overload`: what a network does when more is asked of it than it can do.
//!
//! A closed loop with few requests under way saturates it. Then its clients want to send several
//! times as much, on a schedule, with as much under way as they may have; and after that half of
//! what saturated it. One that ignores what replicas tell it may join: it sends the same thousand
//! requests over and over, as fast as its link takes them.

use crate::Machine;
use crate::bft::{self, cpu_us_per_request};
use crate::fault::Fared;
use crate::figures::round;
use crate::load::{self, Moment, Outcome, PIECE, Pace, Phase, Plan};
use crate::network::{self, Network, Replicas};
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP};
use crate::usage::Usage;
use bytes::Bytes;
use serde::Serialize;
use std::iter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tercio_client::{Client, ClientCore, Nanos};
use tercio_replica::report::ReplicaReport;
use tercio_transport::{Limits, Transport};
use tercio_types::{Principal, View, WINDOW};

/// The most packages under way, of all clients together, when the network is saturated.
const SATURATING: usize = 1024;
/// What is offered when the overload is over, as a part of what saturated the network.
const AFTER: f64 = 0.5;
/// The load has returned when a tenth of a second brings this part of what is offered.
const RETURNED: f64 = 0.8;
/// How long the overload runs before anything is counted.
const SETTLING: Duration = Duration::from_secs(1);
/// How many bytes a flooder has before its socket.
const QUEUED: usize = 1 << 20;
/// How long the load after the overload is watched.
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

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadReport {
    /// How many times the saturating load was offered.
    pub times: f64,
    /// Under the load that saturates.
    pub saturation: Under,
    /// Under the overload.
    pub overload: Under,
    /// Processor time for a request under the overload, over that at saturation.
    pub cpu_ratio: f64,
    /// How long after the overload until every tenth of a second brought what was offered.
    pub recovery_ms: u64,
    /// After it.
    pub after: Fared,
    /// Requests per second that were offered then.
    pub after_offered_rps: f64,
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
    bft::trial(&mut running, &few, pace)?;
    let phases = vec![Phase { pace, length: WARM_UP }, Phase { pace, length }];
    let (outcomes, edges) = watched(&mut running, few.plan(phases), 1)?;
    let peak = outcomes[1].rate();
    let saturation = under(&few, &outcomes[1], None, &edges);

    said(&format!("offering {} times as much", overload.times));
    let (rate, after) = (peak * overload.times, peak * AFTER);
    let phases = vec![
        Phase { pace: Pace::Open(rate), length: SETTLING },
        Phase { pace: Pace::Open(rate), length },
        Phase { pace: Pace::Open(after), length: WATCHED },
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
    let overloaded = under(setup, &outcomes[1], Some(rate), &edges);
    let view_changes = running.replicas.reports().iter().map(|r| r.view_changes).max();
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let cpu_ratio = overloaded.cpu_us_per_request / saturation.cpu_us_per_request.max(1e-9);
    let wanted = after * PIECE.as_secs_f64() * RETURNED;
    // The last piece is cut short by the end.
    let pieces = &outcomes[2].pieces[..outcomes[2].pieces.len().saturating_sub(1)];
    let short = pieces.iter().rposition(|count| (*count as f64) < wanted);
    Ok(OverloadReport {
        times: overload.times,
        saturation,
        overload: overloaded,
        cpu_ratio: round(cpu_ratio, 3),
        recovery_ms: short.map_or(0, |i| (i as u64 + 1) * PIECE.as_millis() as u64),
        after: Fared::of(setup, &outcomes[2], after),
        after_offered_rps: round(after, 1),
        failed: outcomes.iter().map(|outcome| outcome.failed).sum(),
        flooded_per_s: round(flooded, 1),
        view_changes: view_changes.unwrap_or(0),
        seconds: length.as_secs_f64(),
        settings: setup.settings(true, "open"),
        machine: ceiling.machine,
    })
}

/// A load, and what replicas used and said during one phase of it.
fn watched(
    running: &mut Running,
    plan: Plan,
    phase: usize,
) -> Result<(Vec<Outcome>, [Edge; 2]), BenchError> {
    watch(&running.replicas, &mut running.clients, plan, phase, |_| {})
}

fn watch(
    replicas: &Replicas,
    clients: &mut [Client],
    plan: Plan,
    phase: usize,
    mut also: impl FnMut(Moment),
) -> Result<(Vec<Outcome>, [Edge; 2]), BenchError> {
    let mut edges = vec![];
    let last = plan.phases.len() == phase + 1;
    let outcomes = load::run(clients, &plan, |moment| {
        let end = if last { Moment::End } else { Moment::Begin(phase + 1) };
        if moment == Moment::Begin(phase) || moment == end {
            edges.push(Edge::of(replicas));
        }
        also(moment);
    })?;
    let edges = edges.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok((outcomes, <[_; 2]>::try_from(edges).ok().expect("looked at twice")))
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

    /// Sends the first requests that client `i` may have under way to the first primary, over and
    /// over, and listens to nothing, until it is over.
    fn run(&self, network: &Network, i: usize, setup: &Setup) {
        let (secret, membership) = (network.client_secret(i).clone(), network.membership().clone());
        let (me, primary) = (network::client_id(i), membership.primary(View(0)));
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
