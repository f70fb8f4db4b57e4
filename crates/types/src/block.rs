//! What is agreed on: batches before execution, blocks and checkpoints after it.

use std::fmt;

use crate::{Digest, Epoch, Height, Package, ReplicaId, SeqNum, SignatureBytes, Suite, Timestamp};

/// What one sequence number orders. Its digest covers every byte of it, the clients'
/// authenticators included, so that all replicas hold the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Batch {
    /// The primary's proposal of the time; execution makes it monotonic.
    pub time: Timestamp,
    /// Asks for a checkpoint after this batch, beside those every K numbers (the primary sets it
    /// when the network falls idle).
    pub checkpoint: bool,
    /// The packages in order.
    pub packages: Vec<Package>,
}

impl Batch {
    /// How many operations are in.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.packages.iter().map(|p| p.ops.len()).sum()
    }
}

/// The root of a list without entries.
pub const EMPTY_ROOT: Digest = Digest::NULL;

/// The head of a block. It holds nothing that replicas could see differently: no view, no
/// certificate, no local time. The chain is computed at delivery, since a view change may give a
/// batch another parent and must not change its digest. A batch without packages (a null request,
/// or one that only asks for a checkpoint) makes no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The hash and signature scheme.
    pub suite: Suite,
    /// The generation of the membership that ordered it.
    pub epoch: Epoch,
    /// The place in the chain; the parent's plus one.
    pub height: Height,
    /// The sequence number that ordered it; above the parent's.
    pub seq: SeqNum,
    /// The hash of the parent's header; for height 1 the chain id.
    pub parent: Digest,
    /// The digest of the batch, which is the block's body.
    pub body: Digest,
    /// Agreed time: max(parent's + 1, proposed).
    pub time: Timestamp,
    /// How many operations are in the body.
    pub ops: u32,
    /// How far `results` and `state` lag behind: they belong to height `height - lag`. Zero means
    /// that the header carries neither (both are [`EMPTY_ROOT`]), and checkpoints alone carry
    /// them.
    pub lag: u16,
    /// The results root of height `height - lag`.
    pub results: Digest,
    /// The state digest after height `height - lag`.
    pub state: Digest,
}

/// What a checkpoint signs: all that a replica needs to go on from here, by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last sequence number that it covers.
    pub seq: SeqNum,
    /// The last block that it covers.
    pub height: Height,
    /// The hash of that block's header.
    pub block: Digest,
    /// The root over the results of all blocks so far: each block's results root chained onto the
    /// one before.
    pub results: Digest,
    /// The digest of the application's state.
    pub state: Digest,
    /// The digest of the client table: executed numbers and kept replies.
    pub clients: Digest,
    /// The digest of the membership.
    pub membership: Digest,
    /// The generation of the membership.
    pub epoch: Epoch,
    /// Agreed time after the last block.
    pub time: Timestamp,
}

/// A part of a [`Checkpoint`], as what two replicas may differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of its name")]
pub enum CheckpointField {
    Height,
    Block,
    Results,
    State,
    Clients,
    Membership,
    Epoch,
    Time,
}

impl fmt::Display for CheckpointField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Height => "the height",
            Self::Block => "the block hash",
            Self::Results => "the results root",
            Self::State => "the state digest",
            Self::Clients => "the client table",
            Self::Membership => "the membership",
            Self::Epoch => "the epoch",
            Self::Time => "the agreed time",
        })
    }
}

impl Checkpoint {
    /// What differs first between two checkpoints at one number, in the order in which one thing
    /// follows from the other; none when they are equal.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<CheckpointField> {
        use CheckpointField as Field;
        let fields = [
            (self.height == other.height, Field::Height),
            (self.block == other.block, Field::Block),
            (self.results == other.results, Field::Results),
            (self.state == other.state, Field::State),
            (self.clients == other.clients, Field::Clients),
            (self.membership == other.membership, Field::Membership),
            (self.epoch == other.epoch, Field::Epoch),
            (self.time == other.time, Field::Time),
        ];
        fields.into_iter().find(|(equal, _)| !equal).map(|(_, field)| field)
    }
}

/// A checkpoint that a quorum signed. Convinces anybody who knows the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedCheckpoint {
    /// What they signed.
    pub checkpoint: Checkpoint,
    /// Who signed, in ascending order, each with its signature over the CHECKPOINT message.
    pub signatures: Vec<(ReplicaId, SignatureBytes)>,
}
