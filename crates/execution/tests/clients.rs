//! Clients that are added by an ordered operation: who may, what it does, and that a snapshot keeps
//! it.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey, SigningSecret, hash};
use tercio_execution::{
    AppError, Application, Context, Engine, Operation, Replies, RestoreError, Snapshot,
    membership_digest,
};
use tercio_types::{
    Authenticator, Batch, ChainId, ClientId, ClientInfo, Digest, Epoch, FaultModel, Height, Member,
    Membership, OpKind, Ops, Package, Principal, PublicKey, ReplicaId, RequestSeq, Scheme, SeqNum,
    SignatureBytes, SigningKey, Suite, SystemOp, Tag, Timestamp,
};
use tercio_wire::{Encode, OpResult, approval_key, decode_results};

const SUITE: Suite = Suite::Sha256Ed25519;
/// Of the genesis.
const CLIENT: ClientId = ClientId(4);

/// Nothing at all.
struct Nothing;

impl Application for Nothing {
    fn execute(&mut self, _: &Context, operations: &[Operation], replies: &mut Replies) {
        operations.iter().for_each(|_| replies.push_with(|_| ()));
    }

    fn query(&self, _: &[u8]) -> Result<Bytes, AppError> {
        Ok(Bytes::new())
    }

    fn state_digest(&mut self) -> Digest {
        tercio_execution::chunks_root(SUITE, &[])
    }

    fn snapshot(&mut self) -> Snapshot {
        vec![].into()
    }

    fn restore(&mut self, _: &[(Bytes, Bytes)]) -> Result<(), AppError> {
        Ok(())
    }
}

fn secret(i: u8) -> SecretKey {
    SecretKey::from_seed([i; 32])
}

fn membership(chain: u8) -> Arc<Membership> {
    let member = |i| Member { key: secret(i).public(), address: String::new() };
    let clients = BTreeMap::from([(CLIENT, ClientInfo::new(secret(100).public()))]);
    let (chain, model) = (ChainId([chain; 32]), FaultModel::Byzantine);
    let members = (0..4).map(member).collect();
    Arc::new(Membership::new(chain, Epoch(0), SUITE, model, members, clients).unwrap())
}

fn engine() -> Engine {
    Engine::new(Box::new(Nothing), membership(3), 0)
}

/// What the operators of `by` sign for `info` on the chain of `membership`.
fn approvals(
    membership: &Arc<Membership>,
    by: &[u8],
    info: &ClientInfo,
) -> Vec<(ReplicaId, SignatureBytes)> {
    let sign = |&i: &u8| {
        let id = ReplicaId(i.into());
        let me = Principal::Replica(id);
        let ring = Keyring::new(me, secret(i), membership.clone(), Instance::default());
        (id, ring.signer().sign(&approval_key(SUITE, id, info).to_array()))
    };
    by.iter().map(sign).collect()
}

fn add(info: &ClientInfo, by: &[u8]) -> Bytes {
    let approvals = approvals(&membership(3), by, info);
    SystemOp::AddClient { info: info.clone(), approvals }.to_bytes()
}

fn package(first: u64, ops: &[Bytes]) -> Package {
    Package {
        client: CLIENT,
        first: RequestSeq(first),
        kind: OpKind::System,
        replier: ReplicaId(0),
        ops: Ops::new(ops),
        digest: Digest::NULL,
        auth: Authenticator::Mac(Tag::default()),
    }
}

fn execute(engine: &mut Engine, packages: Vec<Package>) -> Vec<OpResult> {
    let batch = Batch { time: Timestamp(1), checkpoint: false, packages };
    let digest = hash(SUITE, &[&batch.to_bytes()]);
    let replies = engine.execute(engine.seq().next(), &batch, digest).replies;
    let body = |reply| decode_results(&replies.body(reply), SUITE).unwrap();
    replies.packages.iter().flat_map(body).collect()
}

/// One operation in a block of its own.
fn ask(engine: &mut Engine, op: &Bytes) -> OpResult {
    let first = engine.height().0 + 1;
    execute(engine, vec![package(first, std::slice::from_ref(op))]).remove(0)
}

fn number(id: u64) -> OpResult {
    OpResult::Executed(Bytes::copy_from_slice(&id.to_le_bytes()))
}

#[track_caller]
fn assert_declined(engine: &mut Engine, op: &Bytes, words: &str) {
    let before = engine.membership().clone();
    match ask(engine, op) {
        OpResult::Declined(why) => {
            let why = String::from_utf8(why.to_vec()).unwrap();
            assert!(why.contains(words), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(Arc::ptr_eq(engine.membership(), &before), "nothing has changed");
}

#[test]
fn an_approved_client_is_a_member_and_a_checkpoint_says_so() {
    let mut engine = engine();
    let alice = ClientInfo::new(secret(50).public());
    let signing = Some(SigningSecret::generate(Scheme::EcdsaP256).unwrap().public());
    let bob = ClientInfo { signing, ..ClientInfo::new(secret(51).public()) };
    let seq = engine.seq();
    let before = engine.checkpoint(seq);
    assert_eq!(ask(&mut engine, &add(&alice, &[1, 3])), number(5));
    assert_eq!(engine.membership().client(ClientId(5)), Some(&alice));
    let seq = engine.seq();
    let after = engine.checkpoint(seq);
    assert_ne!(before.membership, after.membership);
    assert_ne!(before.clients, after.clients);
    assert_eq!(after.membership, membership_digest(engine.membership()));
    // Whoever asks again, and whoever approves then, adds nobody.
    assert_eq!(ask(&mut engine, &add(&alice, &[0, 2])), number(5));
    assert_eq!(ask(&mut engine, &add(&alice, &[])), number(5));
    // Two in one batch, the same one twice, and a duplicate of the request.
    let first = engine.height().0 + 1;
    let packages = vec![
        package(first, &[add(&bob, &[0, 1])]),
        package(first, &[add(&bob, &[0, 1])]),
        package(first + 1, &[add(&bob, &[0, 1])]),
    ];
    assert_eq!(execute(&mut engine, packages), [number(6), number(6), number(6)]);
    let ids: Vec<_> = engine.membership().clients().map(|(id, _)| id.0).collect();
    assert_eq!(ids, [4, 5, 6]);
    assert_eq!(engine.height(), Height(4));
}

#[test]
fn nobody_is_added_without_f_plus_1_operators() {
    let mut engine = engine();
    let info = ClientInfo::new(secret(50).public());
    let with = |approvals| SystemOp::AddClient { info: info.clone(), approvals }.to_bytes();
    for by in [&[][..], &[2], &[0, 1, 2], &[0, 1, 2, 3]] {
        assert_declined(&mut engine, &add(&info, by), "exactly f+1");
    }
    let good = approvals(&membership(3), &[0, 1], &info);
    // One operator in two names, and a replica that there is not.
    let twice = vec![good[0], (ReplicaId(1), good[0].1)];
    assert_declined(&mut engine, &with(twice), "no signature of its replica");
    let stranger = vec![good[0], (ReplicaId(9), good[1].1)];
    assert_declined(&mut engine, &with(stranger), "no signature of its replica");
    // Said of another client, on another chain, or altered.
    let other = ClientInfo::new(secret(51).public());
    let of_other = approvals(&membership(3), &[0, 1], &other);
    assert_declined(&mut engine, &with(of_other), "no signature of its replica");
    let elsewhere = approvals(&membership(4), &[0, 1], &info);
    assert_declined(&mut engine, &with(elsewhere), "no signature of its replica");
    for altered in 0..2 {
        let mut bad = good.clone();
        let mut bytes = bad[altered].1.as_slice().to_vec();
        bytes[7] ^= 1;
        bad[altered].1 = SignatureBytes::new(&bytes).unwrap();
        assert_declined(&mut engine, &with(bad), "no signature of its replica");
    }
    assert_eq!(ask(&mut engine, &with(good)), number(5));
}

#[test]
fn keys_that_cannot_be_used_or_are_taken_add_nobody() {
    let mut engine = engine();
    let bytes = |bytes: &[u8]| PublicKey::new(bytes).unwrap();
    // No point, one of small order, too short, too long.
    let small_order = {
        let mut one = [0; 32];
        one[0] = 1;
        one
    };
    for key in [&[2; 32][..], &small_order, &[9; 31], &[4; 65], &[]] {
        let op = add(&ClientInfo::new(bytes(key)), &[0, 1]);
        assert_declined(&mut engine, &op, "cannot be used");
    }
    let signing = Some(SigningKey { scheme: Scheme::EcdsaP256, key: bytes(&[4; 65]) });
    let bad_signing = ClientInfo { signing, ..ClientInfo::new(secret(50).public()) };
    assert_declined(&mut engine, &add(&bad_signing, &[0, 1]), "cannot be used");
    let replica = ClientInfo::new(secret(2).public());
    assert_declined(&mut engine, &add(&replica, &[0, 1]), "a replica has this key");
    // Of a client that the genesis has: it is there, and cannot be given another signing key.
    let known = ClientInfo::new(secret(100).public());
    assert_eq!(ask(&mut engine, &add(&known, &[0, 1])), number(4));
    let signing = Some(SigningSecret::generate(Scheme::EcdsaP256).unwrap().public());
    let changed = ClientInfo { signing, ..known };
    assert_declined(&mut engine, &add(&changed, &[0, 1]), "another signing key");
}

/// A key in another form would be another client's, or pass for no replica's.
#[test]
fn a_key_in_another_form_adds_nobody() {
    let mut engine = engine();
    let spki = |key: &SigningKey| tercio_crypto::public_to_der(key).unwrap();
    for scheme in Scheme::ALL {
        let good = SigningSecret::generate(scheme).unwrap().public();
        let bytes = good.key.as_slice();
        let mut others = vec![spki(&good)];
        if bytes.len() == 65 {
            let odd = bytes[64] & 1;
            others.extend([6, 7].map(|prefix| [&[prefix], &bytes[1..]].concat()));
            others.push([&[2 + odd], &bytes[1..33]].concat());
        }
        for other in others {
            let key = PublicKey::new(&other).unwrap();
            let signing = Some(SigningKey { scheme, key });
            let info = ClientInfo { signing, ..ClientInfo::new(secret(50).public()) };
            assert_declined(&mut engine, &add(&info, &[0, 1]), "cannot be used");
        }
        if scheme == SUITE.scheme() {
            let info = ClientInfo::new(PublicKey::new(&spki(&good)).unwrap());
            assert_declined(&mut engine, &add(&info, &[0, 1]), "cannot be used");
        }
    }
    // The sum of a replica's key and the point of order 2, of which the replica's secret is the
    // secret as well: (-x, p - y).
    let key = secret(2).public();
    let mut twin = <[u8; 32]>::try_from(key.as_slice()).unwrap();
    let sign = !twin[31] & 0x80;
    twin[31] &= 0x7f;
    let (first, carried) = 0xed_u8.overflowing_sub(twin[0]);
    twin[0] = first;
    // The lower bytes of p are ones but in the first, so that a borrow stops at once.
    twin[1..].iter_mut().for_each(|byte| *byte = 0xff - *byte);
    twin[31] &= 0x7f;
    assert!(!carried, "choose a seed whose key begins with at most 0xed");
    twin[31] |= sign;
    let info = ClientInfo::new(PublicKey::new(&twin).unwrap());
    assert_declined(&mut engine, &add(&info, &[0, 1]), "cannot be used");
    assert_eq!(engine.membership().clients().count(), 1);
}

#[test]
fn bytes_that_are_no_operation_and_operations_in_company_are_unsupported() {
    let mut engine = engine();
    let good = add(&ClientInfo::new(secret(50).public()), &[0, 1]);
    for cut in 0..good.len() {
        assert_eq!(ask(&mut engine, &good.slice(..cut)), OpResult::Unsupported, "{cut} bytes");
    }
    let mut longer = good.to_vec();
    longer.push(0);
    assert_eq!(ask(&mut engine, &longer.into()), OpResult::Unsupported);
    let first = engine.height().0 + 1;
    let pair = package(first, &[good.clone(), good.clone()]);
    assert_eq!(execute(&mut engine, vec![pair]), [OpResult::Unsupported, OpResult::Unsupported]);
    assert_eq!(engine.membership().clients().count(), 1);
}

/// (How many that are at most: `tercio_types`, `membership.rs`.)
#[test]
fn without_a_number_left_nobody_is_added() {
    let some = membership(3);
    let members = some.replicas().map(|r| some.member(r).unwrap().clone()).collect();
    let clients = BTreeMap::from([(ClientId(u64::MAX), ClientInfo::new(secret(100).public()))]);
    let (chain, model) = (some.chain(), FaultModel::Byzantine);
    let full = Membership::new(chain, Epoch(0), SUITE, model, members, clients).unwrap();
    let mut engine = Engine::new(Box::new(Nothing), Arc::new(full), 0);
    let op = add(&ClientInfo::new(secret(50).public()), &[0, 1]);
    assert_declined(&mut engine, &op, "as many clients as can be added");
}

/// What a replica has that restarts from a snapshot or fetched the state.
#[test]
fn a_snapshot_brings_added_clients_and_a_lie_about_them_is_refused() {
    let mut engine = engine();
    for i in 50..53 {
        ask(&mut engine, &add(&ClientInfo::new(secret(i).public()), &[0, 1]));
    }
    let seq = engine.seq();
    let checkpoint = engine.checkpoint(seq);
    let chunks: Vec<_> = engine.snapshot().collect();
    let mut restored = self::engine();
    restored.restore(&checkpoint, &chunks).unwrap();
    assert_eq!(restored.membership(), engine.membership());
    assert_eq!(restored.checkpoint(SeqNum(3)), checkpoint);
    // Both go on alike.
    let next = add(&ClientInfo::new(secret(60).public()), &[2, 3]);
    assert_eq!(ask(&mut restored, &next), ask(&mut engine, &next));
    assert_eq!(restored.checkpoint(SeqNum(4)), engine.checkpoint(SeqNum(4)));

    let is_info = |label: &Bytes| label.len() == 10 && label[9] == 0;
    let at = chunks.iter().position(|(label, _)| is_info(label)).unwrap();
    let mut without = chunks.clone();
    without.remove(at);
    let mut other = chunks.clone();
    other[at].1 = ClientInfo::new(secret(99).public()).to_bytes();
    for lie in [without, other] {
        let refused = self::engine().restore(&checkpoint, &lie).unwrap_err();
        assert!(
            matches!(refused, RestoreError::Mismatch { what: "client table", .. }),
            "{refused}"
        );
    }
}
