//! What the reports of a network's replica processes say when they are taken together.
//!
//! A report is up to 200 ms old, and each replica writes its own: none of them says alone how the
//! network stands.

use crate::poll_until;
use crate::process::ReplicaProcess;
use std::time::Duration;
use tercio_replica::report::ReplicaReport;

/// How long replicas may take to come to what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until all replicas stand at one height, with a checkpoint there, and gives what they say.
///
/// # Errors
/// When one ends, or they do not come to one height, in words.
pub fn settle(replicas: &mut [ReplicaProcess]) -> Result<Vec<ReplicaReport>, String> {
    let settled = poll_until(PATIENCE, || {
        for replica in replicas.iter_mut() {
            if let Err(ended) = replica.check() {
                return Some(Err(ended.to_string()));
            }
        }
        let reports: Vec<_> = replicas.iter().filter_map(ReplicaProcess::report).collect();
        (reports.len() == replicas.len() && standing(&reports)).then_some(Ok(reports))
    });
    settled.unwrap_or_else(|| {
        let heights: Vec<_> = (replicas.iter())
            .map(|r| match r.report() {
                Some(report) => format!(
                    "replica {} at height {} (checkpoint {})",
                    report.id, report.height, report.checkpoint_height
                ),
                None => format!("replica {} silent", r.id()),
            })
            .collect();
        Err(format!(
            "the replicas did not come to one height within {} s: {}",
            PATIENCE.as_secs(),
            heights.join(", ")
        ))
    })
}

/// Whether all are at one height that a checkpoint of theirs covers.
fn standing(reports: &[ReplicaReport]) -> bool {
    let first = &reports[0];
    reports.iter().all(|r| {
        r.height == first.height
            && r.checkpoint_height == r.height
            && r.checkpoint_seq == first.checkpoint_seq
    })
}

/// When each replica wrote its last report, in milliseconds since 1970; 0 for none.
#[must_use]
pub fn written(replicas: &[ReplicaProcess]) -> Vec<u64> {
    let written = |replica: &ReplicaProcess| replica.report().map_or(0, |r| r.written_unix_ms);
    replicas.iter().map(written).collect()
}

/// Waits until a quorum of the replicas says that it is in one view, and gives what one of them
/// says. Only reports that were written `after` that, for each replica, count: after a change of
/// view, older ones name a primary that is none any more.
///
/// # Errors
/// When they do not come to one view, in words.
pub fn leader(replicas: &[ReplicaProcess], after: &[u64]) -> Result<ReplicaReport, String> {
    let led = poll_until(PATIENCE, || {
        let newer = replicas.iter().zip(after).map(|(replica, after)| {
            replica.report().filter(|report| report.written_unix_ms > *after)
        });
        of_one_view(newer.collect())
    });
    led.ok_or_else(|| format!("no quorum was in one view within {} s", PATIENCE.as_secs()))
}

/// A report of the view that a quorum is in, of one report for each replica.
fn of_one_view(reports: Vec<Option<ReplicaReport>>) -> Option<ReplicaReport> {
    let quorum = 2 * reports.len() / 3 + 1;
    let entered: Vec<_> = reports.into_iter().flatten().filter(|r| !r.changing).collect();
    let with = |view| entered.iter().filter(|report| report.view == view).count();
    entered.iter().find(|report| with(report.view) >= quorum).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_who_leads_a_quorum() {
        let at = |view: u64, changing| {
            let primary = (view % 4) as u16;
            Some(ReplicaReport { view, primary, changing, ..ReplicaReport::default() })
        };
        let led = |reports: [Option<ReplicaReport>; 4]| {
            of_one_view(reports.into()).map(|report| report.primary)
        };
        let (old, new) = (at(1, false), at(2, false));
        assert_eq!(led([old.clone(), old.clone(), old.clone(), None]), Some(1));
        // One that is ahead of all others does not lead them.
        assert_eq!(led([old.clone(), new.clone(), old.clone(), old.clone()]), Some(1));
        assert_eq!(led([old.clone(), new.clone(), new.clone(), old.clone()]), None);
        assert_eq!(led([None, new.clone(), new.clone(), None]), None, "half is no quorum");
        assert_eq!(led([old, new.clone(), new.clone(), at(2, true)]), None, "not entered yet");
        assert_eq!(led([None, new.clone(), new.clone(), new]), Some(2));
    }
}
