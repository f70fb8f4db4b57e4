//! A network whose replicas have other numbers than those from 0 on, as one has whose members left.

use crate::common;

use common::{Up, kill, tercio, text};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tercio_network::{Network, Spec, home, poll_until};
use tercio_replica::report::ReplicaReport;

const PATIENCE: Duration = Duration::from_secs(120);
const NUMBERS: [u16; 4] = [0, 2, 5, 7];
/// Snapshots are taken early, and blocks below them go, so that only state helps one that lost all.
const SETTINGS: &str = "
[retain]
bytes = 1
snapshot_bytes = 131072

[ledger]
blocks_per_segment = 16
";

fn reports(dir: &Path) -> Vec<ReplicaReport> {
    NUMBERS.iter().filter_map(|id| ReplicaReport::read(&home(dir, *id)).ok()).collect()
}

fn fill(folder: &Path, dir: &Path, from: u64) {
    let file = folder.join(format!("operations-{from}"));
    let value = "value".repeat(640);
    let lines: Vec<_> = (from..from + 200).map(|key| format!("put key{key:04} {value}")).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    tercio(["submit", text(dir), "--file", text(&file)]).good();
}

/// Everything goes by numbers: homes, links, MACs, primaries, restarts, a state transfer, `status` and
/// `audit`.
#[test]
fn replicas_have_numbers_with_holes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    let app = tercio_registry::apps().named("kv").unwrap();
    let spec = Spec { numbers: NUMBERS.to_vec(), ..Spec::new(app) };
    Network::lay_out(&dir, &spec).unwrap();
    for id in NUMBERS {
        let file = home(&dir, id).join("tercio.toml");
        let settings = fs::read_to_string(&file).unwrap() + SETTINGS;
        fs::write(file, settings).unwrap();
    }
    let up = Up::start(&dir);
    fill(folder.path(), &dir, 0);

    // The second in order takes over from the first, which is started again.
    let first = reports(&dir).into_iter().find(|report| report.id == 0).unwrap();
    assert!(kill("-STOP", first.pid));
    fill(folder.path(), &dir, 200);
    let moved = || {
        let others = reports(&dir).into_iter().filter(|report| report.id != 0);
        let moved = others.filter(|report| report.view == 1 && report.primary == 2).count();
        (moved == 3).then_some(())
    };
    assert!(poll_until(PATIENCE, moved).is_some(), "{:?}", reports(&dir));
    assert!(kill("-KILL", first.pid));
    let well = || {
        let status = tercio(["status", text(&dir)]);
        status.stdout.contains("all is well: 4 of 4 replicas vote, 1 may fail").then_some(())
    };
    assert!(poll_until(PATIENCE, well).is_some(), "{}", tercio(["status", text(&dir)]).stdout);
    up.stop();

    // One that lost all fetches the state of the others.
    fs::remove_dir_all(home(&dir, 7).join("data")).unwrap();
    fs::create_dir(home(&dir, 7).join("data")).unwrap();
    let up = Up::start(&dir);
    fill(folder.path(), &dir, 400);
    let back = || {
        let all = reports(&dir);
        let report = all.iter().find(|report| report.id == 7)?;
        let fetched = report.transfer.as_ref().is_some_and(|transfer| transfer.phase == "done");
        (fetched && all.iter().all(|other| other.height == report.height)).then_some(())
    };
    assert!(poll_until(PATIENCE, back).is_some(), "{:?}", reports(&dir));
    let lines = tercio(["status", text(&dir)]).stdout;
    for id in NUMBERS {
        assert!(lines.contains(&format!("replica {id} ")), "{lines}");
    }
    assert!(!lines.contains("replica 1 ") && !lines.contains("replica 3 "), "{lines}");
    up.stop();
    let audit = tercio(["audit", text(&dir), "--json"]);
    let audit = audit.good().json();
    let ids: Vec<_> = audit["replicas"].as_array().unwrap().iter().map(|r| &r["replica"]).collect();
    assert_eq!(ids, NUMBERS);
    assert_eq!(audit["heads"].as_object().unwrap().len(), 1, "{audit}");
}
