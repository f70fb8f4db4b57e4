//! An operation that leaves its footprint, or panics, is aborted at every replica alike; none of
//! them stops, before and after a restart.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, pbft, quick};
use std::collections::BTreeSet;
use tercio_execution::{
    AppError, Application, Context, Footprint, Keyed, Operation, Outcome, StateView, Store,
    Transaction,
};
use tercio_types::{OpKind, Suite};
use tercio_wire::{OpResult, decode_results};

/// Counts its operations under one key. Those of some names do what they must not, each after it
/// wrote; of a network that is `mended` they do not.
struct Fragile {
    mended: bool,
}

fn count(stored: Option<Bytes>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()))
}

impl Transaction for Fragile {
    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        let next = count(view.get(b"count")) + 1;
        if self.mended && tx.op.as_ref() != b"count" {
            return Outcome::Abort;
        }
        view.put(b"count", &next.to_le_bytes());
        result.extend_from_slice(&next.to_le_bytes());
        match tx.op.as_ref() {
            b"read" => drop(view.get(b"other")),
            b"write" => view.put(b"other", b"x"),
            b"range" => view.range(b"", None, |_, _| std::ops::ControlFlow::Continue(())),
            b"panic" => panic!("at {next}"),
            _ => {}
        }
        Outcome::Commit
    }

    fn footprint(&self, _: &Operation) -> Footprint {
        let writes = vec![Bytes::from_static(b"count")];
        Footprint::Declared { reads: vec![], writes, ranges: vec![] }
    }

    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        assert!(question != b"panic", "asked to");
        Ok(Bytes::copy_from_slice(&count(store.get(b"count").cloned()).to_le_bytes()))
    }
}

fn net(mended: bool) -> Net {
    let app = move || -> Box<dyn Application> {
        Box::new(Keyed::new(Fragile { mended }, Suite::default()))
    };
    Net::with(4, Box::new(app), Box::new(quick), pbft())
}

/// What f+1 replicas and more answer to each operation, whoever answers in full.
fn results(net: &Net, number: u64) -> Vec<OpResult> {
    let bodies: BTreeSet<Bytes> =
        net.replies(CLIENT, number).into_iter().map(|answer| answer.body).collect();
    assert_eq!(bodies.len(), 1, "all answer the same");
    decode_results(bodies.first().unwrap(), Suite::default()).unwrap()
}

const OPS: [&[u8]; 6] = [b"count", b"read", b"write", b"range", b"panic", b"count"];

/// Asks for all operations in one package each, and for one package with all of them.
fn order_all(net: &mut Net, asker: &Asker, from: u64) -> Vec<OpResult> {
    let mut all = Vec::new();
    let mut ask = |net: &mut Net, first: u64, ops: &[&'static [u8]]| {
        net.ask(asker, first, ops);
        net.until("an answer of all", |net| net.replies(CLIENT, first).len() >= 4);
        all.extend(results(net, first));
    };
    (from..).zip(OPS).for_each(|(number, op)| ask(net, number, &[op]));
    ask(net, from + OPS.len() as u64, &OPS);
    all
}

#[test]
fn an_aborted_operation_stops_nobody_and_ends_alike_everywhere() {
    let (mut net, mut mended) = (net(false), net(true));
    let asker = Asker::new(CLIENT, &net.membership);
    let counted = |n: u64| OpResult::Executed(Bytes::copy_from_slice(&n.to_le_bytes()));
    let (outside, panicked) = (OpResult::OutsideFootprint, OpResult::Panicked);
    let expected = |from: u64| {
        [from, from + 2].map(|n| {
            let all = [outside.clone(), outside.clone(), outside.clone(), panicked.clone()];
            [vec![counted(n)], all.to_vec(), vec![counted(n + 1)]].concat()
        })
    };
    assert_eq!(order_all(&mut net, &asker, 1), expected(1).concat());
    order_all(&mut mended, &asker, 1);
    // Ordered reads that panic are declined.
    let read = asker.package_of(OpKind::Read, 13, 0, &[Bytes::from_static(b"panic")]);
    let bytes = common::request_frame(read);
    (0..4).for_each(|i| net.send(tercio_types::Principal::Client(CLIENT), i, bytes.clone()));
    net.until("an answer of all", |net| net.replies(CLIENT, 13).len() >= 4);
    let why = Bytes::from_static(b"the application panicked over it");
    assert_eq!(results(&net, 13), [OpResult::Declined(why)]);

    // The state is what it would be without those operations.
    let states = |net: &Net| -> BTreeSet<_> {
        let engines = net.nodes.iter().flatten().map(|node| node.stages().execute.execution());
        engines.map(|engine| engine.query(b"").unwrap()).collect()
    };
    assert_eq!(states(&net), states(&mended));
    assert_eq!(states(&net).len(), 1);
    let dropped = net.status(0).dropped;
    assert_eq!(dropped["operation_outside_footprint"], 6);
    assert_eq!(dropped["operation_panicked"], 2);

    // Their logs bring all of them to the same again.
    net.until("one head", Net::agree);
    let before: Vec<_> = (0..4).map(|i| net.status(i).block).collect();
    (0..4).for_each(|i| net.stop(i));
    net.wire.clear();
    (0..4).for_each(|i| net.start(i));
    net.until("one head", Net::agree);
    assert_eq!((0..4).map(|i| net.status(i).block).collect::<Vec<_>>(), before);
    assert_eq!(order_all(&mut net, &asker, 14), expected(5).concat());
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
}
