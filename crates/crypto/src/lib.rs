//! Hashes, message authentication codes and signatures, behind one verdict.
//!
//! A [`Keyring`] is one principal's view of the keys of an epoch: it authenticates what the
//! principal sends and checks what others sent. What it has checked is a [`Verified`] value, which
//! nothing else can make, and [`Counted`] what was counted of those; consensus accepts nothing else.
//!
//! Normal-case messages carry MACs: HMAC cut to 16 bytes over 52 bytes, from keys derived once, with
//! their midstates kept. What must convince a third party is signed. Hash, key agreement and the
//! scheme of identities are the suite's: SHA-256 with Ed25519 under the rules of ZIP-215, so that
//! single and batch verification agree; or SM3 with SM2. A client's packages may be signed under
//! any [`Scheme`](tercio_types::Scheme).
//!
//! Architecture invariant: nothing here knows a protocol message, only the 52 bytes and who claims
//! to have sent them.

pub mod agreement;
mod counted;
mod hash;
mod hmac;
mod keyring;
mod known;
mod mac;
mod many;
mod merkle;
mod scheme;
mod secret;
mod sha256;
mod signature;
pub mod sm2;
mod sm3;
mod verified;

pub use counted::Counted;
pub use hash::{Hasher, hash};
pub use keyring::{Instance, Keyring, Reject, Signer, verify_signed};
pub use mac::{MacItem, MacKey};
pub use many::{HashInput, hash_many};
pub use merkle::{merkle_leaf, merkle_leaves, merkle_root};
pub use scheme::{
    SchemeError, SigningSecret, from_hex, identity_from_text, key_text, public_from_pem,
    public_key, public_to_der, public_to_pem, signature_from_der, signature_to_der,
    signing_key_from_text, signing_key_text, to_hex,
};
pub use secret::{KeyError, SecretKey};
pub use signature::{BatchVerifier, Checked, SignatureItem, verify, verify_batch};
pub use sm3::Sm3;
pub use verified::{Admitted, Claim, Claimed, Pending, Proof, Signatures, Verified};
