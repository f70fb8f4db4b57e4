//! The card against the model: the same packets in, the same verdicts, slots and counters out.

use crate::common::{ME, model, prepare, settings};
use tercio_prism::rng::Rng;
use tercio_rtl_cosim::card::{Card, Pressure};
use tercio_rtl_cosim::hostile::Packets;
use tercio_rtl_cosim::{Backend, Network, Settings, Size, Verdict, vote};

/// How willing wire, memory and host are, of 256.
const PRESSURES: [(u64, u64, u64); 4] =
    [(256, 256, 256), (256, 128, 128), (128, 256, 64), (200, 40, 24)];

/// What one run gave.
#[derive(Default)]
struct Tally {
    packets: usize,
    stored: u32,
    dropped: u32,
    up: u32,
}

fn run(seed: u64, direct: bool, attacks: u64, count: usize) -> Tally {
    let network = Network::new(4, 9);
    let mut settings: Settings = settings(direct);
    let mut packets = Packets::new(&network, settings, seed, attacks);
    let (mut card, mut model) = (Card::new(), model(&network, &settings));
    prepare(&mut card, &network, &settings);
    let (wire, memory, host) = PRESSURES[seed as usize % PRESSURES.len()];
    card.pressure = Pressure { wire, memory, host, rng: Rng::new(seed ^ 0x5eed) };
    let mut rng = Rng::new(!seed);
    let mut done = 0;
    while done < count {
        let round = packets.take(500.min(count - done));
        done += round.len();
        let (found, expected) = (card.receive(&round), model.receive(&round));
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            panic!(
                "seed {seed}, packet {at}: {:?}, not {:?}: {:02x?}",
                found[at], expected[at], round[at]
            );
        }
        let up = round.into_iter().zip(expected).filter(|(_, verdict)| verdict.is_up());
        let up: Vec<_> = up.map(|(packet, verdict)| (verdict, packet)).collect();
        assert!(card.take_up() == up, "what went up is what came, with the reason");
        assert!(card.memory() == model.memory(), "seed {seed}: a slot differs");
        // A checkpoint: the window moves on, and slots become free.
        let on = rng.below(100);
        (settings.low, settings.high) = (settings.low + on, settings.high + on);
        packets.set(settings);
        card.set(&settings);
        model.set(&settings);
        for _ in 0..300 {
            let (bucket, slots) = (rng.below(1024) as u32, rng.below(16) as u8);
            card.free(bucket, slots);
            model.free(bucket, slots);
        }
    }
    let counters = card.counters();
    assert_eq!(counters, model.counters());
    let sum = |of: fn(Verdict) -> bool| {
        Verdict::ALL.iter().filter(|v| of(**v)).map(|v| counters[*v as usize]).sum()
    };
    Tally {
        packets: count,
        stored: counters[0],
        dropped: sum(|verdict| verdict != Verdict::Stored && !verdict.is_up()),
        up: sum(Verdict::is_up),
    }
}

/// 100,000 packets in eight runs: both indices, four pressures, few attacks and many.
#[test]
fn its_verdicts_slots_and_counters_are_the_models() {
    let mut all = Tally::default();
    for seed in 0..8 {
        let attacks = if seed % 2 == 0 { 50 } else { 90 };
        let tally = run(seed, seed >= 4, attacks, 12_500);
        all.packets += tally.packets;
        all.stored += tally.stored;
        all.dropped += tally.dropped;
        all.up += tally.up;
    }
    let Tally { packets, stored, dropped, up } = all;
    assert!(packets >= 100_000 && stored > 1000 && dropped > 1000 && up > 1000);
    println!(
        "rtl: {packets} random and hostile packets as the model has them: {stored} stored, \
         {dropped} dropped, {up} up"
    );
}

/// Until the last word of a key's change, the old key holds; from then on the new one.
#[test]
fn a_key_changes_at_once() {
    let (before, after) = (Network::new(4, 9), Network::new(4, 10));
    let settings = settings(false);
    let mut card = Card::new();
    prepare(&mut card, &before, &settings);
    let said = |seq: u64| {
        let mut said = [5; 52];
        said[..4].copy_from_slice(&[17, 0, 1, 0]);
        said[12..20].copy_from_slice(&(settings.low + seq).to_le_bytes());
        said
    };
    let key = after.card_key(1, ME);
    let words: Vec<_> = key.inner.iter().chain(&key.outer).copied().collect();
    (0x10..0x20).zip(&words).for_each(|(address, word)| card.write(address, *word));
    let both = |seq| vec![vote(&before, &said(seq)), vote(&after, &said(seq))];
    assert_eq!(card.receive(&both(1)), [Verdict::Stored, Verdict::BadMac]);
    card.write(0x20, 1 << 16 | 1);
    assert_eq!(card.receive(&both(2)), [Verdict::BadMac, Verdict::Stored]);
    card.set_key(1, None);
    assert_eq!(card.receive(&both(3)), [Verdict::UnknownSender; 2]);
}

/// A replica that restarts: the card remembers no key, and no vote once its slots are freed.
#[test]
fn a_restart_begins_with_an_empty_table() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    let votes = Packets::new(&network, settings, 8, 0).take(40);
    let mut card = Card::new();
    prepare(&mut card, &network, &settings);
    let before = card.receive(&votes);
    let memory = card.memory().to_vec();
    assert!(before.iter().all(|verdict| *verdict == Verdict::Stored));

    card.reset();
    assert_eq!(card.receive(&votes), vec![Verdict::UpOther; votes.len()], "it has no address");
    card.set(&settings);
    assert_eq!(card.receive(&votes), vec![Verdict::UnknownSender; votes.len()]);
    prepare(&mut card, &network, &settings);
    assert_eq!(card.receive(&votes), vec![Verdict::Replay; votes.len()], "the bitmap stayed");
    for bucket in 0..Size::BENCH.buckets {
        card.free(bucket, 0b1111);
    }
    assert_eq!(card.receive(&votes), before);
    assert!(card.memory() == memory, "the same slots, and serial numbers from 1 again");
}

/// A packet longer than all of the card's queues goes through, and so do votes behind it.
#[test]
fn no_packet_is_too_long() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    let mut card = Card::new();
    prepare(&mut card, &network, &settings);
    let mut said = [5; 52];
    said[..4].copy_from_slice(&[17, 0, 1, 0]);
    said[12..20].copy_from_slice(&settings.high.to_le_bytes());
    let good = vote(&network, &said);
    let mut long = good.clone();
    long.resize(64 * 1024, 0);
    let foreign = vec![0xee; 64 * 1024];
    let packets = [long, foreign, good];
    let expected = [Verdict::UpUnusual, Verdict::UpOther, Verdict::Stored];
    assert_eq!(card.receive(&packets), expected);
    let up: Vec<_> = card.take_up().into_iter().map(|(_, packet)| packet).collect();
    assert!(up == packets[..2]);
    assert_eq!(Size::BENCH.bytes(), card.memory().len());
}
