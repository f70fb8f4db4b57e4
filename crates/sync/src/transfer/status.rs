//! How a transfer goes, for people to look at.

use tercio_types::{Height, ReplicaId, SeqNum};

/// How a transfer of state goes, or went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferStatus {
    /// What is being done: `asking`, `comparing`, `fetching`, `installing`, `pausing`; at the end
    /// `done`, `blocks` (those were the shorter way), or `nobody` (had anything to offer).
    pub phase: &'static str,
    /// The checkpoint that is fetched.
    pub seq: SeqNum,
    /// Its height.
    pub height: Height,
    /// How many bytes of answers came.
    pub bytes: u64,
    /// About how many bytes the whole state has, as most sources say; 0 until one is chosen.
    pub state_bytes: u64,
    /// How many nodes of trees came.
    pub nodes: u64,
    /// How many chunks came.
    pub chunks: u64,
    /// How many chunks were here already.
    pub reused: u64,
    /// What each replica gives.
    pub sources: Vec<SourceStatus>,
    /// Who was dropped as a source, and why; the last of each.
    pub dropped: Vec<(ReplicaId, &'static str)>,
}

/// What a replica gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// Which.
    pub replica: ReplicaId,
    /// How many bytes came from it.
    pub bytes: u64,
    /// `asked`, `source`, `elsewhere` (it has another checkpoint, or none), or `dropped`.
    pub state: &'static str,
}

impl TransferStatus {
    pub(super) fn drop_source(&mut self, replica: ReplicaId, reason: &'static str) {
        self.dropped.retain(|named| *named != (replica, reason));
        self.dropped.push((replica, reason));
    }
}
