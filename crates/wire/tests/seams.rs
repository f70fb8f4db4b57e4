//! Shapes that later parts stand on (`ARCHITECTURE.md`, the eleven seams). Patterns without `..`
//! name every field: a field that comes or goes does not compile until it is thought over here.

use crate::common;

use bytes::Bytes;
use tercio_types::{
    AttestedKind, Authenticator, Batch, BlockHeader, Checkpoint, Digest, MAX_REPLICAS, Principal,
    ReplicaId, SignatureBytes, Tag, Timestamp,
};
use tercio_wire::{
    AUTHENTICATED, Encode, EncodedBatch, FRAME_HEADER, Frame, FrameHeader, Key, Kind, block_hash,
    checkpoint_key,
};

/// Seam 4: a header holds nothing that replicas could see differently (a view, a certificate, a
/// local time), and a batch holds nothing of its place: the same batch under another parent is
/// another block with the same body.
#[test]
fn a_batch_keeps_its_digest_under_another_parent() {
    let Batch { time: _, checkpoint: _, packages: _ } = Batch::default();
    let one = common::block_header();
    let BlockHeader {
        suite: _,
        epoch: _,
        height: _,
        seq: _,
        parent: _,
        body: _,
        time: _,
        ops: _,
        lag: _,
        results: _,
        state: _,
    } = one;
    let batch = Batch { time: Timestamp(1), ..Batch::default() };
    let body = EncodedBatch::new(batch, common::SUITE).digest;
    let under = |parent| BlockHeader { parent: Digest([parent; 32]), body, ..one.clone() };
    assert_eq!(under(1).body, under(2).body);
    assert_ne!(block_hash(&under(1)), block_hash(&under(2)));
}

/// Seam 3: what a checkpoint signs. Each part changes what is signed.
#[test]
fn every_part_of_a_checkpoint_is_signed() {
    let checkpoint = common::checkpoint();
    let Checkpoint {
        seq: _,
        height: _,
        block: _,
        results: _,
        state: _,
        clients: _,
        membership: _,
        epoch: _,
        time: _,
    } = checkpoint;
    let signed = |c: &Checkpoint| checkpoint_key(common::SUITE, ReplicaId(0), c).to_array();
    let changes: [fn(&mut Checkpoint); 9] = [
        |c| c.seq.0 ^= 1,
        |c| c.height.0 ^= 1,
        |c| c.block.0[31] ^= 1,
        |c| c.results.0[31] ^= 1,
        |c| c.state.0[31] ^= 1,
        |c| c.clients.0[31] ^= 1,
        |c| c.membership.0[31] ^= 1,
        |c| c.epoch.0 ^= 1,
        |c| c.time.0 ^= 1,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut other = checkpoint.clone();
        change(&mut other);
        assert_ne!(signed(&other), signed(&checkpoint), "part {i} is not signed");
    }
}

/// Seam 7: a vote is one frame that says all by itself: who, what, in which view, for which
/// number, and its proof, at fixed places, without a body. It fits one datagram: one packet of
/// Ethernet up to 88 replicas, one of UDP for any number.
#[test]
fn a_vote_is_self_contained_and_fits_one_datagram() {
    const ETHERNET: usize = 1472;
    const UDP: usize = 65_507;
    let vote = |n: usize| {
        let key = Key::of_replica(Kind(Kind::PROTOCOL + 1), ReplicaId(1), 2, 3, Digest([4; 32]));
        let auth = Authenticator::from(vec![Tag([5; 16]); n]);
        Frame { key, auth, body: Bytes::new() }.to_bytes()
    };
    for n in 1..=MAX_REPLICAS {
        let bytes = vote(n);
        assert_eq!(bytes.len(), FRAME_HEADER + AUTHENTICATED + 16 * n);
        assert!(bytes.len() <= if n <= 88 { ETHERNET } else { UDP }, "n = {n}");
        let header = FrameHeader::peek(&bytes).unwrap().unwrap();
        assert_eq!(header.frame_len(), bytes.len());
        let frame = Frame::decode(&bytes, common::SUITE).unwrap();
        assert_eq!(frame.key.principal(), Principal::Replica(ReplicaId(1)));
        // Where a card finds its own tag, without parsing anything.
        let at = FRAME_HEADER + AUTHENTICATED + 16 * (n - 1);
        assert_eq!(bytes[at..at + 16], [5; 16]);
    }
}

/// Seams 8 and 9: how a sender can show itself, and signatures of any scheme's length.
#[test]
fn authenticators_and_signatures_fix_no_scheme() {
    let long = SignatureBytes::new(&[7; 256]).expect("RSA-2048's length");
    assert_eq!(long.as_slice().len(), 256);
    assert_eq!(SignatureBytes::new(&[7; 257]), None);
    for auth in [
        Authenticator::Mac(Tag::default()),
        vec![Tag::default(); 4].into(),
        long.into(),
        Authenticator::Attested(Box::new(common::attested(AttestedKind::Independent, long))),
    ] {
        // No wildcard: a further kind is thought over here.
        let kind = match auth {
            Authenticator::Mac(_) => 1,
            Authenticator::MacVector(_) => 2,
            Authenticator::Signature(_) => 3,
            Authenticator::Attested(_) => 4,
        };
        assert_eq!(common::Auth(auth).to_bytes()[0], kind);
    }
}
