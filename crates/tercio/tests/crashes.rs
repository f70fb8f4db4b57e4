//! The primary is killed under load, again and again: clients wait for a moment, nothing that was
//! acknowledged is lost, nothing is executed twice, and all replicas end in one state.
//!
//! `TERCIO_CRASHES` says how often (2 times by default), and `TERCIO_CRASH_GAP_MS`, when it is set,
//! how long a client may go without a result; otherwise the longest time is only reported.

use crate::common;

use bytes::Bytes;
use common::{tercio, text};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tercio_client::Client;
use tercio_network::process::ReplicaProcess;
use tercio_network::{Network, Spec, home, now, poll_until, reports};

const CLIENTS: usize = 16;
/// How many results each client gets between the steps of a round.
const SOME: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client saw, to look at while it runs.
struct Seen {
    done: AtomicU64,
    /// When it last had a result, and its longest time without one in this round.
    gap: Mutex<(Instant, Duration)>,
    /// The total that each of its operations gave.
    totals: Mutex<Vec<u64>>,
}

impl Seen {
    fn new() -> Self {
        let gap = Mutex::new((now(), Duration::ZERO));
        Self { done: AtomicU64::new(0), gap, totals: Mutex::new(vec![]) }
    }

    fn run(&self, client: &mut Client, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let result = client.call(Bytes::new()).expect("every operation has a result");
            let total = u64::from_le_bytes(result[..].try_into().expect("a total"));
            self.totals.lock().unwrap().push(total);
            let mut gap = self.gap.lock().unwrap();
            gap.1 = gap.1.max(gap.0.elapsed());
            gap.0 = now();
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits until every client has had some results.
fn some_more(seen: &[Seen], replicas: &mut [ReplicaProcess], but: Option<usize>) {
    let before: Vec<u64> = seen.iter().map(|seen| seen.done.load(Ordering::Relaxed)).collect();
    wait("go on", || {
        for (i, replica) in replicas.iter_mut().enumerate() {
            if Some(i) != but {
                replica.check().expect("it runs");
            }
        }
        let goes_on =
            |(seen, before): (&Seen, &u64)| seen.done.load(Ordering::Relaxed) >= before + SOME;
        seen.iter().zip(&before).all(goes_on).then_some(())
    });
}

fn wait<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    poll_until(PATIENCE, condition).unwrap_or_else(|| panic!("the network did not {what}"))
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
#[expect(clippy::print_stdout, reason = "what a round came to")]
fn a_primary_that_is_killed_under_load_costs_a_moment_and_nothing_else() {
    let rounds = setting("TERCIO_CRASHES").unwrap_or(2);
    let allowed = setting("TERCIO_CRASH_GAP_MS").map(Duration::from_millis);
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { clients: CLIENTS + 1, ..Spec::new(tercio_registry::apps().first()) };
    let network = Network::lay_out(folder.path(), &spec).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tercio"));
    let mut replicas = tercio_network::spawn_all(program, folder.path(), &spec.ids()).unwrap();
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|i| network.client(i, spec.core_settings()).unwrap()).collect();
    let seen: Vec<Seen> = (0..CLIENTS).map(|_| Seen::new()).collect();
    let stop = AtomicBool::new(false);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        for (client, seen) in clients.iter_mut().zip(&seen) {
            scope.spawn(|| seen.run(client, &stop));
        }
        // The clients must end before the scope can, also when an assertion fails.
        let _stops = Stops(&stop);
        for round in 1..=rounds {
            some_more(&seen, &mut replicas, None);
            seen.iter().for_each(|seen| seen.gap.lock().unwrap().1 = Duration::ZERO);
            let before = reports::written(&replicas);
            let leader = reports::leader(&replicas, &before).unwrap();
            let victim = usize::from(leader.primary);
            replicas[victim].kill().unwrap();
            replicas[victim].check().expect("it did not end by itself");
            some_more(&seen, &mut replicas, Some(victim));
            replicas[victim] = ReplicaProcess::spawn(
                program,
                leader.primary,
                &home(folder.path(), leader.primary),
            )
            .unwrap();
            replicas[victim].wait_ready().unwrap();
            wait("take the replica back", || {
                let others = replicas.iter().enumerate().filter(|(i, _)| *i != victim);
                let goal = others.filter_map(|(_, r)| r.report()).map(|r| r.height).min()?;
                replicas[victim].report().filter(|report| report.height >= goal)
            });
            some_more(&seen, &mut replicas, None);
            let gap = seen.iter().map(|seen| seen.gap.lock().unwrap().1).max().unwrap();
            longest = longest.max(gap);
            println!(
                "crash {round}: replica {victim} killed in view {}, longest gap {} ms",
                leader.view,
                gap.as_millis()
            );
        }
    });

    let last = reports::settle(&mut replicas).unwrap();
    assert!(last.iter().all(|report| report.state_digest == last[0].state_digest), "{last:?}");
    // Each operation added one, and each was told the total after it: all of them, each once.
    let totals: Vec<Vec<u64>> =
        seen.iter().map(|seen| seen.totals.lock().unwrap().clone()).collect();
    let all: BTreeSet<u64> = totals.iter().flatten().copied().collect();
    let count = totals.iter().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(all.len() as u64, count, "an operation was executed twice, or lost");
    assert_eq!(all.last(), Some(&count), "something was executed that nobody asked for");
    assert!(totals.iter().all(|mine| mine.is_sorted()), "a client's operations kept their order");
    let mut asker = network.client(CLIENTS, spec.core_settings()).unwrap();
    for (i, mine) in totals.iter().enumerate() {
        let question = Bytes::copy_from_slice(&(i as u64 + 1).to_le_bytes());
        let count = asker.read(question).unwrap().answer;
        assert_eq!(count, (mine.len() as u64).to_le_bytes()[..], "client {}", i + 1);
    }
    drop((asker, clients));
    for replica in replicas {
        replica.stop().unwrap();
    }
    for id in 0..spec.replicas {
        tercio(["audit", text(&home(folder.path(), id))]).good();
    }
    println!("{rounds} crashes, longest gap {} ms, {count} operations", longest.as_millis());
    if let Some(allowed) = allowed {
        assert!(longest <= allowed, "a client waited {longest:?}, above {allowed:?}");
    }
}

/// Ends the clients.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
