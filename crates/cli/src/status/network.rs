//! What the states of its replicas mean for a network, in sentences.

use super::seconds;
use serde::Serialize;
use std::collections::BTreeMap;
use tercio_replica::report::{DivergenceReport, KeyRange, ReplicaReport};
use tercio_types::Membership;

/// With work to do, so long without progress is worth a sentence, in milliseconds.
const STALL_MS: u64 = 1000;

/// The most ranges of keys that a sentence names.
const RANGES: usize = 4;

/// The phases of a transfer of state that is over.
const ENDED: [&str; 3] = ["done", "blocks", "nobody"];

/// What is known of a replica.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum State {
    /// Its process answers.
    Up(Box<ReplicaReport>),
    /// Its process is there and says nothing.
    Silent { since_ms: u64, pid: u32, height: u64 },
    /// Its process is gone.
    Down { since_ms: u64, height: u64 },
    /// Its home is here, and it never ran.
    NeverRan,
    /// It runs elsewhere; some replica here has a link to it.
    Linked { since_ms: u64 },
    /// It should run elsewhere; no replica here has a link to it.
    Unlinked { since_ms: u64, problem: Option<String> },
}

impl State {
    /// The state of a replica without a home here, as those that have one see it.
    pub(super) fn elsewhere<'a>(id: u16, here: impl Iterator<Item = &'a Self>) -> Self {
        let mut state = Self::Unlinked { since_ms: 0, problem: None };
        for report in here.filter_map(Self::report) {
            let Some(peer) = report.peers.iter().find(|peer| peer.id == id) else { continue };
            if peer.linked {
                return Self::Linked { since_ms: peer.since_ms };
            }
            if !matches!(&state, Self::Unlinked { problem: Some(_), .. }) {
                state = Self::Unlinked { since_ms: peer.since_ms, problem: peer.problem.clone() };
            }
        }
        state
    }

    pub(super) fn report(&self) -> Option<&ReplicaReport> {
        match self {
            Self::Up(report) => Some(report),
            _ => None,
        }
    }

    fn answers(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Linked { .. })
    }

    /// What it does, in a few words.
    pub(super) fn role(&self) -> String {
        match self {
            Self::Up(report) => match &**report {
                ReplicaReport { learning: Some(learning), .. } => learning.clone(),
                ReplicaReport { catching_up: true, transfer: Some(transfer), .. }
                    if !ENDED.contains(&transfer.phase.as_str()) =>
                {
                    let mb = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                    let of = match transfer.state_bytes {
                        0 => String::new(),
                        all => format!(" of {:.0}", mb(all)),
                    };
                    let (phase, height) = (&transfer.phase, transfer.height);
                    format!("{phase} state of height {height}, {:.0}{of} MB", mb(transfer.bytes))
                }
                ReplicaReport { catching_up: true, .. } => "catching up".into(),
                ReplicaReport { changing: true, .. } => "changing".into(),
                ReplicaReport { busy: true, .. } => "busy".into(),
                report if report.primary == report.id => "primary".into(),
                _ => "backup".into(),
            },
            Self::Silent { since_ms, pid, .. } => {
                format!("does not answer since {} (process {pid} is there)", seconds(*since_ms))
            }
            Self::Down { since_ms, height } => {
                format!("is down since {} (at height {height})", seconds(*since_ms))
            }
            Self::NeverRan => "never ran".into(),
            Self::Linked { since_ms } => format!("elsewhere, linked since {}", seconds(*since_ms)),
            Self::Unlinked { since_ms, problem } => {
                let why = problem.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                format!("elsewhere, no link since {}{why}", seconds(*since_ms))
            }
        }
    }
}

/// The network as a whole.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Network {
    /// How many replicas it has, how many of them may fail, and how many must work.
    pub(super) n: usize,
    pub(super) f: usize,
    pub(super) quorum: usize,
    /// How many answer.
    pub(super) answering: usize,
    /// Whether it can order operations: a quorum answers, and nothing stalls.
    pub(super) works: bool,
    pub(super) sentences: Vec<String>,
}

/// `1`, `1 and 2`, `1, 2 and 3`.
fn list(ids: &[u16]) -> String {
    let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}

fn replicas(ids: &[u16]) -> String {
    format!("replica{} {}", if ids.len() == 1 { "" } else { "s" }, list(ids))
}

impl Network {
    pub(super) fn of(states: &BTreeMap<u16, State>, membership: &Membership) -> Self {
        let (n, f, quorum) = (membership.n(), membership.f(), membership.quorum());
        let missing: Vec<u16> =
            states.iter().filter(|(_, state)| !state.answers()).map(|(id, _)| *id).collect();
        let answering = n - missing.len();
        let up: Vec<&ReplicaReport> = states.values().filter_map(State::report).collect();

        let mut sentences = vec![];
        for id in &missing {
            sentences.push(format!("replica {id} {}", states[id].role()));
        }
        if answering < quorum {
            sentences.push(format!(
                "the network stands: {answering} of {n} replicas answer and {quorum} are needed; \
                 start {}",
                replicas(&missing)
            ));
        } else if answering == quorum && f > 0 {
            sentences.push("no faults to spare: one more failure stops the network".into());
        }
        let stall = stall(&up);
        let works = answering >= quorum && stall.is_none();
        sentences.extend(stall);
        sentences.extend(link_problems(&up, &missing));
        sentences.extend(bad_sources(&up));
        sentences.extend(divergences(&up));
        sentences.extend(disagreement(&up));
        if sentences.is_empty() {
            sentences.push(match f {
                0 => format!("all is well: {n} of {n} replicas answer, none may fail"),
                f => format!("all is well: {n} of {n} replicas answer, {f} may fail"),
            });
        }
        Self { n, f, quorum, answering, works, sentences }
    }
}

/// Why nothing goes on though there is something to do.
fn stall(up: &[&ReplicaReport]) -> Option<String> {
    // Whoever got furthest says how long it has been.
    let since = up.iter().map(|report| report.progress_ms).min()?;
    let work = up.iter().map(|report| report.pending).max().unwrap_or(0);
    let changing = up.iter().any(|report| report.changing);
    if since < STALL_MS || work == 0 && !changing {
        return None;
    }
    // The primary knows best whom it waits for, unless it is the one that is waited for.
    let waits = |report: &&&ReplicaReport| report.waiting.is_some();
    let by = (up.iter().find(|report| report.primary == report.id && report.waiting.is_some()))
        .or_else(|| up.iter().filter(waits).max_by_key(|report| (report.view, report.delivered)));
    let why = match by.and_then(|report| report.waiting.as_ref()) {
        Some(waiting) => {
            let plural = if waiting.missing.len() == 1 { "" } else { "s" };
            format!("waiting for the {}{plural} of {}", waiting.message, list(&waiting.missing))
        }
        None => format!("{work} package(s) wait"),
    };
    Some(format!("no progress for {}: {why}", seconds(since)))
}

/// Replicas that run and have no link, and why.
fn link_problems(up: &[&ReplicaReport], missing: &[u16]) -> Vec<String> {
    let mut by_problem: BTreeMap<(u16, String), Vec<u16>> = BTreeMap::new();
    for report in up {
        for peer in report.peers.iter().filter(|peer| !peer.linked && !missing.contains(&peer.id)) {
            let why = peer.problem.clone().unwrap_or_else(|| "nobody has tried yet".into());
            by_problem.entry((peer.id, why)).or_default().push(report.id);
        }
    }
    let sentence = |((id, why), ids): ((u16, String), Vec<u16>)| {
        format!(
            "{} {} no link to replica {id}: {why}",
            replicas(&ids),
            if ids.len() == 1 { "has" } else { "have" }
        )
    };
    by_problem.into_iter().map(sentence).collect()
}

/// Replicas that lied or stalled when another fetched state from them.
fn bad_sources(up: &[&ReplicaReport]) -> Vec<String> {
    let mut sentences = vec![];
    for report in up {
        for dropped in report.transfer.iter().flat_map(|transfer| &transfer.dropped) {
            sentences.push(format!(
                "replica {} gave replica {} no good state: {}",
                dropped.replica, report.id, dropped.reason
            ));
        }
    }
    sentences
}

/// Replicas that signed another state than those that report it, and in which keys it differs.
fn divergences(up: &[&ReplicaReport]) -> Vec<String> {
    let mut by_text: BTreeMap<(u16, String), Vec<u16>> = BTreeMap::new();
    for report in up {
        for divergence in &report.divergences {
            let DivergenceReport { replica, number, what, keys } = divergence;
            let range = |KeyRange { from, to }: &KeyRange| match (from, to) {
                (None, None) => "all of them".to_owned(),
                (Some(from), None) => format!("from {from} on"),
                (None, Some(to)) => format!("below {to}"),
                (Some(from), Some(to)) => format!("from {from} to below {to}"),
            };
            let more = if keys.len() > RANGES { ", .." } else { "" };
            let named: Vec<String> = keys.iter().take(RANGES).map(range).collect();
            let keys = match named.is_empty() {
                true => "it has not shown in which keys".to_owned(),
                false => format!("keys {}{more}", named.join(", ")),
            };
            let text = format!("differs at number {number} in {what}: {keys}");
            by_text.entry((*replica, text)).or_default().push(report.id);
        }
    }
    let sentence = |((id, text), by): ((u16, String), Vec<u16>)| {
        format!("replica {id} signed a state that {text} (compared by {})", replicas(&by))
    };
    by_text.into_iter().map(sentence).collect()
}

/// Two states at one number.
fn disagreement(up: &[&ReplicaReport]) -> Vec<String> {
    let mut sentences = vec![];
    for (i, a) in up.iter().enumerate() {
        for b in &up[i + 1..] {
            let same = a.checkpoint_seq == b.checkpoint_seq && a.checkpoint_height > 0;
            if same && a.state_digest != b.state_digest {
                sentences.push(format!(
                    "replicas {} and {} DISAGREE on the state at number {}: one of them computed \
                     wrongly or lies; compare their logs with tercio audit",
                    a.id, b.id, a.checkpoint_seq
                ));
            }
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_replica::report::{DroppedReport, Peer, TransferReport, Waiting};

    fn up(id: u16) -> ReplicaReport {
        ReplicaReport { id, checkpoint_height: 1, ..ReplicaReport::default() }
    }

    fn network(states: Vec<State>) -> Network {
        let key = |i: usize| tercio_types::PublicKey::new(&[i as u8 + 1; 32]).unwrap();
        let member = |i: usize| tercio_types::Member { key: key(i), address: i.to_string() };
        let members = (0..states.len()).map(member).collect();
        let (chain, epoch) = (tercio_types::ChainId([0; 32]), tercio_types::Epoch(0));
        let (suite, model) = (tercio_types::Suite::default(), tercio_types::FaultModel::Byzantine);
        let membership =
            Membership::new(chain, epoch, suite, model, members, BTreeMap::new()).unwrap();
        Network::of(&(0..).zip(states).collect(), &membership)
    }

    fn state(report: ReplicaReport) -> State {
        State::Up(Box::new(report))
    }

    #[test]
    fn a_whole_network_is_well() {
        let whole = network((0..4).map(|id| state(up(id))).collect());
        assert_eq!(whole.sentences, ["all is well: 4 of 4 replicas answer, 1 may fail"]);
        assert!(whole.works);
    }

    #[test]
    fn missing_replicas_are_named_with_what_that_means() {
        let down = State::Down { since_ms: 12_345, height: 7 };
        let one = network(vec![state(up(0)), state(up(1)), down.clone(), state(up(3))]);
        assert_eq!(
            one.sentences,
            [
                "replica 2 is down since 12 s (at height 7)",
                "no faults to spare: one more failure stops the network"
            ]
        );
        assert!(one.works);
        let silent = State::Silent { since_ms: 3000, pid: 77, height: 7 };
        let two = network(vec![state(up(0)), state(up(1)), down, silent]);
        assert_eq!(
            two.sentences[1..],
            [
                "replica 3 does not answer since 3.0 s (process 77 is there)",
                "the network stands: 2 of 4 replicas answer and 3 are needed; start replicas 2 and 3"
            ]
        );
        assert!(!two.works);
    }

    #[test]
    fn a_stall_says_what_is_waited_for() {
        let waiting = |message: &str, missing: &[u16]| {
            Some(Waiting { message: message.into(), missing: missing.to_vec() })
        };
        let stalled = |id| ReplicaReport { pending: 1, progress_ms: 3000, ..up(id) };
        let primary = ReplicaReport { waiting: waiting("PREPARE", &[2, 3]), ..stalled(0) };
        let backup = |id| ReplicaReport { waiting: waiting("PREPARE", &[0, 2, 3]), ..stalled(id) };
        let all = vec![state(primary), state(backup(1)), state(stalled(2)), state(stalled(3))];
        let stall = network(all.clone());
        assert_eq!(stall.sentences, ["no progress for 3.0 s: waiting for the PREPAREs of 2 and 3"]);
        assert!(!stall.works);
        // An idle network makes no progress, and nobody minds.
        let idle = |id| state(ReplicaReport { progress_ms: 60_000, ..up(id) });
        assert!(network((0..4).map(idle).collect()).works);
        // A replica that is behind does not make a stall.
        let mut others = all;
        others[2] = state(ReplicaReport { progress_ms: 10, ..up(2) });
        assert!(network(others).works);
        let changing = |id| {
            let waiting = waiting("NEW-VIEW", &[1]);
            state(ReplicaReport { changing: true, view: 1, waiting, progress_ms: 1500, ..up(id) })
        };
        let stall = network((0..4).map(changing).collect());
        assert_eq!(stall.sentences, ["no progress for 1.5 s: waiting for the NEW-VIEW of 1"]);
    }

    #[test]
    fn a_refused_link_and_two_states_are_named() {
        let mut reports: Vec<_> = (0..4).map(up).collect();
        for id in [0, 1] {
            let problem = Some("refused: another network".into());
            reports[id].peers = vec![Peer { id: 2, linked: false, since_ms: 9, problem }];
        }
        reports[3].checkpoint_seq = 5;
        reports[3].state_digest = "aa".into();
        reports[2].checkpoint_seq = 5;
        reports[2].state_digest = "bb".into();
        let sentences = network(reports.into_iter().map(state).collect()).sentences;
        assert_eq!(
            sentences[0],
            "replicas 0 and 1 have no link to replica 2: refused: another network"
        );
        assert!(sentences[1].starts_with("replicas 2 and 3 DISAGREE"), "{sentences:?}");
    }

    #[test]
    fn a_state_that_differs_is_named_with_its_keys() {
        let key = |text: &str| Some(text.to_owned());
        let differs = |keys| DivergenceReport {
            replica: 3,
            number: 128,
            what: "the state digest".into(),
            keys,
        };
        let keys = vec![
            KeyRange { from: None, to: key("\"b\"") },
            KeyRange { from: key("0x00ff"), to: None },
        ];
        let mut reports: Vec<_> = (0..4).map(up).collect();
        for id in [0, 1] {
            reports[id].divergences = vec![differs(keys.clone())];
        }
        reports[2].divergences = vec![differs(vec![])];
        assert_eq!(
            network(reports.into_iter().map(state).collect()).sentences,
            [
                "replica 3 signed a state that differs at number 128 in the state digest: it has \
                 not shown in which keys (compared by replica 2)",
                "replica 3 signed a state that differs at number 128 in the state digest: keys \
                 below \"b\", from 0x00ff on (compared by replicas 0 and 1)",
            ]
        );
    }

    #[test]
    fn a_transfer_of_state_is_shown_with_its_liars() {
        let dropped = DroppedReport { replica: 1, reason: "wrong_digest".into() };
        let mut transfer = TransferReport {
            phase: "fetching".into(),
            height: 9,
            bytes: 3 << 20,
            dropped: vec![dropped],
            ..TransferReport::default()
        };
        let report = |transfer: &TransferReport| ReplicaReport {
            catching_up: true,
            transfer: Some(transfer.clone()),
            ..up(0)
        };
        assert_eq!(state(report(&transfer)).role(), "fetching state of height 9, 3 MB");
        transfer.state_bytes = 12 << 20;
        assert_eq!(state(report(&transfer)).role(), "fetching state of height 9, 3 of 12 MB");
        let all = vec![state(report(&transfer)), state(up(1)), state(up(2)), state(up(3))];
        assert_eq!(
            network(all).sentences,
            ["replica 1 gave replica 0 no good state: wrong_digest"]
        );
        transfer.phase = "done".into();
        assert_eq!(state(report(&transfer)).role(), "catching up");
    }

    /// On the machine of one operator.
    #[test]
    fn replicas_elsewhere_are_known_by_their_links() {
        let peer = |id, linked| Peer { id, linked, since_ms: 5000, problem: None };
        let here = state(ReplicaReport { peers: vec![peer(1, true), peer(2, false)], ..up(0) });
        let elsewhere = |id| State::elsewhere(id, std::iter::once(&here));
        assert_eq!(elsewhere(1).role(), "elsewhere, linked since 5.0 s");
        assert_eq!(elsewhere(2).role(), "elsewhere, no link since 5.0 s");
        let states = vec![here.clone(), elsewhere(1), elsewhere(2), elsewhere(1)];
        assert_eq!(network(states).answering, 3);
    }
}
