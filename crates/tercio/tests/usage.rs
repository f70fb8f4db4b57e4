//! Wrong usage, and commands that need no network.

use crate::common;

use common::{tercio, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn wrong_usage_is_one_line_and_exit_status_2() {
    tercio([] as [&str; 0]).refused(2, &["a command is missing", "keygen"]);
    tercio(["bench"]).refused(2, &["a command is missing", "calibrate"]);
    tercio(["dance"]).refused(2, &["dance"]);
    for command in [
        &["demo"][..],
        &["dev"],
        &["audit", "x"],
        &["start", "--dir", "x"],
        &["keygen"],
        &["bench", "bft"],
        &["bench", "calibrate"],
    ] {
        let args: Vec<_> = command.iter().copied().chain(["--no-such-flag"]).collect();
        tercio(args).refused(2, &["--no-such-flag"]);
    }
    tercio(["audit"]).refused(2, &["DIR"]);
    tercio(["start"]).refused(2, &["--dir"]);
    tercio(["demo", "--count", "many"]).refused(2, &["--count", "many"]);
    tercio(["demo", "--count", "0"]).refused(2, &["--count"]);
    tercio(["demo", "--replicas", "3"]).refused(2, &["--replicas", "4"]);
    tercio(["bench", "bft", "--auth", "trust"]).refused(2, &["--auth", "trust"]);
    tercio(["bench", "bft", "--durability", "group:soon"]).refused(2, &["--durability", "soon"]);
    tercio(["bench", "bft", "--rate", "0"]).refused(2, &["--rate"]);
    tercio(["bench", "bft", "--rate", "5", "--closed"]).refused(2, &["--rate", "--closed"]);
}

#[test]
fn help_names_every_command() {
    let help = tercio(["--help"]);
    for command in ["keygen", "start", "demo", "dev", "audit", "bench"] {
        assert!(help.good().stdout.contains(command), "{}", help.stdout);
    }
    assert!(tercio(["--version"]).good().stdout.starts_with("tercio "));
}

#[test]
fn version_names_what_must_fit_together() {
    let said = tercio(["--version"]).good().stdout.clone();
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], concat!("tercio ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("commit "), "{said}");
    assert_eq!(lines[2], format!("wire {}", tercio_wire::WIRE_VERSION));
    assert_eq!(lines[3], format!("protocol {}", tercio_transport::PROTOCOL_VERSION));
    assert_eq!(lines[4], format!("disk {}", tercio_ledger::DISK_VERSION));
    assert_eq!(tercio(["-V"]).good().stdout.trim_end(), lines[0]);
}

#[test]
fn shells_complete_every_command_and_each_has_a_manual_page() {
    for shell in ["bash", "zsh", "fish"] {
        let script = tercio(["completions", shell]).good().stdout.clone();
        assert!(script.contains("testnet") && script.contains("durability"), "{script}");
    }
    tercio(["completions", "clam"]).refused(2, &["clam", "bash"]);
    let page = tercio(["man"]).good().stdout.clone();
    assert!(page.contains(".TH tercio") && page.contains("testnet"), "{page}");

    let folder = tempfile::tempdir().unwrap();
    tercio(["man", text(folder.path())]).good();
    let help = tercio(["--help"]).good().stdout.clone();
    let (_, commands) = help.split_once("Commands:").unwrap();
    let commands = commands.split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        let page = folder.path().join(format!("tercio-{name}.1"));
        assert!(page.exists(), "{}", page.display());
    }
    tercio(["man", text(&folder.path().join("nowhere"))]).refused(1, &["nowhere"]);
}

#[test]
fn keygen_writes_a_private_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let made = tercio(["keygen", "--json", "-o", text(&file)]);
    let key = made.good().json()["public_key"].as_str().unwrap().to_owned();
    assert_eq!(key.len(), 64);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = fs::read_to_string(&file).unwrap();
    let read = tercio_crypto::SecretKey::from_file_text(&secret).unwrap();
    let hex: String = read.public().as_slice().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, key, "the printed key is that of the file");
    assert!(!made.stdout.contains(secret.lines().nth(1).unwrap()), "the secret is not printed");

    tercio(["keygen", "-o", text(&file)]).refused(1, &["exists already", "-o"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), secret);
    let nowhere = folder.path().join("no/such/place");
    tercio(["keygen", "-o", text(&nowhere)]).refused(1, &["directory does not exist"]);
}

#[test]
fn calibrate_prints_formula_terms_and_ceiling() {
    let json = tercio(["bench", "calibrate", "--json"]).good().json();
    assert!(json["ceiling_rps"].as_f64().unwrap() > 1000.0);
    assert!(json["formula"].as_str().unwrap().contains("ceiling_rps = cores /"));
    assert!(json["machine"]["cores"].as_u64().unwrap() >= 1);
    for term in ["tag_ns", "sha256_block_ns", "write_request_ns", "lone_message_ns"] {
        assert!(json["terms"][term].as_f64().unwrap() > 0.0, "{term}");
    }
    let transports = json["exchange_latency"].as_array().unwrap();
    let names: Vec<_> = transports.iter().map(|t| t["transport"].as_str().unwrap()).collect();
    assert_eq!(names, ["tcp", "udp", "unix"]);
    for transport in transports {
        assert!(transport["p50_us"].as_f64() <= transport["p99_us"].as_f64(), "{transport}");
    }
    // The sum stands by its terms: the ceiling is cores over work.
    let work = json["work_us_per_request"].as_f64().unwrap();
    let cores = json["machine"]["cores"].as_f64().unwrap();
    let again = cores * 1e6 / work;
    assert!((again / json["ceiling_rps"].as_f64().unwrap() - 1.0).abs() < 1e-9);
}
