//! Operations without a result in time, and numbers that a client cannot have used.

use crate::common;

use common::{Up, finish, kill, tercio, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn submit(dir: &Path) -> u64 {
    tercio(["submit", text(dir), "add", "--json"]).good().json()["number"].as_u64().unwrap()
}

/// A home from a copy, or a file that somebody wrote: nothing is used up, and it is said what to do.
#[test]
fn numbers_far_ahead_are_refused_and_none_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let up = Up::start(&dir);
    assert_eq!((submit(&dir), submit(&dir)), (1, 2));
    let file = dir.join("clients/1/numbers");
    for far in ["9000000000\n", "5000\n"] {
        fs::write(&file, far).unwrap();
        for _ in 0..2 {
            let words = [text(&file), far.trim(), "expects 3", "write 3 into it"];
            tercio(["submit", text(&dir), "add"]).refused(1, &words);
            tercio(["query", text(&dir), "total"]).refused(1, &words);
            assert_eq!(fs::read_to_string(&file).unwrap(), far);
        }
    }
    // Questions that are not ordered need no number.
    let answer = tercio(["query", text(&dir), "total", "--stale", "--json"]).good().json();
    assert_eq!(answer["answer"], 2, "{answer}");
    fs::write(&file, "3\n").unwrap();
    assert_eq!(submit(&dir), 3, "no number was used up");
    up.stop();
}

/// The replicas stop answering while an operation is under way.
#[test]
fn a_number_without_a_result_is_named_and_can_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("net");
    tercio(["testnet", "-o", text(&dir)]).good();
    let settings = dir.join("clients/1/client.toml");
    let patient = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{patient}deadline_ms = 1000\n")).unwrap();
    let up = Up::start(&dir);
    let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
        .args(["submit", text(&dir), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    writeln!(lines, "add").unwrap();
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert!(first.contains("\"number\":1") && first.contains("\"unknown\":false"), "{first}");
    let halted: Vec<u32> = up.reports(4)[1..].iter().map(|report| report.pid).collect();
    assert!(halted.iter().all(|pid| kill("-STOP", *pid)));
    writeln!(lines, "add").unwrap();
    drop(lines);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let run = finish(child.wait_with_output().unwrap());
    assert!(halted.iter().all(|pid| kill("-CONT", *pid)));
    let asks = format!("`tercio submit {} --ask 2` asks", text(&dir));
    run.refused(3, &["number 2 may have been executed, or may be yet", &asks]);
    let second: serde_json::Value = serde_json::from_str(rest.trim()).unwrap();
    assert_eq!((&second["number"], &second["unknown"]), (&2.into(), &true.into()), "{second}");
    assert!(second["result"].is_null() && second["refused"] == false, "{second}");

    fs::write(&settings, patient).unwrap();
    let ask = |number: &str| tercio(["submit", text(&dir), "--ask", number, "--json"]);
    // The primary has it, and goes on with the others.
    let done = tercio_network::poll_until(PATIENCE, || Some(ask("2")).filter(|run| run.code == 0));
    let done = done.expect("it is executed in the end").json();
    assert_eq!((&done["state"], &done["result"]), (&"executed".into(), &2.into()), "{done}");
    let said = tercio(["submit", text(&dir), "--ask", "2"]).good().stdout.clone();
    assert!(said.contains("number 2 was executed"), "{said}");

    let unused = ask("3");
    unused.refused(3, &["number 3 is open"]);
    assert_eq!(unused.json()["state"], "open");
    // A process that ended before it could send what it noted.
    fs::write(dir.join("clients/1/numbers"), "5\n").unwrap();
    assert_eq!(ask("3").code, 3, "asking uses nothing up");
    assert_eq!(submit(&dir), 5);
    let void = ask("3");
    assert_eq!((void.code, &void.json()["state"]), (1, &"void".into()));
    let both = ["submit", text(&dir), "add", "--ask", "2"];
    tercio(both).refused(2, &["--ask"]);
    tercio(["submit", text(&dir), "--ask", "0"]).refused(2, &["--ask", "1.."]);
    up.stop();
}
