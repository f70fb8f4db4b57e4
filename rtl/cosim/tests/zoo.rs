//! Each defence of the card is missed when it is taken out. Needs a build with the feature `zoo`:
//! the card of other builds has no such switch.

#![allow(clippy::print_stdout, reason = "the lane `rtl` reports the figures")]

mod common;

use common::{ME, model, prepare, settings};
use sha2::block_api::compress256;
use tercio_rtl_cosim::card::Card;
use tercio_rtl_cosim::{Backend, Defence, Network, Settings, Size, Verdict, datagram, vote};

/// 52 bytes of replica 1 with this view and number above the low watermark.
fn said(settings: &Settings, view: u64, above: u64) -> [u8; 52] {
    let mut said = [5; 52];
    said[..4].copy_from_slice(&[17, 0, 1, 0]);
    said[4..12].copy_from_slice(&view.to_le_bytes());
    said[12..20].copy_from_slice(&(settings.low + above).to_le_bytes());
    said
}

/// Of a packet, its payload.
fn payload(packet: &[u8]) -> Vec<u8> {
    packet[42..].to_vec()
}

/// The tag under midstates that are all zeros: what a card that does not ask for a key computes.
fn tag_of_no_key(said: &[u8; 52]) -> [u8; 16] {
    let block = |bytes: &[u8], bits: u64| {
        let mut block = [0; 64];
        block[..bytes.len()].copy_from_slice(bytes);
        block[bytes.len()] = 0x80;
        block[56..].copy_from_slice(&bits.to_be_bytes());
        block
    };
    let (mut inner, mut outer) = ([0; 8], [0; 8]);
    compress256(&mut inner, &[block(said, 928)]);
    let inside: Vec<u8> = inner.iter().flat_map(|word| word.to_be_bytes()).collect();
    compress256(&mut outer, &[block(&inside, 768)]);
    let tag: Vec<u8> = outer.iter().flat_map(|word| word.to_be_bytes()).take(16).collect();
    tag.try_into().expect("16 bytes")
}

/// Packets of which the last gets through, or out of its place, without the defence; what the card
/// says of it with the defence, and what without.
fn attack(
    defence: Defence,
    network: &Network,
    settings: &Settings,
) -> (Vec<Vec<u8>>, Verdict, Verdict) {
    let good = vote(network, &said(settings, 0, 9));
    let changed = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    let stored = Verdict::Stored;
    match defence {
        Defence::Vlan => (vec![changed(12, 0x81)], Verdict::UpUnusual, stored),
        Defence::Fragment => (vec![changed(20, 0x20)], Verdict::UpUnusual, stored),
        Defence::Frame => (vec![changed(46, 9)], Verdict::Malformed, stored),
        Defence::Lengths => {
            // The tag of the packet before would do for one that is cut before its own.
            let cut = good[..110].to_vec();
            (vec![good, cut], Verdict::Malformed, Verdict::Replay)
        }
        Defence::Sender => {
            let mut forged = said(settings, 0, 9);
            forged[2] = 11;
            let mut frame = payload(&vote(network, &said(settings, 0, 9)));
            frame[12..64].copy_from_slice(&forged);
            frame[64 + 16 * usize::from(ME)..][..16].copy_from_slice(&tag_of_no_key(&forged));
            (vec![datagram(&frame)], Verdict::UnknownSender, stored)
        }
        Defence::Watermark => (vec![vote(network, &said(settings, 0, 0))], Verdict::Stale, stored),
        Defence::Count => {
            let mut frame = payload(&good);
            frame.resize(frame.len() + 16, 0);
            frame[0] += 16;
            frame[6] += 16;
            (vec![datagram(&frame)], Verdict::BadMac, stored)
        }
        Defence::Mac => {
            let at = 106 + 16 * usize::from(ME);
            (vec![changed(at, good[at] ^ 1)], Verdict::BadMac, stored)
        }
        Defence::Overflow => {
            let here = |view: &u64| {
                let said = said(settings, *view, 9);
                Size::BENCH.bucket(settings, said.first_chunk().expect("a key")) == 3
            };
            let views = (0..).filter(here).take(5);
            let votes = views.map(|view| vote(network, &said(settings, view, 9))).collect();
            (votes, Verdict::UpOverflow, stored)
        }
        Defence::Double => {
            let mut other = said(settings, 0, 9);
            other[51] ^= 1;
            (vec![good, vote(network, &other)], Verdict::UpDouble, stored)
        }
        Defence::Replay => (vec![good.clone(), good], Verdict::Replay, stored),
    }
}

#[test]
fn every_defence_is_missed_when_it_is_taken_out() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    for defence in Defence::ALL {
        let (packets, with, without) = attack(defence, &network, &settings);
        let mut verdicts = [vec![], vec![defence]].map(|out| {
            let mut card = Card::new();
            prepare(&mut card, &network, &settings);
            card.take_out(&out);
            card.receive(&packets)
        });
        let expected = model(&network, &settings).receive(&packets);
        assert_eq!(verdicts[0], expected, "{defence:?} stands");
        let last = verdicts.each_mut().map(|all| all.pop());
        assert_eq!(last, [Some(with), Some(without)], "{defence:?}");
        println!(
            "rtl-zoo: without {defence:?} the card says {}, not {}",
            without.name(),
            with.name()
        );
    }
}
