//! The keys of a pair: one for each direction, derived from their static identities (decision 0001).

use super::Instance;
use crate::hmac::Hmac;
use crate::sm3::Many;
use crate::{HashInput, MacKey, SecretKey};
use tercio_types::{Membership, Principal, PublicKey, Suite};
use zeroize::Zeroizing;

/// HKDF (RFC 5869) with the suite's hash, cut to one block of it.
fn expand(suite: Suite, secret: &[u8; 32], info: &[u8], key: &mut [u8; 32]) {
    const SALT: &[u8] = b"tercio link 1";
    if suite == Suite::Sm3Sm2 {
        let hmac = |key: &[u8], head, body| Hmac::<Many>::new(key).code(&HashInput { head, body });
        let extracted = Zeroizing::new(hmac(SALT, &[], secret));
        *key = hmac(&*extracted, info, &[1]);
    } else {
        let hkdf = hkdf::Hkdf::<sha2::Sha256>::new(Some(SALT), secret);
        hkdf.expand(info, key).expect("32 bytes are within HKDF's limit");
    }
}

/// The two directions between us and one other.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) send: MacKey,
    pub(super) receive: MacKey,
}

impl Link {
    /// The keys between `me`, who holds `secret`, and `peer`; none when the peer's key is no key.
    pub(super) fn derive(
        (me, secret): (Principal, &SecretKey),
        (peer, key): (Principal, &PublicKey),
        membership: &Membership,
        instance: Instance,
    ) -> Option<Self> {
        let shared = secret.link_secret(key).ok()?;
        let suite = membership.suite();
        let derive = |from: Principal, to: Principal| {
            let mut info = Vec::with_capacity(64);
            info.extend_from_slice(&membership.chain().0);
            info.extend_from_slice(&membership.epoch().0.to_le_bytes());
            info.push(instance.0);
            for principal in [from, to] {
                let (role, id) = match principal {
                    Principal::Replica(id) => (0, u64::from(id.0)),
                    Principal::Client(id) => (1, id.0),
                };
                info.push(role);
                info.extend_from_slice(&id.to_le_bytes());
            }
            let mut key = Zeroizing::new([0; 32]);
            expand(suite, &shared, &info, &mut key);
            MacKey::new(suite, &key)
        };
        Some(Self { send: derive(me, peer), receive: derive(peer, me) })
    }
}
