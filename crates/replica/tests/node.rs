//! Nodes wired directly: the pipeline, recovery, and what is answered.

use crate::common;

use common::{Asker, CLIENT, Net, counter, pbft, quick, results};
use tercio_counter::Counter;
use tercio_crypto::Instance;
use tercio_execution::Application;
use tercio_ledger::{BlockLog, attestation_key};
use tercio_replica::{Node, NodeError, NodeSettings};
use tercio_types::{ClientId, Height, Principal, Suite};
use tercio_wire::{Kind, block_hash};

#[test]
fn four_nodes_execute_each_request_once_and_agree() {
    let mut net = Net::new(4);
    let (a, b) = (Asker::new(CLIENT, &net.membership), Asker::new(ClientId(8), &net.membership));
    net.order(&a, 1, 10);
    net.order(&b, 1, 5);
    // Sent again, it is not executed again, and everybody answers in full.
    net.until("all are there", |net| net.agree());
    net.answers.clear();
    net.ask(&a, 3, &[b"op"]);
    net.settle();
    let replies = net.replies(CLIENT, 3);
    assert_eq!(replies.len(), 4);
    for reply in &replies {
        assert_eq!(results(reply), [3]);
    }
    assert!(net.all_at(15), "one block a request, since they came one after the other");
    net.until("a checkpoint covers all", |net| {
        (0..4).all(|i| net.status(i).checkpoint.is_some_and(|c| c.height.0 == 15))
    });
    for i in 1..4 {
        assert_eq!(net.status(i).checkpoint, net.status(0).checkpoint);
        assert_eq!(net.status(i).evidence.len(), 0);
    }
}

/// A client need not wait for one replica among all when results are short; long ones travel once.
#[test]
fn one_replica_answers_in_full_and_the_others_with_the_digest_of_what_is_long() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let mut first = 1;
    for (ops, long) in [(2, false), (500, true)] {
        let bytes = asker.request(first, 2, &vec![&b"x"[..]; ops]);
        (0..4).for_each(|i| net.send(Principal::Client(CLIENT), i, bytes.clone()));
        net.until("all reply", |net| net.replies(CLIENT, first).len() == 4);
        let replies = net.replies(CLIENT, first);
        let last = first + ops as u64;
        for reply in &replies {
            assert_eq!(reply.digest, replies[0].digest);
            assert_eq!(reply.body.is_empty(), long && reply.from.0 != 2);
            if !reply.body.is_empty() {
                assert_eq!(results(reply), (first..last).collect::<Vec<_>>());
            }
        }
        first = last;
    }
}

#[test]
fn one_replica_alone_is_a_network() {
    let mut net = Net::new(1);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 9);
    let before = net.status(0);
    assert_eq!(before.height.0, 9);
    net.stop(0);
    net.start(0);
    net.until("it is where it was", |net| net.status(0).block == before.block);
    net.order(&asker, 10, 1);
    assert_eq!(results(&net.replies(CLIENT, 10)[0]), [10]);
}

#[test]
fn queries_are_answered_without_ordering() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 3);
    net.until("all are there", |net| net.agree());
    let good = asker.frame(Kind::QUERY, 41, bytes::Bytes::new()).to_bytes();
    let bad = asker.frame(Kind::QUERY, 42, bytes::Bytes::from_static(b"what?")).to_bytes();
    for i in 0..4 {
        net.send(Principal::Client(CLIENT), i, good.clone());
        net.send(Principal::Client(CLIENT), i, bad.clone());
    }
    net.settle();
    let answers = &net.answers[&CLIENT];
    let good: Vec<_> =
        answers.iter().filter(|a| a.kind == Kind::ANSWER && a.number == 41).collect();
    assert_eq!(good.len(), 4);
    assert!(good.iter().all(|a| a.body.as_ref() == 3u64.to_le_bytes()));
    assert!(answers.iter().all(|a| a.number != 42));
    assert_eq!(net.status(2).dropped["query_without_sense"], 1);
    assert!(net.all_at(3));
}

/// Every node in turn goes down and comes back from its files, while the others go on.
#[test]
fn a_restarted_node_takes_up_where_it_stopped() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    let mut next = 1;
    for i in [3, 2, 1, 0, 3] {
        net.order(&asker, next, 7);
        next += 7;
        net.until("all are there", |net| net.agree());
        let before = net.status(i);
        net.stop(i);
        net.start(i);
        let after = net.status(i);
        assert_eq!((after.height, after.block), (before.height, before.block));
        net.order(&asker, next, 2);
        next += 2;
    }
    net.until("all are there", |net| net.agree());
    assert!(net.all_at(45));
    assert!(net.stopped.is_empty());
}

/// All at once, with whatever was not synced gone.
#[test]
fn all_nodes_survive_a_power_cut() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 13);
    let last = net.replies(CLIENT, 13);
    assert!(last.len() >= 2);
    for i in 0..4 {
        net.stop(i);
        net.disks[i].crash(&mut |_| 0);
    }
    net.wire.clear();
    (0..4).for_each(|i| net.start(i));
    net.until("what was acknowledged is there", |net| net.all_at(13));
    net.order(&asker, 14, 1);
    net.until("all are there", |net| net.agree());
    assert_eq!(
        results(&net.replies(CLIENT, 14).into_iter().find(|r| !r.body.is_empty()).unwrap()),
        [14]
    );
}

/// A flipped bit in the promises, which nobody else can know: the node says where, and does not start.
#[test]
fn damage_stops_the_start_and_names_file_and_place() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 6);
    net.until("all are there", |net| net.agree());
    net.stop(1);
    let names = tercio_ledger::Storage::list(&net.disks[1]).unwrap();
    let name = names.into_iter().find(|name| name.starts_with("wal-")).unwrap();
    net.disks[1].edit(&name, |bytes| bytes[90] ^= 1);
    let error = net.try_start(1).unwrap_err();
    assert!(matches!(error, NodeError::Ledger(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains(&name) && text.contains("damaged at byte 88"), "{text}");
}

/// A failed write stops the node, which says so.
#[test]
fn a_failed_write_is_fail_stop() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 2);
    net.disks[2].fail_in(0);
    net.order(&asker, 3, 3);
    net.until("it stopped", |net| !net.stopped.is_empty());
    let (who, error) = &net.stopped[0];
    assert_eq!(who.0, 2);
    assert!(error.to_string().contains("injected fault"), "{error}");
    net.order(&asker, 6, 2);
}

/// A snapshot that rots while it is kept stops nobody: blocks stay until the next ones say what may go.
#[test]
fn a_kept_snapshot_that_rots_stops_nobody() {
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.ledger.blocks.retain_bytes = 4000;
    };
    let mut net = Net::with(4, Box::new(counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 40);
    net.until("all are there", |net| net.agree());
    let names = tercio_ledger::Storage::list(&net.disks[1]).unwrap();
    let kept: Vec<_> = names.iter().filter(|name| name.starts_with("snapshot-")).collect();
    assert!(!kept.is_empty(), "{names:?}");
    for name in kept {
        net.disks[1].edit(name, |bytes| bytes[60] ^= 1);
    }
    net.order(&asker, 41, 80);
    net.until("all are there", |net| net.agree());
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
    assert!(net.status(1).dropped["snapshot_damaged"] > 0);
    let (first, last) = net.nodes[1].as_ref().unwrap().stages().log.extent();
    assert!(first.0 > 60 && last.0 == 120, "{first} to {last}");
}

/// Old segments go once a snapshot covers them, and a restart stands on snapshot and rest.
#[test]
fn old_blocks_go_and_a_restart_stands_on_the_snapshot() {
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.ledger.blocks.retain_bytes = 4000;
    };
    let mut net = Net::with(4, Box::new(counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 120);
    net.until("all are there", |net| net.agree());
    let node = net.nodes[1].as_ref().unwrap();
    let (first, last) = node.stages().log.extent();
    assert!(first.0 > 60 && last.0 == 120, "{first} to {last}");
    let before = net.status(1);
    net.stop(1);
    net.start(1);
    assert_eq!(net.status(1).block, before.block);
    assert_eq!(net.status(1).checkpoint.map(|c| c.state), before.checkpoint.map(|c| c.state));
    // What the clients' windows say has come through the snapshot.
    net.answers.clear();
    net.ask(&asker, 3, &[b"op"]);
    net.settle();
    assert_eq!(net.replies(CLIENT, 3).len(), 4);
    net.order(&asker, 121, 4);
    net.until("all are there", |net| net.agree());
}

/// With attestations on, every block gets a quorum's signatures, kept beside it.
#[test]
fn blocks_are_attested() {
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.consensus.attest = true;
    };
    let mut net = Net::with(4, Box::new(counter), Box::new(tune), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 10);
    net.until("all are there", |net| net.agree());
    net.settle();
    net.stop(0);
    let (chain, settings) = (net.membership.chain(), net.settings(0).ledger.blocks);
    let (mut log, _) = BlockLog::open(Box::new(net.disks[0].clone()), chain, settings).unwrap();
    for height in 1..=10 {
        let block = block_hash(&log.read(Height(height)).unwrap().unwrap().header);
        let signatures = log.attestations(Height(height)).unwrap();
        assert!(signatures.len() >= net.membership.quorum(), "block {height}");
        let claims = signatures.iter().map(|(hash, replica, signature)| {
            assert_eq!(*hash, block);
            (*replica, attestation_key(*replica, Height(height), block).to_array(), signature)
        });
        tercio_crypto::verify_signed(&net.membership, Instance::default(), claims).unwrap();
    }
}

/// A state that is not the one that was certified: the replica does not start.
#[test]
fn another_application_on_the_same_log_is_noticed() {
    let mut net = Net::new(4);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 6);
    net.until("a checkpoint is stable", |net| net.status(2).protocol.stable.0 >= 4);
    net.stop(2);
    let mut settings = net.settings(2);
    // Its results are longer, so the results root is another.
    let rules = tercio_counter::Settings { iterations: 0, reply: 9 };
    let open = |settings: &NodeSettings| {
        let app: Box<dyn Application> = Box::new(Counter::new(rules, Suite::default()));
        let opened: Result<Node<_>, _> =
            Node::open(settings.clone(), net.disks[2].clone(), app, net.now);
        opened.err().expect("it does not start").to_string()
    };
    let error = open(&settings);
    assert!(error.contains("the results of block 1 are others than execution gives"), "{error}");
    settings.ledger.blocks.keep_results = false;
    let error = open(&settings);
    assert!(
        error.contains("is not the one that a quorum certified (the results root differs)"),
        "{error}"
    );
}

/// A replica whose state is not what a quorum certified stops, and says so; the others go on.
#[test]
fn a_replica_that_computes_wrongly_stops() {
    let made = std::cell::Cell::new(0);
    let app = move || -> Box<dyn Application> {
        made.set(made.get() + 1);
        // The fourth has other results.
        let reply = if made.get() == 4 { 9 } else { 8 };
        let settings = tercio_counter::Settings { iterations: 0, reply };
        Box::new(Counter::new(settings, Suite::default()))
    };
    let mut net = Net::with(4, Box::new(app), Box::new(quick), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 3);
    net.ask(&asker, 4, &[b"op"]);
    net.until("it stopped", |net| !net.stopped.is_empty());
    let (who, error) = &net.stopped[0];
    assert_eq!(who.0, 3);
    assert_eq!(
        error.to_string(),
        "a quorum certified another state than ours at number 4 (the results root differs): this \
         replica computed wrongly and must not go on; compare it with another one, or empty its data directory"
    );
    net.order(&asker, 5, 10);
    assert_eq!(net.stopped.len(), 1);
}

/// A result that fits no frame is named to the client by all, and harms nobody.
#[test]
fn results_that_fit_no_frame() {
    let app = || -> Box<dyn Application> {
        let settings = tercio_counter::Settings { iterations: 0, reply: 17 << 20 };
        Box::new(Counter::new(settings, Suite::default()))
    };
    let mut net = Net::with(4, Box::new(app), Box::new(quick), pbft());
    let asker = Asker::new(CLIENT, &net.membership);
    net.ask(&asker, 1, &[b"op"]);
    net.until("all are there", |net| net.all_at(1));
    assert_eq!(net.replies(CLIENT, 1), []);
    net.until("all have said so", |net| {
        (0..4).all(|i| net.status(i).dropped.contains_key("declined_result_too_long"))
    });
    assert!((0..4).all(|i| net.status(i).dropped["declined_result_too_long"] == 1));
}
