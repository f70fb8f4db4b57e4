//! Kinds of ordering protocols: what a genesis can name, how a replica's part is made, what the
//! protocol promises, and how its frames read to those who watch.
//!
//! An author implements [`Protocol`] for the part of one replica, and [`ProtocolKind`] for what
//! belongs to all of them. A program lists the kinds that it knows, and refuses a genesis of any other
//! by name (decision 0038).

use crate::protocol::{Instant, Protocol, Settings, SettingsError};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tercio_crypto::Signer;
use tercio_types::{
    CertifiedCheckpoint, ClientId, FaultModel, Height, MAX_PROTOCOL_NAME, Membership, ReplicaId,
    RequestWindow, SeqNum,
};
use tercio_wire::{DecodeError, Kind};
use thiserror::Error;

/// What a replica brings along from before a restart. The default is a fresh start.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The records of the write-ahead log, in order.
    pub records: Vec<Bytes>,
    /// Whether there are none because the log was lost: the replica may have promised anything.
    pub lost_log: bool,
    /// The latest checkpoint certificate that was kept.
    pub stable: Option<CertifiedCheckpoint>,
    /// The last number that the executed state reflects.
    pub delivered: SeqNum,
    /// The last block on the disk.
    pub height: Height,
    /// Whether to promise nothing before others have told what this replica signed last (rule L7).
    /// Right for every start on files that were set up before: they may be an older copy.
    pub ask_first: bool,
    /// Which of each client's requests are done in that state.
    pub windows: BTreeMap<ClientId, RequestWindow>,
}

/// Why a replica cannot take up where it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The settings make no sense.
    #[error("setting {0}")]
    Settings(#[from] SettingsError),
    /// A record is not of this protocol or version.
    #[error(
        "record {index} of the write-ahead log is none of the protocol that runs: {error}; run the \
         version that wrote it"
    )]
    Record {
        /// Its place in the log.
        index: usize,
        /// What is wrong.
        error: DecodeError,
    },
}

/// What a replica's part in a protocol is made from.
#[derive(Debug)]
pub struct Setup {
    /// Which replica.
    pub me: ReplicaId,
    /// Who takes part.
    pub membership: Arc<Membership>,
    /// Signs in the replica's name.
    pub signer: Signer,
    /// What may be tuned; a protocol makes use of what it has a use for.
    pub settings: Settings,
    /// What it brings along from before a restart.
    pub recovery: Recovery,
    /// The time.
    pub now: Instant,
}

/// What a frame of a protocol says to those who watch a network: traces and checkers. They hold
/// a correct replica to it, whatever crashes and restarts lie between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its sender gives a number to a batch: one digest for each view and number.
    Proposal,
    /// Its sender accepts a batch: one digest for each view and number.
    Vote,
    /// Its sender knows the batch of that view and number: one digest for each, whoever says it.
    Decision,
    /// Anything else.
    Other,
}

/// A kind of ordering protocol.
///
/// Messages have kinds of their own from [`Kind::PROTOCOL`] on. What is shared is not a protocol's to
/// name: a checkpoint is [`Kind::CHECKPOINT`], signed as [`tercio_wire::checkpoint_key`] says, so
/// that audit, state transfer and catch-up go by certificates of every protocol alike.
pub trait ProtocolKind: Protocol + Sized + 'static {
    /// Its name in the genesis: 1 to [`MAX_PROTOCOL_NAME`] of `a` to `z`, `0` to `9` and `-`. It is
    /// part of the chain id and of the handshake.
    const NAME: &'static str;
    /// What its replicas may do when they fail, and so f, quorums, and the equal answers that a
    /// client needs ([`Membership`] has the arithmetic). A checkpoint is certified by a quorum.
    const MODEL: FaultModel;

    /// Looks whether settings make sense, against each other and the membership.
    ///
    /// # Errors
    /// Names the first key that makes no sense.
    fn check(settings: &Settings, membership: &Membership) -> Result<(), SettingsError> {
        settings.check(membership)
    }

    /// The part of a replica that starts fresh or again. One that starts again contradicts nothing
    /// that it said before.
    ///
    /// # Errors
    /// When the settings make no sense, or the records are not of this protocol.
    fn open(setup: Setup) -> Result<Self, RecoverError>;

    /// What its messages of this kind are called; nothing for kinds that it does not have.
    fn message_name(kind: Kind) -> Option<&'static str>;

    /// What its messages of this kind say.
    fn reading(kind: Kind) -> Reading;
}

/// What is to be known of a kind of protocol where none runs: in a genesis, in `status`, in an audit.
#[derive(Clone, Copy)]
pub struct ProtocolFacts {
    name: &'static str,
    model: FaultModel,
    check: fn(&Settings, &Membership) -> Result<(), SettingsError>,
}

impl ProtocolFacts {
    /// Those of `P`.
    ///
    /// # Panics
    /// When the name of `P` is none.
    #[must_use]
    pub const fn of<P: ProtocolKind>() -> Self {
        assert!(is_name(P::NAME), "a protocol's name has 1 to 24 of a-z, 0-9 and -");
        Self { name: P::NAME, model: P::MODEL, check: P::check }
    }

    /// Its name in the genesis.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What its replicas may do when they fail.
    #[must_use]
    pub const fn model(&self) -> FaultModel {
        self.model
    }

    /// Looks whether settings make sense ([`ProtocolKind::check`]).
    ///
    /// # Errors
    /// Names the first key that makes no sense.
    pub fn check(&self, settings: &Settings, membership: &Membership) -> Result<(), SettingsError> {
        (self.check)(settings, membership)
    }
}

impl fmt::Debug for ProtocolFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtocolFacts").field(&self.name).finish()
    }
}

/// A program has no two protocols of one name.
impl PartialEq for ProtocolFacts {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.model) == (other.name, other.model)
    }
}

impl Eq for ProtocolFacts {}

const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if !matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'-') {
            return false;
        }
        i += 1;
    }
    !bytes.is_empty() && bytes.len() <= MAX_PROTOCOL_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["pbft", "a", "hybster-2", "abcdefghijklmnopqrstuvwx"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "PBFT", "p bft", "p_bft", "pbft\0", "abcdefghijklmnopqrstuvwxy", "ü"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
