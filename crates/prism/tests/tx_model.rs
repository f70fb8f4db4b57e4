//! PRISM-TX's rules as an explicit-state model, explored exhaustively: every order in which requests can
//! arrive, clients can die, and janitors can come in between, for a few transactions at once. Each of the
//! corrections to the paper's text can be taken away; then some order goes wrong.
//!
//! Each key is on a shard of its own, so that the requests of a prepare, the decision and the installs are
//! separate. A request that was sent may arrive after its client has died. A value is the time stamp of
//! who wrote it. Time stamps are fixed, in all orders.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use std::collections::BTreeSet;

const KEYS: usize = 2;
const MOST: usize = 4;

/// Which corrections stand.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A write check needs TS >= PR; literally, TS > PR.
    own_timestamp: bool,
    /// An abort raises C from the PW that it found; literally, whenever TS is greater.
    abort_in_order: bool,
    /// RC is the slot's C; literally, the buffer's time stamp.
    slots_timestamp: bool,
    /// Somebody settles what is left behind.
    janitor: bool,
    /// Who aborts an intent that has not reached its home keeps it from coming later.
    poison: bool,
}

#[rustfmt::skip]
const SOUND: Rules = Rules {
    own_timestamp: true, abort_in_order: true, slots_timestamp: true, janitor: true, poison: true,
};

/// Keys read and keys written, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    reads: u8,
    writes: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    pw: u8,
    pr: u8,
    c: u8,
    value: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Execute,
    Prepare,
    Decide,
    Install,
    Abort,
    Committed,
    Aborted,
}

/// What is known of a transaction at its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    #[default]
    Nothing,
    Pending,
    Committed,
    Aborted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tx {
    phase: Phase,
    dead: bool,
    home: Home,
    /// Keys that were read, of which the slot only, and what was read: RC and value.
    seen: u8,
    half: u8,
    rc: [u8; KEYS],
    read: [u8; KEYS],
    /// Keys whose requests of this phase are still to arrive.
    to_come: u8,
    /// Keys whose checks failed, whose PW was changed, and from what.
    failed: u8,
    advanced: u8,
    prev: [u8; KEYS],
    /// Keys with an intent, and with a mark that keeps it from coming.
    intents: u8,
    fenced: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    slots: [Slot; KEYS],
    txs: [Tx; MOST],
    deaths: u8,
}

struct Model<'a> {
    rules: Rules,
    plans: &'a [Plan],
    /// The time stamp of each.
    stamps: &'a [u8],
    most_deaths: u8,
}

/// What an exploration found.
#[derive(Clone, Copy, Debug, Default)]
struct Explored {
    states: u64,
    ends: u64,
    commits: u64,
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..KEYS).filter(move |key| mask >> key & 1 == 1)
}

impl Model<'_> {
    fn home(&self, tx: usize) -> usize {
        self.plans[tx].writes.trailing_zeros() as usize
    }

    /// The states that can follow.
    fn next(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        for tx in 0..self.plans.len() {
            self.client(state, tx, &mut next);
            self.arrivals(state, tx, &mut next);
            let Tx { phase, dead, .. } = state.txs[tx];
            let ended = matches!(phase, Phase::Committed | Phase::Aborted);
            if !dead && !ended && state.deaths < self.most_deaths {
                let mut state = *state;
                state.txs[tx].dead = true;
                state.deaths += 1;
                next.push(state);
            }
        }
        if self.rules.janitor {
            (0..KEYS).for_each(|key| next.extend(self.janitor(state, key)));
        }
        next
    }

    /// What a living client does next.
    fn client(&self, state: &State, at: usize, next: &mut Vec<State>) {
        let (tx, plan) = (state.txs[at], self.plans[at]);
        if tx.dead {
            return;
        }
        let mut go = |change: &dyn Fn(&mut Tx, &[Slot; KEYS])| {
            let mut state = *state;
            change(&mut state.txs[at], &state.slots);
            next.push(state);
        };
        match tx.phase {
            Phase::Execute => match bits(plan.reads & !tx.seen).next() {
                // The slot, then the buffer: another may come in between.
                Some(key) if tx.half >> key & 1 == 0 => go(&|tx, slots| {
                    tx.half |= 1 << key;
                    tx.rc[key] = slots[key].c;
                }),
                Some(key) => go(&|tx, slots| {
                    tx.seen |= 1 << key;
                    let value = slots[key].value;
                    let slots_c = tx.rc[key];
                    tx.rc[key] =
                        if self.rules.slots_timestamp { slots_c.max(value) } else { value };
                    tx.read[key] = value;
                }),
                // A time stamp is above all that was read; one that is fixed may be too low.
                None if bits(plan.reads).any(|key| tx.rc[key] > self.stamps[at]) => {
                    go(&|tx, _| tx.phase = Phase::Aborted);
                }
                None => go(&|tx, _| {
                    tx.phase = Phase::Prepare;
                    tx.to_come = plan.reads | plan.writes;
                    (tx.half, tx.seen) = (0, 0);
                }),
            },
            Phase::Prepare if tx.to_come == 0 => go(&|tx, _| {
                tx.phase = match (tx.failed, plan.writes) {
                    (0, 0) => Phase::Committed,
                    (0, _) => Phase::Decide,
                    (_, 0) => Phase::Aborted,
                    _ => Phase::Abort,
                };
                tx.to_come = plan.writes;
            }),
            Phase::Install if tx.to_come == 0 => go(&|tx, _| tx.phase = Phase::Committed),
            Phase::Abort => {
                // The home first, then the others; a key that waits for an earlier writer waits.
                let home = self.home(at);
                let keys = if tx.to_come >> home & 1 == 1 { 1 << home } else { tx.to_come };
                for key in bits(keys) {
                    next.extend(self.abort(state, at, key));
                }
                if tx.to_come == 0 {
                    let mut state = *state;
                    state.txs[at].phase = Phase::Aborted;
                    next.push(state);
                }
            }
            _ => {}
        }
    }

    /// What a client's abort does on a key; nothing while an earlier writer is not settled.
    fn abort(&self, state: &State, at: usize, key: usize) -> Option<State> {
        let ts = self.stamps[at];
        let mut state = *state;
        let (tx, slot) = (&mut state.txs[at], &mut state.slots[key]);
        if key == self.home(at) {
            tx.home = Home::Aborted;
        }
        if self.rules.poison {
            tx.fenced |= 1 << key;
        }
        if tx.advanced >> key & 1 == 1 {
            if !self.rules.abort_in_order {
                slot.c = slot.c.max(ts);
            } else if slot.c < tx.prev[key] {
                return None;
            } else if slot.c < ts {
                slot.c = ts;
            }
        }
        tx.to_come &= !(1 << key);
        Some(state)
    }

    /// Requests that were sent arrive, whether or not their client lives.
    fn arrivals(&self, state: &State, at: usize, next: &mut Vec<State>) {
        let tx = state.txs[at];
        match tx.phase {
            Phase::Prepare => bits(tx.to_come).for_each(|key| {
                let mut state = *state;
                self.prepare(&mut state, at, key);
                next.push(state);
            }),
            // Only its answer lets the client send the installs.
            Phase::Decide => {
                let mut state = *state;
                let (ts, home) = (self.stamps[at], self.home(at));
                let tx = &mut state.txs[at];
                if tx.home == Home::Pending {
                    tx.home = Home::Committed;
                    install(&mut state.slots[home], ts);
                    tx.phase = Phase::Install;
                    tx.to_come &= !(1 << home);
                    if tx.dead {
                        tx.to_come = 0;
                    }
                } else {
                    tx.phase = Phase::Abort;
                }
                next.push(state);
            }
            Phase::Install => bits(tx.to_come).for_each(|key| {
                let mut state = *state;
                install(&mut state.slots[key], self.stamps[at]);
                state.txs[at].to_come &= !(1 << key);
                next.push(state);
            }),
            _ => {}
        }
    }

    fn prepare(&self, state: &mut State, at: usize, key: usize) {
        let (ts, plan) = (self.stamps[at], self.plans[at]);
        let (tx, slot) = (&mut state.txs[at], &mut state.slots[key]);
        tx.to_come &= !(1 << key);
        if plan.reads >> key & 1 == 1 {
            let rc = tx.rc[key];
            if (rc, ts) > (slot.pw, slot.pr) {
                (slot.pw, slot.pr) = (rc, ts);
            } else if !(slot.pw == rc && slot.pr >= ts) {
                tx.failed |= 1 << key;
            }
        }
        if plan.writes >> key & 1 == 0 {
            return;
        }
        let home = key == self.home(at);
        if tx.fenced >> key & 1 == 1 || (home && tx.home != Home::Nothing) {
            tx.failed |= 1 << key;
            return;
        }
        tx.intents |= 1 << key;
        if home {
            tx.home = Home::Pending;
        }
        if ts > slot.pw {
            tx.prev[key] = slot.pw;
            tx.advanced |= 1 << key;
            slot.pw = ts;
            let unread = if self.rules.own_timestamp { ts >= slot.pr } else { ts > slot.pr };
            if !unread {
                tx.failed |= 1 << key;
            }
        } else {
            tx.failed |= 1 << key;
        }
    }

    /// Settles the earliest transaction that is in the way on a key, whether its client lives or not.
    fn janitor(&self, state: &State, key: usize) -> Option<State> {
        let slot = state.slots[key];
        if slot.pw <= slot.c {
            return None;
        }
        let in_the_way = |tx: &usize| {
            let ts = self.stamps[*tx];
            state.txs[*tx].intents >> key & 1 == 1 && ts > slot.c && ts <= slot.pw
        };
        let earliest =
            (0..self.plans.len()).filter(in_the_way).min_by_key(|tx| self.stamps[*tx])?;
        let mut state = *state;
        let tx = &mut state.txs[earliest];
        let committed = match tx.home {
            Home::Committed => true,
            Home::Aborted | Home::Pending => {
                tx.home = Home::Aborted;
                false
            }
            Home::Nothing => {
                if self.rules.poison {
                    tx.home = Home::Aborted;
                }
                false
            }
        };
        let (slot, ts) = (&mut state.slots[key], self.stamps[earliest]);
        if committed {
            install(slot, ts);
        } else {
            slot.c = ts;
        }
        Some(state)
    }

    /// Explores every state.
    fn explore(&self) -> Result<Explored, String> {
        let mut seen = BTreeSet::new();
        let mut explored = Explored::default();
        let mut stack = vec![State::default()];
        while let Some(state) = stack.pop() {
            if !seen.insert(state) {
                continue;
            }
            if state.slots.iter().any(|slot| slot.pw < slot.c || slot.value > slot.c) {
                return Err(format!("no such slot can be: {state:?}"));
            }
            let next = self.next(&state);
            if next.is_empty() {
                explored.ends += 1;
                explored.commits += self.check(&state)?;
            }
            stack.extend(next);
        }
        explored.states = seen.len() as u64;
        Ok(explored)
    }

    /// Whether an end is as it must be: settled, and as if run in the order of the time stamps.
    fn check(&self, state: &State) -> Result<u64, String> {
        if let Some(key) = (0..KEYS).find(|key| state.slots[*key].pw != state.slots[*key].c) {
            return Err(format!("key {key} stays prepared: {state:?}"));
        }
        let mut order: Vec<usize> = (0..self.plans.len()).collect();
        order.sort_by_key(|tx| self.stamps[*tx]);
        let (mut values, mut commits) = ([0; KEYS], 0);
        for at in order {
            let (tx, plan) = (&state.txs[at], self.plans[at]);
            let read_only = plan.writes == 0 && tx.phase == Phase::Committed;
            if tx.home != Home::Committed && !read_only {
                continue;
            }
            commits += 1;
            if let Some(key) = bits(plan.reads).find(|key| tx.read[*key] != values[*key]) {
                return Err(format!("{at} read key {key} out of order: {state:?}"));
            }
            bits(plan.writes).for_each(|key| values[key] = self.stamps[at]);
        }
        match (0..KEYS).find(|key| values[*key] != state.slots[*key].value) {
            Some(key) => Err(format!("key {key} must be {} in the end: {state:?}", values[key])),
            None => Ok(commits),
        }
    }
}

fn install(slot: &mut Slot, ts: u8) {
    if ts > slot.c {
        (slot.c, slot.value) = (ts, ts);
    }
}

const X: u8 = 1;
const Y: u8 = 2;

const fn plan(reads: u8, writes: u8) -> Plan {
    Plan { reads, writes }
}

/// The scenarios, with the most clients that die.
const SCENARIOS: [(&str, &[Plan], u8); 5] = [
    ("three that read and write one key", &[plan(X, X), plan(X, X), plan(X, X)], 2),
    ("two keys, one both", &[plan(X, X), plan(Y, 0), plan(X | Y, X | Y)], 1),
    ("blind writes", &[plan(0, X), plan(Y, X | Y), plan(X, 0), plan(Y, Y)], 0),
    ("blind writes and deaths", &[plan(0, X), plan(Y, X | Y), plan(X, 0)], 2),
    ("a reader of both", &[plan(X | Y, 0), plan(0, X | Y), plan(X, X)], 1),
];

fn permutations(count: u8) -> Vec<Vec<u8>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(count - 1);
    let with = |at: usize| {
        shorter.iter().map(move |stamps| {
            let mut stamps = stamps.clone();
            stamps.insert(at, count);
            stamps
        })
    };
    (0..usize::from(count)).flat_map(with).collect()
}

/// Whether an order of time stamps is not another one with transactions of one plan exchanged. Of four
/// transactions only the order that they are written in is explored, unless `PRISM_MODEL` is set: all of
/// them are three million states.
fn worth_it(plans: &[Plan], stamps: &[u8]) -> bool {
    let exchanged =
        (0..plans.len()).any(|a| (0..a).any(|b| plans[a] == plans[b] && stamps[a] < stamps[b]));
    let all = plans.len() < MOST || std::env::var_os("PRISM_MODEL").is_some();
    !exchanged && (all || stamps.is_sorted())
}

/// Explores scenarios in every order of the time stamps, until something is wrong.
fn explore(rules: Rules, scenarios: &[(&str, &[Plan], u8)]) -> Result<Explored, String> {
    let mut total = Explored::default();
    for (name, plans, most_deaths) in scenarios {
        let before = total;
        for stamps in permutations(plans.len() as u8) {
            if !worth_it(plans, &stamps) {
                continue;
            }
            let model = Model { rules, plans, stamps: &stamps, most_deaths: *most_deaths };
            let explored =
                model.explore().map_err(|why| format!("{name}, time stamps {stamps:?}: {why}"))?;
            total.states += explored.states;
            total.ends += explored.ends;
            total.commits += explored.commits;
        }
        println!("prism-model {name}: {} states", total.states - before.states);
    }
    Ok(total)
}

#[test]
fn every_order_is_serializable() {
    let total = explore(SOUND, &SCENARIOS).unwrap_or_else(|why| panic!("{why}"));
    println!("prism-count tx_model_states {}", total.states);
    println!("prism-count tx_model_ends {}", total.ends);
    assert!(total.commits > 0 && total.states <= 1_000_000, "{total:?}");
}

fn goes_wrong(name: &str, rules: Rules) {
    let mut why =
        explore(rules, &SCENARIOS).expect_err("without the correction something goes wrong");
    why.truncate(120);
    println!("prism-zoo model, {name}: caught: {why}");
}

/// Literally, no transaction that reads what it writes ever commits.
#[test]
fn the_own_timestamp() {
    let commits = |rules| explore(rules, &SCENARIOS[..1]).unwrap_or_else(|why| panic!("{why}"));
    let total = commits(Rules { own_timestamp: false, ..SOUND });
    assert!(total.commits == 0 && commits(SOUND).commits > 0);
    println!("prism-zoo model, TS > PR: caught: 0 commits in {} ends", total.ends);
}

#[test]
fn the_order_of_aborts() {
    goes_wrong("C := TS if TS > C", Rules { abort_in_order: false, ..SOUND });
}

#[test]
fn the_slots_timestamp() {
    // Nothing wrong is read; but a key whose last writer aborted is never validated again.
    let rules = Rules { slots_timestamp: false, ..SOUND };
    let read_again = [("after an abort", &[plan(Y, X | Y), plan(Y, Y), plan(X, 0)][..], 0)];
    let [literal, sound] = [rules, SOUND]
        .map(|rules| explore(rules, &read_again).unwrap_or_else(|why| panic!("{why}")).commits);
    assert!(literal < sound, "{literal} commits and {sound}");
    println!("prism-zoo model, RC of the buffer: caught: {literal} commits, not {sound}");
}

#[test]
fn the_janitor_and_the_poison() {
    goes_wrong("no janitor", Rules { janitor: false, ..SOUND });
    goes_wrong("intents come after their abort", Rules { poison: false, ..SOUND });
}
