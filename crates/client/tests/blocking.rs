//! The blocking client over real sockets, against replicas by hand that do not order anything.

use crate::common;

use bytes::Bytes;
use common::running::{Running, given_time, network, settings};
use std::collections::BTreeSet;
use std::time::Duration;
use tercio_client::{CallError, Client, ConnectError};
use tercio_types::{ReplicaId, ReplicaSet};

#[test]
fn calls_queries_and_pipelines_survive_a_crash_of_the_primary() {
    let (membership, sockets) = network();
    let start = |(i, socket)| Some(Running::start(i, socket, &membership));
    let mut replicas: Vec<_> = sockets.into_iter().enumerate().map(start).collect();
    let mut settings = settings(&membership);
    settings.core.max_outstanding = 16;
    // As long as it takes.
    settings.connect_timeout = Duration::MAX;
    let mut client = Client::connect(settings).unwrap();
    assert_eq!(client.call("one".into()).unwrap(), "did one");
    assert_eq!(client.query("what".into()).unwrap(), "seen what");
    let package = client.call_all(vec!["two".into(), "three".into()]).unwrap();
    assert_eq!(package, ["did two", "did three"]);

    let mut left = 0..300;
    let mut seen = BTreeSet::new();
    let next = || left.next().map(|i| (0..=i % 7).map(|j| format!("{i} {j}").into()).collect());
    let done = |completion: tercio_client::Completion| {
        assert!(seen.insert(completion.ticket), "each once");
        for result in completion.outcome.unwrap() {
            let tercio_client::OpResult::Executed(bytes) = result else { panic!("{result:?}") };
            assert!(bytes.starts_with(b"did "));
        }
        if seen.len() == 100 {
            replicas[0] = None;
        }
    };
    client.pipeline(next, done).unwrap();
    assert_eq!(seen.len(), 300);
    assert_eq!(client.call("after".into()).unwrap(), "did after");
    assert_eq!(client.core().outstanding(), 0);
}

#[test]
fn errors_say_which_replicas_are_missing_and_why() {
    let (membership, mut sockets) = network();
    let addresses: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
    sockets.truncate(1);
    let zero = Running::start(0, sockets.pop().unwrap(), &membership);
    given_time(|within| {
        let short = tercio_client::Settings { connect_timeout: within, ..settings(&membership) };
        let error = Client::connect(short).unwrap_err();
        let ConnectError::Unreachable { reached, n: 4, needed: 3, .. } = &error else {
            panic!("{error}");
        };
        let text = error.to_string();
        let refused = |address| text.contains(&format!("{address}: connection refused"));
        if *reached == 1 && addresses[1..].iter().all(refused) { Ok(()) } else { Err(text) }
    });
    drop(zero);
}

#[test]
fn a_call_without_enough_replicas_ends_with_their_names() {
    let (membership, sockets) = network();
    let mut replicas: Vec<_> = (sockets.into_iter().enumerate())
        .map(|(i, socket)| Running::start(i, socket, &membership))
        .collect();
    let mut client = Client::connect(settings(&membership)).unwrap();
    assert_eq!(client.call("fine".into()).unwrap(), "did fine");
    replicas.drain(1..);
    let expected = |within: Duration| {
        let ms = within.as_millis();
        format!(
            "1 of 4 replicas answered: 0; no answer from 1, 2 and 3 for {ms}ms; are they running?"
        )
    };
    given_time(|within| {
        client.set_deadline(within);
        let error = client.call("alone".into()).unwrap_err();
        assert!(matches!(error, CallError::Failed { .. }));
        let text = error.to_string();
        let linked = text.contains("replica 2: 127.0.0.1");
        if text.starts_with(&expected(within)) && linked { Ok(()) } else { Err(text) }
    });
    given_time(|within| {
        client.set_deadline(within);
        let error = client.query(Bytes::from("alone")).unwrap_err().to_string();
        if error.starts_with(&expected(within)) { Ok(()) } else { Err(error) }
    });
    client.set_deadline(Duration::from_millis(50));
    let error = client.call_all(vec!["a".into(), "b".into()]).unwrap_err().to_string();
    assert!(error.contains("for 50ms"), "{error}");
    assert!(error.contains("numbers 3 to 4 may have been executed, or may be yet"), "{error}");
}

#[test]
fn a_client_can_link_to_some_replicas_only() {
    let (membership, sockets) = network();
    let _replicas: Vec<_> = (sockets.into_iter().enumerate())
        .map(|(i, socket)| Running::start(i, socket, &membership))
        .collect();
    let only = |ids: &[u16]| {
        let replicas: ReplicaSet = ids.iter().copied().map(ReplicaId).collect();
        Client::connect(tercio_client::Settings {
            replicas: Some(replicas),
            ..settings(&membership)
        })
    };
    // The primary is not among them.
    let mut client = only(&[1, 3]).unwrap();
    assert_eq!(client.call("fine".into()).unwrap(), "did fine");
    assert_eq!(client.query("what".into()).unwrap(), "seen what");
    let left_out = ["replica 0: left out by the settings", "replica 2: left out by the settings"];
    assert_eq!(client.link_problems(), left_out);
    let error = only(&[2]).unwrap_err();
    assert!(matches!(error, ConnectError::TooFew { named: 1, needed: 2 }), "{error}");
}
