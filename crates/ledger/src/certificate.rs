//! Whether a certificate convinces: a quorum of distinct members signed the checkpoint (Castro and
//! Liskov, TOCS'02 section 4.3, with signatures in place of MACs so that it convinces anybody).

use tercio_crypto::{Instance, Reject, verify_signed};
use tercio_types::{
    CertifiedCheckpoint, Digest, Epoch, Height, Membership, ReplicaId, SignatureBytes,
};
use tercio_wire::{Key, Kind, checkpoint_key};
use thiserror::Error;

/// Why a certificate does not convince.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The checkpoint belongs to another membership.
    #[error("the checkpoint is of epoch {found}, the membership of epoch {expected}")]
    Epoch {
        /// The epoch in the checkpoint.
        found: Epoch,
        /// The epoch of the membership.
        expected: Epoch,
    },
    /// Too few signed.
    #[error("{found} signatures, and a quorum is {needed}")]
    NoQuorum {
        /// How many signed.
        found: usize,
        /// How many must.
        needed: usize,
    },
    /// The signers are not in ascending order, or one is there twice.
    #[error("replica {0} is listed twice or out of order")]
    Order(ReplicaId),
    /// A signer is no member, or its signature is bad.
    #[error("{0}")]
    Signature(#[from] Reject),
}

/// Checks that a quorum of distinct members signed the checkpoint, and that every signature in the
/// certificate is good.
///
/// # Errors
/// Says what is missing or bad.
pub fn verify(
    membership: &Membership,
    certificate: &CertifiedCheckpoint,
) -> Result<(), CertificateError> {
    let CertifiedCheckpoint { checkpoint, signatures } = certificate;
    if checkpoint.epoch != membership.epoch() {
        let (found, expected) = (checkpoint.epoch, membership.epoch());
        return Err(CertificateError::Epoch { found, expected });
    }
    if let Some(pair) = signatures.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(CertificateError::Order(pair[1].0));
    }
    let (found, needed) = (signatures.len(), membership.quorum());
    if found < needed {
        return Err(CertificateError::NoQuorum { found, needed });
    }
    let mut key = checkpoint_key(membership.suite(), ReplicaId(0), checkpoint);
    let claims = signatures.iter().map(|(replica, signature)| {
        key.sender = replica.0;
        (*replica, key.to_array(), signature)
    });
    Ok(verify_signed(membership, Instance(0), claims)?)
}

/// What `replica` signs when it attests the block at `height`.
#[must_use]
pub fn attestation_key(replica: ReplicaId, height: Height, block: Digest) -> Key {
    Key::of_replica(Kind::ATTEST, replica, 0, height.0, block)
}

/// Checks signatures on one block.
pub(crate) fn verify_attestation(
    membership: &Membership,
    height: Height,
    block: Digest,
    signatures: &[(ReplicaId, SignatureBytes)],
) -> Result<(), Reject> {
    let claims = signatures.iter().map(|(replica, signature)| {
        (*replica, attestation_key(*replica, height, block).to_array(), signature)
    });
    verify_signed(membership, Instance(0), claims)
}
