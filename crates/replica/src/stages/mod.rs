//! The stages of a replica, and the plain data that goes between them.
//!
//! Every stage takes commands one by one and puts what follows into an [`Outbox`]. Order matters
//! within one receiver and not between receivers, so each may be on a thread of its own, with one
//! queue before it.

mod execute;
mod log;
mod mend;
mod order;
mod rhythm;

pub use execute::ExecuteStage;
pub use log::LogStage;
pub use order::OrderStage;

pub(crate) use execute::{block_results, must_equal};
pub(crate) use rhythm::Rhythm;

pub use crate::recover::Stages;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tercio_consensus::PersistId;
use tercio_execution::{Chain, Late, Ordered, Snapshot, TreeTop};
use tercio_ledger::{Block, BlockResults, Removal};
use tercio_sync::transfer::message::FetchState;
use tercio_sync::transfer::{Install, Piece, Pieces};
use tercio_sync::{CertifiedBlocks, FetchBlocks, Health};
use tercio_types::{
    BlockHeader, CertifiedCheckpoint, Checkpoint, ClientId, Digest, Height, Membership, Package,
    Principal, ReplicaId, RequestSeq, SeqNum, SignatureBytes, Timestamp, View,
};
use tercio_wire::EncodedBatch;

/// What the log is told.
#[derive(Debug)]
pub enum ToLog {
    /// Append to the write-ahead log.
    Persist {
        /// Acknowledged when it is durable.
        id: PersistId,
        /// The number up to which a stable checkpoint makes it worthless.
        tag: SeqNum,
        /// What to append.
        record: Bytes,
    },
    /// Make the blocks up to this height durable, which the log has, and all records before.
    PersistBlocks {
        /// Acknowledged when they are.
        id: PersistId,
        /// The height.
        height: Height,
    },
    /// A checkpoint is stable and executed: keep its certificate and the blocks up to it durably,
    /// then append the record, then let go of the records that both replace.
    Stable {
        /// The certificate.
        certificate: Arc<CertifiedCheckpoint>,
        /// Acknowledged when the record is durable.
        id: PersistId,
        /// What to append.
        record: Bytes,
    },
    /// Keep a certificate; a snapshot of its checkpoint is kept with it.
    Certificate(Arc<CertifiedCheckpoint>),
    /// Keep signatures on a block.
    Attestation {
        /// The block.
        height: Height,
        /// Its hash.
        block: Digest,
        /// The signatures.
        signatures: Vec<(ReplicaId, SignatureBytes)>,
    },
    /// Append a delivered block.
    Block {
        /// Its header.
        header: BlockHeader,
        /// The encoded batch.
        body: Bytes,
    },
    /// Keep the results of a block that the log has.
    Results(BlockResults),
    /// The state at a checkpoint, to be kept if it gets a certificate.
    Snapshot(StateAt),
    /// A state that came from others was restored: keep it, and begin the block log anew behind
    /// it.
    Installed {
        /// What certifies it.
        certificate: Arc<CertifiedCheckpoint>,
        /// The state.
        state: StateAt,
        /// The chain there.
        chain: Box<Chain>,
    },
    /// Keep pieces of a state that is being fetched, as long as all are at most `limit` bytes.
    Stage {
        /// The pieces.
        pieces: Vec<Piece>,
        /// In bytes.
        limit: u64,
    },
    /// Say what was kept; answered by [`ToOrder::Pieces`].
    Staged,
    /// What was kept is of no more use.
    Unstage,
    /// Another replica wants pieces of a state.
    FetchState {
        /// Who.
        by: ReplicaId,
        /// Its number for the question.
        number: u64,
        /// Which.
        request: FetchState,
    },
    /// Look at some bytes of the block log; answered by [`ToOrder::Health`].
    Scrub {
        /// About how many.
        bytes: u64,
    },
    /// Put copies in the place of damaged blocks; answered by [`ToOrder::Health`].
    Repair {
        /// The copies.
        copies: Vec<Block>,
    },
    /// Put copies in the place of lost results; answered by [`ToOrder::Health`].
    RepairResults {
        /// The copies, the highest first.
        copies: Vec<BlockResults>,
        /// Whether those are taken too from which results were left out.
        stripped: bool,
    },
    /// Another replica wants blocks.
    Fetch {
        /// Who.
        by: ReplicaId,
        /// Which.
        request: FetchBlocks,
    },
}

/// What a client asks without ordering.
#[derive(Clone, Debug)]
pub enum Question {
    /// Something of the application.
    App(Bytes),
    /// Which of its own numbers are executed.
    Numbers,
    /// Whether one of its own numbers is executed, and what that gave.
    Number(RequestSeq),
}

/// The state at a checkpoint.
#[derive(Debug)]
pub struct StateAt {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// How long the bodies of all blocks up to it are together, in bytes.
    pub chain_bytes: u64,
    /// The state.
    pub snapshot: Snapshot,
    /// Whose it is ([`tercio_execution::Application::name`]).
    pub app: &'static str,
}

/// What execution is told.
#[derive(Clone, Debug)]
pub enum ToExecute {
    /// Execute.
    Deliver {
        /// What the chain has of it.
        ordered: Ordered,
        /// The batch, when it makes a block.
        batch: Option<Arc<EncodedBatch>>,
        /// Whether a checkpoint is asked for.
        checkpoint: bool,
        /// The view to name in replies.
        view: View,
    },
    /// The executor may have something.
    Progress,
    /// Answer a package again that was executed before.
    Repeat {
        /// Whose.
        client: ClientId,
        /// Its first number.
        first: RequestSeq,
        /// How many operations it has.
        count: usize,
        /// Its digest.
        digest: Digest,
        /// The view to name.
        view: View,
    },
    /// Answer a question about the state as it stands.
    Query {
        /// Who asks.
        client: ClientId,
        /// The client's number for the question.
        number: u64,
        /// The question.
        question: Question,
    },
    /// Let the application choose what to propose.
    Build {
        /// From these.
        packages: Vec<Package>,
        /// The time that would be proposed.
        time: Timestamp,
    },
    /// Let the application look at a proposal.
    Validate {
        /// Its number.
        seq: SeqNum,
        /// The batch.
        batch: Arc<EncodedBatch>,
    },
    /// Execute blocks that a quorum vouches for.
    Replay(CertifiedBlocks),
    /// Take our own state to pieces, so that only what differs is fetched.
    Pieces,
    /// Go to a state that was fetched.
    Install(Install),
}

/// A checkpoint that was computed.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The upper part of the tree of its state, if the application keeps one.
    pub top: Option<TreeTop>,
}

/// What ordering is told.
#[derive(Clone, Debug)]
pub enum ToOrder {
    /// All records up to this one are durable.
    Persisted(PersistId),
    /// A delivery was executed.
    Executed {
        /// Its number.
        seq: SeqNum,
        /// The block that it made, if it made one.
        block: Option<(Height, Digest)>,
        /// What headers say of it later, with a lag.
        late: Option<Late>,
        /// The checkpoint, when it asked for one.
        checkpoint: Option<Box<Reached>>,
    },
    /// What the application wants proposed.
    Proposal(Vec<usize>),
    /// What the application thinks of a proposal.
    Verdict {
        /// Its number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
        /// Whether to vote for it.
        accept: bool,
    },
    /// Certified blocks were executed, and gave the certified results.
    Replayed {
        /// What state stands at.
        certificate: Arc<CertifiedCheckpoint>,
        /// The chain there: of the last run of blocks ([`CertifiedBlocks::last`]), whose state is
        /// the certified one.
        chain: Option<Box<Chain>>,
    },
    /// Pieces that are here: of our own state, or kept by an earlier fetch.
    Pieces(Box<Pieces>),
    /// A fetched state is ours, durably, and the block log goes on behind it.
    Installed {
        /// What certifies it.
        certificate: Arc<CertifiedCheckpoint>,
        /// The chain there.
        chain: Box<Chain>,
    },
    /// The answer to [`ToLog::FetchState`].
    State {
        /// Who asked.
        to: ReplicaId,
        /// Under which number.
        number: u64,
        /// The body of the STATE message.
        body: Bytes,
    },
    /// How the block log is.
    Health(Health),
    /// Blocks or a state of others added a client: whose words count from now on.
    Membership(Arc<Membership>),
    /// Tell a client that its package has no result, and why.
    Decline {
        /// Whose.
        client: ClientId,
        /// Its first number.
        first: RequestSeq,
        /// Why.
        reason: tercio_wire::reject::Reason,
    },
    /// Something was dropped; the reason, to be counted.
    Dropped(&'static str),
    /// The answer to [`ToLog::Fetch`].
    Blocks {
        /// Who asked.
        to: ReplicaId,
        /// The first height that was asked for.
        from: Height,
        /// The body of the BLOCKS message.
        body: Bytes,
    },
}

/// What a stage wants to go elsewhere, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// For the log.
    pub log: VecDeque<ToLog>,
    /// For execution.
    pub execute: VecDeque<ToExecute>,
    /// For ordering.
    pub order: VecDeque<ToOrder>,
    /// Frames for others.
    pub send: VecDeque<(Principal, Bytes)>,
    /// Files to be removed, for the upkeep thread; in order.
    pub removals: VecDeque<Removal>,
    /// For the links: who may open one from now on, when that has changed.
    pub membership: Option<Arc<Membership>>,
}

impl Outbox {
    /// Whether execution left nothing for others.
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty() && self.order.is_empty() && self.send.is_empty()
    }
}
