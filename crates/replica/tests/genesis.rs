//! The genesis as a file and as a chain id; the words for layouts and durabilities.

use crate::running;

use running::{genesis, listener, secret};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tercio_consensus::ProtocolFacts;
use tercio_consensus::pbft::Pbft;
use tercio_crypto::{SigningSecret, public_to_der, to_hex};
use tercio_execution::membership_digest;
use tercio_genesis::{App, Genesis, SharedSettings};
use tercio_replica::{Durability, Layout};
use tercio_sequencer::Sequencer;
use tercio_types::{ChainId, ClientId, ClientInfo, Epoch, Membership, ReplicaId, Scheme};

fn example() -> Genesis {
    genesis("test", &[listener().local_addr().unwrap(); 4])
}

fn exchange() -> App {
    let settings = tercio_exchange::Settings {
        operator: Some(ClientId(7)),
        credit: u128::from(u64::MAX) + 5,
        ..tercio_exchange::Settings::markets(3)
    };
    tercio_registry::ExchangeKind::app(settings)
}

fn kv(fill_keys: u64) -> App {
    let default = tercio_kv::Settings::default();
    tercio_registry::KvKind::app(tercio_kv::Settings {
        max_value_bytes: 9_000,
        fill_keys,
        ..default
    })
}

fn bank(issuer: Option<ClientId>) -> App {
    tercio_registry::BankKind::app(tercio_bank::Settings {
        issuer,
        accounts: 5,
        balance: 7,
        owners: 3,
    })
}

#[test]
fn every_application_has_a_name() {
    for name in tercio_registry::apps().names() {
        let app = tercio_registry::apps().named(name).unwrap();
        assert_eq!(app.name(), name);
        app.check().unwrap();
    }
    assert_eq!(tercio_registry::apps().named("casino"), None);
}

#[test]
fn rules_that_make_no_application_are_refused() {
    let wrong = Genesis { app: kv(u64::MAX), ..example() };
    let error = wrong.check().unwrap_err().to_string();
    assert!(error.starts_with("kv: fill_keys must be 0 to"), "{error}");
}

#[test]
fn a_genesis_survives_its_file() {
    let counter = example();
    let exchange = Genesis { app: exchange(), lag: 2, ..example() };
    let kv = Genesis { app: kv(3), ..example() };
    let issuers = [None, Some(ClientId(8))];
    let [unissued, bank] = issuers.map(|i| Genesis { app: bank(i), ..example() });
    for genesis in [counter, exchange, kv, unissued, bank] {
        let read = Genesis::from_toml(
            &genesis.to_toml(),
            Path::new("genesis.toml"),
            &tercio_registry::apps(),
        )
        .unwrap();
        assert_eq!(read, genesis);
        assert_eq!(read.chain(), genesis.chain());
        genesis.app.build(genesis.suite).unwrap();
    }
}

#[test]
fn the_smallest_genesis_has_defaults() {
    let key: String = secret(0).public().as_slice().iter().map(|b| format!("{b:02x}")).collect();
    let text =
        format!("name = \"x\"\n[exchange]\n[[replica]]\nkey = \"{key}\"\naddress = \"a:1\"\n");
    let genesis =
        Genesis::from_toml(&text, Path::new("genesis.toml"), &tercio_registry::apps()).unwrap();
    assert_eq!(
        genesis.app,
        tercio_registry::ExchangeKind::app(tercio_exchange::Settings::default())
    );
    assert_eq!(genesis.consensus, SharedSettings::default());
    assert_eq!(genesis.consensus.window, 512, "the chain ids of files without it depend on that");
    let without = text.replace("[exchange]", "");
    let error = Genesis::from_toml(&without, Path::new("genesis.toml"), &tercio_registry::apps())
        .unwrap_err()
        .to_string();
    let expected = "name the application by exactly one of [counter], [exchange], [kv], [bank]";
    assert!(error.ends_with(expected), "{error}");
}

/// Ordering may run far ahead of an execution that halts, where a NEW-VIEW of so many fits a frame.
#[test]
fn a_new_network_has_the_widest_window_that_fits() {
    let sizes = [(1, 2560), (4, 2560), (27, 2560), (28, 1280), (54, 1280), (55, 640), (109, 640)];
    for (n, window) in sizes.into_iter().chain([(110, 512), (128, 512)]) {
        let addresses = vec![([127, 0, 0, 1], 1).into(); n];
        let genesis = Genesis { consensus: SharedSettings::default(), ..genesis("x", &addresses) };
        let new = genesis.with_new_window();
        assert_eq!(
            new.consensus,
            SharedSettings { window, ..SharedSettings::default() },
            "n = {n}"
        );
        new.check().unwrap();
    }
    // A file that says nothing of it means what it always did.
    let silent =
        example().to_toml().replace("window = 32\n", "").replace("interval = 8", "interval = 128");
    let silent = Genesis::from_toml(&silent, Path::new("genesis.toml"), &tercio_registry::apps());
    assert_eq!(silent.unwrap().consensus.window, 512);
}

/// A new network bounds the time of proposals. A file that says nothing of it means what it always
/// did, under the chain id that it always had.
#[test]
fn a_new_network_bounds_the_time_of_proposals() {
    let new = example().with_new_rules();
    assert_eq!(new.consensus.max_time_ahead_ms, Some(2000));
    new.check().unwrap();
    let file = Path::new("genesis.toml");
    let text = new.to_toml();
    assert!(text.contains("max_time_ahead_ms = 2000"), "{text}");
    let apps = tercio_registry::apps();
    assert_eq!(Genesis::from_toml(&text, file, &apps).unwrap(), new);
    let silent = text.replace("max_time_ahead_ms = 2000\n", "");
    let silent = Genesis::from_toml(&silent, file, &apps).unwrap();
    assert_eq!(silent.consensus.max_time_ahead_ms, None);
    assert_ne!(silent.chain(), new.chain(), "replicas must agree on it");
    assert!(new.encode().starts_with(&silent.encode()));
    assert_eq!(new.encode().len(), silent.encode().len() + 8);
    assert!(!silent.to_toml().contains("max_time"));
    let wrong = text.replace("max_time_ahead_ms = 2000", "max_time_ahead_ms = 99");
    let error = Genesis::from_toml(&wrong, file, &apps).unwrap_err().to_string();
    assert!(error.contains("max_time_ahead_ms") && error.contains("at least 100"), "{error}");
}

/// The member of one number gets another.
fn renumber(genesis: &mut Genesis, from: ReplicaId, to: ReplicaId) {
    let member = genesis.replicas.remove(&from).unwrap();
    genesis.replicas.insert(to, member);
}

/// Two members change places.
fn swap(genesis: &mut Genesis) {
    renumber(genesis, ReplicaId(0), ReplicaId(9));
    renumber(genesis, ReplicaId(1), ReplicaId(0));
    renumber(genesis, ReplicaId(9), ReplicaId(1));
}

#[test]
fn replicas_are_numbered_all_or_none() {
    let read = |text: &str| {
        Genesis::from_toml(text, Path::new("genesis.toml"), &tercio_registry::apps())
            .map_err(|error| error.to_string())
    };
    let mut holes = example();
    renumber(&mut holes, ReplicaId(3), ReplicaId(7));
    renumber(&mut holes, ReplicaId(1), ReplicaId(3));
    let text = holes.to_toml();
    assert_eq!(text.matches("\nid = ").count(), 4 + 2, "{text}");
    assert_eq!(read(&text).unwrap(), holes);
    let membership = holes.membership().unwrap();
    assert_eq!(membership.ids().to_string(), "0, 2, 3, 7");
    let error = read(&text.replacen("id = 2\n", "", 1)).unwrap_err();
    assert!(error.ends_with("either each replica has an id, or none has"), "{error}");
    let error = read(&text.replacen("id = 2\n", "id = 0\n", 1)).unwrap_err();
    assert!(error.ends_with("two replicas have the id 0"), "{error}");
    let error = read(&text.replacen("id = 2\n", "id = 128\n", 1)).unwrap_err();
    assert!(error.ends_with("a replica's number is at most 127, not 128"), "{error}");
    // Written as the file of a network without holes is: nothing of it has a number.
    assert_eq!(example().to_toml().matches("\nid = ").count(), 2);
}

/// Another protocol and numbers with holes have one encoding for ever (version 2).
#[test]
fn the_second_encoding_is_pinned() {
    let mut genesis = Genesis { protocol: ProtocolFacts::of::<Sequencer>(), ..example() };
    let first = "tercio genesis 1";
    let second = "tercio genesis 2";
    assert!(example().encode().starts_with(first.as_bytes()));
    let encoded = genesis.encode();
    let behind_lag = second.len() + 8 + "test".len() + 1 + 2;
    let named =
        [&9u64.to_le_bytes()[..], b"sequencer", &[3], &4u64.to_le_bytes(), &[0, 0]].concat();
    assert!(encoded.starts_with(second.as_bytes()));
    assert_eq!(encoded[behind_lag..behind_lag + named.len()], named);
    renumber(&mut genesis, ReplicaId(3), ReplicaId(300));
    assert!(genesis.check().unwrap_err().to_string().contains("at most 127, not 300"));
    let number = genesis.encode().windows(2).filter(|bytes| *bytes == [44, 1]).count();
    assert_eq!(number, 1, "the number is in it");
    let apps = tercio_registry::apps();
    let text = Genesis { protocol: ProtocolFacts::of::<Sequencer>(), ..example() }.to_toml();
    let error = Genesis::from_toml(&text, Path::new("genesis.toml"), &apps).unwrap_err();
    assert!(error.to_string().contains("no protocol 'sequencer' (it has pbft)"), "{error}");
    let both = [ProtocolFacts::of::<Pbft>(), ProtocolFacts::of::<Sequencer>()];
    let read = Genesis::from_toml(&text, Path::new("genesis.toml"), &apps.with_protocols(&both));
    assert_eq!(read.unwrap().protocol, both[1]);
}

/// Everything that replicas must agree on moves the chain id; where they listen does not.
#[test]
fn the_chain_id_covers_all_but_addresses() {
    let genesis = example();
    let mut moved = genesis.clone();
    moved.replicas.get_mut(&ReplicaId(2)).unwrap().address = "elsewhere:1".into();
    assert_eq!(moved.chain(), genesis.chain());

    let change = |change: &dyn Fn(&mut Genesis)| {
        let mut changed = genesis.clone();
        change(&mut changed);
        changed.chain()
    };
    let chains = [
        genesis.chain(),
        change(&|g| g.name.push('x')),
        change(&|g| g.lag = 1),
        change(&swap),
        change(&|g| drop(g.replicas.pop_last())),
        change(&|g| renumber(g, ReplicaId(3), ReplicaId(4))),
        change(&|g| g.protocol = ProtocolFacts::of::<Sequencer>()),
        change(&|g| g.clients.retain(|client, _| client.0 != 8)),
        change(&|g| {
            g.clients.insert(ClientId(9), ClientInfo::new(secret(9).public()));
        }),
        change(&|g| {
            g.app = tercio_registry::CounterKind::app(tercio_counter::Settings {
                iterations: 1,
                reply: 8,
            })
        }),
        change(&|g| {
            g.app = tercio_registry::CounterKind::app(tercio_counter::Settings {
                iterations: 0,
                reply: 9,
            })
        }),
        change(&|g| g.app = exchange()),
        change(&|g| g.app = kv(1)),
        change(&|g| g.app = kv(2)),
        change(&|g| g.app = bank(None)),
        change(&|g| g.app = bank(Some(ClientId(1)))),
        change(&|g| g.consensus.checkpoint_interval += 1),
        change(&|g| g.consensus.window += 1),
        change(&|g| g.consensus.proposal_hooks = true),
        change(&|g| g.consensus.execute_before_propose = true),
        change(&|g| g.consensus.max_time_ahead_ms = Some(2000)),
        change(&|g| g.consensus.max_time_ahead_ms = Some(2001)),
    ];
    assert_eq!(BTreeSet::from(chains).len(), chains.len());

    let digest = |genesis: &Genesis| membership_digest(&genesis.membership().unwrap());
    assert_eq!(digest(&moved), digest(&genesis));
    swap(&mut moved);
    assert_ne!(digest(&moved), digest(&genesis));
    // Under one name of the chain, so that the digest's own parts make the difference.
    let under = |genesis: &Genesis, ids: [u16; 4], protocol: ProtocolFacts| {
        let members = ids.map(ReplicaId).into_iter().zip(genesis.replicas.values().cloned());
        let (chain, epoch, suite) = (ChainId([1; 32]), Epoch(0), genesis.suite);
        let (members, clients) = (members.collect(), genesis.clients.clone());
        let made = Membership::numbered(chain, epoch, suite, protocol.model(), members, clients);
        membership_digest(&made.unwrap().with_protocol(protocol.name()))
    };
    let (pbft, other) = (ProtocolFacts::of::<Pbft>(), ProtocolFacts::of::<Sequencer>());
    let digests = [
        under(&genesis, [0, 1, 2, 3], pbft),
        under(&genesis, [0, 1, 2, 4], pbft),
        under(&genesis, [0, 1, 3, 4], pbft),
        under(&genesis, [0, 1, 2, 3], other),
    ];
    assert_eq!(BTreeSet::from(digests).len(), digests.len());
}

#[test]
fn layouts_and_durabilities_have_words() {
    for layout in [Layout::AllInOne, Layout::ExecutionApart, Layout::LogApart, Layout::BothApart] {
        assert_eq!(layout.to_string().parse(), Ok(layout));
    }
    let group = Durability::Group(Duration::from_millis(7));
    for durability in [Durability::Memory, group, Durability::Sync] {
        assert_eq!(durability.to_string().parse(), Ok(durability));
    }
    for bad in ["", "group()", "group(0)", "group(1001)", "group(-1)", "fsync"] {
        assert!(bad.parse::<Durability>().is_err(), "{bad:?}");
    }
}

/// A key has one form in a genesis, of its bytes and of its digits: chain ids and who is who hang on
/// both.
#[test]
fn a_key_in_another_form_makes_no_genesis() {
    let mut genesis = example();
    let read = |text: &str| {
        Genesis::from_toml(text, Path::new("genesis.toml"), &tercio_registry::apps())
            .map_err(|error| error.to_string())
    };
    for scheme in Scheme::ALL {
        let good = SigningSecret::generate(scheme).unwrap().public();
        let client = genesis.clients.values_mut().next().unwrap();
        client.signing = Some(good);
        let text = genesis.to_toml();
        assert_eq!(read(&text).as_ref(), Ok(&genesis));
        let bytes = good.key.as_slice();
        let mut others = vec![public_to_der(&good).unwrap()];
        if bytes.len() == 65 {
            let odd = bytes[64] & 1;
            others.extend([6, 7].map(|prefix| [&[prefix], &bytes[1..]].concat()));
            others.push([&[2 + odd], &bytes[1..33]].concat());
        }
        let digits = to_hex(bytes);
        let mut others: Vec<_> = others.iter().map(|bytes| to_hex(bytes)).collect();
        others.extend([digits.to_uppercase(), format!("0x{digits}")]);
        for other in others {
            let error = read(&text.replace(&digits, &other)).unwrap_err();
            let expected = format!("this is no usable {} public key", scheme.name());
            assert!(error.contains(&expected), "{other}: {error}");
            assert!(error.starts_with("genesis.toml:"), "{error}");
        }
    }
    // An identity: of a replica, and of a client.
    let text = example().to_toml();
    let replica = to_hex(secret(0).public().as_slice());
    let client = to_hex(example().clients.values().next().unwrap().key.as_slice());
    for digits in [replica, client] {
        // The point of order 2, and y + p where y is 1.
        let small = format!("ec{}7f", "ff".repeat(30));
        let upper = digits.to_uppercase();
        for other in [&small, &format!("ee{}7f", "ff".repeat(30)), &upper] {
            let error = read(&text.replace(&digits, other)).unwrap_err();
            assert!(error.contains("is 64 hexadecimal digits"), "{other}: {error}");
        }
    }
}
