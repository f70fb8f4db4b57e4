//! Message authentication codes between two principals.

use crate::HashInput;
use crate::hmac::{Hmac, each_code};
use crate::sha256::Sha256;
use crate::sm3;
use subtle::ConstantTimeEq;
use tercio_types::{Suite, Tag};

/// A key for one direction between two principals: HMAC with the suite's hash. Holds HMAC's two
/// midstates, so that a tag over at most 55 bytes costs two compressions.
#[derive(Clone)]
pub struct MacKey(State);

#[derive(Clone)]
enum State {
    Sha256(Hmac<Sha256>),
    Sm3(Hmac<sm3::Many>),
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
            Suite::Sha256Ed25519 => State::Sha256(Hmac::new(secret)),
            Suite::Sm3Sm2 => State::Sm3(Hmac::new(secret)),
            _ => unreachable!("a suite is made only from a number that this build knows"),
        })
    }

    /// The tag of `message`.
    ///
    /// # Panics
    /// When it is longer than 500 bytes; what is authenticated here has 52.
    #[must_use]
    pub fn tag(&self, message: &[u8]) -> Tag {
        let message = HashInput { head: &[], body: message };
        cut(&match &self.0 {
            State::Sha256(mac) => mac.code(&message),
            State::Sm3(mac) => mac.code(&message),
        })
    }

    /// Whether `tag` is that of `message`, in constant time.
    #[must_use]
    pub fn verify(&self, message: &[u8], tag: &Tag) -> bool {
        self.tag(message).0.ct_eq(&tag.0).into()
    }
}

/// The tag that a code is cut to.
fn cut(code: &[u8; 32]) -> Tag {
    Tag(*code.first_chunk().expect("32 bytes"))
}

/// A message under a key, and the tag that it came with.
#[derive(Clone, Debug)]
pub struct MacItem {
    /// The key.
    pub key: MacKey,
    /// What was said.
    pub said: [u8; 52],
    /// What is to be its tag.
    pub tag: Tag,
}

impl MacItem {
    /// Whether each one's tag is good, in constant time. Many take less time together than one by
    /// one, where the processor has vector registers for them.
    ///
    /// # Panics
    /// When they are not of one suite.
    #[must_use]
    pub fn verify_many(items: &[Self]) -> Vec<bool> {
        let mut good = vec![false; items.len()];
        let put = |i: usize, code| good[i] = cut(&code).0.ct_eq(&items[i].tag.0).into();
        let other = "keys of one suite are used together";
        match items.first().map(|item| &item.key.0) {
            None => {}
            Some(State::Sha256(_)) => {
                let keys = items.iter().map(|item| match &item.key.0 {
                    State::Sha256(key) => (key, &item.said),
                    State::Sm3(_) => panic!("{other}"),
                });
                each_code(&keys.collect::<Vec<_>>(), put);
            }
            Some(State::Sm3(_)) => {
                let keys = items.iter().map(|item| match &item.key.0 {
                    State::Sm3(key) => (key, &item.said),
                    State::Sha256(_) => panic!("{other}"),
                });
                each_code(&keys.collect::<Vec<_>>(), put);
            }
        }
        good
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

    /// However many there are, each is judged by its own key, message and tag.
    #[test]
    fn many_equal_one_by_one() {
        for suite in Suite::ALL {
            for count in 0..40u8 {
                let items = (0..count).map(|i| {
                    let key = MacKey::new(suite, &[i; 32]);
                    let said = [i.wrapping_mul(3); 52];
                    let mut tag = key.tag(&said);
                    match i % 5 {
                        1 => tag.0[15] ^= 1,
                        2 => tag = key.tag(b"another"),
                        3 => tag = MacKey::new(suite, &[!i; 32]).tag(&said),
                        _ => {}
                    }
                    MacItem { key, said, tag }
                });
                let items: Vec<_> = items.collect();
                let one = |item: &MacItem| item.key.verify(&item.said, &item.tag);
                let alone: Vec<_> = items.iter().map(one).collect();
                assert_eq!(MacItem::verify_many(&items), alone, "{suite:?}, {count}");
                assert!((0..count).all(|i| alone[usize::from(i)] == matches!(i % 5, 0 | 4)));
            }
        }
    }
}
