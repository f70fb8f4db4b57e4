//! `docs/configuration.md` and the parsers agree, key by key.

use crate::running;

use running::{genesis, secret};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tercio_crypto::sm2::Backend;
use tercio_genesis::client_home::{CLIENT_FILE, create_client_home};
use tercio_genesis::{ClientHome, Genesis, SharedSettings};
use tercio_replica::ReplicaConfig;
use tercio_replica::config::Range;
use tercio_types::ClientId;

/// The tables of the page by heading: key and default (empty when it has none to write).
fn documented() -> BTreeMap<String, BTreeMap<String, String>> {
    let page = include_str!("../../../docs/configuration.md");
    let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            heading = title.to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<&str> = row.split('|').collect();
            let key = cells[0].trim().trim_end_matches('`');
            let default = cells[1].trim();
            let default = default.strip_prefix('`').and_then(|d| d.strip_suffix('`'));
            let table = tables.entry(heading.clone()).or_default();
            table.insert(key.into(), default.unwrap_or_default().into());
        }
    }
    tables
}

/// The keys that a parser names when it meets one that it does not know.
fn known(error: &str) -> BTreeSet<String> {
    let (_, names) = error.split_once("expected ").unwrap_or_else(|| panic!("{error}"));
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn the_genesis() -> Genesis {
    let addresses: Vec<SocketAddr> = (1..5).map(|p| ([127, 0, 0, 1], p).into()).collect();
    genesis("test", &addresses)
}

fn replica(text: &str) -> Result<ReplicaConfig, String> {
    ReplicaConfig::from_toml(text, Path::new("tercio.toml"), &the_genesis(), secret(1))
        .map_err(|error| error.to_string())
}

fn keys(table: &BTreeMap<String, String>) -> BTreeSet<String> {
    table.keys().cloned().collect()
}

fn with_defaults(table: &BTreeMap<String, String>) -> String {
    let given = table.iter().filter(|(_, default)| !default.is_empty());
    given.map(|(key, default)| format!("{key} = {default}\n")).collect()
}

#[test]
fn replicas_settings() {
    let tables = documented();
    let mut all = format!("replica = 1\n{}", with_defaults(&tables["tercio.toml"]));
    // What the parser has beside keys at the top are its tables.
    let top = known(&replica("unknown = 1\nreplica = 1\n").unwrap_err());
    let mut expected = keys(&tables["tercio.toml"]);
    for name in top.difference(&expected.clone()) {
        let table =
            tables.get(&format!("[{name}]")).unwrap_or_else(|| panic!("[{name}] is missing"));
        let error = replica(&format!("replica = 1\n[{name}]\nunknown = 1\n")).unwrap_err();
        assert_eq!(known(&error), keys(table), "[{name}]");
        all.push_str(&format!("[{name}]\n{}", with_defaults(table)));
        expected.insert(name.clone());
    }
    assert_eq!(top, expected);
    let (given, default) = (replica(&all).unwrap(), replica("replica = 1\n").unwrap());
    // The checkpoint's interval and the window are the network's.
    assert_eq!(given.node.consensus, default.node.consensus);
    assert_eq!(format!("{:?}", given.limits), format!("{:?}", default.limits));
    assert_eq!(format!("{:?}", given.node.ledger), format!("{:?}", default.node.ledger));
    assert_eq!(format!("{:?}", given.node.sync), format!("{:?}", default.node.sync));
    assert_eq!(given.node.verify, default.node.verify);
    assert_eq!(given.node.snapshot_every, default.node.snapshot_every);
    assert_eq!(given.node.snapshot_bytes, default.node.snapshot_bytes);
    assert_eq!((given.layout, given.node.durability), (default.layout, default.node.durability));
}

/// Every number that the file may have: 0, 1, the ends of its range and beyond them. What lies outside
/// is refused by its name, with the range, and the page says the same range.
#[test]
fn every_number_has_a_range() {
    let page = &documented()["Ranges"];
    let mut listed = BTreeSet::new();
    for range in ReplicaConfig::ranges() {
        let Range { table, key, least, most, .. } = *range;
        let name = format!("{table}.{key}");
        let said = page.get(&name).unwrap_or_else(|| panic!("{name} is not on the page"));
        assert_eq!(*said, format!("{least} to {most}"), "{name}");
        assert!(least >= 0 && least <= most, "{name}");
        for value in [i64::MIN, -1, 0, 1, least - 1, least, most, most.saturating_add(1), i64::MAX]
        {
            // What else hangs on it is put where it cannot be the reason.
            let beside = match key {
                "view_timeout_ms" => "view_timeout_max_ms = 3600000\n",
                "view_timeout_max_ms" => "view_timeout_ms = 20\n",
                "client_ops" => "total_ops = 268435456\n",
                "total_ops" => "client_ops = 1024\n",
                _ => "",
            };
            let read = replica(&format!("replica = 1\n[{table}]\n{key} = {value}\n{beside}"));
            let good = (least..=most).contains(&value);
            let above_the_window = key == "pipeline" && value > 32;
            match read {
                Ok(_) => assert!(good && !above_the_window, "{name} = {value} is taken"),
                Err(error) if good => {
                    let why = "tercio.toml:3: pipeline: must be at most the genesis' window, 32";
                    assert!(above_the_window && error == why, "{name} = {value}: {error}");
                }
                Err(error) => {
                    let why = format!("tercio.toml:3: {key}: must be {least} to {most}");
                    assert!(error.starts_with(&why), "{error}");
                    assert!(error.ends_with(&format!(", not {value}")), "{error}");
                }
            }
        }
        assert!(listed.insert(name), "{table}.{key} is there twice");
    }
    assert_eq!(listed, keys(page), "the page has no more");
    // All keys of the page are words, yes or no, or have a range.
    let words = ["attest", "results", "listen", "remote", "sm2"];
    for table in ["consensus", "retain", "ledger", "links", "catch_up", "verify", "metrics"] {
        for key in documented()[&format!("[{table}]")].keys() {
            let ranged = listed.contains(&format!("{table}.{key}"));
            assert!(ranged != words.contains(&&key[..]), "{table}.{key}");
        }
    }
}

/// Numbers that make sense alone, and not beside each other.
#[test]
fn numbers_that_contradict_each_other_are_refused() {
    for (lines, why) in [
        ("[consensus]\nclient_ops = 70000", "1: total_ops: must be at least client_ops, 70000"),
        ("[consensus]\ntotal_ops = 2000", "3: total_ops: must be at least client_ops, 2048"),
        (
            "[links]\nmax_client_frame = 8388608\n[consensus]\ntotal_bytes = 1048576",
            "5: total_bytes: must be at least max_client_frame, 8388608",
        ),
        ("[consensus]\nview_timeout_ms = 40000", "view_timeout_max: must be at least view_timeout"),
    ] {
        let error = replica(&format!("replica = 1\n{lines}\n")).unwrap_err();
        assert!(error.ends_with(why), "{error}");
    }
}

#[test]
fn how_signatures_are_checked() {
    let read = |lines: &str| replica(&format!("replica = 1\n[verify]\n{lines}\n"));
    assert_eq!(read("").unwrap().node.verify.threads, 0);
    assert_eq!(read("threads = 64").unwrap().node.verify.threads, 64);
    let verify = read("batch = 1\ngather_us = 0\nsm2 = \"scalar\"").unwrap().node.verify;
    assert_eq!((verify.batch.signatures, verify.gather), (1, Duration::ZERO));
    assert_eq!(verify.sm2, Backend::Scalar);
    for (bad, why) in [
        (
            "threads = 65",
            "tercio.toml:3: threads: must be 0 to 64 (0 for the loop's thread), not 65",
        ),
        ("threads = -1", "tercio.toml:3: threads: must be 0 to 64"),
        ("batch = 0", "tercio.toml:3: batch: must be 1 to 4096"),
        ("batch = 4097", "must be 1 to 4096"),
        ("gather_us = 10001", "tercio.toml:3: gather_us: must be 0 to 10000"),
        ("sm2 = \"mmx\"", "unknown; write best, scalar or ifma"),
    ] {
        let error = read(bad).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    match (Backend::Ifma.is_available(), read("sm2 = \"ifma\"")) {
        (true, read) => assert_eq!(read.unwrap().node.verify.sm2, Backend::Ifma),
        (false, read) => assert!(read.unwrap_err().contains("this processor cannot run")),
    }
}

#[test]
fn how_long_a_replica_looks_on() {
    let read = |us: u64| replica(&format!("replica = 1\n[links]\npoll_us = {us}\n"));
    assert_eq!(read(0).unwrap().limits.poll, Duration::ZERO);
    assert_eq!(read(10_000).unwrap().limits.poll, Duration::from_millis(10));
    let error = read(10_001).unwrap_err();
    assert!(error.contains("tercio.toml:3: poll_us: must be 0 to 10000, not 10001"), "{error}");
}

#[test]
fn clients_settings() {
    let table = &documented()["client.toml"];
    let dir = tempfile::tempdir().unwrap();
    let mut genesis = the_genesis();
    let key = tercio_crypto::SecretKey::generate().unwrap();
    genesis.clients.insert(ClientId(7), tercio_types::ClientInfo::new(key.public()));
    create_client_home(dir.path(), ClientId(7), &genesis, &key, None, true).unwrap();
    let load = |text: &str| {
        std::fs::write(dir.path().join(CLIENT_FILE), text).unwrap();
        ClientHome::load(dir.path(), &tercio_registry::apps())
    };
    let error = load("client = 7\nunknown = 1\n").unwrap_err().to_string();
    assert_eq!(known(&error), keys(table));
    let home = load(&format!("client = 7\n{}", with_defaults(table))).unwrap();
    let core = tercio_client::CoreSettings::default();
    assert_eq!((home.timeout, home.deadline), (Some(core.timeout), Some(core.deadline)));
    let membership = genesis.membership().unwrap();
    let settings = tercio_client::Settings::new(ClientId(7), key, membership);
    assert_eq!(home.connect, Some(settings.connect_timeout));
    assert_eq!(home.signs, core.auth == tercio_client::ClientAuth::Signature);

    for (bad, why) in [
        ("client = 9\n", "no such client"),
        ("client = 7\nauth = \"trust\"\n", "client.toml:2: auth: unknown; write mac or signature"),
        ("client = 7\ndeadline_ms = 0\n", "1 to 3600000"),
    ] {
        let error = load(bad).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let other = tercio_crypto::SecretKey::generate().unwrap();
    std::fs::write(dir.path().join("key"), other.to_file_text()).unwrap();
    let error = load("client = 7\n").unwrap_err().to_string();
    assert!(error.contains("not this client's key"), "{error}");
}

#[test]
fn the_genesis_keys() {
    let tables = documented();
    let base = the_genesis().to_toml();
    let members = &base[base.find("[[replica]]").expect("replicas come last, with the clients")..];
    let read = |text: &str| {
        Genesis::from_toml(text, Path::new("genesis.toml"), &tercio_registry::apps())
            .map_err(|error| error.to_string())
    };
    let (network, shared) = (&tables["genesis.toml"], &tables["[consensus] of the genesis"]);
    for name in tercio_registry::apps().names() {
        let table = &tables[&format!("[{name}]")];
        let error = read(&format!("name = \"x\"\n[{name}]\nunknown = 1\n{members}")).unwrap_err();
        assert_eq!(known(&error), keys(table), "[{name}]");
        let genesis = read(&format!(
            "name = \"x\"\n{}[consensus]\n{}[{name}]\n{}{members}",
            with_defaults(network),
            with_defaults(shared),
            with_defaults(table)
        ));
        let genesis = genesis.unwrap();
        assert_eq!(genesis.app, tercio_registry::apps().named(name).unwrap(), "[{name}]");
        assert_eq!(genesis.consensus, SharedSettings::default());
        assert_eq!(genesis, read(&format!("name = \"x\"\n[{name}]\n{members}")).unwrap());
    }
    let top = known(&read(&format!("unknown = 1\n{base}")).unwrap_err());
    let mut expected = keys(network);
    expected.extend(tercio_registry::apps().names().iter().map(ToString::to_string));
    expected.extend(["consensus", "replica", "client"].map(String::from));
    assert_eq!(top, expected);
    for (header, title) in [
        ("[consensus]\n", "[consensus] of the genesis"),
        ("[[replica]]\n", "[[replica]]"),
        ("[[client]]\n", "[[client]]"),
    ] {
        let error = read(&base.replacen(header, &format!("{header}unknown = 1\n"), 1)).unwrap_err();
        assert_eq!(known(&error), keys(&tables[title]), "{title}");
    }
}

/// Every number of a genesis at 0, at 1 and at the greatest that a file can say: what makes no network
/// is refused by its name.
#[test]
fn every_number_of_a_genesis_is_held_against_its_rules() {
    let tables = documented();
    let members = the_genesis().to_toml();
    let members = &members[members.find("[[replica]]").unwrap()..];
    let read = |text: &str| {
        Genesis::from_toml(text, Path::new("genesis.toml"), &tercio_registry::apps())
            .map_err(|error| error.to_string())
    };
    // Whether 0, 1 and 2^63 - 1 are taken.
    let numbers = [
        ("genesis.toml", "lag", [true, true, false]),
        ("[consensus] of the genesis", "checkpoint_interval", [false, true, false]),
        ("[consensus] of the genesis", "window", [false, false, false]),
        ("[counter]", "iterations", [true, true, false]),
        ("[counter]", "reply", [true, true, false]),
        ("[exchange]", "max_accounts", [false, true, false]),
        ("[exchange]", "max_open_orders", [false, true, false]),
        ("[exchange]", "max_book_orders", [false, true, false]),
        ("[exchange]", "max_fills", [false, true, false]),
        ("[kv]", "max_key_bytes", [false, true, false]),
        ("[kv]", "max_value_bytes", [false, true, false]),
        ("[kv]", "fill_keys", [true, true, false]),
        ("[kv]", "fill_value_bytes", [true, true, false]),
        ("[bank]", "issuer", [true, true, true]),
        ("[bank]", "accounts", [true, true, false]),
        ("[bank]", "balance", [true, true, true]),
        ("[bank]", "owners", [false, true, true]),
    ];
    for (table, key, verdicts) in numbers {
        for (value, good) in [0, 1, i64::MAX].into_iter().zip(verdicts) {
            let line = format!("{key} = {value}\n");
            let text = match table {
                "genesis.toml" => format!("name = \"x\"\n{line}[counter]\n{members}"),
                "[consensus] of the genesis" => {
                    format!("name = \"x\"\n[consensus]\n{line}[counter]\n{members}")
                }
                app => format!("name = \"x\"\n{app}\n{line}{members}"),
            };
            match read(&text) {
                Ok(_) => assert!(good, "{table} {line} is taken"),
                Err(error) => assert!(!good && error.contains(key), "{table} {line}: {error}"),
            }
        }
    }
    // The page's other numbers are those of members, below; a new one is to be listed above.
    for (title, table) in &tables {
        let of_genesis = title == "genesis.toml"
            || title == "[consensus] of the genesis"
            || tercio_registry::apps().names().iter().any(|app| *title == format!("[{app}]"));
        for (key, default) in table.iter().filter(|_| of_genesis) {
            let listed = numbers.iter().any(|(of, known, _)| of == title && known == key);
            assert!(listed || default.parse::<i64>().is_err(), "{title} {key} is not listed");
        }
    }
}
