//! Runs of a program. They have a test program of their own: a child that begins holds, for a moment,
//! the locks of whatever else is tested beside it.

use serde_json::Value;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tercio_repro::{Launch, Program, RunError};

const SHORT: Duration = Duration::from_millis(100);

fn shell(script: &str, limit: Duration) -> Result<(Value, Duration), RunError> {
    let stop = AtomicBool::new(false);
    let arguments = ["-c".to_owned(), script.to_owned()];
    Program::new(Path::new("/bin/sh"), Path::new("/"), &stop).launch(&arguments, limit)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_last_line_is_the_result() {
    let (result, took) = shell("echo hello; echo '{\"a\": 1}'; echo", LONG).unwrap();
    assert_eq!(result["a"], 1);
    assert!(took < LONG);
}

#[test]
fn what_fails_or_is_cut_off_is_no_result() {
    let error = |script| shell(script, LONG).unwrap_err().to_string();
    let failed = error("echo '{\"a\": 1}'; echo first >&2; echo 'the last one' >&2; exit 3");
    assert!(failed.contains("exit status: 3") && failed.ends_with("the last one"), "{failed}");
    assert!(error("echo '[1]'").contains("printed no JSON object"));
    assert!(error("echo '{\"a\": '").contains("printed no JSON object"));
    let ended = error("echo '{\"a\": 1}'; kill -9 $$");
    assert!(ended.contains("signal: 9"), "{ended}");
    let hangs = shell("exec sleep 600", SHORT).unwrap_err().to_string();
    assert!(hangs.contains("was cut off"), "{hangs}");
    let stop = AtomicBool::new(true);
    let program = Program::new(Path::new("/bin/sh"), Path::new("/"), &stop);
    let sleeps = ["-c".to_owned(), "exec sleep 600".to_owned()];
    assert!(matches!(program.launch(&sleeps, LONG), Err(RunError::Interrupted)));
    let none = Program::new(Path::new("/nowhere/at all"), Path::new("/"), &stop).launch(&[], LONG);
    assert!(none.unwrap_err().to_string().starts_with("/nowhere/at all: "));
}
