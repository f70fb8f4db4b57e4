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

#[test]
fn how_signatures_are_checked() {
    let read = |lines: &str| replica(&format!("replica = 1\n[verify]\n{lines}\n"));
    assert_eq!(read("").unwrap().node.verify.threads, 0);
    assert_eq!(read("threads = 64").unwrap().node.verify.threads, 64);
    let verify = read("batch = 1\ngather_us = 0\nsm2 = \"scalar\"").unwrap().node.verify;
    assert_eq!((verify.batch.signatures, verify.gather), (1, Duration::ZERO));
    assert_eq!(verify.sm2, Backend::Scalar);
    for (bad, why) in [
        ("threads = 65", "tercio.toml:3: threads: must be at most 64"),
        ("threads = -1", "tercio.toml:3:"),
        ("batch = 0", "tercio.toml:3: batch: must be 1 to 4096"),
        ("batch = 4097", "must be 1 to 4096"),
        ("gather_us = 10001", "tercio.toml:3: gather_us: must be at most 10000"),
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
    assert!(error.contains("tercio.toml:3: poll_us: must be at most 10000"), "{error}");
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
