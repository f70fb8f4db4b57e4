//! The examples run and say what their readers expect.

use std::process::{Command, Output};
use tercio_client::Numbers;
use tercio_network::{Network, Replicas, Spec};

fn says(program: &str) -> String {
    said(program, &Command::new(program).output().unwrap())
}

fn said(program: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Each run is a client that returns, and its operation is executed.
#[test]
fn connect() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::new(tercio_registry::apps().first());
    Network::lay_out(folder.path(), &spec).unwrap();
    let replicas =
        Replicas::start(folder.path(), spec.replicas, None, &tercio_registry::apps()).unwrap();
    let home = tercio_network::client_home(folder.path(), "1");
    let program = env!("CARGO_BIN_EXE_connect");
    let run = || Command::new(program).arg(&home).output().unwrap();
    for total in 1..=3 {
        assert_eq!(said(program, &run()), format!("add: {total}\ntotal: {total}\n"));
    }
    // Two processes that use one home at once.
    let held = Numbers::open(&home.join("numbers")).unwrap();
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("InUse"), "{errors}");
    drop(held);
    assert_eq!(said(program, &run()), "add: 4\ntotal: 4\n");
    replicas.stop().unwrap();
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
