//! What a replica counts and measures, by name.
//!
//! One registry has all of it. What passes the borders of the stages is counted as it happens, by
//! the probe of the threads ([`crate::probe`]); how the replica stands is the last
//! [`ReplicaReport`], the same value that is written as `status.json`. So the two never say
//! different things. `docs/metrics.md` has every name; a test holds it to the registry.

mod histogram;
pub(crate) mod http;
mod standing;

pub use histogram::Times;

use crate::report::ReplicaReport;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use standing::Standing;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tercio_consensus::LeaveCause;

/// A label and its value.
type Label = [(&'static str, &'static str); 1];

/// What a replica's threads count as they go on.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that were ordered.
    pub operations: Counter,
    /// Packages that were ordered.
    pub packages: Counter,
    /// Batches that were ordered, null requests not among them.
    pub batches: Counter,
    /// Frames that came from clients.
    pub client_frames: Counter,
    /// Frames that came from replicas.
    pub replica_frames: Counter,
    /// Bytes of all of them.
    pub received_bytes: Counter,
    /// Views that the replica left, by cause.
    left: Family<Label, Counter>,
    /// The last of the causes.
    last_cause: Arc<Mutex<Option<LeaveCause>>>,
    /// Reports that could not be written.
    pub unwritten_reports: Counter,
    /// What waits in queues.
    pub queues: Queues,
}

impl Counts {
    /// The replica left a view.
    pub fn leave(&self, cause: LeaveCause) {
        self.left.get_or_create(&[("cause", cause.reason())]).inc();
        *self.last_cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
    }

    /// Why it left a view last.
    #[must_use]
    pub fn last_cause(&self) -> Option<LeaveCause> {
        *self.last_cause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many entries wait in queues between threads, as of the last look.
#[derive(Clone, Debug, Default)]
pub struct Queues(Arc<[AtomicU64; Self::NAMES.len()]>);

impl Queues {
    /// Before which stage each is.
    pub const NAMES: [&'static str; 3] = ["execution", "log", "order"];

    /// Takes note of their lengths, in the order of [`Self::NAMES`].
    pub fn note(&self, lengths: [usize; Self::NAMES.len()]) {
        for (queue, length) in self.0.iter().zip(lengths) {
            queue.store(length as u64, Ordering::Relaxed);
        }
    }

    /// Each with its length.
    pub fn lengths(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let lengths = self.0.iter().map(|queue| queue.load(Ordering::Relaxed));
        Self::NAMES.into_iter().zip(lengths)
    }
}

/// A part of the way of a request whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A client's package, from its frame until it is verified.
    Verify,
    /// A client's package, from its frame until it is ordered.
    Order,
    /// A batch, from its proposal, or its acceptance here, until a quorum accepted it.
    Prepare,
    /// From there until it is ordered.
    Commit,
    /// A record of the write-ahead log, until it is durable.
    Persist,
    /// A batch, from when it is ordered until it is executed.
    Execute,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Verify, Self::Order, Self::Prepare, Self::Commit, Self::Persist, Self::Execute];

    /// Its name as a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Order => "order",
            Self::Prepare => "prepare",
            Self::Commit => "commit",
            Self::Persist => "persist",
            Self::Execute => "execute",
        }
    }
}

/// A histogram for each stage.
#[derive(Clone, Debug, Default)]
pub struct StageTimes([Times; Stage::ALL.len()]);

impl StageTimes {
    /// That of a stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> &Times {
        &self.0[stage as usize]
    }
}

impl EncodeMetric for StageTimes {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        for stage in Stage::ALL {
            self.of(stage).write(encoder.encode_family(&[("stage", stage.name())])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Times that are measured when the replica has a metrics address.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Of each stage. One thread observes, the one that has the links.
    pub stages: StageTimes,
    /// A client's package, from its frame until its replies are on their way. The same thread.
    pub request: Times,
    /// Each fsync of the log's thread.
    pub fsync: Times,
}

/// The registry, and what is in it.
#[derive(Debug)]
pub struct Metrics {
    /// Counted at all times.
    pub counts: Counts,
    /// Measured when somebody may ask for it.
    pub measured: Option<Measured>,
    standing: Standing,
    registry: Registry,
}

impl Metrics {
    /// Everything at zero; `timed` says whether times are measured.
    #[must_use]
    pub fn new(timed: bool) -> Self {
        let (counts, measured) = (Counts::default(), timed.then(Measured::default));
        let standing = Standing::default();
        let mut registry = Registry::with_prefix("tercio");
        for (name, help, counter) in [
            ("operations", "Operations that were ordered", &counts.operations),
            ("packages", "Packages of operations that were ordered", &counts.packages),
            ("batches", "Batches that were ordered", &counts.batches),
            ("client_frames", "Frames that came from clients", &counts.client_frames),
            ("replica_frames", "Frames that came from replicas", &counts.replica_frames),
            (
                "unwritten_reports",
                "Reports (status.json) that could not be written",
                &counts.unwritten_reports,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        let received = counts.received_bytes.clone();
        let help = "Bytes of frames that came";
        registry.register_with_unit("received", help, Unit::Bytes, received);
        // All from the beginning, so that the first of a kind is an increase, too.
        for cause in LeaveCause::ALL {
            drop(counts.left.get_or_create(&[("cause", cause.reason())]));
        }
        let help = "Views that the replica left, by cause";
        registry.register("views_left", help, counts.left.clone());
        if let Some(Measured { stages, request, fsync }) = &measured {
            let help = "Time that a stage takes";
            registry.register_with_unit("stage", help, Unit::Seconds, stages.clone());
            let help = "Time from a client's frame until its replies are on their way";
            registry.register_with_unit("request", help, Unit::Seconds, request.clone());
            let help = "Time that an fsync of the log takes";
            registry.register_with_unit("fsync", help, Unit::Seconds, fsync.clone());
        }
        registry.register_collector(Box::new(standing.clone()));
        Self { counts, measured, standing, registry }
    }

    /// Takes note of how the replica stands.
    pub fn note(&self, report: Arc<ReplicaReport>) {
        self.standing.set(report);
    }

    /// All of it as OpenMetrics text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}
