//! Every kind of bad input has a reason of its own, and no bytes make the store panic.

use crate::common;

use bytes::Bytes;
use common::{ask, run};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tercio_execution::{Application, Footprint, KeyRange, Keyed, Operation, Transaction};
use tercio_kv::text::{self, TextError};
use tercio_kv::{Command, Kv, Page, Query, Reject, Reply, Scan, Settings, SettingsError};
use tercio_types::{ClientId, RequestSeq, Suite};
use tercio_wire::{DecodeError, Encode};

fn kv() -> Kv {
    Kv::new(Settings { max_key_bytes: 4, max_value_bytes: 6, ..Settings::default() }).unwrap()
}

fn store() -> Keyed<Kv> {
    Keyed::new(kv(), Suite::default())
}

fn put(key: &'static str, value: &'static str) -> Command {
    Command::Put { key: key.into(), value: value.into() }
}

fn scan(limit: u32) -> Scan {
    Scan { from: Bytes::new(), to: None, limit }
}

#[test]
fn every_reason_is_given_for_its_own_mistake() {
    use Reject::*;
    let mut store = store();
    let stored = run(&mut store, &[put("key", "value").to_bytes()]);
    assert_eq!(stored, [Reply::Stored { replaced: false }]);
    let get = |key: &'static str| Command::Get { key: key.into() }.to_bytes();
    let swap = |expected: Option<&'static str>, new: Option<&'static str>| {
        let (expected, new) = (expected.map(Bytes::from), new.map(Bytes::from));
        Command::Swap { key: "key".into(), expected, new }.to_bytes()
    };
    let mut flag = swap(None, None).to_vec();
    *flag.last_mut().unwrap() = 2;
    let cases: Vec<(Bytes, Reject)> = vec![
        (Bytes::from_static(&[0]), UnknownOperation),
        (Bytes::from_static(&[9]), UnknownOperation),
        (Bytes::from_static(&[255; 20]), UnknownOperation),
        (Bytes::new(), Truncated),
        (get("key").slice(..5), Truncated),
        (Bytes::from_static(&[2, 1, 0, b'k', 255, 255, 255, 255]), Truncated),
        ([&get("key")[..], &[0]].concat().into(), TrailingBytes),
        (flag.into(), InvalidFlag),
        (get(""), KeySize),
        (get("fives"), KeySize),
        (put("", "v").to_bytes(), KeySize),
        (Command::Delete { key: "fives".into() }.to_bytes(), KeySize),
        (put("key", "seventh").to_bytes(), ValueSize),
        (swap(Some("seventh"), None), ValueSize),
        (swap(None, Some("seventh")), ValueSize),
        (Command::Scan(scan(0)).to_bytes(), ScanLimit),
        (Command::Scan(scan(1001)).to_bytes(), ScanLimit),
    ];
    let before = store.state_digest();
    let mut seen = BTreeSet::new();
    for (op, reason) in cases {
        let refused = run(&mut store, std::slice::from_ref(&op));
        assert_eq!(refused, [Reply::Rejected(reason)], "{op:?}");
        assert_eq!(store.pre_check().check(&op).unwrap_err().0, reason.to_string());
        assert!(store.query(&op).is_err(), "{op:?}");
        seen.insert(reason);
    }
    assert_eq!(store.state_digest(), before, "nothing was changed");
    assert_eq!(seen, Reject::ALL.iter().copied().collect(), "no reason is left out");
    let widest = Command::Put { key: "four".into(), value: "sixsix".into() }.to_bytes();
    store.pre_check().check(&widest).unwrap();
    assert_eq!(run(&mut store, &[widest]), [Reply::Stored { replaced: false }]);
}

#[test]
fn queries_read_and_refuse_what_would_write() {
    let mut store = store();
    run(&mut store, &[put("a", "1").to_bytes(), put("b", "2").to_bytes()]);
    assert_eq!(ask(&store, &Query::Count), Ok(Reply::Count(2)));
    assert_eq!(ask(&store, &Query::Get { key: "b".into() }), Ok(Reply::Found("2".into())));
    assert_eq!(ask(&store, &Query::Get { key: "c".into() }), Ok(Reply::Missing));
    for write in [put("a", "2"), Command::Delete { key: "a".into() }] {
        let refused = store.query(&write.to_bytes()).unwrap_err();
        assert_eq!(refused.0, Reject::UnknownOperation.to_string());
    }
    assert_eq!(
        ask(&store, &Query::Get { key: "longer".into() }).unwrap_err().0,
        "the key is empty or too long"
    );
    assert!(ask(&store, &Query::Scan(scan(0))).is_err());
}

/// A declaration binds, so a wrong one would abort the command; but one that is too wide would
/// only be slow.
#[test]
fn footprints_are_exact() {
    let kv = kv();
    let of = |op: Bytes| {
        let tx = Operation { client: ClientId(1), seq: RequestSeq(1), op };
        match kv.footprint(&tx) {
            Footprint::Unknown => panic!("every command declares what it touches"),
            Footprint::Declared { reads, writes, ranges } => (reads, writes, ranges),
        }
    };
    let key = Bytes::from("key");
    let own = || vec![key.clone()];
    assert_eq!(of(Command::Get { key: key.clone() }.to_bytes()), (own(), vec![], vec![]));
    for command in [
        put("key", "value"),
        Command::Delete { key: key.clone() },
        Command::Swap { key: key.clone(), expected: None, new: None },
    ] {
        assert_eq!(of(command.to_bytes()), (vec![], own(), vec![]));
    }
    let open = KeyRange { from: Bytes::new(), to: None };
    assert_eq!(of(Command::Scan(scan(5)).to_bytes()), (vec![], vec![], vec![open]));
    let (from, to) = (key.clone(), Some(Bytes::from("kez")));
    let range = KeyRange { from: from.clone(), to: to.clone() };
    let command = Command::Scan(Scan { from, to, limit: 5 });
    assert_eq!(of(command.to_bytes()), (vec![], vec![], vec![range]));
    for refused in [Bytes::new(), put("fives", "").to_bytes()] {
        assert_eq!(of(refused), (vec![], vec![], vec![]));
    }
}

#[test]
fn settings_that_make_no_store_are_refused() {
    let wrong = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        let error = Kv::new(settings).err();
        error.map(|error| match error {
            SettingsError::Limit { name, .. } => name,
            other => panic!("{other}"),
        })
    };
    assert_eq!(wrong(&|_| {}), None);
    assert_eq!(wrong(&|s| s.max_key_bytes = 0), Some("max_key_bytes"));
    assert_eq!(wrong(&|s| s.max_key_bytes = 4097), Some("max_key_bytes"));
    assert_eq!(wrong(&|s| (s.max_key_bytes, s.fill_keys) = (16, 1)), Some("max_key_bytes"));
    assert_eq!(wrong(&|s| s.max_value_bytes = 0), Some("max_value_bytes"));
    assert_eq!(wrong(&|s| s.max_value_bytes = u32::MAX), Some("max_value_bytes"));
    assert_eq!(wrong(&|s| s.fill_value_bytes = 1 << 17), Some("fill_value_bytes"));
    assert_eq!(wrong(&|s| s.fill_keys = u64::MAX), Some("fill_keys"));
}

#[test]
fn lines_are_commands_and_say_what_is_wrong() {
    let key = || Bytes::from("k");
    assert_eq!(text::parse(" get  k "), Ok(Command::Get { key: key() }));
    assert_eq!(text::parse(r#"put k "a \"b\" \\ \n \xff""#), {
        let value = Bytes::from_static(b"a \"b\" \\ \n \xff");
        Ok(Command::Put { key: key(), value })
    });
    assert_eq!(text::parse(r#"put k """#), Ok(Command::Put { key: key(), value: Bytes::new() }));
    let swap = |expected: Option<&'static str>, new: Option<&'static str>| {
        let (expected, new) = (expected.map(Bytes::from), new.map(Bytes::from));
        Ok(Command::Swap { key: key(), expected, new })
    };
    assert_eq!(text::parse("swap k - v"), swap(None, Some("v")));
    assert_eq!(text::parse(r#"swap k "-" -"#), swap(Some("-"), None));
    let scan = |from: &'static str, to: Option<&'static str>, limit| {
        Ok(Query::Scan(Scan { from: from.into(), to: to.map(Bytes::from), limit }))
    };
    assert_eq!(text::parse_query("scan"), scan("", None, 100));
    assert_eq!(text::parse_query("scan a"), scan("a", None, 100));
    assert_eq!(text::parse_query("scan - z 7"), scan("", Some("z"), 7));
    assert_eq!(text::parse_query(" count "), Ok(Query::Count));

    for line in ["", "get", "get a b", "put a", "\"get\" a", "set a b", "scan a b 1 2", "count"] {
        assert_eq!(text::parse(line), Err(TextError::Usage(text::USAGE)), "{line}");
    }
    for line in ["", "put a b", "delete a", "count 1", "swap a b c"] {
        assert_eq!(text::parse_query(line), Err(TextError::Usage(text::QUERY_USAGE)), "{line}");
    }
    assert_eq!(text::parse("get \"a"), Err(TextError::OpenQuote(5)));
    assert_eq!(text::parse("get \"a\"b"), Err(TextError::NoSpace(8)));
    for escape in ["\\t", "\\x1", "\\xzz", "\\"] {
        let line = format!("get \"a{escape}");
        assert_eq!(text::parse(&line), Err(TextError::Escape(7)), "{line}");
    }
    for limit in ["0", "1001", "-1", "many", "99999999999"] {
        let refused = text::parse(&format!("scan - - {limit}"));
        assert_eq!(refused, Err(TextError::Limit(limit.into())));
    }
    assert_eq!(text::parse(&format!("get {}", "k".repeat(5000))), Err(TextError::Key));
}

#[test]
fn replies_have_words() {
    let page = |more| {
        let entries = vec![("a".into(), "1".into()), ("b c".into(), Bytes::new())];
        Reply::Page(Page { entries, more })
    };
    let cases = [
        (Reply::Rejected(Reject::KeySize), "rejected: the key is empty or too long"),
        (Reply::Found("v".into()), "v"),
        (Reply::Missing, "no value"),
        (Reply::Stored { replaced: false }, "stored"),
        (Reply::Stored { replaced: true }, "stored, in place of another value"),
        (Reply::Deleted { existed: true }, "deleted"),
        (Reply::Deleted { existed: false }, "there was no value"),
        (Reply::Swapped, "swapped"),
        (Reply::Differs(None), "not swapped: there is no value"),
        (Reply::Differs(Some("-".into())), "not swapped: the value is \"-\""),
        (page(false), "a 1\n\"b c\" \"\""),
        (page(true), "a 1\n\"b c\" \"\"\nmore: scan \"b c\\x00\""),
        (Reply::Page(Page::default()), "no keys"),
        (Reply::Count(1), "1 key"),
        (Reply::Count(0), "0 keys"),
    ];
    for (reply, words) in cases {
        assert_eq!(reply.to_string(), words);
    }
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        ".{0,10}".prop_map(String::into_bytes),
        "[-\"\\\\ a\u{7f}]{0,4}".prop_map(String::into_bytes),
    ]
    .prop_map(Bytes::from)
}

fn reply() -> impl Strategy<Value = Reply> {
    let entries = prop::collection::vec((bytes(), bytes()), 0..4);
    prop_oneof![
        (0..Reject::ALL.len()).prop_map(|i| Reply::Rejected(Reject::ALL[i])),
        bytes().prop_map(Reply::Found),
        Just(Reply::Missing),
        any::<bool>().prop_map(|replaced| Reply::Stored { replaced }),
        any::<bool>().prop_map(|existed| Reply::Deleted { existed }),
        Just(Reply::Swapped),
        prop::option::of(bytes()).prop_map(Reply::Differs),
        (entries, any::<bool>()).prop_map(|(entries, more)| Reply::Page(Page { entries, more })),
        any::<u64>().prop_map(Reply::Count),
    ]
}

proptest! {
    /// Mostly garbage; the first byte small so that some is not.
    #[test]
    fn values_have_one_encoding(garbage in prop::collection::vec(any::<u8>(), 0..60), tag in 0u8..10) {
        let mut garbage = garbage;
        if let Some(first) = garbage.first_mut() {
            *first = tag;
        }
        // Lengths that are met at times.
        if let Some(high) = garbage.get_mut(2) {
            *high = 0;
        }
        let bytes = Bytes::from(garbage);
        if let Ok(command) = Command::parse(&bytes) {
            prop_assert_eq!(&command.to_bytes(), &bytes);
        }
        if let Ok(query) = Query::parse(&bytes) {
            prop_assert_eq!(&query.to_bytes(), &bytes);
        }
        if let Ok(reply) = Reply::parse(&bytes) {
            prop_assert_eq!(&reply.to_bytes(), &bytes);
        }
        let mut store = store();
        run(&mut store, std::slice::from_ref(&bytes));
        let _ = store.query(&bytes);
    }

    #[test]
    fn replies_read_back(reply in reply()) {
        let bytes = reply.to_bytes();
        prop_assert_eq!(Reply::parse(&bytes), Ok(reply));
        prop_assert!(matches!(
            Reply::parse(&bytes.slice(..bytes.len() - 1)),
            Err(DecodeError::Truncated(_))
        ));
        let long = Bytes::from([&bytes[..], &[0]].concat());
        prop_assert_eq!(Reply::parse(&long), Err(DecodeError::Trailing(1)));
    }

    /// What a reply shows can be written into a command, whatever the bytes.
    #[test]
    fn what_is_shown_can_be_pasted(key in bytes(), value in bytes()) {
        let shown = |bytes: &Bytes| Reply::Found(bytes.clone()).to_string();
        let line = format!("put {} {}", shown(&key), shown(&value));
        prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
        prop_assert_eq!(text::parse(&line), Ok(Command::Put { key, value }));
    }

    #[test]
    fn no_line_makes_the_parser_panic(line in ".{0,40}", tail in "[\"\\\\x0a -]{0,12}") {
        let _ = text::parse(&line);
        let _ = text::parse_query(&format!("get {tail}"));
    }
}
