//! What a transaction may touch, sees and leaves behind: undeclared accesses and panics abort it
//! alone, and what it saw can be held against the state later.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tercio_execution::{
    Aborted, AppError, Application, Context, Footprint, KeyRange, Keyed, Operation, Outcome,
    Replies, StateView, Store, Transaction, attempt,
};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};

const SUITE: Suite = Suite::Sha256Ed25519;

/// An operation is a script, one step after the other: `r` or `w` and a key of one byte, `d` and a
/// key, `s` with first key, end and how many keys, `!` for a panic, `a` for an abort; `?` makes it
/// swallow whatever unwinds it. It declares what stands before `|`, in the same letters; `*` is a
/// panic there. The result is all that it saw.
struct Script;

const STEPS: [(u8, usize); 7] =
    [(b'r', 1), (b'w', 1), (b'd', 1), (b's', 3), (b'!', 0), (b'a', 0), (b'*', 0)];

fn steps(script: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut steps) = (script, Vec::new());
    while let Some(&first) = rest.first() {
        let args = STEPS.iter().find(|(step, _)| *step == first).map_or(0, |(_, args)| *args);
        let (step, after) = rest.split_at((1 + args).min(rest.len()));
        steps.push(step);
        rest = after;
    }
    steps
}

/// The declared part, if there is one, and the rest.
fn parts(op: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match op.iter().position(|b| *b == b'|') {
        Some(at) => (Some(&op[..at]), &op[at + 1..]),
        None => (None, op),
    }
}

fn run_steps(script: &[u8], view: &mut StateView<'_>, result: &mut Vec<u8>) -> Outcome {
    for (i, step) in steps(script).into_iter().enumerate() {
        match *step {
            [b'r', key] => result.extend(view.get(&[key]).unwrap_or_default()),
            [b'w', key] => view.put(&[key], &[key, i as u8]),
            [b'd', key] => view.delete(&[key]),
            [b's', from, to, count] => {
                let mut left = count;
                let end = [to];
                let end = (to < 200).then_some(&end[..]);
                view.range(&[from], end, |key, value| {
                    result.extend([key, value].into_iter().flatten());
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            [b'!'] => panic!("step {i} of {script:?}"),
            [b'a'] => return Outcome::Abort,
            _ => {}
        }
    }
    Outcome::Commit
}

impl Transaction for Script {
    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        let (_, script) = parts(&tx.op);
        if script.first() != Some(&b'?') {
            return run_steps(script, view, result);
        }
        catch_unwind(AssertUnwindSafe(|| run_steps(script, view, result)))
            .unwrap_or(Outcome::Commit)
    }

    fn footprint(&self, tx: &Operation) -> Footprint {
        let (Some(declared), _) = parts(&tx.op) else { return Footprint::Unknown };
        let (mut reads, mut writes, mut ranges) = (vec![], vec![], vec![]);
        let key = |key: u8| Bytes::copy_from_slice(&[key]);
        for step in steps(declared) {
            match *step {
                [b'r', a] => reads.push(key(a)),
                [b'w', a] => writes.push(key(a)),
                [b's', from, to, _] => {
                    let to = (to < 200).then(|| key(to));
                    ranges.push(KeyRange { from: key(from), to });
                }
                _ => panic!("an odd declaration"),
            }
        }
        Footprint::Declared { reads, writes, ranges }
    }

    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        assert!(question != b"!", "a question that panics");
        Ok(store.get(question).cloned().unwrap_or_default())
    }

    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        assert!(operation != b"!", "an operation whose check panics");
        Ok(())
    }
}

fn context() -> Context {
    Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL }
}

fn operation(op: &[u8]) -> Operation {
    Operation { client: ClientId(1), seq: RequestSeq(1), op: Bytes::copy_from_slice(op) }
}

fn app() -> Keyed<Script> {
    Keyed::new(Script, SUITE)
}

fn run(app: &mut Keyed<Script>, ops: &[&[u8]]) -> Replies {
    let mut replies = Replies::default();
    let operations: Vec<_> = ops.iter().map(|op| operation(op)).collect();
    app.execute(&context(), &operations, &mut replies);
    replies
}

/// What `op` is aborted for over keys 1 and 3; that it leaves no trace then, and the operations
/// around it their results.
fn aborted(op: &[u8]) -> Option<Aborted> {
    let mut app = app();
    run(&mut app, &[b"w\x01w\x03"]);
    let before = app.state_digest();
    let replies = run(&mut app, &[b"r\x01", op, b"r\x03"]);
    assert_eq!((replies.get(0), replies.get(2)), (&[1, 0][..], &[3, 1][..]), "{op:?}");
    let why = replies.aborted(1);
    if why.is_some() {
        assert_eq!(replies.get(1), b"", "{op:?}");
        assert_eq!(app.state_digest(), before, "{op:?}");
    }
    assert_eq!((replies.aborted(0), replies.aborted(2)), (None, None));
    assert!(replies.all_aborted().eq(why));
    why
}

#[test]
fn what_is_not_declared_aborts_its_operation_alone() {
    let strays: [&[u8]; 14] = [
        b"|r\x01",
        b"r\x01|r\x01r\x03",
        b"r\x01|w\x01",
        b"r\x01|d\x01",
        b"w\x01|w\x01w\x03",
        b"w\x01|r\x01w\x01w\x03r\x01",
        b"w\x01|s\x01\x02\x09",
        b"s\x01\x03\x01|s\x01\x04\x01",
        b"s\x01\x03\x01|s\x00\x02\x01",
        b"s\x01\x03\x01|s\x01\xff\x01",
        b"s\x01\x03\x01|r\x03",
        b"s\x01\x03\x01|w\x01",
        // It goes on as if nothing was, or panics about it.
        b"w\x01|?w\x01r\x03w\x01",
        b"w\x01|w\x01r\x03!",
    ];
    for op in strays {
        assert_eq!(aborted(op), Some(Aborted::OutsideFootprint), "{op:?}");
    }
    let within: [&[u8]; 8] = [
        b"|",
        b"r\x01|r\x01",
        b"w\x01|r\x01w\x01r\x01d\x01r\x01",
        b"s\x01\x03\x00|s\x01\x03\x09r\x01r\x02",
        b"s\x01\x03\x00|s\x02\x02\x09",
        b"s\x01\xff\x00|s\x01\xff\x09s\x02\x09\x01r\x99",
        b"w\x01|aw\x03",
        b"r\x01r\x03w\x05s\x00\xff\x09d\x07",
    ];
    for op in within {
        assert_eq!(aborted(op), None, "{op:?}");
    }
}

#[test]
fn a_panic_aborts_its_operation_alone() {
    let panics: [&[u8]; 5] =
        [b"!", b"w\x01w\x07!", b"w\x07|w\x07!", b"*|r\x01", b"r\x01s\x00\xff\x09!"];
    for op in panics {
        assert_eq!(aborted(op), Some(Aborted::Panicked), "{op:?}");
    }
    assert_eq!(aborted(b"?!"), None, "what it catches itself is its own");
}

/// An ordered read, and what is asked before ordering, are poison pills too.
#[test]
fn a_question_or_check_that_panics_is_declined() {
    let app = app();
    let why = Err(AppError("the application panicked over it".into()));
    assert_eq!(app.query(b"!").map(drop), why);
    assert_eq!(app.pre_check().check(b"!"), why);
    assert_eq!((app.query(b"x").map(drop), app.pre_check().check(b"x")), (Ok(()), Ok(())));
}

type Map = BTreeMap<u8, Vec<u8>>;

/// The same over a plain map, which is copied for each operation.
fn naive(map: &mut Map, script: &[u8]) -> Result<Vec<u8>, Aborted> {
    let (mut after, mut result) = (map.clone(), Vec::new());
    for (i, step) in steps(script).into_iter().enumerate() {
        match *step {
            [b'r', key] => result.extend(after.get(&key).cloned().unwrap_or_default()),
            [b'w', key] => drop(after.insert(key, vec![key, i as u8])),
            [b'd', key] => drop(after.remove(&key)),
            [b's', from, to, count] => {
                let within = after.iter().filter(|(k, _)| **k >= from && (to >= 200 || **k < to));
                for (key, value) in within.take(usize::from(count.max(1))) {
                    result.push(*key);
                    result.extend(value);
                }
            }
            [b'!'] => return Err(Aborted::Panicked),
            [b'a'] => return Ok(result),
            _ => {}
        }
    }
    *map = after;
    Ok(result)
}

fn script() -> impl Strategy<Value = Vec<u8>> {
    let key = || 0u8..8;
    let step = prop_oneof![
        4 => key().prop_map(|k| vec![b'r', k]),
        4 => key().prop_map(|k| vec![b'w', k]),
        2 => key().prop_map(|k| vec![b'd', k]),
        3 => (key(), prop_oneof![4 => key(), 1 => Just(200)], 0u8..5)
            .prop_map(|(a, b, n)| vec![b's', a, b, n]),
    ];
    let end = prop_oneof![8 => Just(vec![]), 1 => Just(vec![b'a']), 1 => Just(vec![b'!'])];
    (prop::collection::vec(step, 0..8), end).prop_map(|(steps, end)| [steps.concat(), end].concat())
}

fn store_of(map: &Map) -> Store {
    let mut store = Store::new(SUITE);
    map.iter().for_each(|(key, value)| drop(store.put(&[*key], value)));
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_view_equals_a_copy_of_the_state(scripts in prop::collection::vec(script(), 1..20)) {
        let (mut app, mut map) = (app(), Map::new());
        for script in &scripts {
            let expected = naive(&mut map, script);
            let replies = run(&mut app, &[script]);
            let got = match replies.aborted(0) {
                None => Ok(replies.get(0).to_vec()),
                Some(why) => Err(why),
            };
            prop_assert_eq!(got, expected);
            prop_assert_eq!(app.state_digest(), store_of(&map).digest());
        }
    }

    /// What an optimistic executor stands on: while what a transaction saw holds, it does the same
    /// again; and what it saw does not hold by chance, but is all that it depends on.
    #[test]
    fn while_its_accesses_hold_a_transaction_does_the_same_again(
        script in script(),
        keys in prop::collection::btree_map(0u8..8, prop::collection::vec(0u8..3, 0..2), 0..8),
        changes in prop::collection::btree_map(0u8..8, prop::option::of(Just(vec![9])), 0..3),
    ) {
        let attempt_on = |map: &Map| {
            let (store, mut result) = (store_of(map), Vec::new());
            let tx = operation(&script);
            let ran = attempt(&Script, &tx, &context(), &mut &store, true, &mut result);
            (ran, result)
        };
        let (first, first_result) = attempt_on(&keys);
        let seen = first.accesses.clone().expect("it was to be recorded");
        prop_assert!(seen.hold(&mut &store_of(&keys)));
        let mut changed = keys.clone();
        for (key, value) in changes {
            match value {
                Some(value) => drop(changed.insert(key, value)),
                None => drop(changed.remove(&key)),
            }
        }
        let holds = seen.hold(&mut &store_of(&changed));
        if holds {
            let (again, result) = attempt_on(&changed);
            prop_assert_eq!(&again, &first);
            prop_assert_eq!(result, first_result);
        }
        // It is exact: only a key that it read, or that is in a range which it went through, counts.
        let differs = (0u8..8).filter(|key| keys.get(key) != changed.get(key));
        let touched: BTreeSet<u8> = (0..8)
            .filter(|key| {
                let key: &[u8] = &[*key];
                let in_range = |range: &KeyRange| {
                    range.from.as_ref() <= key && range.to.as_ref().is_none_or(|to| key < to)
                };
                seen.reads.contains_key(key) || seen.ranges.iter().any(|(range, _)| in_range(range))
            })
            .collect();
        prop_assert_eq!(holds, differs.filter(|key| touched.contains(key)).count() == 0);
    }
}

/// A key that appears in a range which was gone through shows, and one behind its end does not.
#[test]
fn a_phantom_is_seen() {
    let mut store = Store::new(SUITE);
    for key in [1, 3, 5] {
        store.put(&[key], b"x");
    }
    let mut result = Vec::new();
    let tx = operation(b"s\x01\xff\x02w\x02");
    let ran = attempt(&Script, &tx, &context(), &mut &store, true, &mut result);
    let seen = ran.accesses.unwrap();
    assert_eq!(seen.ranges[0].0.to.as_deref(), Some(&[3, 0][..]), "no further than it went");
    store.put(&[4], b"behind");
    assert!(seen.hold(&mut &store));
    store.put(&[2], b"phantom");
    assert!(!seen.hold(&mut &store));
    store.delete(&[2]);
    assert!(seen.hold(&mut &store));
    store.delete(&[3]);
    assert!(!seen.hold(&mut &store));
}

#[cfg(feature = "zoo")]
#[test]
fn f53_f54_without_the_defences() {
    use tercio_types::zoo::{Defence, without};

    let stray = || aborted(b"|r\x01");
    assert_eq!(without(Defence::F53FootprintBinds, stray), None);
    let panic = || catch_unwind(|| aborted(b"!"));
    assert!(without(Defence::F54PanicsAbort, panic).is_err(), "it takes the replica along");
    let ask = || catch_unwind(|| app().query(b"!"));
    assert!(without(Defence::F54PanicsAbort, ask).is_err());
}
