//! What is worth a line between two reports of a replica.

use tercio_replica::report::ReplicaReport;

/// What changed from `old` to `new`, in words, most important first.
pub(crate) fn between(old: &ReplicaReport, new: &ReplicaReport) -> Vec<String> {
    let mut lines = vec![];
    if new.changing && (!old.changing || old.view != new.view) {
        lines.push(format!("view change to {}, whose primary is {}", new.view, new.primary));
    } else if !new.changing && (old.changing || old.view != new.view) {
        lines.push(format!("view {} with primary {}", new.view, new.primary));
    }
    match (old.catching_up, new.catching_up) {
        (false, true) => lines.push(format!("catching up from height {}", new.height)),
        (true, false) => lines.push(format!("caught up at height {}", new.height)),
        _ => {}
    }
    for peer in &new.peers {
        let before = old.peers.iter().find(|known| known.id == peer.id);
        if before.is_some_and(|before| before.linked) == peer.linked {
            continue;
        }
        let problem = peer.problem.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let state = if peer.linked { "linked" } else { "lost" };
        lines.push(format!("replica {} {state}{problem}", peer.id));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_replica::report::Peer;

    #[test]
    fn each_change_is_told_once() {
        let old = ReplicaReport { height: 7, ..ReplicaReport::default() };
        assert_eq!(between(&old, &ReplicaReport { height: 9, ..old.clone() }), [""; 0]);
        let changing = ReplicaReport { changing: true, view: 1, primary: 1, ..old.clone() };
        assert_eq!(between(&old, &changing), ["view change to 1, whose primary is 1"]);
        assert_eq!(between(&changing, &changing), [""; 0]);
        let settled = ReplicaReport { changing: false, ..changing.clone() };
        assert_eq!(between(&changing, &settled), ["view 1 with primary 1"]);
        let behind = ReplicaReport { catching_up: true, ..old.clone() };
        assert_eq!(between(&old, &behind), ["catching up from height 7"]);
        assert_eq!(between(&behind, &old), ["caught up at height 7"]);
        let peer = Peer { id: 2, linked: true, since_ms: 0, heard_ms: None, problem: None };
        let linked = ReplicaReport { peers: vec![peer.clone()], ..old.clone() };
        assert_eq!(between(&old, &linked), ["replica 2 linked"]);
        let gone = Peer { linked: false, problem: Some("refused".into()), ..peer };
        let lost = ReplicaReport { peers: vec![gone], ..old.clone() };
        assert_eq!(between(&linked, &lost), ["replica 2 lost: refused"]);
        assert_eq!(between(&old, &lost), [""; 0], "never linked is no loss");
    }
}
