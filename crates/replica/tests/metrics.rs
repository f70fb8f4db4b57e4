//! `GET /metrics`: every name is documented, values move, and strangers harm nobody.

use crate::running;

use running::{CLIENT, Network, genesis, secret, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tercio_replica::metrics::{Metrics, Queues};
use tercio_replica::report::{Peer, ReplicaReport, Starting, TransferReport};
use tercio_replica::{Durability, Layout, ReplicaConfig};

/// What a page or a registry says of a name: type, unit, labels.
type Named = BTreeMap<String, (String, String, BTreeSet<String>)>;

/// A report in which every row has something.
fn full_report() -> ReplicaReport {
    let one = |name: &str| BTreeMap::from([(name.to_owned(), 1)]);
    let peer = Peer { id: 1, linked: true, since_ms: 1, heard_ms: Some(1), problem: None };
    ReplicaReport {
        oldest_pending_ms: Some(1),
        queues: Queues::default().lengths().map(|(name, n)| (name.into(), n)).collect(),
        transfer: Some(TransferReport::default()),
        peers: vec![peer],
        dropped: one("reason"),
        disk_bytes: one("wal"),
        starting: Some(Starting { replayed: 1, blocks: 2 }),
        ..ReplicaReport::default()
    }
}

/// The names of a text, as families: without the suffixes of their samples.
fn named(text: &str) -> Named {
    let mut all = Named::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("#"), Some("TYPE"), Some(name)) => {
                let kind = words.next().unwrap().to_owned();
                let known = all.insert(name.into(), (kind, String::new(), BTreeSet::new()));
                assert!(known.is_none(), "{name} is there twice");
            }
            (Some("#"), Some("UNIT"), Some(name)) => {
                all.get_mut(name).unwrap().1 = words.next().unwrap().to_owned();
            }
            (Some(sample), ..) if !sample.starts_with('#') => {
                let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
                let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
                let family = |suffix| name.strip_suffix(suffix).filter(|n| all.contains_key(*n));
                let family = suffixes.into_iter().find_map(family);
                let family = family.unwrap_or_else(|| panic!("{name} has no type")).to_owned();
                let labels = labels.trim_end_matches('}').split(',').filter(|l| !l.is_empty());
                let labels = labels.map(|label| label.split_once('=').unwrap().0.to_owned());
                let of = &mut all.get_mut(&family).unwrap().2;
                of.extend(labels.filter(|label| label != "le"));
            }
            _ => {}
        }
    }
    all
}

/// The tables of the page: `| name | type | unit | labels | meaning |`.
fn documented() -> Named {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `tercio_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, kind, unit, labels, meaning, ""] = cells[..] else { panic!("{row}") };
        assert!(meaning.len() > 10, "{row}");
        let name = format!("tercio_{}", name.trim_end_matches('`'));
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
        (name, (kind.to_owned(), unit.to_owned(), labels))
    })
    .collect()
}

#[test]
fn every_name_is_documented_and_exported() {
    let metrics = Metrics::new(true);
    metrics.note(Arc::new(full_report()));
    let text = metrics.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (exported, documented) = (named(&text), documented());
    assert!(exported.len() > 40, "{}", exported.len());
    for (name, of) in &exported {
        assert_eq!(documented.get(name), Some(of), "{name} in docs/metrics.md");
    }
    let gone: Vec<_> = documented.keys().filter(|name| !exported.contains_key(*name)).collect();
    assert!(gone.is_empty(), "documented and not exported: {gone:?}");
}

#[test]
fn what_nobody_may_ask_for_is_not_measured() {
    let text = Metrics::new(false).text();
    let measured = |name: &&str| text.contains(*name);
    assert_eq!(
        ["request", "stage", "fsync"]
            .iter()
            .find(|name| measured(&&format!("tercio_{name}_seconds")[..])),
        None
    );
}

fn config(text: &str) -> Result<ReplicaConfig, String> {
    let addresses: Vec<SocketAddr> = (1..5).map(|p| ([127, 0, 0, 1], p).into()).collect();
    let text = format!("replica = 1\n{text}");
    ReplicaConfig::from_toml(
        &text,
        Path::new("tercio.toml"),
        &genesis("test", &addresses),
        secret(1),
    )
    .map_err(|error| error.to_string())
}

#[test]
fn only_this_machine_may_ask_unless_the_settings_say_so() {
    assert_eq!(config("").unwrap().metrics, None, "off by default");
    for local in ["127.0.0.1:9464", "127.8.8.8:1", "[::1]:9464"] {
        let read = config(&format!("[metrics]\nlisten = \"{local}\"")).unwrap();
        assert_eq!(read.metrics, Some(local.parse().unwrap()));
    }
    for remote in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "[::ffff:127.0.0.1]:1"] {
        for more in ["", "\nremote = false"] {
            let error = config(&format!("[metrics]\nlisten = \"{remote}\"{more}")).unwrap_err();
            let words = ["tercio.toml:3: listen: ", "other machines", "remote = true"];
            assert!(words.iter().all(|words| error.contains(words)), "{error}");
        }
        let read = config(&format!("[metrics]\nlisten = \"{remote}\"\nremote = true")).unwrap();
        assert_eq!(read.metrics, Some(remote.parse().unwrap()));
    }
    let error = config("[metrics]\nlisten = \"nowhere\"").unwrap_err();
    assert!(error.contains("tercio.toml:3: listen: "), "{error}");
}

/// A connection that gives up when nothing comes for long.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The answer to a request, head and body.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn scrape(address: SocketAddr) -> String {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    body
}

/// The value of a sample.
#[track_caller]
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} is not in:\n{text}")).parse().unwrap()
}

/// A network whose replica 0 answers for metrics; where.
fn network(layout: Layout, durability: Durability) -> (Network, SocketAddr) {
    let mut net = Network::start(4, layout, durability);
    net.replicas[0].take().unwrap().stop().unwrap();
    let metrics = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    net.restart_with(0, |net| ReplicaConfig { metrics, ..net.config(0) });
    let address = net.replicas[0].as_ref().unwrap().metrics_addr().unwrap();
    (net, address)
}

fn values_move(layout: Layout) {
    let (net, address) = network(layout, Durability::Sync);
    let others = net.running().skip(1).map(|replica| replica.metrics_addr());
    assert_eq!(others.collect::<Vec<_>>(), [None; 3], "off by default");
    let before = scrape(address);
    let mut client = net.client(CLIENT);
    for _ in 0..20 {
        client.call("+1".into()).unwrap();
    }
    net.wait_for_height(1);
    let operations = "tercio_operations_total";
    wait("all are counted", || {
        value(&scrape(address), operations) >= value(&before, operations) + 20.0
    });
    let after = scrape(address);
    for grows in [
        operations,
        "tercio_packages_total",
        "tercio_batches_total",
        "tercio_height",
        "tercio_delivered",
        "tercio_received_bytes_total",
        "tercio_client_frames_total",
        "tercio_replica_frames_total",
        "tercio_request_seconds_count",
        "tercio_request_seconds_sum",
        "tercio_request_seconds_bucket{le=\"+Inf\"}",
        "tercio_stage_seconds_count{stage=\"verify\"}",
        "tercio_stage_seconds_count{stage=\"order\"}",
        "tercio_stage_seconds_count{stage=\"commit\"}",
        "tercio_stage_seconds_count{stage=\"prepare\"}",
        "tercio_stage_seconds_count{stage=\"persist\"}",
        "tercio_stage_seconds_count{stage=\"execute\"}",
        "tercio_fsync_seconds_count",
        "tercio_fsync_seconds_sum",
    ] {
        assert!(value(&after, grows) > value(&before, grows), "{grows}:\n{after}");
    }
    let view = net.replicas[0].as_ref().unwrap().status().protocol.view;
    assert_eq!(value(&after, "tercio_view"), view.0 as f64);
    assert_eq!(value(&after, "tercio_links"), 3.0, "{after}");
    for there in ["tercio_queue{stage=\"execution\"}", "tercio_queue{stage=\"log\"}", "tercio_pool"]
    {
        assert!(value(&after, there) >= 0.0);
    }
    for directory in ["wal", "blocks"] {
        let used = format!("tercio_disk_bytes{{directory=\"{directory}\"}}");
        // It is looked at every few seconds.
        wait("the disk is used", || value(&scrape(address), &used) > 0.0);
    }
    assert!(value(&after, "tercio_memory_bytes") > 1e6);
    // What `status.json` says is the same.
    let report = net.replicas[0].as_ref().unwrap().report();
    let latest = scrape(address);
    assert_eq!(report.operations as f64, value(&latest, operations));
    assert_eq!(report.height as f64, value(&latest, "tercio_height"));
}

#[test]
fn values_move_under_load_on_one_thread() {
    values_move(Layout::LogApart);
}

#[test]
fn values_move_under_load_on_threads_apart() {
    values_move(Layout::BothApart);
}

#[test]
fn a_view_change_is_counted_with_its_cause() {
    let (mut net, address) = network(Layout::AllInOne, Durability::Memory);
    let left = |text: &str| -> f64 {
        let causes = text.lines().filter(|line| line.starts_with("tercio_views_left_total{cause="));
        causes.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    };
    // It led the first view, and started again.
    wait("another one leads", || {
        let text = scrape(address);
        value(&text, "tercio_changing") == 0.0 && value(&text, "tercio_primary") != 0.0
    });
    let text = scrape(address);
    let primary = value(&text, "tercio_primary") as usize;
    drop(net.replicas[primary].take());
    let mut client = net.client(CLIENT);
    client.call("+1".into()).unwrap();
    wait("the view is left", || left(&scrape(address)) > left(&text));
    wait("and named", || net.replicas[0].as_ref().unwrap().report().view_change_cause.is_some());
}

#[test]
fn strangers_get_plain_refusals() {
    let (_net, address) = network(Layout::AllInOne, Durability::Memory);
    for (request, line) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
        ("GET /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let (head, _) = ask(address, request);
        assert!(head.starts_with(line), "{request:?}: {head}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nname: {}\r\n\r\n", "a".repeat(9000));
    assert!(ask(address, &long).0.starts_with("HTTP/1.1 431 "));
}

#[test]
fn hostile_clients_hold_up_neither_the_replica_nor_the_next_client() {
    let (net, address) = network(Layout::AllInOne, Durability::Memory);
    let mut client = net.client(CLIENT);
    // Many that say nothing, some that say half a word, some that never read.
    let idle: Vec<_> = (0..200).map(|_| connect(address)).collect();
    let mut slow: Vec<_> = (0..20).map(|_| connect(address)).collect();
    slow.iter_mut().for_each(|stream| drop(stream.write_all(b"GET /met")));
    let mut deaf: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for stream in &mut deaf {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    }
    // One that sends without end is cut off.
    let mut endless = connect(address);
    wait("it is cut off", || endless_write(&endless).is_err());
    let _ = endless.flush();
    for _ in 0..5 {
        client.call("+1".into()).unwrap();
        scrape(address);
    }
    wait("it executes", || value(&scrape(address), "tercio_operations_total") > 0.0);
    // Those that said nothing are let go of.
    for mut stream in idle {
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(
            matches!(ended, Ok(0))
                || ended.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
        );
    }
    net.wait_for_height(1);
}

#[test]
fn who_says_nothing_or_reads_nothing_is_let_go_of() {
    let (_net, address) = network(Layout::AllInOne, Durability::Memory);
    // Fewer than there is room for: none has to make room for another.
    let mut half = connect(address);
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    for mut stream in [connect(address), half] {
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(late) && answer.is_empty(), "{ended:?}");
    }
}

fn endless_write(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.write_all(&[b'a'; 1024])
}

#[test]
fn a_replica_that_stops_stops_answering() {
    let (mut net, address) = network(Layout::AllInOne, Durability::Memory);
    let idle = connect(address);
    scrape(address);
    net.replicas[0].take().unwrap().stop().unwrap();
    wait("nobody listens", || TcpStream::connect(address).is_err());
    drop(idle);
}

#[test]
fn an_address_in_use_is_named() {
    let (net, address) = network(Layout::AllInOne, Durability::Memory);
    let config = ReplicaConfig { metrics: Some(address), ..net.config(1) };
    let error = tercio_replica::start(config, running::counter()).unwrap_err().to_string();
    assert!(error.contains(&format!("cannot listen on {address} for metrics")), "{error}");
}
