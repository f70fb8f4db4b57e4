//! The hash of the suite.

use sha2::Digest as _;
use tercio_types::{Digest, Suite};

/// A hash that is fed piece by piece.
#[derive(Clone)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// An empty hash of `suite`.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        match suite {
            Suite::Sha256Ed25519 => Self(sha2::Sha256::new()),
            _ => unreachable!("a suite is made only from a number that this build knows"),
        }
    }

    /// Feeds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of what was fed.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// The digest of the parts, one after the other.
#[must_use]
pub fn hash(suite: Suite, parts: &[&[u8]]) -> Digest {
    if let (Suite::Sha256Ed25519, Some(digest)) = (suite, crate::sha256::short(parts)) {
        return digest;
    }
    let mut hasher = Hasher::new(suite);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finish()
}
