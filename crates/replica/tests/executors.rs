//! Nodes whose executors are late, halt, or break their contract.

use crate::{common, scripted};

use common::{Asker, CLIENT, Net, counter, pbft, quick};
use scripted::{Director, Script, Scripted, Trick, direct, director};
use tercio_consensus::pbft::Pbft;
use tercio_execution::ExecutorFault;
use tercio_replica::{NodeError, NodeSettings};
use tercio_types::{Height, ReplicaId, View};

/// Four nodes, of which one executes by `script`.
fn net(which: usize, script: &Director, tune: fn(&mut NodeSettings)) -> Net<Pbft> {
    let script = script.clone();
    let executors = move |i| match i == which {
        true => Box::new(Scripted::new(counter(), &script)) as _,
        false => counter().into(),
    };
    Net::over(4, Box::new(executors), Box::new(tune), pbft())
}

#[test]
fn an_executor_that_breaks_its_contract_stops_its_replica_alone() {
    let (first, second) = (Height(1), Height(2));
    let cases = [
        (Trick::Twice, ExecutorFault::NotOwed(first)),
        (Trick::Swapped, ExecutorFault::OutOfOrder { owed: first, given: second }),
        (Trick::TooMany, ExecutorFault::Count { height: first, owed: 1, given: 2 }),
        (Trick::TooFew, ExecutorFault::Count { height: first, owed: 1, given: 0 }),
    ];
    for (trick, expected) in cases {
        let mut net = net(2, &director(Script::tricky(trick)), quick);
        let asker = Asker::new(CLIENT, &net.membership);
        net.order(&asker, 1, 6);
        net.until("it stopped", |net| !net.stopped.is_empty());
        let (id, error) = &net.stopped[0];
        let NodeError::Executor { name, fault } = error else { panic!("{error}") };
        assert_eq!((*id, *name, *fault), (ReplicaId(2), "scripted", expected), "{trick:?}");
        let said = error.to_string();
        assert!(said.starts_with("scripted, which executes, does not do as it must"), "{said}");
        net.order(&asker, 7, 3);
        net.until("the others are there", |net| net.agree() && net.all_at(9));
        assert_eq!(net.stopped.len(), 1);
    }
}

/// It gives nothing of what the log has: the start says so.
#[test]
fn an_executor_that_gives_nothing_when_waited_for_stops_the_start() {
    let script = director(Script::GOOD);
    let mut net = net(2, &script, quick);
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 3);
    net.until("all are there", |net| net.agree() && net.all_at(3));
    net.stop(2);
    direct(&script, Script::tricky(Trick::Never));
    let error = net.try_start(2).unwrap_err();
    let NodeError::Executor { name, fault } = &error else { panic!("{error}") };
    assert_eq!((*name, *fault), ("scripted", ExecutorFault::Nothing(Height(1))));
    direct(&script, Script::GOOD);
    net.start(2);
    net.order(&asker, 4, 1);
    net.until("all are there", |net| net.agree() && net.all_at(4));
}

/// Peers let blocks go as soon as snapshots cover them.
fn forgetful(settings: &mut NodeSettings) {
    quick(settings);
    settings.ledger.blocks.retain_bytes = 1;
}

/// One execution halts; meanwhile the view changes, another replica starts again, and a third fetches
/// the state, since its disk was lost. The one that halted takes part in all of it, and ends equal.
#[test]
fn execution_that_halted_through_all_ends_equal() {
    for room in [usize::MAX, 1] {
        let script = director(Script { room, ..Script::GOOD });
        let mut net = net(3, &script, forgetful);
        let asker = Asker::new(CLIENT, &net.membership);
        net.order(&asker, 1, 40);
        net.until("all are there", |net| net.agree() && net.all_at(40));
        direct(&script, Script { room, ..Script::HALTED });

        net.cut.insert(ReplicaId(0));
        net.order(&asker, 41, 2);
        assert!(net.status(3).protocol.view > View(0), "it voted for another view");
        net.cut.clear();
        net.until("it is back", |net| net.status(0).height == net.status(1).height);

        net.stop(1);
        net.start(1);
        net.order(&asker, 43, 2);
        net.until("it is back", |net| net.status(0).height == net.status(1).height);

        net.stop(2);
        net.disks[2] = Default::default();
        net.start(2);
        net.order(&asker, 45, 2);
        let fetched =
            |net: &Net| net.status(2).height >= Height(40) && net.status(2).transfer.is_some();
        net.until("the state was fetched", fetched);
        assert_eq!(net.status(3).height, Height(40), "it executed nothing");
        assert!(net.status(3).executing_since.is_some());

        direct(&script, Script { room, ..Script::GOOD });
        net.order(&asker, 47, 1);
        net.until("all are equal", |net| net.agree() && net.all_at(47));
        assert!(net.stopped.is_empty(), "{:?}", net.stopped);
        assert_eq!(net.status(3).executing_since, None);
    }
}
