//! What is known of one replica.

use super::seconds;
use serde::Serialize;
use tercio_replica::report::{Peer, ReplicaReport, Starting};

/// One whose loop or execution got nothing done for so long, though there is something to do, has
/// halted, in milliseconds.
const HALTED_MS: u64 = 2000;

/// A replica is heard at least once in its `idle_interval_ms`, since it says where it stands when
/// there is nothing else to say (rule S1 of `docs/protocol/pbft.md`). One that is not heard for so
/// many of them, or for [`QUIET_MS`] if that is longer, does not answer.
const QUIET_INTERVALS: u64 = 6;
const QUIET_MS: u64 = 3000;

/// A replica that is heard so long after its last report works and cannot write one, in milliseconds:
/// it writes five times a second.
const UNREPORTED_MS: u64 = 1000;

/// The phases of a transfer of state that is over.
const ENDED: [&str; 3] = ["done", "blocks", "nobody"];

/// What is known of a replica.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum State {
    /// Its process answers.
    Up(Box<ReplicaReport>),
    /// Its process replays its log.
    Starting(Starting),
    /// Others hear it, and its report here is old, or there is none that can be read: it works, and
    /// cannot write its home.
    Unreported { since_ms: Option<u64>, heard_ms: u64 },
    /// Its process is there and says nothing.
    Silent { since_ms: u64, pid: u32, height: u64 },
    /// Its process is gone.
    Down { since_ms: u64, height: u64 },
    /// Its home is here, and it never ran.
    NeverRan,
    /// It runs elsewhere, and a replica here hears it.
    Linked { since_ms: u64, heard_ms: u64 },
    /// It should run elsewhere: there is a link to it, and for too long nothing came on it.
    Quiet { heard_ms: u64 },
    /// It should run elsewhere; no replica here has a link to it.
    Unlinked { since_ms: u64, problem: Option<String> },
}

/// How long ago a peer with a link last said anything: a handshake counts.
fn silence(peer: &Peer) -> u64 {
    peer.heard_ms.map_or(peer.since_ms, |heard| heard.min(peer.since_ms))
}

/// Whether `by` hears this peer.
pub(super) fn hears(by: &ReplicaReport, peer: &Peer) -> bool {
    peer.linked && silence(peer) < (QUIET_INTERVALS * by.idle_interval_ms).max(QUIET_MS)
}

/// Whether a replica that started just now has not had the time to hear this peer. What it says of
/// its links may be older than what clients were answered since.
pub(super) fn starts(peer: &Peer) -> bool {
    !peer.linked && peer.heard_ms.is_none() && peer.since_ms < QUIET_MS
}

impl State {
    /// The state of a replica without a home here, as those that have one see it.
    pub(super) fn elsewhere<'a>(id: u16, here: impl Iterator<Item = &'a Self>) -> Self {
        let mut best = Self::Unlinked { since_ms: 0, problem: None };
        // Whoever reads nothing cannot say who is silent.
        for report in here.filter_map(Self::report).filter(|r| r.stalled_ms < HALTED_MS) {
            let Some(peer) = report.peers.iter().find(|peer| peer.id == id) else { continue };
            let (since_ms, heard_ms) = (peer.since_ms, silence(peer));
            best = match best {
                _ if hears(report, peer) => return Self::Linked { since_ms, heard_ms },
                Self::Quiet { heard_ms: least } if peer.linked => {
                    Self::Quiet { heard_ms: heard_ms.min(least) }
                }
                _ if peer.linked => Self::Quiet { heard_ms },
                Self::Unlinked { problem: None, .. } => {
                    Self::Unlinked { since_ms, problem: peer.problem.clone() }
                }
                known => known,
            };
        }
        best
    }

    /// The state of a replica whose report is old or cannot be read, when others hear it: what came
    /// from it after it wrote last says that it works. `None` when it has a young one, or is not heard.
    pub(super) fn unreported<'a>(
        &self,
        id: u16,
        here: impl Iterator<Item = &'a Self>,
    ) -> Option<Self> {
        let since_ms = match self {
            Self::Silent { since_ms, .. } | Self::Down { since_ms, .. } => Some(*since_ms),
            Self::NeverRan => None,
            _ => return None,
        };
        match Self::elsewhere(id, here) {
            Self::Linked { heard_ms, .. }
                if since_ms.is_none_or(|since| heard_ms + UNREPORTED_MS < since) =>
            {
                Some(Self::Unreported { since_ms, heard_ms })
            }
            _ => None,
        }
    }

    pub(super) fn report(&self) -> Option<&ReplicaReport> {
        match self {
            Self::Up(report) => Some(report),
            _ => None,
        }
    }

    /// Whether it can vote now, as far as one can see from itself alone.
    pub(super) fn votes(&self) -> bool {
        match self {
            Self::Up(report) => {
                report.learning.is_none() && !report.catching_up && stalled(report).is_none()
            }
            Self::Linked { .. } | Self::Unreported { .. } => true,
            _ => false,
        }
    }

    /// Whether it cannot vote now and does from the next view on: it lost its log, and all that it
    /// forgot lies below what is stable.
    pub(super) fn rejoins(&self) -> bool {
        self.report().is_some_and(|report| {
            report.rejoins && !report.catching_up && stalled(report).is_none()
        })
    }

    /// Where and since when its execution stands, though it has something to do; it votes all the same.
    pub(super) fn execution_stands(&self) -> Option<String> {
        self.report().and_then(execution_stands)
    }

    /// What it does, in a few words.
    pub(super) fn role(&self) -> String {
        match self {
            Self::Up(report) => role(report),
            Self::Starting(starting) => starting.to_string(),
            Self::Silent { since_ms, pid, .. } => {
                format!(
                    "does not answer since {} (process {pid} is there: it hangs, or it cannot write \
                     status.json, which its messages say)",
                    seconds(*since_ms)
                )
            }
            Self::Unreported { since_ms, .. } => {
                let old = match since_ms {
                    Some(since_ms) => format!("is {} old", seconds(*since_ms)),
                    None => "cannot be read".to_owned(),
                };
                format!(
                    "works, as others hear, but its status.json {old}: it cannot write its home (a \
                     full disk?), and its messages say why"
                )
            }
            Self::Down { since_ms, height } => {
                format!("is down since {} (at height {height})", seconds(*since_ms))
            }
            Self::NeverRan => "never ran".into(),
            Self::Linked { since_ms, .. } => {
                format!("elsewhere, linked since {}", seconds(*since_ms))
            }
            Self::Quiet { heard_ms } => {
                format!("elsewhere, linked, but silent for {}", seconds(*heard_ms))
            }
            Self::Unlinked { since_ms, problem } => {
                let why = problem.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                format!("elsewhere, no link since {}{why}", seconds(*since_ms))
            }
        }
    }

    /// The same in one or two words.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Up(r) if r.learning.is_some() => "learner",
            Self::Up(r) if r.catching_up => "catching up",
            Self::Up(r) if stalled(r).is_some() => "halted",
            Self::Up(r) if execution_stands(r).is_some() => "exec stands",
            Self::Up(r) if r.changing => "changing",
            Self::Up(r) if r.busy => "busy",
            Self::Up(r) if r.primary == r.id => "primary",
            Self::Up(_) => "backup",
            Self::Silent { .. } | Self::Quiet { .. } => "silent",
            Self::Unreported { .. } => "no report",
            Self::Starting(_) => "starts",
            Self::Down { .. } => "down",
            Self::NeverRan => "never ran",
            Self::Linked { .. } => "elsewhere",
            Self::Unlinked { .. } => "no link",
        }
    }
}

/// What its loop has not done for too long.
fn stalled(report: &ReplicaReport) -> Option<String> {
    let stalled_ms = report.stalled_ms;
    (stalled_ms >= HALTED_MS)
        .then(|| format!("reads nothing since {}: a queue in it is full", seconds(stalled_ms)))
}

/// What its execution has not done for too long. Ordering does not wait for that.
fn execution_stands(report: &ReplicaReport) -> Option<String> {
    let ReplicaReport { executing, executing_ms, height, .. } = report;
    (*executing_ms >= HALTED_MS).then(|| {
        let since = seconds(*executing_ms);
        format!("execution stands at {height} since {since}, {executing} number(s) wait")
    })
}

fn role(report: &ReplicaReport) -> String {
    let halted = stalled(report).or_else(|| execution_stands(report));
    match report {
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
        _ if halted.is_some() => halted.unwrap_or_default(),
        ReplicaReport { changing: true, .. } => "changing".into(),
        ReplicaReport { busy: true, .. } => "busy".into(),
        report if report.primary == report.id => "primary".into(),
        _ => "backup".into(),
    }
}
