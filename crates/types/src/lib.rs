//! The words that every crate of Tercio shares: who speaks ([`ReplicaId`], [`ClientId`]), when
//! ([`View`], [`SeqNum`], [`Height`], [`Epoch`]), how many must agree ([`Membership`]), and what
//! is agreed on ([`Package`], [`Batch`], [`BlockHeader`], [`Checkpoint`]).
//!
//! Architecture invariant: nothing here knows bytes on the wire, clocks, or I/O.

mod auth;
mod block;
mod ids;
mod membership;
mod replica_set;
mod request;
mod system;
mod window;
pub mod zoo;

pub use auth::{Attested, AttestedKind, Authenticator, PublicKey, SignatureBytes, Tag, Tags};
pub use block::{Batch, BlockHeader, CertifiedCheckpoint, Checkpoint, CheckpointField, EMPTY_ROOT};
pub use ids::{
    ChainId, ClientId, Digest, Epoch, Height, ParseHexError, Principal, ReplicaId, RequestSeq,
    SeqNum, Timestamp, View,
};
pub use membership::{
    ClientInfo, DEFAULT_PROTOCOL, FaultModel, MAX_ADDED_CLIENTS, MAX_PROTOCOL_NAME, Member,
    Membership, MembershipError, Scheme, SigningKey, Suite,
};
pub use replica_set::{MAX_REPLICAS, ReplicaSet};
pub use request::{Op, OpKind, Ops, Package};
pub use system::SystemOp;
pub use window::{RequestWindow, WINDOW};
