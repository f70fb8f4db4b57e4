//! SM2 signatures (GB/T 32918.2-2016) over the recommended curve of GB/T 32918.5, with SM3.
//!
//! A [`Verifier`] checks batches on the fastest [`Backend`] of the processor and gives one verdict
//! an item; every backend gives the same one on every input, since replicas that differ would fork
//! the chain. [`SecretKey`] signs in constant time.

mod abreast;
mod agree;
mod cache;
mod comb;
mod field;
mod integers;
mod key;
mod limbs;
mod order;
mod point;
mod signature;
mod together;
mod verify;

pub use agree::COMPRESSED;
pub use key::{MalformedKey, PublicKey, SecretKey, UserId, order};
pub use signature::{MalformedSignature, Signature};
pub use verify::{
    Backend, Item, Prehashed, Unavailable, Verifier, issue_vector_multiplications, verify_digest,
};

#[cfg(test)]
mod equality;
#[cfg(test)]
mod tests;
