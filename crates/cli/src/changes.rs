//! What is worth a message between two reports of a replica. At most five times a second, so that
//! nobody who opens and closes links, say, fills the log. Views are told as they begin and end
//! (`crates/replica/src/threads/watch.rs`).

use std::io;
use tercio_replica::report::ReplicaReport;
use tracing::{debug, error, info, warn};

/// Says what changed from `old` to `new`.
pub(crate) fn tell(old: &ReplicaReport, new: &ReplicaReport) {
    progress(old, new);
    links(old, new);
    log(old, new);
    others(old, new);
}

/// Whether the last report could be written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    problem: Option<String>,
}

impl Written {
    /// Says when that changes, and when another reason keeps it from being written.
    pub(crate) fn tell(&mut self, written: io::Result<()>) {
        let problem = written.err().map(|error| error.to_string());
        match &problem {
            _ if problem == self.problem => {}
            Some(why) => {
                warn!("{why}; the replica goes on, and `tercio status` sees an old report")
            }
            None => info!("status.json is written again"),
        }
        self.problem = problem;
    }
}

fn progress(old: &ReplicaReport, new: &ReplicaReport) {
    let height = new.height;
    match (old.catching_up, new.catching_up) {
        (false, true) => info!(height, "catching up from height {height}"),
        (true, false) => info!(height, "caught up at height {height}"),
        _ => {}
    }
    match (old.busy, new.busy) {
        (false, true) => debug!("clients are refused as busy"),
        (true, false) => debug!("clients are served again"),
        _ => {}
    }
    match (&old.learning, &new.learning) {
        (None, Some(why)) => warn!("{why}"),
        (Some(_), None) => info!("takes part in votes again"),
        _ => {}
    }
}

fn links(old: &ReplicaReport, new: &ReplicaReport) {
    for peer in &new.peers {
        let before = old.peers.iter().find(|known| known.id == peer.id);
        if before.is_some_and(|before| before.linked) == peer.linked {
            continue;
        }
        let id = peer.id;
        match &peer.problem {
            _ if peer.linked => info!(peer = id, "replica {id} linked"),
            Some(why) => warn!(peer = id, "replica {id} lost: {why}"),
            None => warn!(peer = id, "replica {id} lost"),
        }
    }
}

fn log(old: &ReplicaReport, new: &ReplicaReport) {
    let (damaged, repaired) = (new.damaged_blocks, new.repaired_blocks);
    if damaged > old.damaged_blocks {
        warn!(
            blocks = damaged,
            "{damaged} block(s) of the log are damaged; others are asked for them"
        );
    }
    if repaired > old.repaired_blocks {
        info!(blocks = repaired, "{repaired} damaged block(s) put back since the start");
    }
}

fn others(old: &ReplicaReport, new: &ReplicaReport) {
    for other in new.divergences.iter().filter(|other| !old.divergences.contains(other)) {
        let (id, number, what) = (other.replica, other.number, &other.what);
        error!(
            peer = id,
            number, "replica {id} signed another state at number {number}: {what} differs"
        );
    }
    for (id, reason) in &new.accused {
        if old.accused.get(id) != Some(reason) {
            warn!(peer = id, reason, "replica {id} broke the protocol: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::said;
    use tercio_replica::report::{DivergenceReport, Peer};

    /// What is said, in lines.
    fn between(old: &ReplicaReport, new: &ReplicaReport) -> Vec<String> {
        said("debug", || tell(old, new)).0
    }

    #[test]
    fn each_change_is_told_once() {
        let old = ReplicaReport { height: 7, ..ReplicaReport::default() };
        let nothing = [""; 0];
        assert_eq!(between(&old, &ReplicaReport { height: 9, ..old.clone() }), nothing);
        let behind = ReplicaReport { catching_up: true, ..old.clone() };
        assert_eq!(between(&old, &behind), ["INFO catching up from height 7"]);
        assert_eq!(between(&behind, &old), ["INFO caught up at height 7"]);
        assert_eq!(between(&behind, &behind), nothing);
        let busy = ReplicaReport { busy: true, ..old.clone() };
        assert_eq!(between(&old, &busy), ["DEBUG clients are refused as busy"]);
        let learner = ReplicaReport { learning: Some("learner: waits".into()), ..old.clone() };
        assert_eq!(between(&old, &learner), ["WARN learner: waits"]);
        assert_eq!(between(&learner, &old), ["INFO takes part in votes again"]);
    }

    #[test]
    fn a_report_that_cannot_be_written_is_told_once() {
        let full = || Err(io::Error::new(io::ErrorKind::StorageFull, "cannot write: it is full"));
        let (lines, _) = said("info", || {
            let mut written = Written::default();
            for result in [Ok(()), full(), full(), Ok(()), Ok(()), full()] {
                written.tell(result);
            }
        });
        let full = "WARN cannot write: it is full; the replica goes on, and `tercio status` sees an \
                    old report";
        assert_eq!(lines, [full, "INFO status.json is written again", full]);
    }

    #[test]
    fn links_are_told() {
        let old = ReplicaReport::default();
        let peer = Peer { id: 2, linked: true, since_ms: 0, heard_ms: None, problem: None };
        let linked = ReplicaReport { peers: vec![peer.clone()], ..old.clone() };
        assert_eq!(between(&old, &linked), ["INFO replica 2 linked"]);
        let gone = Peer { linked: false, problem: Some("refused".into()), ..peer };
        let lost = ReplicaReport { peers: vec![gone], ..old.clone() };
        assert_eq!(between(&linked, &lost), ["WARN replica 2 lost: refused"]);
        assert_eq!(between(&old, &lost), [""; 0], "never linked is no loss");
        let (_, objects) = said("info", || tell(&old, &linked));
        assert_eq!(objects[0]["peer"], 2);
    }

    #[test]
    fn damage_and_faults_of_others_are_told() {
        let old = ReplicaReport::default();
        let damaged = ReplicaReport { damaged_blocks: 2, ..old.clone() };
        let repaired = ReplicaReport { repaired_blocks: 2, ..old.clone() };
        let line = "WARN 2 block(s) of the log are damaged; others are asked for them";
        assert_eq!(between(&old, &damaged), [line]);
        assert_eq!(
            between(&damaged, &repaired),
            ["INFO 2 damaged block(s) put back since the start"]
        );
        let what = "the state digest".to_owned();
        let divergence = DivergenceReport { replica: 3, number: 128, what, keys: vec![] };
        let diverged = ReplicaReport { divergences: vec![divergence], ..old.clone() };
        let line = "ERROR replica 3 signed another state at number 128: the state digest differs";
        assert_eq!(between(&old, &diverged), [line]);
        assert_eq!(between(&diverged, &diverged), [""; 0]);
        let accused = [(1, "equivocation".to_owned())].into();
        let accused = ReplicaReport { accused, ..old.clone() };
        assert_eq!(between(&old, &accused), ["WARN replica 1 broke the protocol: equivocation"]);
        assert_eq!(between(&accused, &accused), [""; 0]);
    }
}
