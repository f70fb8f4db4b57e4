//! A membership whose keys follow from a number, for votes and their keys.

use hkdf::Hkdf;
use sha2::Sha256;
use sha2::block_api::compress256;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey};
use tercio_types::{
    Authenticator, ChainId, Epoch, FaultModel, Member, Membership, Principal, ReplicaId, Suite,
};

/// HMAC-SHA-256's states behind the padded keys: what the card is given of a link's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Midstates {
    /// Behind the key with 0x36.
    pub inner: [u32; 8],
    /// Behind the key with 0x5c.
    pub outer: [u32; 8],
}

/// The initial state of SHA-256 (FIPS 180-4, 5.3.3).
pub(crate) const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The midstates of a key of at most 64 bytes (RFC 2104).
///
/// # Panics
/// When it is longer.
#[must_use]
pub fn midstates(key: &[u8]) -> Midstates {
    assert!(key.len() <= 64, "longer keys are hashed first");
    let behind = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        let mut state = INITIAL;
        compress256(&mut state, &[block]);
        state
    };
    Midstates { inner: behind(0x36), outer: behind(0x5c) }
}

/// Replicas and their secrets.
#[derive(Clone, Debug)]
pub struct Network {
    membership: Arc<Membership>,
    secrets: Vec<SecretKey>,
    rings: Vec<Keyring>,
}

impl Network {
    /// `n` replicas, whose secrets follow from `seed`.
    ///
    /// # Panics
    /// When `n` is 0 or above 100.
    #[must_use]
    pub fn new(n: u8, seed: u8) -> Self {
        assert!((1..=100).contains(&n), "1 to 100 replicas");
        let secret = |i: u8| {
            let mut bytes = [seed; 32];
            bytes[0] = i;
            SecretKey::from_seed(bytes)
        };
        let secrets: Vec<_> = (0..n).map(secret).collect();
        let member = |secret: &SecretKey| Member { key: secret.public(), address: String::new() };
        let members = secrets.iter().map(member).collect();
        let (chain, model) = (ChainId([seed; 32]), FaultModel::Byzantine);
        let clients = BTreeMap::new();
        let made = Membership::new(chain, Epoch(0), Suite::default(), model, members, clients);
        let membership = Arc::new(made.expect("a membership with distinct keys"));
        let ring = |(id, secret): (ReplicaId, &SecretKey)| {
            let me = Principal::Replica(id);
            Keyring::new(me, secret.clone(), membership.clone(), Instance(0))
        };
        let rings = (0..).map(ReplicaId).zip(&secrets).map(ring).collect();
        Self { membership, secrets, rings }
    }

    /// How many replicas.
    #[must_use]
    pub fn n(&self) -> u8 {
        self.secrets.len() as u8
    }

    /// The keyring of a replica.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn ring(&self, replica: u8) -> &Keyring {
        &self.rings[usize::from(replica)]
    }

    /// The vector of a replica's tags on the 52 bytes.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn vector(&self, sender: u8, said: &[u8; 52]) -> Vec<u8> {
        match self.ring(sender).mac_vector(said) {
            Authenticator::MacVector(tags) => tags.as_bytes().to_vec(),
            other => unreachable!("a vector was asked for: {other:?}"),
        }
    }

    /// What a card of `to` is given of the key with which `from` authenticates: derived here from
    /// `docs/format.md`, and not by the engine, which keeps its keys to itself.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn card_key(&self, from: u8, to: u8) -> Midstates {
        let theirs = self.secrets[usize::from(from)].public();
        let shared = self.secrets[usize::from(to)].link_secret(&theirs);
        let shared = shared.expect("keys of members are usable");
        let mut info = self.membership.chain().0.to_vec();
        info.extend_from_slice(&self.membership.epoch().0.to_le_bytes());
        info.push(0); // the instance
        for replica in [from, to] {
            info.push(0); // a replica's role
            info.extend_from_slice(&u64::from(replica).to_le_bytes());
        }
        let mut key = [0; 32];
        let hkdf = Hkdf::<Sha256>::new(Some(b"tercio link 1"), &*shared);
        hkdf.expand(&info, &mut key).expect("32 bytes are within HKDF's limit");
        midstates(&key)
    }
}
