//! What a listener asks for before it computes on the curve: a proof, and patience.
//!
//! The three multiplications of a handshake cost a listener several hundred microseconds, so a
//! stranger must not be able to ask for them. A dialler therefore first shows, over 16 random bytes
//! of this connection, a MAC under a key that only the two parties can derive from their static
//! identities. Checking it costs a microsecond, and nothing that was recorded passes: neither noise
//! nor a replay goes any further. Who does pass is known, and may do so [`RATE`] times a second,
//! [`BURST`] times at once: one admitted key buys no more of a replica's time.

use crate::handshake::Identity;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tercio_crypto::{MacKey, agreement, hash};
use tercio_types::Principal;

/// How many handshakes a second one identity is granted for long.
const RATE: u32 = 32;
/// How many it is granted at once.
const BURST: u32 = 64;
/// How many keys of clients are kept. A key costs one multiplication to derive again.
const KEPT: usize = 1 << 14;
/// What is hashed in front of the shared secret.
const LABEL: &[u8] = b"tercio handshake proof 1";

/// The keys of proofs, derived at first use, and who passed how often.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    /// `None` for whom the membership has no usable key of.
    keys: BTreeMap<Principal, Option<MacKey>>,
    /// When what each identity was granted is paid off (GCRA's theoretical arrival time).
    paid_at: BTreeMap<Principal, Instant>,
}

impl Proofs {
    /// The key that `identity` shares with `peer`; `None` when the membership has no usable key of
    /// it.
    pub(crate) fn key(&mut self, identity: &Identity, peer: Principal) -> Option<&MacKey> {
        if self.keys.len() >= KEPT && !self.keys.contains_key(&peer) {
            self.keys.clear();
        }
        self.keys.entry(peer).or_insert_with(|| derive(identity, peer)).as_ref()
    }

    /// The membership has changed.
    pub(crate) fn forget(&mut self) {
        self.keys.clear();
    }

    /// Whether `peer`, who has proven itself, may have another handshake; it counts as one then.
    pub(crate) fn grants(&mut self, peer: Principal, now: Instant) -> bool {
        if self.paid_at.len() >= KEPT {
            self.paid_at.retain(|_, at| *at > now);
        }
        let each = Duration::from_secs(1) / RATE;
        let paid = self.paid_at.entry(peer).or_insert(now);
        let after = (*paid).max(now) + each;
        let granted = after <= now + each * BURST;
        if granted {
            *paid = after;
        }
        granted
    }
}

fn derive(identity: &Identity, peer: Principal) -> Option<MacKey> {
    let suite = identity.suite();
    let theirs = identity.agreement_key(peer)?;
    let ours = identity.secret.agreement_secret();
    let shared = agreement::agree(suite, &ours, &theirs[..agreement::public_len(suite)])?;
    Some(MacKey::new(suite, &hash(suite, &[LABEL, &*shared]).0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::ClientId;

    #[test]
    fn an_identity_is_granted_a_burst_and_then_a_rate() {
        let mut proofs = Proofs::default();
        let (one, two) = (Principal::Client(ClientId(1)), Principal::Client(ClientId(2)));
        let start = crate::transport::now();
        let granted =
            |proofs: &mut Proofs, who, at| (0..1000).filter(|_| proofs.grants(who, at)).count();
        assert_eq!(granted(&mut proofs, one, start), BURST as usize);
        assert_eq!(granted(&mut proofs, two, start), BURST as usize, "another is not in its way");
        let later = start + Duration::from_secs(1);
        assert_eq!(granted(&mut proofs, one, later), RATE as usize);
        let much_later = later + Duration::from_secs(3600);
        assert_eq!(granted(&mut proofs, one, much_later), BURST as usize, "it saves up no more");
    }
}
