//! `bench fault --closed`: what becomes of the throughput under full load.
//!
//! Clients keep a number of packages under way, all together. The network is watched healthy; then the
//! replica goes, and *during* lasts until the others say that they are in a view whose primary lives,
//! and a second more; what comes after it is held against what was before. The machine has more for
//! each of the replicas that are left, so *after* may well be above *before*.

use super::{Fault, Kind, strike};
use crate::Machine;
use crate::figures::{LatencyUs, Spread, median, round};
use crate::load::{Moment, Outcome, PIECE, Pace, Phase, Then};
use crate::setup::{BenchError, Running, Settings, WARM_UP, put_on};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tercio_network::Replicas;

/// Against a hang only: how long the others may take to be in another view.
const PATIENCE: Duration = Duration::from_secs(60);
/// From when on it counts: the second second after the view change.
const SETTLING: Duration = Duration::from_secs(1);

/// How a closed loop fared in a stretch of time.
#[derive(Clone, Debug, Serialize)]
pub struct Stretch {
    /// Requests per second that were executed and answered: the median of the seconds, and the least and
    /// the greatest; absent where there is no whole second.
    pub throughput_rps: Option<f64>,
    /// The least second and the greatest.
    pub spread_rps: Option<Spread>,
    /// Each second.
    pub seconds_rps: Vec<f64>,
    /// From the sending of a request to its result, of those that were sent in this stretch.
    pub latency_us: LatencyUs,
    /// Packages that were retransmitted on time-out, or because a link broke.
    pub resent_packages: u64,
    /// The longest time in which no result came to any client.
    pub longest_gap_ms: f64,
    /// How long the stretch was.
    pub seconds: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ClosedReport {
    /// `dead-primary`, `dead-backup` or `halted-backup`.
    pub kind: &'static str,
    /// Which replica it was.
    pub replica: u16,
    /// Packages under way, of all clients.
    pub under_way: usize,
    /// Before.
    pub before: Stretch,
    /// From the moment on at which the replica went, to a second after the view change.
    pub during: Stretch,
    /// From then on.
    pub after: Stretch,
    /// The median second after over that before.
    pub ratio: Option<f64>,
    /// The longest time without a result, once the replica had gone.
    pub gap_ms: f64,
    /// From the moment at which the replica went to that at which the others said that they were in
    /// another view; they say so five times a second. Absent where no view had to change.
    pub view_change_ms: Option<f64>,
    /// How often views changed.
    pub view_changes: u64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// Measures. The replicas are processes of `program`; their homes are made in `dir`.
///
/// # Errors
/// When the network fails, does not reach another view, or an operation is not executed.
pub fn run(
    fault: &Fault,
    program: &Path,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<ClosedReport, BenchError> {
    let setup = &fault.setup;
    let (mut running, ceiling) = setup.start(Some(program), dir, said)?;
    let (replica, view) = fault.whom(&running);
    let pace = Pace::Closed;
    let phases = [WARM_UP + SETTLING, fault.measure, PATIENCE, fault.measure];
    let phases = phases.map(|length| Phase { pace, length }).to_vec();
    let (mut struck, mut changed) = (Ok(()), None);
    let Running { replicas, clients, .. } = &mut running;
    let outcomes =
        put_on(replicas, clients, &setup.plan(phases), |moment, replicas| match moment {
            Moment::Begin(1) => {
                said("full load, healthy");
                Then::GoOn
            }
            Moment::Begin(2) => {
                said(&format!("full load, without replica {replica}"));
                struck = strike(fault.kind, replicas, replica);
                Then::GoOn
            }
            Moment::Tick { phase: 2, since } => {
                if changed.is_none()
                    && (fault.kind != Kind::DeadPrimary || all_left(replicas, view))
                {
                    changed = Some(since);
                }
                match changed {
                    Some(at) if since >= at + SETTLING => Then::EndPhase,
                    _ => Then::GoOn,
                }
            }
            _ => Then::GoOn,
        })?;
    struck.map_err(|error| BenchError::Files { id: replica, error })?;
    let Some(changed) = changed else {
        let what = format!("without replica {replica}, a view with another primary did not begin");
        return Err(BenchError::Hangs { what, within: PATIENCE });
    };
    let view_changes = running.replicas.reports().iter().map(|report| report.view_changes).max();
    fault.end(running, replica)?;
    let [before, during, after] = [1, 2, 3].map(|phase| Stretch::of(&outcomes[phase]));
    let ratio = after.throughput_rps.zip(before.throughput_rps);
    Ok(ClosedReport {
        kind: fault.kind.name(),
        replica,
        under_way: setup.outstanding * setup.spec.clients,
        ratio: ratio.filter(|(_, before)| *before > 0.0).map(|(a, b)| round(a / b, 3)),
        gap_ms: during.longest_gap_ms.max(after.longest_gap_ms),
        view_change_ms: (fault.kind == Kind::DeadPrimary).then(|| ms(changed)),
        before,
        during,
        after,
        view_changes: view_changes.unwrap_or(0),
        settings: setup.settings(true, "closed"),
        machine: ceiling.machine,
    })
}

/// How so many packages under way are shared among clients: how many clients, unless that is given, and
/// how many each has.
#[must_use]
pub fn share(under_way: u16, clients: Option<u16>) -> (u16, u16) {
    let window = tercio_types::WINDOW as u16;
    let clients = clients.unwrap_or_else(|| under_way.div_ceil(window).max(2));
    (clients, under_way.div_ceil(clients).clamp(1, window))
}

/// Whether all that are left are in a view after this one.
fn all_left(replicas: &Replicas, view: u64) -> bool {
    let reports = replicas.reports();
    !reports.is_empty() && reports.iter().all(|report| report.view > view && !report.changing)
}

fn ms(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1e3, 1)
}

/// What came in each whole second, per second.
fn by_second(outcome: &Outcome) -> Vec<f64> {
    let whole = (outcome.elapsed.as_secs_f64() / PIECE.as_secs_f64()).round() as usize;
    let in_a_second = (Duration::from_secs(1).as_nanos() / PIECE.as_nanos()) as usize;
    let pieces = &outcome.pieces[..whole.min(outcome.pieces.len())];
    let seconds = pieces.chunks_exact(in_a_second);
    seconds.map(|pieces| pieces.iter().map(|piece| piece.completed).sum::<u64>() as f64).collect()
}

impl Stretch {
    fn of(outcome: &Outcome) -> Self {
        let seconds = by_second(outcome);
        Self {
            throughput_rps: (!seconds.is_empty()).then(|| round(median(&seconds), 1)),
            spread_rps: (!seconds.is_empty()).then(|| Spread::of(&seconds)),
            seconds_rps: seconds,
            latency_us: outcome.latency.latency(),
            resent_packages: outcome.resent_packages,
            longest_gap_ms: ms(outcome.longest_gap),
            seconds: round(outcome.elapsed.as_secs_f64(), 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Piece;

    #[test]
    fn packages_are_shared_among_as_many_clients_as_it_takes() {
        for (under_way, shared) in
            [(1, (2, 1)), (512, (2, 256)), (2048, (2, 1024)), (8192, (8, 1024)), (3000, (3, 1000))]
        {
            assert_eq!(share(under_way, None), shared);
        }
        assert_eq!(share(8192, Some(16)), (16, 512));
        assert_eq!(share(8192, Some(1)), (1, 1024), "no client may have more");
    }

    #[test]
    fn the_throughput_is_that_of_the_middle_second() {
        let second = |rps: u64| [Piece { completed: rps / 10, ..Piece::default() }; 10];
        let pieces = [second(100), second(300), second(200)].concat();
        let elapsed = Duration::from_millis(3000);
        let outcome = Outcome { pieces, elapsed, ..Outcome::default() };
        let stretch = Stretch::of(&outcome);
        assert_eq!(stretch.seconds_rps, [100.0, 300.0, 200.0]);
        assert_eq!(stretch.throughput_rps, Some(200.0));
        // What is no whole second does not count, nor what came after the end.
        let outcome = Outcome { elapsed: Duration::from_millis(2800), ..outcome };
        let stretch = Stretch::of(&outcome);
        assert_eq!((stretch.seconds_rps.len(), stretch.throughput_rps), (2, Some(200.0)));
        assert_eq!(Stretch::of(&Outcome::default()).throughput_rps, None);
    }
}
