//! System operations: what the engine executes itself.
//!
//! A client is added (`docs/decisions/0016-clients-are-added-in-order.md`) when
//! - its identity is a usable key of the suite, and its signing key one of its scheme;
//! - exactly f+1 replicas' identities signed its keys, so that one correct operator approves. The
//!   signature is over this chain and epoch, and over nothing that could be said otherwise;
//! - no replica has the key;
//! - there is room ([`tercio_types::MAX_ADDED_CLIENTS`]).
//!
//! Its number is the next one. A key that a client has already gives that client's number, so that
//! asking twice adds one client; an approval can be used by anybody and again, with that one effect.
//!
//! The cost of a refused operation is bounded: signatures are checked last, and there are f+1.

use bytes::Bytes;
use tercio_crypto::{Hasher, Instance, public_key, verify_signed};
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    ClientId, ClientInfo, DEFAULT_PROTOCOL, Digest, FaultModel, Membership, ReplicaId,
    SignatureBytes, SystemOp,
};
use tercio_wire::{Decode, ResultStatus, approval_key};

/// What a system operation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Adds this client to the membership.
    Add(ClientId, Box<ClientInfo>),
    /// Nothing: the client is there.
    Present(ClientId),
    /// Nothing: why, for the client.
    Decline(&'static str),
    /// Nothing: the operation means nothing to this version.
    Unsupported,
}

impl Decision {
    /// Writes the result of the operation: its status, and the client's number or why there is
    /// none.
    pub(crate) fn write_result(&self, out: &mut Vec<u8>) {
        match self {
            Self::Add(client, _) | Self::Present(client) => {
                out.push(ResultStatus::Executed as u8);
                out.extend_from_slice(&client.0.to_le_bytes());
            }
            Self::Decline(why) => {
                out.push(ResultStatus::Declined as u8);
                out.extend_from_slice(why.as_bytes());
            }
            Self::Unsupported => out.push(ResultStatus::Unsupported as u8),
        }
    }
}

/// What `op` does to `membership`. A function of its arguments alone, and the texts are part of
/// the results on which replicas agree.
pub(crate) fn decide(membership: &Membership, op: &Bytes) -> Decision {
    match SystemOp::from_bytes(op, membership.suite()) {
        Ok(SystemOp::AddClient { info, approvals }) => add_client(membership, info, &approvals),
        Err(_) => Decision::Unsupported,
    }
}

fn add_client(
    membership: &Membership,
    info: ClientInfo,
    approvals: &[(ReplicaId, SignatureBytes)],
) -> Decision {
    let usable = |scheme, key: &tercio_types::PublicKey| public_key(scheme, key.as_slice()).is_ok();
    let signing = info.signing.is_none_or(|signing| usable(signing.scheme, &signing.key));
    if !signing || !usable(membership.suite().scheme(), &info.key) {
        return Decision::Decline("a key of the client cannot be used");
    }
    if membership.replicas().any(|r| membership.member(r).is_some_and(|m| m.key == info.key)) {
        return Decision::Decline("a replica has this key");
    }
    match membership.clients().find(|(_, known)| known.key == info.key) {
        Some((id, known)) if *known == info => return Decision::Present(id),
        Some(_) => return Decision::Decline("a client has this key and another signing key"),
        None => {}
    }
    let Some(id) = membership.next_client() else {
        return Decision::Decline("there are as many clients as can be added");
    };
    if approvals.len() != membership.weak_quorum() {
        return Decision::Decline("it takes the approval of exactly f+1 replicas");
    }
    let claims = approvals.iter().map(|(replica, signature)| {
        (*replica, approval_key(membership.suite(), *replica, &info).to_array(), signature)
    });
    match verify_signed(membership, Instance::default(), claims) {
        Ok(()) => Decision::Add(id, Box::new(info)),
        Err(_) if stands(Defence::F32CheckApprovals) => {
            Decision::Decline("an approval is no signature of its replica on these keys")
        }
        Err(_) => Decision::Add(id, Box::new(info)),
    }
}

/// The digest of a membership, as checkpoints name it: replicas and clients with their keys.
///
/// Version 1 has no protocol, no fault model and no numbers of replicas: those of networks that have
/// PBFT and replicas from 0 on. All others have version 2.
#[must_use]
pub fn membership_digest(membership: &Membership) -> Digest {
    let mut hasher = Hasher::new(membership.suite());
    let default =
        (membership.protocol(), membership.model()) == (DEFAULT_PROTOCOL, FaultModel::Byzantine);
    let second = !default || !membership.is_dense();
    hasher.update(if second { b"tercio membership 2" } else { b"tercio membership 1" });
    hasher.update(&membership.chain().0);
    hasher.update(&membership.epoch().0.to_le_bytes());
    hasher.update(&(membership.n() as u64).to_le_bytes());
    let mut key = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    if second {
        key(membership.protocol().as_bytes());
        key(&[membership.model().number()]);
    }
    for replica in membership.replicas() {
        if second {
            key(&replica.0.to_le_bytes());
        }
        key(membership.member(replica).expect("listed by itself").key.as_slice());
    }
    for (client, info) in membership.clients() {
        key(&client.0.to_le_bytes());
        key(info.key.as_slice());
        if let Some(signing) = &info.signing {
            key(&[signing.scheme.number()]);
            key(signing.key.as_slice());
        }
    }
    hasher.finish()
}
