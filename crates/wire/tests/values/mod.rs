//! Values of every type that has an encoding, and changes to valid bytes.

use super::common::SUITE;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use tercio_types::{
    Attested, AttestedKind, Authenticator, Batch, BlockHeader, CertifiedCheckpoint, Checkpoint,
    ClientId, Digest, Epoch, Height, OpKind, Ops, Package, ReplicaId, RequestSeq, SeqNum,
    SignatureBytes, Tag, Timestamp,
};
use tercio_wire::{Frame, Key, Kind, encode_package_content};

pub(crate) fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest)
}

pub(crate) fn signature() -> impl Strategy<Value = SignatureBytes> {
    let length = prop_oneof![4 => Just(64), 1 => 0..=SignatureBytes::MAX];
    length
        .prop_flat_map(|n| vec(any::<u8>(), n))
        .prop_map(|bytes| SignatureBytes::new(&bytes).expect("within the limit"))
}

pub(crate) fn tags() -> impl Strategy<Value = Vec<Tag>> {
    let tag = any::<[u8; 16]>().prop_map(Tag);
    let count = prop_oneof![8 => 1..=10usize, 1 => 1..=tercio_types::MAX_REPLICAS];
    count.prop_flat_map(move |n| vec(tag.clone(), n))
}

pub(crate) fn authenticator() -> impl Strategy<Value = Authenticator> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(|tag| Authenticator::Mac(Tag(tag))),
        tags().prop_map(Authenticator::from),
        signature().prop_map(Authenticator::from),
        (any::<[u128; 2]>(), any::<(u32, u64)>(), 0..3usize, signature()).prop_map(
            |([a, b], (counter, incarnation), kind, certificate)| {
                let kind = AttestedKind::ALL[kind];
                let (value, previous) = match kind {
                    AttestedKind::Independent => (a.max(1), 0),
                    AttestedKind::Continuing => (a.max(b), a.min(b)),
                    AttestedKind::Trusted => (0, 0),
                };
                let attested =
                    Attested { kind, counter, incarnation, value, previous, certificate };
                Authenticator::Attested(Box::new(attested))
            }
        ),
    ]
}

pub(crate) fn byte_strings(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Bytes>> {
    vec(vec(any::<u8>(), 0..24).prop_map(Bytes::from), count)
}

prop_compose! {
    pub(crate) fn package()(
        client in any::<u64>(),
        first in 0..=u64::MAX - 8,
        system in any::<bool>(),
        replier in any::<u16>(),
        ops in byte_strings(1..5),
        auth in authenticator(),
    ) -> Package {
        let (client, first) = (ClientId(client), RequestSeq(first));
        let kind = if system { OpKind::System } else { OpKind::User };
        let replier = ReplicaId(replier);
        let mut content = Vec::new();
        encode_package_content(client, first, kind, replier, &ops, &mut content);
        let digest = tercio_crypto::hash(SUITE, &[&content]);
        let ops = Ops::new(&ops);
        Package { client, first, kind, replier, ops, digest, auth }
    }
}

prop_compose! {
    pub(crate) fn batch()(
        time in any::<u64>(),
        checkpoint in any::<bool>(),
        packages in vec(package(), 0..4),
    ) -> Batch {
        Batch { time: Timestamp(time), checkpoint, packages }
    }
}

prop_compose! {
    pub(crate) fn block_header()(
        (epoch, height, seq, time) in any::<(u64, u64, u64, u64)>(),
        (ops, lag) in any::<(u32, u16)>(),
        [parent, body, results, state] in [digest(), digest(), digest(), digest()],
    ) -> BlockHeader {
        BlockHeader {
            suite: SUITE,
            epoch: Epoch(epoch),
            height: Height(height),
            seq: SeqNum(seq),
            parent,
            body,
            time: Timestamp(time),
            ops,
            lag,
            results,
            state,
        }
    }
}

prop_compose! {
    pub(crate) fn checkpoint()(
        (seq, height, epoch, time) in any::<(u64, u64, u64, u64)>(),
        [block, results, state, clients, membership] in
            [digest(), digest(), digest(), digest(), digest()],
    ) -> Checkpoint {
        Checkpoint {
            seq: SeqNum(seq),
            height: Height(height),
            block,
            results,
            state,
            clients,
            membership,
            epoch: Epoch(epoch),
            time: Timestamp(time),
        }
    }
}

prop_compose! {
    pub(crate) fn certified_checkpoint(signers: std::ops::Range<usize>)(
        checkpoint in checkpoint(),
        signatures in proptest::collection::btree_map(any::<u16>(), signature(), signers),
    ) -> CertifiedCheckpoint {
        let signatures = signatures.into_iter().map(|(r, s)| (ReplicaId(r), s)).collect();
        CertifiedCheckpoint { checkpoint, signatures }
    }
}

prop_compose! {
    pub(crate) fn frame(body: std::ops::Range<usize>)(
        kind in any::<u8>(),
        sender in any::<u16>(),
        (view, seq) in any::<(u64, u64)>(),
        voted in digest(),
        auth in authenticator(),
        body in vec(any::<u8>(), body),
    ) -> Frame {
        let digest =
            if body.is_empty() { voted } else { tercio_crypto::hash(SUITE, &[&body]) };
        let key = Key { kind: Kind(kind), flags: 0, sender, view, seq, digest };
        Frame { key, auth, body: body.into() }
    }
}

/// A change to valid bytes, such as a fault or an attacker makes.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    Flip { at: usize, bit: u8 },
    Set { at: usize, to: u8 },
    Insert { at: usize, byte: u8 },
    Remove { at: usize, count: usize },
    Word { at: usize, to: u32 },
    Repeat { from: usize, count: usize },
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    // The first bytes hold the lengths, counts and flags: they are hit as often as all others.
    let at = || prop_oneof![any::<usize>(), 0..80usize];
    let byte = || prop_oneof![any::<u8>(), 0..4u8];
    let extreme = prop_oneof![
        any::<u32>(),
        0..4u32,
        Just(u32::MAX),
        Just(u32::MAX - 3),
        Just(1 << 31),
        Just(1 << 20),
        Just(1 << 16),
    ];
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (at(), byte()).prop_map(|(at, to)| Mutation::Set { at, to }),
        (at(), byte()).prop_map(|(at, byte)| Mutation::Insert { at, byte }),
        (at(), 1..40usize).prop_map(|(at, count)| Mutation::Remove { at, count }),
        (at(), extreme).prop_map(|(at, to)| Mutation::Word { at, to }),
        (at(), 1..80usize).prop_map(|(from, count)| Mutation::Repeat { from, count }),
    ]
}

pub(crate) fn mutated(bytes: &Bytes, mutations: &[Mutation]) -> Bytes {
    let mut out = bytes.to_vec();
    for mutation in mutations {
        let n = out.len();
        if n == 0 {
            break;
        }
        match *mutation {
            Mutation::Flip { at, bit } => out[at % n] ^= 1 << bit,
            Mutation::Set { at, to } => out[at % n] = to,
            Mutation::Insert { at, byte } => out.insert(at % (n + 1), byte),
            Mutation::Remove { at, count } => {
                let at = at % n;
                out.drain(at..(at + count).min(n));
            }
            Mutation::Word { at, to } => {
                let at = at % n;
                let end = (at + 4).min(n);
                out[at..end].copy_from_slice(&to.to_le_bytes()[..end - at]);
            }
            Mutation::Repeat { from, count } => {
                let from = from % n;
                let copy = out[from..(from + count).min(n)].to_vec();
                out.splice(from..from, copy);
            }
        }
    }
    out.into()
}

pub(crate) fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    vec(mutation(), 1..12)
}
