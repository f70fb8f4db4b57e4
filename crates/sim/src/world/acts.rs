//! What scripts and plans let happen, and what they decide about frames.

use crate::Crash;
use crate::network::Quality;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_ledger::MediaFault;
use tercio_types::{ClientId, Principal, ReplicaId};
use tercio_wire::Key;

/// Which of a replica's files a medium damages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The write-ahead log. What it loses may be promises, so that the replica counts as one that
    /// may do anything from then on.
    Log,
    /// Any other: the block log, certificates, attestations, snapshots. The replica mends it.
    Others,
}

impl Target {
    /// Whether a file is such.
    #[must_use]
    pub fn has(self, file: &str) -> bool {
        (self == Self::Log) == file.starts_with("wal-")
    }
}

/// Something that a script or a plan lets happen at a time.
#[derive(Clone, Debug)]
pub enum Act {
    /// A machine goes down.
    Crash(ReplicaId, Crash),
    /// The machine of the current primary goes down, and starts again after this time.
    CrashPrimary(Crash, Duration),
    /// A machine starts again, if it is down.
    Restart(ReplicaId),
    /// A machine goes down and its disk is gone; it starts again on an empty one after this time.
    LoseDisk(ReplicaId, Duration),
    /// The power fails everywhere at once; the machines start again one by one within this time.
    Blackout(Duration),
    /// What is durable in one of a replica's files is not what was written any more.
    Media(ReplicaId, Target, MediaFault),
    /// A client asks for another one to be added.
    AddClient(ClientId),
    /// A machine goes down and never starts again.
    Gone(ReplicaId),
    /// Replicas in different parts no longer hear each other.
    Partition(BTreeMap<ReplicaId, u64>),
    /// Nobody hears the current primary any more, and it hears nobody.
    IsolatePrimary,
    /// One direction of a link is cut.
    Cut(Principal, Principal),
    /// All cuts and partitions end.
    Mend,
    /// Links are of this quality from now on.
    Quality(Quality),
}

/// A frame that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// From whom.
    pub from: Principal,
    /// To whom.
    pub to: Principal,
    /// Its key.
    pub key: Key,
    /// All of it.
    pub bytes: &'a Bytes,
    /// When.
    pub now: Instant,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The network decides.
    Pass,
    /// It is lost.
    Lose,
    /// It arrives after this time.
    After(Duration),
}

/// Decides about frames before the network does.
pub type Gate = Box<dyn FnMut(&Passing<'_>) -> Fate>;
