//! The metrics of a replica that runs as a process, and what it says on standard error.

use crate::common;

use common::{Up, kill, tercio, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tercio_network::{free_ports, poll_until};

const PATIENCE: Duration = Duration::from_secs(60);

fn scrape(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The value of a sample, or their sum over all labels.
fn value(text: &str, name: &str) -> f64 {
    let of_name = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    of_name.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

fn append(file: &Path, text: &str) {
    let before = fs::read_to_string(file).unwrap();
    fs::write(file, format!("{before}\n{text}\n")).unwrap();
}

#[test]
fn a_process_answers_for_metrics_and_names_view_changes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let free = free_ports(2).unwrap().into_iter().map(|port| port.local_addr().unwrap());
    let [primary, backup] = free.collect::<Vec<_>>()[..] else { panic!("two ports") };
    for (id, address) in [(0, primary), (2, backup)] {
        let settings = dir.join(format!("replica-{id}/tercio.toml"));
        append(&settings, &format!("[metrics]\nlisten = \"{address}\""));
    }
    let up = Up::start(&dir);
    let before = poll_until(PATIENCE, || scrape(primary)).expect("it answers");
    tercio(["submit", text(&dir), "add", "add", "add"]).good();
    let still = |text: &str| {
        let names = [
            "tercio_operations_total",
            "tercio_batches_total",
            "tercio_height",
            // Clients send to the primary.
            "tercio_request_seconds_count",
            "tercio_stage_seconds_sum",
            "tercio_disk_bytes",
        ];
        names
            .into_iter()
            .filter(|name| value(text, name) <= value(&before, name))
            .collect::<Vec<_>>()
    };
    let after = poll_until(PATIENCE, || scrape(primary).filter(|text| still(text).is_empty()));
    let after =
        after.unwrap_or_else(|| panic!("{:?} do not move", still(&scrape(primary).unwrap())));
    for there in ["tercio_disk_bytes", "tercio_memory_bytes", "tercio_links"] {
        assert!(value(&after, there) > 0.0, "{there}: {after}");
    }
    // The primary is gone: the others leave its view, and say why.
    assert_eq!(up.reports(4)[2].primary, 0);
    assert!(kill("-STOP", up.reports(4)[0].pid));
    tercio(["submit", text(&dir), "add"]).good();
    let left = || scrape(backup).filter(|text| value(text, "tercio_views_left_total") > 0.0);
    assert!(poll_until(PATIENCE, left).is_some(), "no view is left");
    let log = || fs::read_to_string(dir.join("replica-2/stderr.log")).unwrap();
    let named = || {
        let log = log();
        let line = log.lines().find(|line| line.contains(" WARN left view 0 for 1: "));
        line.map(str::to_owned)
    };
    assert!(poll_until(PATIENCE, named).is_some(), "{}", log());
    assert!(log().contains(&format!("metrics at http://{backup}/metrics")), "{}", log());
    up.kill();
}

#[test]
fn messages_are_lines_or_objects_as_one_likes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let home = dir.join("replica-0");
    let start = |arguments: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
            .args(["start", "--stop-with-stdin", "--dir", text(&home)])
            .args(arguments)
            .env_remove("TERCIO_LOG")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        drop(child.stdin.take());
        let all: Vec<String> = [first].into_iter().chain(lines).collect();
        assert!(child.wait().unwrap().success(), "{all:?}");
        all
    };
    let lines = start(&[]);
    assert!(lines[0].contains("INFO replica 0 of "), "{lines:?}");
    assert!(lines.last().unwrap().ends_with("INFO stopped"), "{lines:?}");
    for line in start(&["--log-json"]) {
        let object: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert!(object["level"].is_string() && object["message"].is_string(), "{object}");
    }
    tercio(["start", "--dir", text(&home), "--log", "loud=very"])
        .refused(2, &["--log", "no levels"]);
}
