//! What the engine itself is asked for.

use crate::{ClientInfo, ReplicaId, SignatureBytes};

/// The operation of a package of kind [`crate::OpKind::System`]. It stands alone in its package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemOp {
    /// Add a client to the membership. Any client may ask for it; it counts when f+1 replicas'
    /// operators signed the new client's keys. The result is the client's number, and that of the
    /// client that has these keys already, if there is one.
    AddClient {
        /// The client's keys.
        info: ClientInfo,
        /// The signatures of replicas' identities over the keys, in ascending order.
        approvals: Vec<(ReplicaId, SignatureBytes)>,
    },
}
