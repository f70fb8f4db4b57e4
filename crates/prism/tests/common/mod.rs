//! What the tests share.
#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;
use tercio_prism::engine::{Batch, Engine, Peer};
use tercio_prism::kv::Done;
use tercio_prism::memory::Memory;
use tercio_prism::op::{Capability, Op, Reject, Status};
use tercio_prism::wire::{self, Answer, Header, Kind};

pub(crate) const OURS: Capability = Capability(0x1111_2222_3333_4444_5555_6666_7777_8888);
pub(crate) const THEIRS: Capability = Capability(0x9999);
pub(crate) const PEER: Peer = Peer::Link(1);

/// An engine with a connection, spoken to in frames.
pub(crate) struct Direct {
    pub(crate) engine: Engine,
    pub(crate) connection: u32,
    pub(crate) number: u64,
    pub(crate) reliable: bool,
}

impl Direct {
    pub(crate) fn new(memory: &Arc<Memory>, plane: usize) -> Self {
        Self::over(memory, plane, true)
    }

    pub(crate) fn over(memory: &Arc<Memory>, plane: usize, reliable: bool) -> Self {
        Self::connected(memory, plane, reliable, OURS)
    }

    pub(crate) fn with(memory: &Arc<Memory>, capability: Capability) -> Self {
        Self::connected(memory, 0, true, capability)
    }

    fn connected(memory: &Arc<Memory>, plane: usize, reliable: bool, by: Capability) -> Self {
        let mut direct = Self {
            engine: Engine::new(Arc::clone(memory), plane, 7),
            connection: 0,
            number: 0,
            reliable,
        };
        let answer = direct.frame(&connect(by)).expect("an answer");
        direct.connection = Answer::decode(&answer).expect("well-formed").connection;
        assert_ne!(direct.connection, 0, "the server takes the client");
        direct
    }

    /// The answer to a frame, if there is one.
    pub(crate) fn frame(&mut self, frame: &[u64]) -> Option<Vec<u64>> {
        let mut answers = self.frame_of(PEER, frame);
        assert!(answers.len() <= 1);
        answers.pop()
    }

    /// The answers to a frame of any peer.
    pub(crate) fn frame_of(&mut self, peer: Peer, frame: &[u64]) -> Vec<Vec<u64>> {
        let mut batch = Batch::default();
        batch.push(peer, frame);
        let mut answers = Vec::new();
        let memory = Arc::clone(self.engine.memory());
        self.engine.run(
            &memory.view(self.engine.plane()),
            &batch,
            self.reliable,
            0,
            |_, answer| {
                answers.push(answer.to_vec());
            },
        );
        answers
    }

    pub(crate) fn request(&mut self, by: Capability, ops: &[Op<'_>]) -> Vec<u64> {
        let header = Header {
            kind: Kind::Ops,
            connection: self.connection,
            number: self.number,
            capability: by,
        };
        self.number += 1;
        let mut frame = Vec::new();
        wire::begin_request(&mut frame, &header);
        ops.iter().for_each(|op| wire::put_op(&mut frame, op));
        wire::finish_request(&mut frame, 0, ops.len()).expect("within the limits");
        frame
    }

    /// Runs operations; gives how each ended.
    pub(crate) fn run(&mut self, by: Capability, ops: &[Op<'_>]) -> Vec<(Status, Vec<u8>)> {
        self.try_run(by, ops).expect("the request is taken")
    }

    pub(crate) fn try_run(
        &mut self,
        by: Capability,
        ops: &[Op<'_>],
    ) -> Result<Vec<(Status, Vec<u8>)>, Reject> {
        let frame = self.request(by, ops);
        let answer = self.frame(&frame).expect("an answer");
        let answer = Answer::decode(&answer).expect("well-formed");
        match answer.rejected {
            Some(why) => Err(why),
            None => Ok(answer.outcomes().map(|o| (o.status, o.data.as_bytes().to_vec())).collect()),
        }
    }

    pub(crate) fn one<'a>(&mut self, op: impl Into<Op<'a>>) -> (Status, Vec<u8>) {
        self.run(OURS, &[op.into()]).pop().expect("one outcome")
    }

    /// The answer to a call.
    pub(crate) fn call(&mut self, by: Capability, body: &[u64]) -> Result<Vec<u64>, Reject> {
        let header = Header {
            kind: Kind::Call,
            connection: self.connection,
            number: self.number,
            capability: by,
        };
        self.number += 1;
        let mut frame = Vec::new();
        wire::begin_request(&mut frame, &header);
        frame.extend_from_slice(body);
        wire::finish_request(&mut frame, 0, 0).expect("within the limits");
        let answer = self.frame(&frame).expect("an answer");
        let answer = Answer::decode(&answer).expect("well-formed");
        answer.rejected.map_or_else(|| Ok(answer.body().to_vec()), Err)
    }
}

pub(crate) fn connect(by: Capability) -> Vec<u64> {
    tercio_prism::client::Session::greeting(by, 42)
}

pub(crate) fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// How often a randomised test runs: more on demand.
pub(crate) fn times(variable: &str, normal: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(normal)
}

/// How a command ended, with a value of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Found(Vec<u8>),
    Absent,
    Stored,
}

impl From<Done<'_>> for Ended {
    fn from(done: Done<'_>) -> Self {
        match done {
            Done::Found(value) => Self::Found(value.to_vec()),
            Done::Absent => Self::Absent,
            Done::Stored => Self::Stored,
        }
    }
}
