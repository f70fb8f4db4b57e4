//! What stands under a signature: 52 bytes of a message, in the context of one epoch.

use super::Reject;
use crate::verified::Text;
use crate::{SecretKey, SignatureItem, verify_batch};
use tercio_types::{Membership, Principal, ReplicaId, SignatureBytes, SigningKey};

/// Which ordering protocol instance of an epoch the keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Instance(pub u8);

/// What stands before the 52 bytes under a signature: purpose, chain, epoch and instance.
pub(super) type Context = [u8; 60];

pub(super) fn context(membership: &Membership, instance: Instance) -> Context {
    let mut out = [0; 60];
    out[..19].copy_from_slice(b"tercio signature 1\0");
    out[19..51].copy_from_slice(&membership.chain().0);
    out[51..59].copy_from_slice(&membership.epoch().0.to_le_bytes());
    out[59] = instance.0;
    out
}

pub(super) fn signed(context: &Context, said: &[u8; 52]) -> Text {
    let mut out = [0; 112];
    out[..60].copy_from_slice(context);
    out[60..].copy_from_slice(said);
    out
}

/// Signs the 52 bytes of a message in the name of one principal of one epoch.
#[derive(Clone, Debug)]
pub struct Signer {
    pub(super) secret: SecretKey,
    pub(super) context: Context,
}

impl Signer {
    /// Signs.
    #[must_use]
    pub fn sign(&self, said: &[u8; 52]) -> SignatureBytes {
        self.secret.sign(&signed(&self.context, said))
    }
}

/// Checks signatures as anybody can who knows the membership, without a secret: what an audit of
/// a log stands on. Every claim must be a signature.
///
/// # Errors
/// Names the first signer whose signature is bad.
pub fn verify_signed<'a>(
    membership: &Membership,
    instance: Instance,
    claims: impl IntoIterator<Item = (ReplicaId, [u8; 52], &'a SignatureBytes)>,
) -> Result<(), Reject> {
    let context = context(membership, instance);
    let mut checks = Vec::new();
    for (replica, said, signature) in claims {
        let member = membership.member(replica).ok_or(Reject::UnknownReplica(replica))?;
        let key = SigningKey { scheme: membership.suite().scheme(), key: member.key };
        checks.push((replica, key, signed(&context, &said), signature));
    }
    let items: Vec<_> = checks
        .iter()
        .map(|(_, key, message, signature)| SignatureItem { key, message, signature })
        .collect();
    let verdicts = verify_batch(&items);
    match verdicts.iter().position(|good| !good) {
        Some(bad) => Err(Reject::BadSignature(Principal::Replica(checks[bad].0))),
        None => Ok(()),
    }
}
