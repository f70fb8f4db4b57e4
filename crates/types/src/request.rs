//! What clients ask for.

use crate::{Authenticator, ClientId, Digest, ReplicaId, RequestSeq};
use bytes::Bytes;

/// One operation, opaque to everything but the application.
pub type Op = Bytes;

/// Whom an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// The application.
    User,
    /// The engine itself: membership, keys, parameters.
    System,
}

/// Consecutive requests of one client under one authenticator. A single request is a package of
/// one. The package is what is verified, pooled, ordered and answered; the operation is what is
/// executed at most once, under `(client, first + i)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Who asks.
    pub client: ClientId,
    /// The number of the first operation; the others follow without a gap.
    pub first: RequestSeq,
    /// Whom the operations are for.
    pub kind: OpKind,
    /// The replica that answers with the results; the others answer with their digest.
    pub replier: ReplicaId,
    /// The operations, at least one.
    pub ops: Vec<Op>,
    /// The digest of the fields above; what the authenticator covers.
    pub digest: Digest,
    /// Shows that the client sent it.
    pub auth: Authenticator,
}

impl Package {
    /// The number after the last operation's.
    #[must_use]
    pub fn end(&self) -> RequestSeq {
        RequestSeq(self.first.0 + self.ops.len() as u64)
    }

    /// The operations with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (RequestSeq, &Op)> {
        self.ops.iter().enumerate().map(|(i, op)| (RequestSeq(self.first.0 + i as u64), op))
    }
}
