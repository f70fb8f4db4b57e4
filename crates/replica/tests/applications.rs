//! Every application under every suite: a replica that was stopped comes back to the same state,
//! whichever way it takes.

use crate::common::{Asker, CLIENT, Net, quick, request_frame};
use bytes::Bytes;
use tercio_genesis::App;
use tercio_ledger::Storage;
use tercio_registry::{BankKind, apps};
use tercio_replica::NodeSettings;
use tercio_types::{OpKind, Principal, Suite};

/// How a replica comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With its disk: from a snapshot and the blocks behind it.
    Restart,
    /// Without its disk, from blocks that the others keep.
    Blocks,
    /// Without its disk, from a state, since the others let go of blocks.
    State,
}

/// Peers let blocks go as soon as snapshots cover them.
fn forgetful(settings: &mut NodeSettings) {
    quick(settings);
    settings.ledger.blocks.retain_bytes = 1;
}

fn app(name: &str) -> App {
    match name {
        "bank" => BankKind::app(tercio_bank::Settings {
            issuer: Some(CLIENT),
            accounts: 50,
            ..Default::default()
        }),
        name => apps().named(name).unwrap(),
    }
}

/// Operations that leave some state, each its own.
fn operations(app: &App, number: u64) -> Vec<Bytes> {
    let lines = (4 * number..4 * number + 4).map(|i| match app.name() {
        "counter" => "add".to_owned(),
        "exchange" => match i % 4 {
            0 => format!("sell 2 @ {} in {} as {i}", 101_000 + i, i % 8),
            _ => format!("buy 1 @ {} in {} as {i}", 100_000 + i, i % 8),
        },
        "kv" => format!("put key{i} {}", "value".repeat(20)),
        "bank" => format!("deposit {} {}", i % 50, 1 + i),
        other => panic!("an application without operations here: {other}"),
    });
    lines.map(|line| app.operation(&line).unwrap()).collect()
}

fn order(net: &mut Net, app: &App, asker: &Asker, numbers: std::ops::Range<u64>) {
    for i in numbers {
        let (first, ops) = (4 * i + 1, operations(app, i));
        let bytes = request_frame(asker.package_of(OpKind::User, first, 0, &ops));
        for replica in 0..4 {
            net.send(Principal::Client(asker.id), replica, bytes.clone());
        }
        net.until("enough replies", |net| net.replies(asker.id, first).len() > 1);
    }
}

fn comes_back(name: &str, suite: Suite, way: Way) {
    let what = format!("{name} under {} by {way:?}", suite.name());
    let tune = if way == Way::State { forgetful } else { quick };
    let app = app(name);
    let made = app.clone();
    let mut net = Net::of_suite(suite, move || made.build(suite).unwrap(), tune);
    let asker = Asker::new(CLIENT, &net.membership);
    order(&mut net, &app, &asker, 0..20);
    net.stop(3);
    if way != Way::Restart {
        net.disks[3] = Default::default();
        order(&mut net, &app, &asker, 20..60);
    }
    net.start(3);
    order(&mut net, &app, &asker, 60..62);
    // Until all signed one checkpoint of the state as it is now.
    net.until(&what, |net| {
        let stable = |i| net.status(i).protocol.stable;
        net.stopped.is_empty() && net.agree() && (0..4).all(|i| stable(i) == stable(0))
    });
    assert!(net.stopped.is_empty(), "{what}: {:?}", net.stopped);
    let transfer = net.status(3).transfer;
    assert_eq!(transfer.is_some(), way == Way::State, "{what}: {transfer:?}");
    let accused = (0..4).map(|i| net.status(i).evidence).find(|evidence| !evidence.is_empty());
    assert_eq!(accused, None, "{what}: nobody lied");
    let ask = |net: &mut Net, number| {
        let question = app.question(app.example_question()).unwrap();
        let bytes = request_frame(asker.package_of(OpKind::Read, number, 0, &[question]));
        (0..4).for_each(|i| net.send(Principal::Client(asker.id), i, bytes.clone()));
        net.until(&what, |net| net.replies(asker.id, number).len() == 4);
        let replies = net.replies(asker.id, number);
        assert!(replies.iter().all(|r| r.digest == replies[0].digest), "{what}: {replies:?}");
    };
    ask(&mut net, 4 * 62 + 1);
}

#[test]
fn every_application_comes_back_under_every_suite() {
    for name in apps().names() {
        for suite in Suite::ALL {
            for way in [Way::Restart, Way::Blocks, Way::State] {
                comes_back(name, suite, way);
            }
        }
    }
}

/// An application whose digest is not over its snapshot (here: hashed as another suite says) leaves
/// no snapshot that nobody could use: the replica stops and names it.
#[test]
fn an_application_whose_digest_is_not_its_snapshots_is_named() {
    let app = app("counter");
    let made = app.clone();
    let other = move || made.build(Suite::Sha256Ed25519).unwrap();
    let mut net = Net::of_suite(Suite::Sm3Sm2, other, quick);
    let asker = Asker::new(CLIENT, &net.membership);
    order(&mut net, &app, &asker, 0..7);
    let bytes = request_frame(asker.package_of(OpKind::User, 29, 0, &operations(&app, 7)));
    (0..4).for_each(|i| net.send(Principal::Client(CLIENT), i, bytes.clone()));
    net.settle();
    assert_eq!(net.stopped.len(), 4);
    for (by, error) in &net.stopped {
        let text = error.to_string();
        assert!(text.starts_with("tercio_counter::Counter: the snapshot at number 8"), "{text}");
        assert!(net.disks[by.index()].list().unwrap().iter().all(|f| !f.starts_with("snapshot-")));
    }
}
