//! Signatures, one and many, with one verdict a signature.

use ed25519_zebra::{Signature, VerificationKey, VerificationKeyBytes, batch};
use getrandom::SysRng;
use rand_core::UnwrapErr;
use tercio_types::{PublicKey, SignatureBytes, Suite};

/// A signature to check.
#[derive(Clone, Copy, Debug)]
pub struct SignatureItem<'a> {
    /// Whose it is said to be.
    pub key: &'a PublicKey,
    /// Over what.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a SignatureBytes,
}

/// Whether the signature is good. Malformed keys and signatures are bad, never an error.
#[must_use]
pub fn verify(suite: Suite, item: &SignatureItem<'_>) -> bool {
    match suite {
        Suite::Sha256Ed25519 => {
            let Ok(key) = VerificationKey::try_from(item.key.as_slice()) else { return false };
            let Ok(signature) = Signature::try_from(item.signature.as_slice()) else {
                return false;
            };
            key.verify(&signature, item.message).is_ok()
        }
        _ => unreachable!("a suite is made only from a number that this build knows"),
    }
}

/// One verdict a signature, the same that [`verify`] gives. Good batches are checked at once; in a
/// batch with a bad one each is looked at alone.
#[must_use]
pub fn verify_batch(suite: Suite, items: &[SignatureItem<'_>]) -> Vec<bool> {
    if items.len() > 3 && all_good(items) {
        return vec![true; items.len()];
    }
    items.iter().map(|item| verify(suite, item)).collect()
}

fn all_good(items: &[SignatureItem<'_>]) -> bool {
    let mut verifier = batch::Verifier::new();
    for item in items {
        let Ok(key) = VerificationKeyBytes::try_from(item.key.as_slice()) else { return false };
        let Ok(signature) = Signature::try_from(item.signature.as_slice()) else { return false };
        verifier.queue((key, signature, &item.message));
    }
    verifier.verify(UnwrapErr(SysRng)).is_ok()
}
