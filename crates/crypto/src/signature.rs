//! Signatures, one and many, with one verdict a signature.

use crate::scheme::{verify_p256, verify_rsa, verify_secp256k1};
use crate::sm2;
use ed25519_zebra::{Signature, VerificationKey, VerificationKeyBytes, batch};
use getrandom::SysRng;
use rand_core::UnwrapErr;
use std::sync::OnceLock;
use tercio_types::{Scheme, SignatureBytes, SigningKey};

/// A signature to check.
#[derive(Clone, Copy, Debug)]
pub struct SignatureItem<'a> {
    /// Whose it is said to be.
    pub key: &'a SigningKey,
    /// Over what.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a SignatureBytes,
}

/// Whether the signature is good. Malformed keys and signatures are bad, never an error.
#[must_use]
pub fn verify(item: &SignatureItem<'_>) -> bool {
    let (key, message, signature) =
        (item.key.key.as_slice(), item.message, item.signature.as_slice());
    match item.key.scheme {
        Scheme::Ed25519 => verify_ed25519(key, message, signature),
        Scheme::Sm2 => verify_sm2(key, message, signature),
        Scheme::EcdsaP256 => verify_p256(key, message, signature),
        Scheme::Secp256k1 => verify_secp256k1(key, message, signature),
        Scheme::Rsa2048 => verify_rsa(key, message, signature),
        _ => unreachable!("a scheme is made only from a name that this build knows"),
    }
}

fn verify_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = VerificationKey::try_from(key) else { return false };
    let Ok(signature) = Signature::try_from(signature) else { return false };
    key.verify(&signature, message).is_ok()
}

/// The user id of everybody in a network: the usual one.
pub(crate) fn user_id() -> &'static sm2::UserId {
    static USER: OnceLock<sm2::UserId> = OnceLock::new();
    USER.get_or_init(sm2::UserId::default)
}

fn verify_sm2(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = sm2::PublicKey::from_bytes(key) else { return false };
    let Ok(signature) = sm2::Signature::from_bytes(signature) else { return false };
    sm2::verify_digest(&key, &user_id().digest(&key, message), &signature)
}

/// Checks many signatures, and remembers the SM2 keys that it meets often: their tables make the
/// next signatures cheaper.
#[derive(Clone, Debug, Default)]
pub struct BatchVerifier {
    /// Made when it is first needed: its tables take memory.
    sm2: Option<Box<sm2::Verifier>>,
}

impl BatchVerifier {
    /// One verdict a signature, the same that [`verify`] gives. Schemes that have a faster way for
    /// many are checked so: Ed25519 all at once, where a batch with a bad one is halved until the
    /// bad ones are found, and SM2 eight abreast.
    #[must_use]
    pub fn verify(&mut self, items: &[SignatureItem<'_>]) -> Vec<bool> {
        let mut verdicts = vec![false; items.len()];
        for scheme in Scheme::ALL {
            let these: Vec<usize> =
                (0..items.len()).filter(|&i| items[i].key.scheme == scheme).collect();
            match scheme {
                Scheme::Ed25519 => halve(items, &these, &mut verdicts),
                Scheme::Sm2 if !these.is_empty() => {
                    let batch: Vec<_> = these.iter().map(|&i| sm2_item(&items[i])).collect();
                    let found = self.sm2.get_or_insert_default().verify_batch(&batch);
                    these.iter().zip(found).for_each(|(&i, verdict)| verdicts[i] = verdict);
                }
                _ => these.iter().for_each(|&i| verdicts[i] = verify(&items[i])),
            }
        }
        verdicts
    }
}

/// As [`BatchVerifier::verify`], without anything to remember.
#[must_use]
pub fn verify_batch(items: &[SignatureItem<'_>]) -> Vec<bool> {
    BatchVerifier::default().verify(items)
}

fn sm2_item<'a>(item: &SignatureItem<'a>) -> sm2::Item<'a> {
    sm2::Item {
        key: item.key.key.as_slice(),
        message: item.message,
        signature: item.signature.as_slice(),
    }
}

/// The fewest Ed25519 signatures that are cheaper together than one by one.
const TOGETHER: usize = 4;

/// Checks Ed25519 signatures together, and the halves of what does not hold together: a bad
/// signature costs its halves, and good ones outside of them are not looked at again.
fn halve(items: &[SignatureItem<'_>], these: &[usize], verdicts: &mut [bool]) {
    if these.len() < TOGETHER {
        these.iter().for_each(|&i| verdicts[i] = verify(&items[i]));
    } else if all_good(items, these) {
        these.iter().for_each(|&i| verdicts[i] = true);
    } else {
        let (left, right) = these.split_at(these.len() / 2);
        halve(items, left, verdicts);
        halve(items, right, verdicts);
    }
}

fn all_good(items: &[SignatureItem<'_>], these: &[usize]) -> bool {
    let mut verifier = batch::Verifier::new();
    for item in these.iter().map(|&i| &items[i]) {
        let Ok(key) = VerificationKeyBytes::try_from(item.key.key.as_slice()) else { return false };
        let Ok(signature) = Signature::try_from(item.signature.as_slice()) else { return false };
        verifier.queue((key, signature, &item.message));
    }
    verifier.verify(UnwrapErr(SysRng)).is_ok()
}
