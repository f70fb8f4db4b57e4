//! How the replica stands, as metrics: the last report, row by row.

use crate::report::ReplicaReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The last report; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing(Arc<Mutex<Arc<ReplicaReport>>>);

impl Standing {
    pub(super) fn set(&self, report: Arc<ReplicaReport>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

type Report = ReplicaReport;

/// What a row takes out of a report.
enum Value {
    /// A number that only grows.
    Total(fn(&Report) -> u64),
    Gauge(fn(&Report) -> f64),
    /// A gauge that is there at times.
    Maybe(fn(&Report) -> Option<f64>),
    /// With a label: its name, and the numbers by its values.
    Totals(&'static str, fn(&Report) -> Vec<(String, u64)>),
    Gauges(&'static str, fn(&Report) -> Vec<(String, f64)>),
}

struct Row {
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    value: Value,
}

const fn row(name: &'static str, help: &'static str, value: Value) -> Row {
    Row { name, unit: None, help, value }
}

const fn seconds(name: &'static str, help: &'static str, value: Value) -> Row {
    Row { name, unit: Some(Unit::Seconds), help, value }
}

const fn bytes(name: &'static str, help: &'static str, value: Value) -> Row {
    Row { name, unit: Some(Unit::Bytes), help, value }
}

/// Milliseconds as seconds.
fn ms(millis: u64) -> f64 {
    millis as f64 / 1e3
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

use Value::{Gauge, Gauges, Maybe, Total, Totals};

const ROWS: [Row; 43] = [
    row("replica", "Which replica this is", Gauge(|r| f64::from(r.id))),
    seconds("written", "When this was, since 1970", Gauge(|r| ms(r.written_unix_ms))),
    row(
        "starting",
        "1 while the log is replayed at the start",
        Gauge(|r| flag(r.starting.is_some())),
    ),
    row("view", "The view", Gauge(|r| r.view as f64)),
    row("primary", "The primary of the view", Gauge(|r| f64::from(r.primary))),
    row("changing", "1 while a view change runs", Gauge(|r| flag(r.changing))),
    row("views_entered", "Views entered after the first", Total(|r| r.view_changes)),
    row("height", "The last executed height", Gauge(|r| r.height as f64)),
    row("start_height", "The height taken up from the disk", Gauge(|r| r.start_height as f64)),
    row("delivered", "The last ordered number", Gauge(|r| r.delivered as f64)),
    row("stable", "The number of the stable checkpoint", Gauge(|r| r.stable as f64)),
    row(
        "checkpoint_height",
        "The height of the last checkpoint",
        Gauge(|r| r.checkpoint_height as f64),
    ),
    seconds("progress_age", "Time since there was progress", Gauge(|r| ms(r.progress_ms))),
    row("executing", "Ordered numbers that are not executed yet", Gauge(|r| r.executing as f64)),
    seconds(
        "executing_age",
        "Time since execution finished something",
        Gauge(|r| ms(r.executing_ms)),
    ),
    seconds(
        "stalled_age",
        "Time since the links were read, where a queue is full",
        Gauge(|r| ms(r.stalled_ms)),
    ),
    row("pool", "Packages that wait to be ordered", Gauge(|r| r.pending as f64)),
    seconds(
        "pool_age",
        "Time that the oldest of them has waited",
        Maybe(|r| r.oldest_pending_ms.map(ms)),
    ),
    row(
        "queue",
        "Entries in the queue before a stage",
        Gauges("stage", |r| {
            r.queues.iter().map(|(stage, length)| (stage.clone(), *length as f64)).collect()
        }),
    ),
    row("busy", "1 while clients are refused as busy", Gauge(|r| flag(r.busy))),
    row("catching_up", "1 while blocks or state are fetched", Gauge(|r| flag(r.catching_up))),
    row(
        "learning",
        "1 while it does not vote, since its log was lost",
        Gauge(|r| flag(r.learning.is_some())),
    ),
    seconds(
        "clock_behind",
        "How far this clock is behind the primary's, as of the last proposal",
        Maybe(|r| r.clock.as_ref().map(|clock| clock.ahead_ms as f64 / 1e3)),
    ),
    bytes("fetched_block", "Bytes of missed blocks that came", Total(|r| r.fetched_block_bytes)),
    bytes(
        "fetched_state",
        "Bytes of the last fetched state that came",
        Gauge(|r| r.transfer.as_ref().map_or(0.0, |transfer| transfer.bytes as f64)),
    ),
    row("divergent", "Replicas that signed another state", Gauge(|r| r.divergences.len() as f64)),
    row("damaged_blocks", "Damaged blocks of the log", Gauge(|r| r.damaged_blocks as f64)),
    row("fetched_copies", "Copies that came for damaged blocks", Total(|r| r.fetched_blocks)),
    row("repaired_blocks", "Damaged blocks that were put back", Total(|r| r.repaired_blocks)),
    bytes("scrubbed", "Bytes of the log that were scrubbed", Total(|r| r.scrubbed_bytes)),
    row("signatures", "Signatures that were checked", Total(|r| r.signatures)),
    row("signature_batches", "Batches in which they were", Total(|r| r.signature_batches)),
    row("signatures_cached", "Signatures found good before", Total(|r| r.signatures_spared)),
    row(
        "peer_linked",
        "1 while there is a link to the replica",
        Gauges("peer", |r| {
            r.peers.iter().map(|peer| (peer.id.to_string(), flag(peer.linked))).collect()
        }),
    ),
    seconds(
        "peer_link_age",
        "Time that it has been so",
        Gauges("peer", |r| {
            r.peers.iter().map(|peer| (peer.id.to_string(), ms(peer.since_ms))).collect()
        }),
    ),
    seconds(
        "peer_heard_age",
        "Time since a frame came from the replica",
        Gauges("peer", |r| {
            let heard = r.peers.iter().filter_map(|peer| Some((peer.id, peer.heard_ms?)));
            heard.map(|(id, age)| (id.to_string(), ms(age))).collect()
        }),
    ),
    row(
        "links",
        "Replicas to which there is a link",
        Gauge(|r| r.peers.iter().filter(|peer| peer.linked).count() as f64),
    ),
    row(
        "dropped",
        "What was dropped or lost, by reason",
        Totals("reason", |r| {
            r.dropped.iter().map(|(reason, count)| (reason.clone(), *count)).collect()
        }),
    ),
    bytes("memory", "Resident memory", Gauge(|r| r.rss_mb * f64::from(1 << 20))),
    bytes(
        "disk",
        "Bytes on the disk, by directory",
        Gauges("directory", |r| {
            r.disk_bytes.iter().map(|(name, bytes)| (name.clone(), *bytes as f64)).collect()
        }),
    ),
    row(
        "replayed",
        "Blocks of the log that were replayed at the start",
        Gauge(|r| r.starting.as_ref().map_or(0.0, |starting| starting.replayed as f64)),
    ),
    row(
        "to_replay",
        "Blocks of the log to be replayed at the start",
        Gauge(|r| r.starting.as_ref().map_or(0.0, |starting| starting.blocks as f64)),
    ),
    seconds(
        "idle_interval",
        "How often an idle replica says where it stands",
        Gauge(|r| ms(r.idle_interval_ms)),
    ),
];

impl Value {
    fn kind(&self) -> MetricType {
        match self {
            Total(_) | Totals(..) => MetricType::Counter,
            Gauge(_) | Maybe(_) | Gauges(..) => MetricType::Gauge,
        }
    }

    fn write(&self, report: &Report, mut to: MetricEncoder) -> fmt::Result {
        match self {
            Total(of) => to.encode_counter::<NoLabelSet, _, u64>(&of(report), None),
            Gauge(of) => to.encode_gauge(&of(report)),
            Maybe(of) => of(report).map_or(Ok(()), |value| to.encode_gauge(&value)),
            Totals(label, of) => of(report).into_iter().try_for_each(|(value, count)| {
                let label = [(*label, value.as_str())];
                let mut to = to.encode_family(&label)?;
                to.encode_counter::<NoLabelSet, _, u64>(&count, None)
            }),
            Gauges(label, of) => of(report).into_iter().try_for_each(|(value, number)| {
                to.encode_family(&[(*label, value.as_str())])?.encode_gauge(&number)
            }),
        }
    }
}

impl Collector for Standing {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let report = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ROWS.iter().try_for_each(|row| {
            let kind = row.value.kind();
            let metric = encoder.encode_descriptor(row.name, row.help, row.unit.as_ref(), kind)?;
            row.value.write(&report, metric)
        })
    }
}
