//! What a keyring believes, and what not.

use super::*;
use crate::{Admitted, Claim, Claimed};
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
    let members = (0..4).map(|i| Member { key: key(i).public(), address: String::new() }).collect();
    let clients = (7..9).map(|i| (ClientId(i), ClientInfo::new(key(i as u8).public())));
    let chain = ChainId([chain; 32]);
    let model = FaultModel::Byzantine;
    let made =
        Membership::new(chain, Epoch(epoch), Suite::default(), model, members, clients.collect());
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
            i => (Principal::Replica(ReplicaId(i.into())), replica(i, &holes, 0).mac_vector(&said)),
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
        for mut other in
            [replica(1, &membership(2, 0), 0), replica(1, &membership(1, 1), 0), replica(1, &m, 1)]
        {
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
