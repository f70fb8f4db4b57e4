//! What the states of its replicas mean for a network, in sentences.
//!
//! A replica counts when it can vote now: it answers ([`State`]), has what it needs to vote, gets
//! on with what it has to do, is not behind a checkpoint that others hold, and hears a quorum. The
//! network can order while a quorum of such replicas is there, and how many more than a quorum there
//! are is how many may still fail. Whether it does order is told by the oldest request that waits: an
//! idle network makes no progress for hours and is well.
//!
//! A replica whose execution stands votes, and answers no client: those need equal results of f+1
//! others. Where fewer execute, nothing that is asked for gets done, and the network stands.

use super::seconds;
use super::state::{State, hears, starts};
use serde::Serialize;
use std::collections::BTreeMap;
use tercio_replica::report::{DivergenceReport, KeyRange, ReplicaReport};
use tercio_types::Membership;

/// A request that waits for so long while there is no progress means that the network stands, in
/// milliseconds. The view timer is half of that.
const STALL_MS: u64 = 1000;

/// A request that waits for so long though there is progress is worth a sentence, in milliseconds.
const LATE_MS: u64 = 10_000;

/// A clock that is so far ahead of the primary's is wrong, in milliseconds: less may be the time that a
/// proposal was under way.
const CLOCK_MS: i64 = 10_000;

/// The most ranges of keys that a sentence names.
const RANGES: usize = 4;

/// The network as a whole.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Network {
    /// How many replicas it has, how many of them may be faulty, and how many must vote.
    pub(super) n: usize,
    pub(super) f: usize,
    pub(super) quorum: usize,
    /// How many can vote now.
    pub(super) voting: usize,
    /// How many of those execute what is ordered: their executions do not stand.
    pub(super) executing: usize,
    /// How many of those that vote may still fail.
    pub(super) may_fail: usize,
    /// Whether it can do operations: a quorum can vote, no request waits in vain, and as many execute as
    /// a client needs results of.
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
        let (n, f, quorum) = (membership.n(), membership.f(), membership.needed());
        let out = cannot_vote(states, quorum);
        let voting = n - out.len();
        let stand: BTreeMap<u16, String> = (states.iter())
            .filter(|(id, _)| !out.contains_key(id))
            .filter_map(|(id, state)| Some((*id, state.execution_stands()?)))
            .collect();
        let (executing, results) = (voting - stand.len(), membership.reply_threshold());
        let answers = stand.is_empty() || executing >= results;
        let spare = match stand.is_empty() {
            true => voting.saturating_sub(quorum),
            false => voting.saturating_sub(quorum).min(executing.saturating_sub(results)),
        };
        let may_fail = spare.min(f);
        let up: Vec<&ReplicaReport> = states.values().filter_map(State::report).collect();
        let voters: Vec<&ReplicaReport> =
            up.iter().copied().filter(|report| !out.contains_key(&report.id)).collect();
        let stall = stall(&voters, voting, quorum);
        let back: Vec<u16> = out.keys().copied().filter(|id| states[id].rejoins()).collect();
        // Those that time out replace the primary, and with the new view others vote again.
        let works = voting + back.len() >= quorum && stall.is_none() && answers;
        let lost = up.iter().filter(|report| report.learning.is_some() && !report.rejoins).count();

        let mut sentences: Vec<String> =
            out.iter().map(|(id, why)| format!("replica {id} {why}")).collect();
        sentences.extend(stand.iter().map(|(id, why)| format!("replica {id}: {why}")));
        sentences.extend((!stand.is_empty() && executing < quorum).then(|| {
            format!(
                "ordering goes on until the window is full: execution goes on at {executing} of {n}, \
                 and no checkpoint becomes stable with fewer than {quorum}"
            )
        }));
        sentences.extend(unreported(states));
        sentences.extend(clocks(&up, f));
        sentences.extend(stall);
        sentences.extend(late(&voters).filter(|_| works));
        sentences.extend(link_problems(&up, &out));
        sentences.extend(bad_sources(&up));
        sentences.extend(divergences(&up));
        sentences.extend(disagreement(&up));
        let vote = format!("{voting} of {n} replicas vote");
        let sum = match may_fail {
            _ if voting < quorum && lost > f => format!(
                "the network stands, and cannot go on by itself: {lost} of {n} replicas learn, since \
                 their logs were lost or are older copies, at most {f} may, and a quorum of {quorum} is \
                 needed; docs/recovery.md says what operators can do"
            ),
            _ if voting < quorum && works => format!(
                "no faults to spare: {vote}, and {} from the next view on, which the next request \
                 brings about",
                replicas(&back)
            ),
            _ if voting < quorum => {
                let ids: Vec<u16> = out.keys().copied().collect();
                format!(
                    "the network stands: {voting} of {n} replicas can vote and {quorum} are \
                     needed; bring back {}",
                    replicas(&ids)
                )
            }
            _ if !answers => format!(
                "the network stands, though {vote}: execution goes on at {executing}, and a client \
                 needs results of {results}"
            ),
            _ if !works => format!("the network stands, though {vote}"),
            0 if sentences.is_empty() && f == 0 => {
                format!("all is well: {vote}, none may fail")
            }
            0 if f == 0 => format!("the network works: {vote}, none may fail"),
            0 => format!("no faults to spare: {vote}, one more failure stops the network"),
            _ if sentences.is_empty() => format!("all is well: {vote}, {may_fail} may fail"),
            _ => format!("the network works: {vote}, {may_fail} may still fail"),
        };
        sentences.push(sum);
        Self { n, f, quorum, voting, executing, may_fail, works, sentences }
    }
}

/// Who cannot vote now, and why.
fn cannot_vote(states: &BTreeMap<u16, State>, quorum: usize) -> BTreeMap<u16, String> {
    let mut out: BTreeMap<u16, String> = (states.iter())
        .filter(|(_, state)| !state.votes())
        .map(|(id, state)| (*id, state.role()))
        .collect();
    let stable = states.values().filter_map(State::report).map(|report| report.stable).max();
    for (id, state) in states.iter().filter(|(_, state)| state.votes()) {
        let Some(report) = state.report() else { continue };
        // A report is up to two seconds old, so being behind says something of one that does not
        // move.
        if let Some(stable) = stable.filter(|stable| *stable > report.delivered)
            && report.progress_ms >= STALL_MS
        {
            let why = format!(
                "lags behind: it has delivered {}, and {stable} is certified",
                report.delivered
            );
            out.insert(*id, why);
        }
    }
    let voting = |id: &u16| !out.contains_key(id);
    if states.keys().filter(|id| voting(id)).count() < quorum {
        return out;
    }
    let mut cut_off = BTreeMap::new();
    for report in states.values().filter_map(State::report).filter(|r| voting(&r.id)) {
        let heard = report
            .peers
            .iter()
            .filter(|peer| voting(&peer.id) && (hears(report, peer) || starts(peer)));
        let heard = heard.count();
        if !report.peers.is_empty() && heard + 1 < quorum {
            let why = format!(
                "is cut off: it hears {heard} of the others that can vote, and needs {}",
                quorum - 1
            );
            cut_off.insert(report.id, why);
        }
    }
    out.append(&mut cut_off);
    out
}

/// Why nothing goes on though there is something to do.
fn stall(voters: &[&ReplicaReport], voting: usize, quorum: usize) -> Option<String> {
    // Whoever got furthest says how long it has been.
    let since = voters.iter().map(|report| report.progress_ms).min()?;
    let waits = voters.iter().filter_map(|report| report.oldest_pending_ms).max();
    let changing = voters.iter().filter(|report| report.changing).count();
    let no_view = changing > 0 && voting - changing < quorum;
    // An idle network made progress long ago; a request shows that there is something to do.
    let stands = waits.map_or(0, |waits| waits.min(since));
    if since < STALL_MS || stands < STALL_MS && !no_view {
        return None;
    }
    // The primary knows best whom it waits for, unless it is the one that is waited for.
    let waiting = |report: &&&ReplicaReport| report.waiting.is_some();
    let by = (voters.iter().find(|report| report.primary == report.id && waiting(report))).or_else(
        || voters.iter().filter(waiting).max_by_key(|report| (report.view, report.delivered)),
    );
    let why = match by.and_then(|report| report.waiting.as_ref()) {
        Some(waiting) => {
            let plural = if waiting.missing.len() == 1 { "" } else { "s" };
            format!("waiting for the {}{plural} of {}", waiting.message, list(&waiting.missing))
        }
        None => {
            let work = voters.iter().map(|report| report.pending).max().unwrap_or(0);
            format!("{work} package(s) wait")
        }
    };
    Some(match stands {
        0 => format!("a view change runs: {why}"),
        _ => format!("no progress for {}: {why}", seconds(stands)),
    })
}

/// A request that waits though others are ordered.
fn late(voters: &[&ReplicaReport]) -> impl Iterator<Item = String> {
    let oldest = voters.iter().filter_map(|report| report.oldest_pending_ms).max();
    let late = oldest.filter(|ms| *ms >= LATE_MS);
    late.map(|ms| format!("the oldest request that waits has done so for {}", seconds(ms)))
        .into_iter()
}

/// Replicas that run and have no link, and why.
fn link_problems(up: &[&ReplicaReport], missing: &BTreeMap<u16, String>) -> Vec<String> {
    let mut by_problem: BTreeMap<(u16, String), Vec<u16>> = BTreeMap::new();
    for report in up {
        for peer in
            report.peers.iter().filter(|peer| !peer.linked && !missing.contains_key(&peer.id))
        {
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

/// Replicas that work and cannot say so.
fn unreported(states: &BTreeMap<u16, State>) -> impl Iterator<Item = String> {
    let unreported = states.iter().filter(|(_, s)| matches!(s, State::Unreported { .. }));
    unreported.map(|(id, state)| format!("replica {id} {}", state.role()))
}

/// Replicas whose clocks differ from those of others, and what that means when there are many.
fn clocks(up: &[&ReplicaReport], f: usize) -> Vec<String> {
    let mut off = vec![];
    let mut sentences: Vec<String> = (up.iter())
        .filter_map(|report| {
            let clock = report.clock.as_ref()?;
            let (id, primary, by) = (report.id, clock.primary, seconds(clock.ahead_ms.unsigned_abs()));
            let text = match (clock.refused, clock.decided) {
                (true, true) => format!(
                    "this replica's clock is {by} behind the others', who agreed on what it refused; \
                     set it (NTP)"
                ),
                (true, false) => format!(
                    "it refuses what replica {primary} proposed: its clock is {by} behind that; \
                     compare the clocks of both"
                ),
                (false, _) if clock.ahead_ms < -CLOCK_MS => format!(
                    "this replica's clock is {by} ahead of that of replica {primary}, whose time the \
                     others agreed on; set it (NTP)"
                ),
                _ => return None,
            };
            off.push(id);
            Some(format!("replica {id}: {text}"))
        })
        .collect();
    if off.len() > f {
        sentences.push(format!(
            "the clocks of {} replicas differ, and at most {f} may: views change until one leads \
             whose time a quorum takes",
            off.len()
        ));
    }
    sentences
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
mod tests;
