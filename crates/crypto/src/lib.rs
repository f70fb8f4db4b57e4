//! Hashes, message authentication codes and signatures, behind one verdict.
//!
//! A [`Keyring`] is one principal's view of the keys of an epoch: it authenticates what the
//! principal sends and checks what others sent. What it has checked is a [`Verified`] value, which
//! nothing else can make; consensus accepts nothing else.
//!
//! Normal-case messages carry MACs: HMAC-SHA-256 cut to 16 bytes over 52 bytes, from keys derived
//! once, with their midstates kept. What must convince a third party is signed: Ed25519 under the
//! rules of ZIP-215, so that single and batch verification agree.
//!
//! Architecture invariant: nothing here knows a protocol message, only the 52 bytes and who claims
//! to have sent them.

mod der;
mod hash;
mod keyring;
mod mac;
mod merkle;
mod pem;
mod secret;
mod sha256;
mod signature;
pub mod sm2;
mod sm3;
mod verified;

pub use hash::{Hasher, hash};
pub use keyring::{Instance, Keyring, Reject, Signer, verify_signed};
pub use mac::MacKey;
pub use merkle::{merkle_leaf, merkle_root};
pub use secret::{KeyError, SecretKey, x25519_public};
pub use signature::{SignatureItem, verify, verify_batch};
pub use sm3::Sm3;
pub use verified::{Claim, Claimed, Proof, Verified};
