//! Message authentication codes between two principals.

use crate::sha256::Midstates;
use subtle::ConstantTimeEq;
use tercio_types::Tag;

/// A key for one direction between two principals. Holds HMAC's two midstates, so that a tag over
/// at most 55 bytes costs two compressions.
#[derive(Clone)]
pub struct MacKey(Midstates);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey(..)")
    }
}

impl MacKey {
    /// A key from 32 secret bytes.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Midstates::new(secret))
    }

    /// The tag of `message`.
    ///
    /// # Panics
    /// When it is longer than 500 bytes; what is authenticated here has 52.
    #[must_use]
    pub fn tag(&self, message: &[u8]) -> Tag {
        Tag(*self.0.code(message).first_chunk().expect("32 bytes"))
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

    /// RFC 4231, test case 2 uses a short key; ours are 32 bytes, so case 1's shape is checked
    /// against an independent construction of HMAC from the hash.
    #[test]
    fn tag_is_hmac_sha256_cut_to_16_bytes() {
        use sha2::Digest;
        let secret = [0x0b; 32];
        let (mut inner, mut outer) = ([0x36; 64], [0x5c; 64]);
        for i in 0..32 {
            inner[i] ^= secret[i];
            outer[i] ^= secret[i];
        }
        let message = b"what do ya want for nothing?";
        let inside = sha2::Sha256::new().chain_update(inner).chain_update(message).finalize();
        let full = sha2::Sha256::new().chain_update(outer).chain_update(inside).finalize();
        let key = MacKey::new(&secret);
        assert_eq!(key.tag(message).0[..], full[..16]);
        assert!(key.verify(message, &key.tag(message)));
        assert!(!key.verify(b"another", &key.tag(message)));
    }
}
