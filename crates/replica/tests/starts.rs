//! What keeps a replica from starting, in the words that its operator reads.

use crate::running;

use running::{Network, genesis, listener, secret};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tercio_genesis::replica_home::create_home;
use tercio_genesis::replica_home::{CONFIG_FILE, DATA_DIR};
use tercio_genesis::{GENESIS_FILE, Genesis, KEY_FILE};
use tercio_replica::{Data, Durability, Layout, ReplicaConfig, start};
use tercio_types::ReplicaId;

/// The home of replica 1 of four on free ports.
fn home(dir: &Path, settings: &str) -> Genesis {
    let addresses: Vec<_> = (0..4).map(|_| listener().local_addr().unwrap()).collect();
    let genesis = genesis("test", &addresses);
    create_home(dir, ReplicaId(1), &genesis, &secret(1), settings).unwrap();
    genesis
}

fn load_error(dir: &Path) -> String {
    ReplicaConfig::load(dir, &tercio_registry::apps()).unwrap_err().to_string()
}

fn start_error(config: ReplicaConfig) -> String {
    start(config, running::counter()).unwrap_err().to_string()
}

/// Changes a file of the home and says what loading says.
fn broken(file: &str, change: impl FnOnce(String) -> String) -> String {
    let dir = tempfile::tempdir().unwrap();
    home(dir.path(), "layout = \"all-in-one\"\n\n[ledger]\nsnapshot_every = 4\n");
    let path = dir.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(text)).unwrap();
    load_error(dir.path()).replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn a_home_is_loaded_as_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "layout = \"execution-apart\"\ndurability = \"group(5)\"\n\
                    [consensus]\nbatch_ops = 10\n[links]\nmax_clients = 3\n";
    let genesis = home(dir.path(), settings);
    let (config, read) = ReplicaConfig::load(dir.path(), &tercio_registry::apps()).unwrap();
    assert_eq!(read, genesis);
    assert_eq!(read.chain(), genesis.chain());
    assert_eq!(config.node.me, ReplicaId(1));
    assert_eq!(config.layout, Layout::ExecutionApart);
    assert_eq!(config.node.durability.to_string(), "group(5)");
    assert_eq!(config.node.consensus.batch_ops, 10);
    assert_eq!(config.node.consensus.checkpoint_interval, 8, "the network's, from the genesis");
    assert_eq!(config.limits.max_clients, 3);
    assert!(matches!(&config.data, Data::Directory(data) if *data == dir.path().join(DATA_DIR)));
    let mode = fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let config = ReplicaConfig { listen: listener().into(), ..config };
    start(config, running::counter()).unwrap().stop().unwrap();
    let again = create_home(dir.path(), ReplicaId(1), &genesis, &secret(1), "");
    let expected = format!(
        "{} exists already and is not written over; name a new directory",
        dir.path().join(KEY_FILE).display()
    );
    assert_eq!(again.unwrap_err().to_string(), expected);
}

#[test]
fn malformed_settings_name_line_and_key() {
    let set = |line: &str| broken(CONFIG_FILE, |text| format!("{text}{line}\n"));
    assert_eq!(
        set("snapshots = 3"),
        "tercio.toml:6: snapshots: unknown field `snapshots`, expected one of \
         `blocks_per_segment`, `wal_file_bytes`, `snapshot_every`, `scrub_bytes`"
    );
    assert_eq!(
        set("[retain]\nbytes = \"all\""),
        "tercio.toml:7: bytes: invalid type: string \"all\", expected i64"
    );
    assert_eq!(
        set("blocks_per_segment = 0"),
        "tercio.toml:6: blocks_per_segment: must be 1 to 1048576, not 0"
    );
    assert_eq!(
        set("[consensus]\npipeline = 0"),
        "tercio.toml:7: pipeline: must be 1 to 65536, not 0"
    );
    let replace =
        |from: &'static str, to: &'static str| broken(CONFIG_FILE, |text| text.replace(from, to));
    assert_eq!(
        replace("all-in-one", "one"),
        "tercio.toml:2: layout: unknown layout; write all-in-one, execution-apart, log-apart or \
         both-apart"
    );
    assert_eq!(
        replace("layout = \"all-in-one\"", "durability = \"group(0)\""),
        "tercio.toml:2: durability: unknown durability; write memory, sync, group, or group(N) with N \
         from 1 to 1000 milliseconds"
    );
    assert_eq!(
        replace("layout = \"all-in-one\"", "listen = \"nowhere\""),
        "tercio.toml:2: listen: \"nowhere\" is no address (invalid socket address); write host:port"
    );
    assert_eq!(
        replace("replica = 1", "replica = 9"),
        "tercio.toml:1: replica: the genesis has replicas 0 to 3"
    );
    assert_eq!(replace("replica = 1", ""), "tercio.toml:1: missing field `replica`");
    assert_eq!(replace("[ledger]", "[ledger"), "tercio.toml:4: unclosed table, expected `]`");
}

#[test]
fn a_malformed_genesis_names_line_and_key() {
    let replace = |from: &str, to: &str| {
        broken(GENESIS_FILE, |text| {
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1)
        })
    };
    let text = genesis("test", &[listener().local_addr().unwrap(); 4]).to_toml();
    let line = |key: &str| text.lines().position(|l| l.starts_with(key)).unwrap() + 1;
    assert_eq!(
        replace("suite = \"sha256-ed25519\"", "suite = \"md5\""),
        format!(
            "genesis.toml:{}: suite: unknown suite; this build knows sha256-ed25519, sm3-sm2",
            line("suite")
        )
    );
    assert_eq!(
        replace("name = \"test\"", "name = \"\""),
        format!("genesis.toml:{}: name: a network's name has 1 to 64 bytes", line("name"))
    );
    assert_eq!(
        replace("key = \"", "key = \"zz"),
        format!(
            "genesis.toml:{}: key: a public key of suite sha256-ed25519 is 64 hexadecimal digits; \
             `tercio keygen` prints one",
            line("key")
        )
    );
    assert_eq!(
        replace("id = 8", "id = 7"),
        format!("genesis.toml:{}: id: two clients have this id", line("id = 8"))
    );
    assert_eq!(
        replace("[counter]", "[casino]"),
        format!(
            "genesis.toml:{}: this program has no application 'casino' (it has [counter], \
             [exchange], [kv], [bank]); run the network's own",
            line("[counter]")
        )
    );
    assert_eq!(
        replace("window = 32", "window = 9"),
        format!(
            "genesis.toml:{}: window: must be at least twice checkpoint_interval, or ordering stops \
             at each checkpoint",
            line("window")
        )
    );
}

#[test]
fn keys_that_others_can_read_or_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    home(dir.path(), "");
    let key = dir.path().join(KEY_FILE);
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(
        load_error(dir.path()),
        format!(
            "{k}: others can read this secret key (mode 640); run `chmod 600 {k}`, and make a new \
             key if somebody may have seen it",
            k = key.display()
        )
    );
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "secret").unwrap();
    assert_eq!(
        load_error(dir.path()),
        format!(
            "{}: expected a secret key file: 'tercio-secret-key 1' (or 'tercio-secret-key 1 sm2') \
             and 64 hexadecimal digits",
            key.display()
        )
    );
    fs::remove_file(&key).unwrap();
    assert_eq!(
        load_error(dir.path()),
        format!(
            "{} does not exist; `tercio testnet -o DIR` makes a network with all its files, `tercio init DIR` the home of one of its members",
            key.display()
        )
    );
}

#[test]
fn another_replicas_key() {
    let dir = tempfile::tempdir().unwrap();
    home(dir.path(), "");
    let (mut config, _) = ReplicaConfig::load(dir.path(), &tercio_registry::apps()).unwrap();
    config.node.secret = secret(2);
    assert_eq!(
        start_error(config),
        "the secret key is not that of replica 1 in the genesis; use the key file that was made \
         for it"
    );
}

#[test]
fn a_port_in_use() {
    let dir = tempfile::tempdir().unwrap();
    home(dir.path(), "");
    let taken = listener();
    let (config, _) = ReplicaConfig::load(dir.path(), &tercio_registry::apps()).unwrap();
    let address = taken.local_addr().unwrap();
    assert_eq!(
        start_error(ReplicaConfig { listen: address.into(), ..config }),
        format!(
            "{address} is in use by another process: stop it (is this replica running already?) \
             or listen on another port"
        )
    );
}

#[test]
fn directories_that_are_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join(DATA_DIR);
    let mut genesis = home(dir.path(), "");
    let load = || {
        let (config, _) = ReplicaConfig::load(dir.path(), &tercio_registry::apps()).unwrap();
        ReplicaConfig { listen: listener().into(), ..config }
    };

    // Something else is in it.
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    fs::write(data.join("thesis.tex"), "\\section{Related work}").unwrap();
    assert_eq!(
        start_error(load()),
        format!(
            "{} is no data directory of Tercio: it has 'thesis.tex' and no manifest; name an empty \
             or a new directory",
            data.display()
        )
    );
    fs::remove_file(data.join("thesis.tex")).unwrap();

    // It is in use.
    let handle = start(load(), running::counter()).unwrap();
    assert_eq!(
        start_error(load()),
        format!("{} is in use by another process; stop that one first", data.display())
    );
    handle.stop().unwrap();

    // It belongs to another replica, or to another network.
    let mut config = load();
    config.node.me = ReplicaId(2);
    config.node.secret = secret(2);
    assert_eq!(
        start_error(config),
        format!(
            "{} belongs to replica 1, not to replica 2; name this replica's directory",
            data.display()
        )
    );
    let before = genesis.chain();
    genesis.name = "another".into();
    fs::write(dir.path().join(GENESIS_FILE), genesis.to_toml()).unwrap();
    assert_eq!(
        start_error(load()),
        format!(
            "{} belongs to chain {before}, not to {}; name the directory of this network",
            data.display(),
            genesis.chain()
        )
    );

    // It is a file.
    let mut config = load();
    config.data = Data::Directory(dir.path().join(KEY_FILE));
    let key = dir.path().join(KEY_FILE);
    assert_eq!(
        start_error(config),
        format!(
            "cannot create {}: File exists (os error 17); name a directory, or one that does not \
             exist yet",
            key.display()
        )
    );
    assert_eq!(
        load_error(&dir.path().join("nowhere")),
        format!(
            "{} does not exist; `tercio testnet -o DIR` makes a network with all its files, `tercio init DIR` the home of one of its members",
            dir.path().join("nowhere").join(CONFIG_FILE).display()
        )
    );
}

/// L1: a home whose data is gone is not a new one. Its replica says so, follows the others, and
/// keeps its mouth shut; set up anew, it would contradict itself.
#[test]
fn a_lost_data_directory_makes_a_learner() {
    let dir = tempfile::tempdir().unwrap();
    home(dir.path(), "");
    let run = || {
        let (config, _) = ReplicaConfig::load(dir.path(), &tercio_registry::apps()).unwrap();
        let handle =
            start(ReplicaConfig { listen: listener().into(), ..config }, running::counter())
                .unwrap();
        let learning = handle.status().protocol.learning;
        handle.stop().unwrap();
        learning.map(|learning| learning.to_string())
    };
    assert_eq!(run(), None);
    assert_eq!(run(), None, "after a restart neither");
    fs::remove_dir_all(dir.path().join(DATA_DIR).join("wal")).unwrap();
    let expected = "learner, since its log was lost: waits for a quorum's reports, has 0";
    assert_eq!(run().as_deref(), Some(expected));
    assert_eq!(run().as_deref(), Some(expected), "it knows for good");
    fs::remove_dir_all(dir.path().join(DATA_DIR)).unwrap();
    assert_eq!(run().as_deref(), Some(expected));
}

/// A flipped bit in the block log: a replica alone names file and block, and with the others it mends
/// the file.
#[test]
fn damage_is_mended_from_others() {
    let mut net = Network::start(4, Layout::BothApart, Durability::Memory);
    let mut client = net.client(running::CLIENT);
    for _ in 0..5 {
        client.call(bytes::Bytes::from_static(b"op")).unwrap();
    }
    net.wait_for_height(5);
    // What no certificate covers would be taken for a torn tail.
    running::wait("a certificate", || {
        net.replicas[2].as_ref().unwrap().status().protocol.stable.0 >= 5
    });
    net.replicas[2].take().unwrap().stop().unwrap();
    let file = net.path(2).join("blocks/blocks-00000000000000000001");
    let whole = fs::read(&file).unwrap();
    let mut bytes = whole.clone();
    bytes[220] ^= 4;
    fs::write(&file, bytes).unwrap();
    net.restart(2);
    running::wait("the block is mended", || {
        let repair = net.replicas[2].as_ref().unwrap().status().repair;
        repair.repaired == 1 && repair.damaged == 0
    });
    net.wait_for_height(5);
    assert_eq!(fs::read(&file).unwrap(), whole);
}

/// The system gives no space: the replica stops with one clear line, and the others go on.
#[test]
fn a_failed_write_stops_one_replica_and_no_other() {
    for layout in [Layout::AllInOne, Layout::BothApart] {
        let mut net = Network::start(4, layout, Durability::Memory);
        net.replicas[3].take().unwrap().stop().unwrap();
        let mut disk = tercio_ledger::MemStorage::default();
        let config = net.config(3);
        let config =
            ReplicaConfig { data: Data::Memory(disk.clone()), listen: listener().into(), ..config };
        let handle = start(config, running::counter()).unwrap();
        disk.full_after(0);
        let mut client = net.client(running::CLIENT);
        for i in 1..=10 {
            let result = client.call(bytes::Bytes::from_static(b"op")).unwrap();
            assert_eq!(running::number(&result), i);
        }
        let error = handle.wait().unwrap_err().to_string();
        assert!(error.contains("the disk is full; free space, then restart"), "{error}");
        net.wait_for_height(10);
    }
}
