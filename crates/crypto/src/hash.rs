//! The hash of the suite.

use crate::Sm3;
use sha2::Digest as _;
use tercio_types::{Digest, Suite};

/// A hash that is fed piece by piece.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(sha2::Sha256),
    Sm3(Sm3),
}

impl Hasher {
    /// An empty hash of `suite`.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        Self(match suite {
            Suite::Sha256Ed25519 => State::Sha256(sha2::Sha256::new()),
            Suite::Sm3Sm2 => State::Sm3(Sm3::new()),
            _ => unreachable!("a suite is made only from a number that this build knows"),
        })
    }

    /// Feeds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sm3(state) => state.update(bytes),
        }
    }

    /// The digest of what was fed.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(match self.0 {
            State::Sha256(state) => state.finalize().into(),
            State::Sm3(state) => state.finish(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors for 'abc' of FIPS 180-4 and GB/T 32905.
    #[test]
    fn each_suite_has_its_hash() {
        let hashes = [
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
        ];
        for (suite, expected) in Suite::ALL.into_iter().zip(hashes) {
            assert_eq!(hash(suite, &[b"a", b"", b"bc"]), expected.parse().unwrap());
        }
    }
}
