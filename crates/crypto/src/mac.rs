//! Message authentication codes between two principals.

use crate::sha256::Midstates;
use crate::sm3::HmacSm3;
use subtle::ConstantTimeEq;
use tercio_types::{Suite, Tag};

/// A key for one direction between two principals: HMAC with the suite's hash. Holds HMAC's two
/// midstates, so that a tag over at most 55 bytes costs two compressions.
#[derive(Clone)]
pub struct MacKey(State);

#[derive(Clone)]
enum State {
    Sha256(Midstates),
    Sm3(HmacSm3),
}

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey(..)")
    }
}

impl MacKey {
    /// A key from 32 secret bytes.
    #[must_use]
    pub fn new(suite: Suite, secret: &[u8; 32]) -> Self {
        Self(match suite {
            Suite::Sha256Ed25519 => State::Sha256(Midstates::new(secret)),
            Suite::Sm3Sm2 => State::Sm3(HmacSm3::new(secret)),
            _ => unreachable!("a suite is made only from a number that this build knows"),
        })
    }

    /// The tag of `message`.
    ///
    /// # Panics
    /// When it is longer than 500 bytes; what is authenticated here has 52.
    #[must_use]
    pub fn tag(&self, message: &[u8]) -> Tag {
        let full: [u8; 32] = match &self.0 {
            State::Sha256(mac) => mac.code(message),
            State::Sm3(mac) => mac.tag(&[message]),
        };
        Tag(*full.first_chunk().expect("32 bytes"))
    }

    /// Whether `tag` is that of `message`, in constant time.
    #[must_use]
    pub fn verify(&self, message: &[u8], tag: &Tag) -> bool {
        self.tag(message).0.ct_eq(&tag.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    /// RFC 4231, test case 2 uses a short key; ours are 32 bytes, so case 1's shape is checked
    /// against an independent construction of HMAC from the hash.
    #[test]
    fn tag_is_the_suites_hmac_cut_to_16_bytes() {
        let secret = [0x0b; 32];
        let (mut inner, mut outer) = ([0x36; 64], [0x5c; 64]);
        for i in 0..32 {
            inner[i] ^= secret[i];
            outer[i] ^= secret[i];
        }
        let message = b"what do ya want for nothing?";
        for suite in Suite::ALL {
            let inside = hash(suite, &[&inner, message]);
            let full = hash(suite, &[&outer, &inside.0]);
            let key = MacKey::new(suite, &secret);
            assert_eq!(key.tag(message).0[..], full.0[..16]);
            assert!(key.verify(message, &key.tag(message)));
            assert!(!key.verify(b"another", &key.tag(message)));
        }
    }
}
