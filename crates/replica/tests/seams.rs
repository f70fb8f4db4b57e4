//! Two seams held by toys: another ordering protocol under the same node (`examples/sequencer`), and an
//! application with proposal hooks that vetoes a batch.

use crate::common;

use bytes::Bytes;
use common::{Asker, CLIENT, Net, counter, pbft, quick, results};
use std::sync::Arc;
use tercio_consensus::{ProtocolKind, Setup};
use tercio_counter::Counter;
use tercio_execution::{
    AppError, Application, Context, Operation, PreCheck, Proposal, Replies, Snapshot,
};
use tercio_replica::NodeSettings;
use tercio_sequencer::Sequencer;
use tercio_types::{Digest, Suite};
use tercio_wire::Kind;

#[test]
fn another_protocol_orders_under_the_same_node() {
    let make = |settings: &NodeSettings, signer, recovery, now| {
        let (membership, consensus) = (settings.membership.clone(), settings.consensus.clone());
        let (me, settings) = (settings.me, consensus);
        Sequencer::open(Setup { me, membership, signer, settings, recovery, now }).unwrap()
    };
    let mut net = Net::with(4, Box::new(counter), Box::new(quick), Box::new(make));
    let asker = Asker::new(CLIENT, &net.membership);
    net.order(&asker, 1, 5);
    net.until("all are there", |net| net.all_at(5) && net.agree());
    // Whoever hears of a package that was delivered answers again.
    assert!(net.replies(CLIENT, 5).len() >= 4);
}

/// A counter that keeps `bad` out of its proposals, and votes against batches with `vetoed`.
struct Choosy {
    inner: Counter,
}

struct NoNonsense;

impl PreCheck for NoNonsense {
    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        if operation == b"nonsense" { Err(AppError("nonsense".into())) } else { Ok(()) }
    }
}

impl Application for Choosy {
    fn execute(&mut self, context: &Context, operations: &[Operation], replies: &mut Replies) {
        self.inner.execute(context, operations, replies);
    }

    fn query(&self, question: &[u8]) -> Result<Bytes, AppError> {
        self.inner.query(question)
    }

    fn pre_check(&self) -> Arc<dyn PreCheck> {
        Arc::new(NoNonsense)
    }

    fn build_proposal(&mut self, proposal: &Proposal) -> Vec<usize> {
        let good = proposal.operations.iter().filter(|(_, o)| o.op.as_ref() != b"left out");
        let mut keep: Vec<usize> = good.map(|(package, _)| *package).collect();
        keep.dedup();
        keep
    }

    fn validate_proposal(&mut self, proposal: &Proposal) -> Result<(), AppError> {
        if proposal.operations.iter().any(|(_, o)| o.op.as_ref() == b"vetoed") {
            return Err(AppError("vetoed".into()));
        }
        Ok(())
    }

    fn state_digest(&mut self) -> Digest {
        self.inner.state_digest()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.inner.snapshot()
    }

    fn restore(&mut self, chunks: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        self.inner.restore(chunks)
    }
}

fn choosy() -> Net {
    let app = || -> Box<dyn Application> {
        Box::new(Choosy { inner: Counter::new(Default::default(), Suite::default()) })
    };
    let tune = |settings: &mut NodeSettings| {
        quick(settings);
        settings.consensus.proposal_hooks = true;
    };
    Net::with(4, Box::new(app), Box::new(tune), pbft())
}

#[test]
fn an_application_chooses_what_is_proposed() {
    let mut net = choosy();
    let asker = Asker::new(CLIENT, &net.membership);
    net.ask(&asker, 1, &[b"left out"]);
    net.ask(&asker, 2, &[b"good"]);
    net.until("the good one is answered", |net| net.replies(CLIENT, 2).len() > 1);
    assert!(net.replies(CLIENT, 1).is_empty());
    let full = net.replies(CLIENT, 2).into_iter().find(|r| !r.body.is_empty()).unwrap();
    assert_eq!(results(&full), [1]);
}

#[test]
fn a_vetoed_batch_is_not_ordered() {
    let mut net = choosy();
    let asker = Asker::new(CLIENT, &net.membership);
    net.ask(&asker, 1, &[b"vetoed"]);
    net.until("backups veto, view after view", |net| {
        (0..4).all(|i| net.status(i).protocol.dropped.get("vetoed").is_some_and(|n| *n > 0))
    });
    assert!(net.all_at(0), "nobody executed it");
    assert!(net.replies(CLIENT, 1).is_empty());
}

#[test]
fn nonsense_is_refused_before_it_is_ordered() {
    let mut net = choosy();
    let asker = Asker::new(CLIENT, &net.membership);
    net.ask(&asker, 1, &[b"good", b"nonsense"]);
    net.settle();
    let answers = &net.answers[&CLIENT];
    assert_eq!(answers.len(), 4);
    for answer in answers {
        assert_eq!((answer.kind, answer.number), (Kind::REJECT, 1));
        // Reason 4 is 'malformed', and trying again is no use.
        assert_eq!(answer.body.as_ref(), [4, 0, 0, 0, 0]);
    }
    assert_eq!(net.status(0).dropped["declined_malformed"], 1);
}
