//! The model against the engine: what it says of a packet is what decoding and the keyring say.

use crate::common::{ME, model, prepare, settings};
use bytes::Bytes;
use tercio_crypto::{Claim, Claimed, Keyring, Reject};
use tercio_rtl_cosim::hostile::Packets;
use tercio_rtl_cosim::{Backend, Model, Network, Size, Verdict, vote};
use tercio_types::{Authenticator, Digest, ReplicaId, Suite};
use tercio_wire::{Frame, Key, Kind};

/// A frame's own claim, as the stage of verification makes it.
struct Whole(Frame);

impl Claimed for Whole {
    fn claims(&self, claim: &mut dyn FnMut(Claim<'_>)) {
        let (by, said) = (self.0.key.principal(), self.0.key.to_array());
        claim(Claim { by, said, proof: (&self.0.auth).into() });
    }
}

/// The engine's word on a datagram's payload: nothing when it is no frame, or not a vote.
fn engine(ring: &mut Keyring, payload: &[u8]) -> Option<Result<u64, Reject>> {
    let frame = Frame::decode(&Bytes::copy_from_slice(payload), Suite::default()).ok()?;
    let votes = [Kind(17), Kind(18)].contains(&frame.key.kind);
    if !votes || !frame.body.is_empty() || !matches!(frame.auth, Authenticator::MacVector(_)) {
        return None;
    }
    let seq = frame.key.seq;
    Some(ring.verify(Whole(frame)).map(|_| seq))
}

/// The packets here carry what the engine sends.
#[test]
fn a_vote_is_the_engines_frame() {
    let network = Network::new(4, 9);
    let digest = Digest([6; 32]);
    let key = Key::of_replica(Kind(18), ReplicaId(3), 5, 77, digest);
    let auth = network.ring(3).mac_vector(&key.to_array());
    let frame = Frame { key, auth, body: Bytes::new() }.to_bytes();
    assert_eq!(vote(&network, &key.to_array())[42..], frame);
}

#[test]
fn its_verdicts_are_the_engines() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    let mut ring = network.ring(ME).clone();
    let mut model = model(&network, &settings);
    let packets = Packets::new(&network, settings, 1, 60).take(20_000);
    let mut seen = std::collections::BTreeMap::new();
    for packet in &packets {
        let verdict = model.take(packet);
        *seen.entry(verdict).or_insert(0) += 1;
        if matches!(verdict, Verdict::UpOther | Verdict::UpUnusual) {
            continue;
        }
        let said = engine(&mut ring, &packet[42..]);
        match verdict {
            Verdict::Malformed | Verdict::UpNotAVote => assert_eq!(said, None),
            Verdict::UnknownSender => assert!(
                matches!(
                    said,
                    None | Some(Err(Reject::UnknownReplica(_) | Reject::UnknownClient(_)))
                ),
                "{said:?}"
            ),
            Verdict::BadMac => assert!(matches!(said, Some(Err(Reject::BadMac(_)))), "{said:?}"),
            Verdict::Stale | Verdict::Ahead => assert!(said.is_some()),
            _ => {
                let seq = said.expect("a vote").expect("authentic");
                assert!((settings.low + 1..=settings.high).contains(&seq));
            }
        }
    }
    // Each verdict was given, and often enough to say something.
    for verdict in Verdict::ALL {
        assert!(seen.get(&verdict).is_some_and(|count| *count >= 20), "{seen:?}");
    }
}

/// A replica cannot fill another one's buckets where the index is direct; by Murmur3 it can, and
/// what finds no room goes up, so that no vote is lost.
#[test]
fn a_bucket_that_is_flooded_loses_no_vote() {
    let network = Network::new(4, 9);
    let mut said = [0; 52];
    said[0] = 17;
    said[12..20].copy_from_slice(&(settings(false).low + 7).to_le_bytes());
    for direct in [false, true] {
        let settings = settings(direct);
        let mut model = model(&network, &settings);
        let bucket = Size::BENCH.bucket(&settings, said.first_chunk().unwrap());
        // Replica 1 makes up views until its votes fall where replica 0's will.
        let mut flood = said;
        flood[2] = 1;
        let mut sent = 0;
        for view in 1..100_000u64 {
            flood[4..12].copy_from_slice(&view.to_le_bytes());
            if direct || Size::BENCH.bucket(&settings, flood.first_chunk().unwrap()) == bucket {
                let full = sent >= 4;
                let expected = if full { Verdict::UpOverflow } else { Verdict::Stored };
                assert_eq!(model.take(&vote(&network, &flood)), expected);
                sent += 1;
                if sent == 8 {
                    break;
                }
            }
        }
        assert_eq!(sent, 8);
        let honest = model.take(&vote(&network, &said));
        assert_eq!(honest, if direct { Verdict::Stored } else { Verdict::UpOverflow });
        if !direct {
            model.free(bucket, 0b1111);
            assert_eq!(model.take(&vote(&network, &said)), Verdict::Stored);
        }
    }
}

#[test]
fn without_a_key_nobody_is_believed() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    let mut model = Model::new(Size::BENCH, settings, network.ring(ME).clone());
    let mut said = [3; 52];
    said[..4].copy_from_slice(&[18, 0, 3, 0]);
    said[12..20].copy_from_slice(&settings.high.to_le_bytes());
    let packet = vote(&network, &said);
    assert_eq!(model.take(&packet), Verdict::UnknownSender);
    prepare(&mut model, &network, &settings);
    assert_eq!(model.take(&packet), Verdict::Stored);
    model.set_key(3, None);
    assert_eq!(model.take(&packet), Verdict::UnknownSender);
}
