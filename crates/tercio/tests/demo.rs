//! The demonstration, end to end, with real processes and a real SIGKILL.

use crate::common;
#[path = "common/naive.rs"]
mod naive;

use common::{tercio, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What every demonstration must show.
#[track_caller]
fn assert_shows(json: &Value, replicas: usize) {
    assert_eq!(json["agree"], true, "{json}");
    assert_eq!(json["audit"], "ok", "{json}");
    assert!(json["orders_per_s"].as_f64().unwrap() > 0.0);
    let latency = &json["latency_us"];
    assert!(
        latency["p50"].as_f64().unwrap() > 0.0
            && latency["p99"].as_f64() >= latency["p50"].as_f64()
    );
    assert!(json["view_changes"].as_u64().unwrap() >= 1, "the primary was killed: {json}");
    assert!(json["longest_gap_ms"].as_f64().unwrap() > 0.0);
    let rows = json["replicas"].as_array().unwrap();
    assert_eq!(rows.len(), replicas);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["id"], i);
        assert_eq!(row["height"], rows[0]["height"]);
        assert_eq!(row["state_digest"], rows[0]["state_digest"]);
        assert_eq!(row["state_digest"].as_str().unwrap().len(), 64);
        assert!(row["rss_mb"].as_f64().unwrap() > 1.0);
    }
    assert!(rows[0]["height"].as_u64().unwrap() > 0);
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let run = tercio(["demo", "--json", "--count", "6000", "--keep", text(&kept)]);
    let json = run.good().json();
    assert_shows(&json, 4);
    assert_eq!(json["orders"], 6000);
    assert!(json["trades"].as_u64().unwrap() > 0);
    assert!(json["crash"]["catch_up_blocks"].as_u64().unwrap() > 0, "it missed some: {json}");

    for i in 0..4 {
        let dir = kept.join(format!("replica-{i}"));
        let audit = tercio(["audit", text(&dir), "--json"]).good().json();
        assert_eq!(audit["audit"], "ok");
        assert_eq!(audit["height"], json["replicas"][0]["height"]);
        assert_eq!(audit["operations"], 6000, "every order is in the log once");
        assert!(tercio(["audit", text(&dir)]).good().stdout.starts_with("audit: ok"));
    }
    // The directory is taken now.
    tercio(["demo", "--keep", text(&kept)]).refused(1, &["not empty"]);
    a_flipped_bit_is_named(&kept.join("replica-2"));
    other_directories_are_refused(folder.path(), &kept);
}

fn a_flipped_bit_is_named(dir: &Path) {
    let mut segments: Vec<_> = walk(dir)
        .into_iter()
        .filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("blocks-"))
        .collect();
    segments.sort();
    let segment = &segments[0];
    let good = fs::read(segment).unwrap();
    let mut bad = good.clone();
    // In the body of some block in the middle.
    bad[good.len() / 2] ^= 0x10;
    fs::write(segment, &bad).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    let run = tercio(["audit", text(dir), "--json"]);
    run.refused(1, &[name, "block "]);
    let json = run.json();
    assert_eq!(json["audit"], "failed");
    assert_eq!(json["file"], name);
    assert!(json["block"].as_u64().unwrap() > 0);
    assert!(!json["field"].as_str().unwrap().is_empty());
    fs::write(segment, &good).unwrap();
    tercio(["audit", text(dir)]).good();
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

fn other_directories_are_refused(folder: &Path, kept: &Path) {
    let missing = folder.join("missing");
    tercio(["audit", text(&missing)]).refused(1, &["missing"]);
    tercio(["start", "--dir", text(&missing)]).refused(1, &["missing"]);
    let file = folder.join("file");
    fs::write(&file, "no directory").unwrap();
    tercio(["audit", text(&file)]).refused(1, &["file"]);
    tercio(["start", "--dir", text(&file)]).refused(1, &["file"]);
    let foreign = folder.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("holiday.jpg"), [0xff, 0xd8]).unwrap();
    tercio(["audit", text(&foreign)]).refused(1, &["foreign"]);
    tercio(["start", "--dir", text(&foreign)]).refused(1, &["foreign"]);
    tercio(["demo", "--keep", text(&foreign)]).refused(1, &["foreign", "not empty"]);

    // A configuration that makes no sense: the line and the key are named.
    let dir = kept.join("replica-1");
    for name in ["tercio.toml", "genesis.toml"] {
        let path = dir.join(name);
        let good = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("colour = 'blue'\n{good}")).unwrap();
        tercio(["start", "--dir", text(&dir)]).refused(1, &[&format!("{name}:1"), "colour"]);
        fs::write(&path, b"\xff\xfe garbage").unwrap();
        tercio(["start", "--dir", text(&dir)]).refused(1, &[name]);
        fs::write(&path, good).unwrap();
    }
    // The key of another replica.
    let key = dir.join("key");
    let good = fs::read(&key).unwrap();
    fs::copy(kept.join("replica-3/key"), &key).unwrap();
    tercio(["start", "--dir", text(&dir)]).refused(1, &["key"]);
    fs::write(&key, "garbage").unwrap();
    tercio(["start", "--dir", text(&dir)]).refused(1, &["key"]);
    fs::write(&key, good).unwrap();
}

#[test]
fn bad_order_files_are_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.csv");
    tercio(["demo", "--orders", text(&file)]).refused(1, &["orders.csv"]);
    fs::write(&file, "id,price\n").unwrap();
    tercio(["demo", "--orders", text(&file)]).refused(1, &["orders.csv", "line 1", "header"]);
    let header = "id,timestamp,exchange.timestamp,price,volume,action,direction\n";
    fs::write(&file, header).unwrap();
    tercio(["demo", "--orders", text(&file)]).refused(1, &["no events"]);
    for bad in ["1,2,3,4.00,5,created", "1,2,3,4.00,-5,created,bid", "1,2,3,4.00,5,eaten,bid"] {
        fs::write(&file, format!("{header}1,2,3,4.00,5,created,bid\n{bad}\n")).unwrap();
        tercio(["demo", "--orders", text(&file)]).refused(1, &["line 3"]);
    }
    tercio(["demo", "--trades-out", "x"]).refused(2, &["--orders"]);
}

/// A stranger's matcher and the network come to the same trades and the same book.
#[test]
#[expect(clippy::print_stderr, reason = "a comparison that is skipped says so")]
fn the_sample_replays_as_a_naive_matcher_does() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/bitstamp-2015-05-01-orders.csv");
    let Ok(csv) = fs::read_to_string(&sample) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", sample.display());
        eprintln!("SKIPPED, nothing was compared: {} is missing", sample.display());
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (trades, book) = (folder.path().join("T.csv"), folder.path().join("B.csv"));
    let run = tercio([
        "demo",
        "--json",
        "--orders",
        text(&sample),
        "--trades-out",
        text(&trades),
        "--book-out",
        text(&book),
    ]);
    let json = run.good().json();
    assert_shows(&json, 4);
    let naive = naive::replay(&csv);
    assert_eq!(json["orders"], naive.events);
    assert_eq!(naive.events, 50_414);
    assert_eq!(json["unknown"], naive.unknown);
    assert!(naive.trades.lines().count() > 100 && naive.book.lines().count() > 100);
    assert!(fs::read_to_string(&trades).unwrap() == naive.trades, "the trades differ");
    assert!(fs::read_to_string(&book).unwrap() == naive.book, "the books differ");
}

/// Nothing is left running by a demonstration that was killed itself.
#[test]
fn replicas_do_not_outlive_a_killed_parent() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_tercio"))
        .args(["demo", "--keep", text(&kept)])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let homes: Vec<_> = (0..4).map(|i| kept.join(format!("replica-{i}"))).collect();
    while !homes.iter().all(|home| home.join("status.json").exists()) {
        assert!(demo.try_wait().unwrap().is_none(), "it ended by itself");
    }
    demo.kill().unwrap();
    demo.wait().unwrap();
    // A home can be audited once its replica has released it. Left running, it never would.
    for home in &homes {
        let freed = tercio_network::poll_until(std::time::Duration::from_secs(60), || {
            (tercio(["audit", text(home)]).code == 0).then_some(())
        });
        assert!(freed.is_some(), "{} is still in use", home.display());
    }
}
