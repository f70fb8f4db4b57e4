//! One principal's keys towards everybody else of an epoch.

use crate::known::{KnownGood, Name};
use crate::sm3::HmacSm3;
use crate::verified::{Signed, Text};
use crate::{
    Admitted, BatchVerifier, Checked, Claim, Claimed, MacKey, Proof, SecretKey, SignatureItem,
    Signatures, SigningSecret, Verified, verify_batch,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{
    Authenticator, ClientId, Membership, Principal, PublicKey, ReplicaId, SignatureBytes,
    SigningKey, Suite, Tag,
};
use thiserror::Error;
use zeroize::Zeroizing;

/// Which ordering protocol instance of an epoch the keys belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Instance(pub u8);

/// Why a message is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reject {
    /// The sender is no member.
    #[error("unknown replica {0}")]
    UnknownReplica(ReplicaId),
    /// The client is not in the genesis.
    #[error("unknown client {0}")]
    UnknownClient(ClientId),
    /// The tag for us is missing or wrong.
    #[error("wrong message authentication code of {0}")]
    BadMac(Principal),
    /// The signature is wrong.
    #[error("wrong signature of {0}")]
    BadSignature(Principal),
    /// A kind of authenticator that this network does not use.
    #[error("{0} uses an authenticator that this network does not know")]
    Unsupported(Principal),
}

impl Reject {
    /// A short word for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownReplica(_) => "unknown_replica",
            Self::UnknownClient(_) => "unknown_client",
            Self::BadMac(_) => "bad_mac",
            Self::BadSignature(_) => "bad_signature",
            Self::Unsupported(_) => "unsupported_authenticator",
        }
    }
}

/// What stands before the 52 bytes under a signature: purpose, chain, epoch and instance.
type Context = [u8; 60];
fn context(membership: &Membership, instance: Instance) -> Context {
    let mut out = [0; 60];
    out[..19].copy_from_slice(b"tercio signature 1\0");
    out[19..51].copy_from_slice(&membership.chain().0);
    out[51..59].copy_from_slice(&membership.epoch().0.to_le_bytes());
    out[59] = instance.0;
    out
}

fn signed(context: &Context, said: &[u8; 52]) -> Text {
    let mut out = [0; 112];
    out[..60].copy_from_slice(context);
    out[60..].copy_from_slice(said);
    out
}

/// HKDF (RFC 5869) with the suite's hash, cut to one block of it.
fn expand(suite: Suite, secret: &[u8; 32], info: &[u8], key: &mut [u8; 32]) {
    const SALT: &[u8] = b"tercio link 1";
    if suite == Suite::Sm3Sm2 {
        let extracted = Zeroizing::new(HmacSm3::new(SALT).tag(&[secret]));
        *key = HmacSm3::new(&*extracted).tag(&[info, &[1]]);
    } else {
        let hkdf = hkdf::Hkdf::<sha2::Sha256>::new(Some(SALT), secret);
        hkdf.expand(info, key).expect("32 bytes are within HKDF's limit");
    }
}

/// Signs the 52 bytes of a message in the name of one principal of one epoch.
#[derive(Clone, Debug)]
pub struct Signer {
    secret: SecretKey,
    context: Context,
}

impl Signer {
    /// Signs.
    #[must_use]
    pub fn sign(&self, said: &[u8; 52]) -> SignatureBytes {
        self.secret.sign(&signed(&self.context, said))
    }
}

/// The two directions between us and one other.
#[derive(Clone, Debug)]
struct Link {
    send: MacKey,
    receive: MacKey,
}

/// One principal's keys towards everybody else of an epoch and instance. Cheap to ask; a client's
/// keys are derived at first use.
#[derive(Clone, Debug)]
pub struct Keyring {
    me: Principal,
    secret: SecretKey,
    instance: Instance,
    context: Context,
    membership: Arc<Membership>,
    replicas: Vec<Option<Link>>,
    clients: BTreeMap<ClientId, Option<Link>>,
    /// What we sign with, when that is not our identity.
    signing: Option<Arc<SigningSecret>>,
    verifier: BatchVerifier,
    known: KnownGood,
    /// How many signatures were not checked since they were known.
    spared: u64,
}

impl Keyring {
    /// The keys of `me`, who holds `secret`.
    #[must_use]
    pub fn new(
        me: Principal,
        secret: SecretKey,
        membership: Arc<Membership>,
        instance: Instance,
    ) -> Self {
        let context = context(&membership, instance);
        let mut ring = Self {
            me,
            secret,
            instance,
            context,
            membership,
            replicas: vec![],
            clients: BTreeMap::new(),
            signing: None,
            verifier: BatchVerifier::default(),
            known: KnownGood::default(),
            spared: 0,
        };
        ring.replicas = ring.replica_links();
        ring
    }

    /// Our keys towards each replica, in the order of the membership.
    fn replica_links(&self) -> Vec<Option<Link>> {
        let link = |id| self.link(Principal::Replica(id), &self.membership.member(id)?.key);
        self.membership.replicas().map(link).collect()
    }

    /// Signs with a key other than the identity: a client's, whose public half the membership has
    /// beside the client's identity.
    #[must_use]
    pub fn signing_with(mut self, secret: Arc<SigningSecret>) -> Self {
        self.signing = Some(secret);
        self
    }

    /// Who we are.
    #[must_use]
    pub fn me(&self) -> Principal {
        self.me
    }

    /// The membership whose keys these are.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Goes over to another membership. With more clients all keys stay; those of other replicas, or
    /// of another epoch, are derived anew.
    pub fn set_membership(&mut self, membership: Arc<Membership>) {
        let before = std::mem::replace(&mut self.membership, membership);
        let after = &self.membership;
        let key = |of: &Membership, id| of.member(id).map(|member| member.key);
        let same = (after.chain(), after.epoch(), after.ids())
            == (before.chain(), before.epoch(), before.ids())
            && after.replicas().all(|id| key(after, id) == key(&before, id));
        if !same {
            self.context = context(after, self.instance);
            self.clients.clear();
            self.replicas = self.replica_links();
        }
    }

    /// Our signing half, for whoever signs in our name.
    #[must_use]
    pub fn signer(&self) -> Signer {
        Signer { secret: self.secret.clone(), context: self.context }
    }

    fn link(&self, peer: Principal, key: &PublicKey) -> Option<Link> {
        let shared = self.secret.link_secret(key).ok()?;
        let suite = self.membership.suite();
        let derive = |from: Principal, to: Principal| {
            let mut info = Vec::with_capacity(64);
            info.extend_from_slice(&self.membership.chain().0);
            info.extend_from_slice(&self.membership.epoch().0.to_le_bytes());
            info.push(self.instance.0);
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
        Some(Link { send: derive(self.me, peer), receive: derive(peer, self.me) })
    }

    fn client_link(&mut self, client: ClientId) -> Result<Option<&Link>, Reject> {
        if !self.clients.contains_key(&client) {
            let info = self.membership.client(client).ok_or(Reject::UnknownClient(client))?;
            let link = self.link(Principal::Client(client), &info.key);
            self.clients.insert(client, link);
        }
        Ok(self.clients[&client].as_ref())
    }

    /// The tag on the 52 bytes for one replica or client.
    ///
    /// # Errors
    /// When the receiver is unknown.
    pub fn tag(&mut self, to: Principal, said: &[u8; 52]) -> Result<Tag, Reject> {
        let link = match to {
            Principal::Replica(id) => {
                let place = self.membership.place_of(id).ok_or(Reject::UnknownReplica(id))?;
                self.replicas[place].as_ref()
            }
            Principal::Client(id) => self.client_link(id)?,
        };
        // A member without a usable key gets a tag that it could not check anyway.
        Ok(link.map_or(Tag::default(), |link| link.send.tag(said)))
    }

    /// One tag for each replica, in order. Our own slot stays zero: nobody checks it.
    #[must_use]
    pub fn mac_vector(&self, said: &[u8; 52]) -> Authenticator {
        let tag = |(id, link): (ReplicaId, &Option<Link>)| match link {
            Some(link) if self.me != Principal::Replica(id) => link.send.tag(said),
            _ => Tag::default(),
        };
        let links = self.membership.replicas().zip(&self.replicas);
        Authenticator::MacVector(links.map(tag).collect())
    }

    /// Our signature on the 52 bytes.
    #[must_use]
    pub fn sign(&self, said: &[u8; 52]) -> SignatureBytes {
        let text = signed(&self.context, said);
        match &self.signing {
            Some(secret) => secret.sign(&text),
            None => self.secret.sign(&text),
        }
    }

    /// Checks signatures with this from now on.
    #[must_use]
    pub fn checking_with(mut self, verifier: BatchVerifier) -> Self {
        self.verifier = verifier;
        self
    }

    /// Checks every claim of a message. The sender's own claim and every signature must hold; a
    /// client's MAC further inside that fails for us makes the message doubtful.
    ///
    /// # Errors
    /// When a claim that must hold does not.
    pub fn verify<M: Claimed>(&mut self, message: M) -> Result<Verified<M>, Reject> {
        match self.admit(message)? {
            Admitted::Verified(message) => Ok(message),
            Admitted::Pending(mut pending) => {
                self.decide([pending.signatures()]);
                pending.into_verified()
            }
        }
    }

    /// Checks all of a message but its signatures, which are left to [`Self::decide`].
    ///
    /// # Errors
    /// When a MAC that must hold does not, or somebody is not known.
    pub fn admit<M: Claimed>(&mut self, message: M) -> Result<Admitted<M>, Reject> {
        let mut verdict = Ok(());
        let mut doubts = Vec::new();
        let mut first = true;
        let mut signatures: Vec<Signed> = Vec::new();
        message.claims(&mut |claim| {
            if verdict.is_err() {
                return;
            }
            let outer = std::mem::take(&mut first);
            match self.check(&claim, &mut signatures) {
                Err(Reject::BadMac(Principal::Client(id))) if !outer => doubts.push(id),
                other => verdict = other,
            }
        });
        verdict?;
        Ok(Admitted::new(message, doubts, signatures))
    }

    /// Checks the signatures of many messages together, with one verdict for each signature: a
    /// bad one costs no message but its own. One that was found good before is not checked again,
    /// nor one twice that comes twice.
    pub fn decide<'a>(&mut self, waiting: impl IntoIterator<Item = &'a mut Signatures>) {
        let waiting: Vec<_> = waiting.into_iter().collect();
        let all: Vec<&Signed> = waiting.iter().flat_map(|of_one| of_one.list()).collect();
        let mut items: Vec<SignatureItem<'_>> = Vec::with_capacity(all.len());
        let mut names: Vec<Name> = Vec::with_capacity(all.len());
        let mut place_of: BTreeMap<Name, usize> = BTreeMap::new();
        // Where the verdict on each will be; nowhere when it is known.
        let places: Vec<Option<usize>> = (all.iter())
            .map(|signed| {
                let name = signed.name();
                if self.known.contains(&name) {
                    return None;
                }
                Some(*place_of.entry(name).or_insert_with(|| {
                    let Signed { key, text, signature, .. } = signed;
                    items.push(SignatureItem { key, message: text, signature });
                    names.push(name);
                    items.len() - 1
                }))
            })
            .collect();
        let verdicts = self.verifier.verify(&items);
        self.spared += (all.len() - items.len()) as u64;
        for (name, _) in names.into_iter().zip(&verdicts).filter(|(_, good)| **good) {
            self.known.insert(name);
        }
        let mut verdicts = places.iter().map(|place| place.is_none_or(|place| verdicts[place]));
        for of_one in waiting {
            of_one.decide(&mut verdicts);
        }
    }

    /// How many signatures were checked, and how.
    #[must_use]
    pub fn checked(&self) -> Checked {
        Checked { spared: self.spared, ..self.verifier.checked() }
    }

    /// Checks a MAC now; puts a signature with the others.
    fn check(&mut self, claim: &Claim<'_>, signatures: &mut Vec<Signed>) -> Result<(), Reject> {
        let by = claim.by;
        if matches!(by, Principal::Client(_)) && !stands(Defence::F32CheckClients) {
            return Ok(());
        }
        let tag = match claim.proof {
            Proof::Signature(signature) => {
                let key = match by {
                    Principal::Replica(id) => {
                        let member = self.membership.member(id);
                        let key = member.ok_or(Reject::UnknownReplica(id))?.key;
                        SigningKey { scheme: self.membership.suite().scheme(), key }
                    }
                    Principal::Client(id) => {
                        let client = self.membership.client(id);
                        let client = client.ok_or(Reject::UnknownClient(id))?;
                        client.signing_key(self.membership.suite())
                    }
                };
                let text = signed(&self.context, &claim.said);
                signatures.push(Signed { by, key, text, signature: *signature });
                return Ok(());
            }
            Proof::Attested(_) => return Err(Reject::Unsupported(by)),
            Proof::Mac(tag) => Some(*tag),
            Proof::MacVector(tags) => match self.me {
                Principal::Replica(me) if tags.len() == self.membership.n() => {
                    self.membership.place_of(me).and_then(|place| tags.get(place))
                }
                _ => None,
            },
        };
        let link = match by {
            Principal::Replica(id) => {
                let place = self.membership.place_of(id).ok_or(Reject::UnknownReplica(id))?;
                self.replicas[place].as_ref()
            }
            Principal::Client(id) => self.client_link(id)?,
        };
        match (link, tag) {
            (Some(link), Some(tag)) if link.receive.verify(&claim.said, &tag) => Ok(()),
            _ => Err(Reject::BadMac(by)),
        }
    }
}

/// Checks signatures as anybody can who knows the membership, without a secret: what an audit of
/// a log stands on. Every claim must be a signature.
///
/// # Errors
/// Names the first signer whose signature is bad.
pub fn verify_signed<'a>(
    membership: &Membership,
    instance: Instance,
    claims: impl IntoIterator<Item = (ReplicaId, [u8; 52], &'a SignatureBytes)>,
) -> Result<(), Reject> {
    let context = context(membership, instance);
    let mut checks = Vec::new();
    for (replica, said, signature) in claims {
        let member = membership.member(replica).ok_or(Reject::UnknownReplica(replica))?;
        let key = SigningKey { scheme: membership.suite().scheme(), key: member.key };
        checks.push((replica, key, signed(&context, &said), signature));
    }
    let items: Vec<_> = checks
        .iter()
        .map(|(_, key, message, signature)| SignatureItem { key, message, signature })
        .collect();
    let verdicts = verify_batch(&items);
    match verdicts.iter().position(|good| !good) {
        Some(bad) => Err(Reject::BadSignature(Principal::Replica(checks[bad].0))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{ChainId, ClientInfo, Epoch, FaultModel, Member, Suite};

    struct Said {
        claims: Vec<(Principal, [u8; 52], Authenticator)>,
    }

    impl Claimed for Said {
        fn claims(&self, claim: &mut dyn FnMut(Claim<'_>)) {
            for (by, said, proof) in &self.claims {
                claim(Claim { by: *by, said: *said, proof: proof.into() });
            }
        }
    }

    fn key(i: u8) -> SecretKey {
        SecretKey::from_seed([i; 32])
    }

    fn membership(chain: u8, epoch: u64) -> Arc<Membership> {
        let members =
            (0..4).map(|i| Member { key: key(i).public(), address: String::new() }).collect();
        let clients = (7..9).map(|i| (ClientId(i), ClientInfo::new(key(i as u8).public())));
        let chain = ChainId([chain; 32]);
        let model = FaultModel::Byzantine;
        let made = Membership::new(
            chain,
            Epoch(epoch),
            Suite::default(),
            model,
            members,
            clients.collect(),
        );
        Arc::new(made.unwrap())
    }

    fn replica(i: u8, membership: &Arc<Membership>, instance: u8) -> Keyring {
        let me = Principal::Replica(ReplicaId(i.into()));
        Keyring::new(me, key(i), membership.clone(), Instance(instance))
    }

    fn client(i: u8, membership: &Arc<Membership>) -> Keyring {
        let me = Principal::Client(ClientId(i.into()));
        Keyring::new(me, key(i), membership.clone(), Instance(0))
    }

    /// Tags stand in the order of the members, whatever their numbers; and a ring goes over to other
    /// members with other keys.
    #[test]
    fn numbers_with_holes_find_their_tags() {
        let of = |ids: &[u8], epoch| {
            let member = |id: &u8| Member { key: key(*id).public(), address: String::new() };
            let members = ids.iter().map(|id| (ReplicaId((*id).into()), member(id))).collect();
            let (chain, model) = (ChainId([1; 32]), FaultModel::Byzantine);
            let clients = BTreeMap::from([(ClientId(9), ClientInfo::new(key(9).public()))]);
            let suite = Suite::default();
            let made = Membership::numbered(chain, Epoch(epoch), suite, model, members, clients);
            Arc::new(made.unwrap())
        };
        let holes = of(&[0, 2, 5, 7], 0);
        let said = [9; 52];
        let verifies = |ring: &mut Keyring, by, proof| {
            ring.verify(Said { claims: vec![(by, said, proof)] }).is_ok()
        };
        for from in [0, 2, 5, 7, 9] {
            let (by, vector) = match from {
                9 => (Principal::Client(ClientId(9)), client(9, &holes).mac_vector(&said)),
                i => (
                    Principal::Replica(ReplicaId(i.into())),
                    replica(i, &holes, 0).mac_vector(&said),
                ),
            };
            for to in [0, 2, 5, 7].into_iter().filter(|to| *to != from) {
                assert!(verifies(&mut replica(to, &holes, 0), by, vector.clone()), "{from} {to}");
            }
        }
        let stranger = Principal::Replica(ReplicaId(3));
        let mut seven = replica(7, &holes, 0);
        assert_eq!(seven.tag(stranger, &said).unwrap_err(), Reject::UnknownReplica(ReplicaId(3)));
        // 2 left and 8 came, in another epoch: nothing of the last one is good any more.
        let later = of(&[0, 5, 7, 8], 1);
        let (five, eight) = (replica(5, &holes, 0), replica(8, &later, 0));
        let [old, new] = [(&five, 5), (&eight, 8)]
            .map(|(ring, id)| (Principal::Replica(ReplicaId(id)), ring.mac_vector(&said)));
        assert!(verifies(&mut seven, old.0, old.1.clone()));
        seven.set_membership(later.clone());
        assert!(!verifies(&mut seven, old.0, old.1));
        assert!(verifies(&mut seven, new.0, new.1));
        assert!(verifies(
            &mut replica(8, &later, 0),
            Principal::Replica(ReplicaId(7)),
            seven.mac_vector(&said)
        ));
    }

    fn one(by: Principal, said: [u8; 52], proof: Authenticator) -> Said {
        Said { claims: vec![(by, said, proof)] }
    }

    #[test]
    fn each_receiver_accepts_its_own_slot_and_nothing_altered() {
        let m = membership(1, 0);
        let said = [5; 52];
        let from = replica(0, &m, 0);
        let vector = from.mac_vector(&said);
        for i in 1..4 {
            let mut to = replica(i, &m, 0);
            assert!(to.verify(one(from.me(), said, vector.clone())).is_ok());
            let wrong = to.verify(one(from.me(), [6; 52], vector.clone()));
            assert_eq!(wrong.err(), Some(Reject::BadMac(from.me())));
            // A tag made for another receiver, or said by another sender, is no good.
            let Authenticator::MacVector(tags) = &vector else { unreachable!() };
            let other = Authenticator::Mac(tags.get(usize::from(i % 3 + 1)).unwrap());
            assert!(to.verify(one(from.me(), said, other)).is_err());
            let liar = Principal::Replica(ReplicaId(u16::from(i % 3 + 1)));
            assert!(to.verify(one(liar, said, vector.clone())).is_err());
        }
    }

    /// f20: what is said on one chain, epoch or instance is worth nothing on another.
    #[test]
    fn authenticators_are_bound_to_chain_epoch_and_instance() {
        let m = membership(1, 0);
        let said = [5; 52];
        let from = replica(0, &m, 0);
        let signature = from.sign(&said).into();
        for proof in [from.mac_vector(&said), signature] {
            assert!(replica(1, &m, 0).verify(one(from.me(), said, proof.clone())).is_ok());
            for mut other in [
                replica(1, &membership(2, 0), 0),
                replica(1, &membership(1, 1), 0),
                replica(1, &m, 1),
            ] {
                assert!(other.verify(one(from.me(), said, proof.clone())).is_err());
            }
        }
    }

    #[test]
    fn a_clients_bad_tag_inside_makes_doubt_and_a_bad_signature_inside_refuses() {
        let m = membership(1, 0);
        let (outer, inner) = ([1; 52], [2; 52]);
        let (from, asker) = (replica(0, &m, 0), client(7, &m));
        let mut to = replica(1, &m, 0);
        let sender = (from.me(), outer, from.mac_vector(&outer));
        let mut with =
            |proof| to.verify(Said { claims: vec![sender.clone(), (asker.me(), inner, proof)] });
        assert!(with(asker.mac_vector(&inner)).unwrap().doubts().is_empty());
        assert_eq!(with(asker.mac_vector(&outer)).unwrap().doubts(), [ClientId(7)]);
        assert!(with(asker.sign(&inner).into()).unwrap().doubts().is_empty());
        let bad = with(asker.sign(&outer).into());
        assert_eq!(bad.err(), Some(Reject::BadSignature(asker.me())));
        // As the sender itself, a client with a bad tag is refused outright.
        let bad = to.verify(one(asker.me(), inner, asker.mac_vector(&outer)));
        assert_eq!(bad.err(), Some(Reject::BadMac(asker.me())));
    }

    #[test]
    fn strangers_are_named() {
        let m = membership(1, 0);
        let mut to = replica(1, &m, 0);
        let proof = Authenticator::Mac(Tag::default());
        let unknown = Principal::Client(ClientId(99));
        let verdict = to.verify(one(unknown, [0; 52], proof.clone()));
        assert_eq!(verdict.err(), Some(Reject::UnknownClient(ClientId(99))));
        let verdict = to.verify(one(Principal::Replica(ReplicaId(4)), [0; 52], proof));
        assert_eq!(verdict.err(), Some(Reject::UnknownReplica(ReplicaId(4))));
    }

    #[test]
    fn one_bad_signature_among_many_is_found() {
        let m = membership(1, 0);
        let mut to = replica(3, &m, 0);
        let mut claims: Vec<_> = (0..8u8)
            .map(|i| {
                let from = replica(i % 3, &m, 0);
                let said = [i; 52];
                (from.me(), said, from.sign(&said).into())
            })
            .collect();
        assert!(to.verify(Said { claims: claims.clone() }).is_ok());
        claims[5].1[0] ^= 1;
        let culprit = claims[5].0;
        let verdict = to.verify(Said { claims });
        assert_eq!(verdict.err(), Some(Reject::BadSignature(culprit)));
    }

    /// How many signatures were checked, and how many were spared that.
    fn counts(ring: &Keyring) -> (u64, u64) {
        (ring.checked().signatures, ring.checked().spared)
    }

    #[test]
    fn what_was_found_good_is_not_checked_again() {
        let m = membership(1, 0);
        let (mut to, said) = (replica(1, &m, 0), [5; 52]);
        let (first, second) = (client(7, &m), client(8, &m));
        let signed = |by: &Keyring, said| (by.me(), said, by.sign(&said).into());
        for again in 0..3 {
            assert!(to.verify(Said { claims: vec![signed(&first, said)] }).is_ok());
            assert_eq!(counts(&to), (1, again));
        }
        // Another text, another signer's word, another signature: each is checked, each time.
        let mut altered = signed(&first, said);
        altered.1[51] ^= 1;
        let stolen = (second.me(), said, first.sign(&said).into());
        let mut bytes = first.sign(&said).as_slice().to_vec();
        bytes[40] ^= 1;
        let other = (first.me(), said, SignatureBytes::new(&bytes).unwrap().into());
        for (bad, by) in [(altered, first.me()), (stolen, second.me()), (other, first.me())] {
            for _ in 0..3 {
                let before = counts(&to);
                let claims = vec![signed(&first, said), bad.clone()];
                assert_eq!(to.verify(Said { claims }).err(), Some(Reject::BadSignature(by)));
                assert_eq!(counts(&to), (before.0 + 1, before.1 + 1), "the good one is known");
            }
        }
    }

    /// What comes twice at once is checked once, and a bad one is bad both times.
    #[test]
    fn copies_in_one_batch_share_a_verdict() {
        let m = membership(1, 0);
        let (mut to, asker) = (replica(1, &m, 0), client(7, &m));
        let good: Authenticator = asker.sign(&[5; 52]).into();
        let mut pending: Vec<_> = [5, 6, 5, 6, 5]
            .into_iter()
            .map(|said| match to.admit(one(asker.me(), [said; 52], good.clone())) {
                Ok(Admitted::Pending(pending)) => pending,
                other => panic!("{:?}", other.map(|_| ())),
            })
            .collect();
        to.decide(pending.iter_mut().map(|pending| pending.signatures()));
        assert_eq!(counts(&to), (2, 3));
        let verdicts: Vec<_> = pending.into_iter().map(|p| p.into_verified().is_ok()).collect();
        assert_eq!(verdicts, [true, false, true, false, true]);
    }
}
