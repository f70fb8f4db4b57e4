//! Replicas by hand: they check what a client says and answer it, without agreeing on anything.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod running;
pub mod world;

use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey, hash};
use tercio_types::{
    Authenticator, ChainId, ClientId, ClientInfo, Digest, Epoch, FaultModel, Member, Membership,
    OpKind, Package, Principal, ReplicaId, RequestSeq, Suite,
};
use tercio_wire::reject::{Reason, Reject};
use tercio_wire::{
    Encode, Frame, Key, Kind, OpResult, Received, Reply, Request, encode_replies, encode_results,
    results_digest,
};

pub const ME: ClientId = ClientId(5);

/// What names our results of a package.
fn digest_of(first: RequestSeq, body: &Bytes) -> Digest {
    results_digest(Suite::default(), ME, first, body).unwrap()
}

pub fn secret(who: Principal) -> SecretKey {
    SecretKey::from_seed(match who {
        Principal::Replica(id) => [id.0 as u8; 32],
        Principal::Client(id) => [100 + id.0 as u8; 32],
    })
}

/// `n` replicas at `addresses` (or nowhere), and client 5.
pub fn membership(n: usize, addresses: &[String]) -> Arc<Membership> {
    let members = (0..n)
        .map(|i| Member {
            key: secret(Principal::Replica(ReplicaId(i as u16))).public(),
            address: addresses.get(i).cloned().unwrap_or_default(),
        })
        .collect();
    let clients = [(ME, ClientInfo::new(secret(Principal::Client(ME)).public()))];
    let model = FaultModel::Byzantine;
    let chain = ChainId([3; 32]);
    let made = Membership::new(chain, Epoch(0), Suite::default(), model, members, clients.into());
    Arc::new(made.unwrap())
}

pub fn digest(bytes: &[u8]) -> Digest {
    hash(Suite::default(), &[bytes])
}

/// What executing `ops` gives.
pub fn results(ops: &[Bytes]) -> Vec<OpResult> {
    let done = |op: &Bytes| OpResult::Executed([b"did ", &op[..]].concat().into());
    ops.iter().map(done).collect()
}

pub struct Replica {
    pub id: ReplicaId,
    pub keys: Keyring,
    pub view: u64,
    answered: BTreeSet<RequestSeq>,
}

impl Replica {
    pub fn new(i: usize, membership: &Arc<Membership>) -> Self {
        let id = ReplicaId(i as u16);
        let me = Principal::Replica(id);
        let keys = Keyring::new(me, secret(me), membership.clone(), Instance::default());
        Self { id, keys, view: 0, answered: BTreeSet::new() }
    }

    /// Any frame to the client, properly authenticated.
    pub fn say(&mut self, kind: Kind, seq: u64, digest: Digest, body: Bytes) -> Bytes {
        let key = Key::of_replica(kind, self.id, self.view, seq, digest);
        let tag = self.keys.tag(Principal::Client(ME), &key.to_array()).unwrap();
        Frame { key, auth: Authenticator::Mac(tag), body }.to_bytes()
    }

    /// A reply with the bytes.
    pub fn full(&mut self, first: RequestSeq, results: &[OpResult]) -> Bytes {
        let body = encode_results(results);
        self.reply(first, digest_of(first, &body), body)
    }

    /// A reply with the digest only.
    pub fn brief(&mut self, first: RequestSeq, results: &[OpResult]) -> Bytes {
        self.reply(first, digest_of(first, &encode_results(results)), Bytes::new())
    }

    /// A REPLY with one entry.
    pub fn reply(&mut self, first: RequestSeq, digest: Digest, results: Bytes) -> Bytes {
        self.replies(&[Reply { first, digest, results }])
    }

    /// A REPLY with these entries.
    pub fn replies(&mut self, replies: &[Reply]) -> Bytes {
        let mut body = Vec::new();
        let digest = encode_replies(replies, Suite::default(), &mut Vec::new(), &mut body);
        self.say(Kind::REPLY, replies[0].first.0, digest, body.into())
    }

    pub fn reject(&mut self, first: RequestSeq, reason: Reason, retry_after_ms: u32) -> Bytes {
        let body = Reject { reason, retry_after_ms }.to_bytes();
        self.say(Kind::REJECT, first.0, digest(&body), body)
    }

    /// Reads a package and checks that it is the client's.
    pub fn read(&mut self, bytes: &Bytes) -> Package {
        let frame = Frame::decode(bytes, Suite::default()).unwrap();
        let request = Received::<Request>::from_frame(frame, Suite::default()).unwrap();
        self.keys.verify(request).unwrap().into_inner().message.0
    }

    /// Whether it has answered this package before.
    pub fn knows(&mut self, bytes: &Bytes) -> bool {
        let first = self.read(bytes).first;
        self.answered.contains(&first)
    }

    /// Answers as the contract says: the replier in full, the others briefly, and whoever is asked
    /// again in full.
    pub fn serve(&mut self, bytes: &Bytes) -> Bytes {
        let frame = Frame::decode(bytes, Suite::default()).unwrap();
        if frame.key.kind == Kind::QUERY {
            let answer: Bytes = [b"seen ", &frame.body[..]].concat().into();
            return self.say(Kind::ANSWER, frame.key.seq, digest(&answer), answer);
        }
        let package = self.read(bytes);
        let results = match package.kind {
            OpKind::User => results(&package.numbered().map(|(_, op)| op).collect::<Vec<_>>()),
            OpKind::System => vec![OpResult::Unsupported; package.ops.len()],
            OpKind::Read => vec![OpResult::Declined(Bytes::from_static(b"no such thing"))],
        };
        let again = !self.answered.insert(package.first);
        if again || package.replier == self.id {
            self.full(package.first, &results)
        } else {
            self.brief(package.first, &results)
        }
    }
}
