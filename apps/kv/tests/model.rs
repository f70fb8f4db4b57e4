//! The store against a plain map, with snapshots in between.

use crate::common;

use bytes::Bytes;
use common::{ask, run};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tercio_execution::{Application, Keyed};
use tercio_kv::{Command, Kv, Page, Query, Reply, Scan, Settings};
use tercio_types::Suite;
use tercio_wire::Encode;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn settings() -> Settings {
    Settings { max_key_bytes: 8, max_value_bytes: 40_000, ..Settings::default() }
}

fn new() -> Keyed<Kv> {
    Keyed::new(Kv::new(settings()).unwrap(), Suite::default())
}

fn key() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(0u8..3, 1..4).prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => prop::collection::vec(0u8..2, 0..2),
        1 => Just(vec![5; 40_000]),
    ]
    .prop_map(Bytes::from)
}

fn scan() -> impl Strategy<Value = Scan> {
    let limit = prop_oneof![4 => 1..8u32, 1 => Just(Scan::MAX_KEYS)];
    let from = prop_oneof![1 => Just(Bytes::new()), 4 => key()];
    (from, prop::option::of(key()), limit).prop_map(|(from, to, limit)| Scan { from, to, limit })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => key().prop_map(|key| Command::Get { key }),
        4 => (key(), value()).prop_map(|(key, value)| Command::Put { key, value }),
        2 => key().prop_map(|key| Command::Delete { key }),
        3 => (key(), prop::option::of(value()), prop::option::of(value()))
            .prop_map(|(key, expected, new)| Command::Swap { key, expected, new }),
        1 => scan().prop_map(Command::Scan),
    ]
}

/// What a page holds, found by looking at every key.
fn naive_page(map: &Map, scan: &Scan) -> Page {
    let mut page = Page::default();
    let mut bytes = 0;
    for (key, value) in map {
        let below = key.as_slice() < scan.from.as_ref();
        let beyond = scan.to.as_ref().is_some_and(|to| key.as_slice() >= to.as_ref());
        if below || beyond || page.more {
            continue;
        }
        bytes += key.len() + value.len();
        let first = page.entries.is_empty();
        if !first && (page.entries.len() as u32 == scan.limit || bytes > 65_536) {
            page.more = true;
        } else {
            page.entries.push((key.clone().into(), value.clone().into()));
        }
    }
    page
}

fn naive(map: &mut Map, command: &Command) -> Reply {
    let shared = |value: &Vec<u8>| Bytes::copy_from_slice(value);
    match command {
        Command::Get { key } => match map.get(key.as_ref()) {
            Some(value) => Reply::Found(shared(value)),
            None => Reply::Missing,
        },
        Command::Put { key, value } => {
            Reply::Stored { replaced: map.insert(key.to_vec(), value.to_vec()).is_some() }
        }
        Command::Delete { key } => Reply::Deleted { existed: map.remove(key.as_ref()).is_some() },
        Command::Swap { key, expected, new } => {
            let current = map.get(key.as_ref()).map(shared);
            if current != *expected {
                return Reply::Differs(current);
            }
            map.remove(key.as_ref());
            if let Some(new) = new {
                map.insert(key.to_vec(), new.to_vec());
            }
            Reply::Swapped
        }
        Command::Scan(scan) => Reply::Page(naive_page(map, scan)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_store_equals_a_plain_map(
        commands in prop::collection::vec(command(), 1..150),
        scans in prop::collection::vec(scan(), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut map = Map::new();
        let expected: Vec<_> = commands.iter().map(|c| naive(&mut map, c)).collect();
        let ops: Vec<_> = commands.iter().map(Encode::to_bytes).collect();
        let cut = cut.index(ops.len());

        let mut store = new();
        let mut got = run(&mut store, &ops[..cut]);
        let mut restored = new();
        restored.restore(&store.snapshot().collect::<Vec<_>>()).unwrap();
        got.extend(run(&mut store, &ops[cut..]));
        prop_assert_eq!(&got, &expected);
        prop_assert_eq!(&run(&mut restored, &ops[cut..]), &expected[cut..]);
        prop_assert_eq!(restored.state_digest(), store.state_digest());
        let contract = tercio_execution::check_contract(&mut store, &mut new(), Suite::default());
        prop_assert_eq!(contract, Ok(()));

        for scan in scans {
            let page = naive_page(&map, &scan);
            prop_assert_eq!(ask(&store, &Query::Scan(scan)), Ok(Reply::Page(page)));
        }
        for key in [&[0u8][..], &[1, 1], &[2, 0, 1]] {
            let expected = naive(&mut map, &Command::Get { key: Bytes::copy_from_slice(key) });
            let question = Query::Get { key: Bytes::copy_from_slice(key) };
            prop_assert_eq!(ask(&store, &question), Ok(expected));
        }
        prop_assert_eq!(ask(&store, &Query::Count), Ok(Reply::Count(map.len() as u64)));
    }
}

/// Page by page one meets every key once, whatever the sizes of pages and values.
#[test]
fn pages_follow_one_another() {
    let mut store = new();
    let key = |i: u32| Bytes::copy_from_slice(&i.to_be_bytes());
    let value = |i: u32| Bytes::from(vec![1; (i as usize % 4) * 12_000]);
    let put = |i| Command::Put { key: key(i), value: value(i) }.to_bytes();
    run(&mut store, &(0..40).map(put).collect::<Vec<_>>());
    for limit in [1, 3, 1000] {
        let mut scan = Scan { from: Bytes::new(), to: None, limit };
        let mut met = vec![];
        loop {
            let Ok(Reply::Page(page)) = ask(&store, &Query::Scan(scan.clone())) else { panic!() };
            met.extend(page.entries);
            if !page.more {
                break;
            }
            scan.from = [&met.last().unwrap().0[..], &[0]].concat().into();
        }
        assert_eq!(met, (0..40).map(|i| (key(i), value(i))).collect::<Vec<_>>());
    }
}

#[test]
fn a_store_can_begin_filled() {
    let filled = Settings { fill_keys: 1_000, fill_value_bytes: 37, ..Settings::default() };
    let build = |settings| Keyed::new(Kv::new(settings).unwrap(), Suite::default());
    let mut store = build(filled);
    assert_eq!(ask(&store, &Query::Count), Ok(Reply::Count(1_000)));
    for i in [0, 1, 999] {
        let question = Query::Get { key: filled.fill_key(i).into() };
        assert_eq!(ask(&store, &question), Ok(Reply::Found(filled.fill_value(i).into())));
    }
    assert_eq!(filled.fill_value(5).len(), 37);
    assert_ne!(filled.fill_value(5), filled.fill_value(6));
    assert_eq!(store.state_digest(), build(filled).state_digest());
    let other = Settings { fill_keys: 999, ..filled };
    assert_ne!(store.state_digest(), build(other).state_digest());
    tercio_execution::check_contract(&mut store, &mut build(other), Suite::default()).unwrap();
    // What came before is gone after a restore.
    let mut restored = build(other);
    restored.restore(&store.snapshot().collect::<Vec<_>>()).unwrap();
    assert_eq!(restored.state_digest(), store.state_digest());
}
