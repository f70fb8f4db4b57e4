//! The examples run and say what their readers expect.

use std::process::Command;

fn says(program: &str) -> String {
    let output = Command::new(program).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn first_steps() {
    let expected = "put: stored\nswap: swapped\nswap: not swapped: the value is Lima\ncity: Lima\n";
    assert_eq!(says(env!("CARGO_BIN_EXE_first_steps")), expected);
}

#[test]
fn futures() {
    let expected = "100 calls, a total of 100\nthe replicas say 100\n";
    assert_eq!(says(env!("CARGO_BIN_EXE_futures")), expected);
}
