//! What the card takes in cycles. No clock of this machine is asked: the figures are exact.

use crate::common::{ME, settings};
use tercio_prism::rng::Rng;
use tercio_rtl_cosim::card::{Card, Pressure};
use tercio_rtl_cosim::hostile::Packets;
use tercio_rtl_cosim::{Backend, Network, Settings, Verdict, vote};

/// The clock that figures in time are stated at: that of Yang et al. (2.2). It is an assumption:
/// nothing here places and routes.
const CLOCK_MHZ: f64 = 200.0;

fn card(network: &Network, settings: &Settings) -> Card {
    let mut card = Card::new();
    card.set(settings);
    for sender in 0..network.n() {
        card.set_key(sender.into(), Some(&network.card_key(sender, ME)));
    }
    card
}

/// Cycles a packet, from the first verdict to the last: the pipeline is full then.
fn cycles(card: &mut Card, packets: &[Vec<u8>]) -> f64 {
    let given = card.run(packets);
    let verified = given.iter().filter(|given| given.verdict.is_verified()).count();
    assert_eq!(verified, packets.len(), "each costs a MAC");
    let (first, last) = (given[0].decided, given[given.len() - 1].decided);
    (last - first) as f64 / (given.len() - 1) as f64
}

/// Sustained with everybody ready, with memory and host ready in half of the cycles, with all votes
/// in one bucket, and with one vote over and over; for 4 replicas and for 16.
#[test]
fn a_vote_each_8_cycles_under_back_pressure() {
    for n in [4, 16] {
        let network = Network::new(n, 9);
        let settings = Settings { members: n, ..settings(false) };
        let votes = Packets::new(&network, settings, 3, 0).take(2000);
        let replayed = vec![votes[0].clone(); 2000];
        let flood = one_bucket(&network, &settings, 2000);
        let half = Pressure { wire: 256, memory: 128, host: 256, rng: Rng::new(5) };
        for (what, packets, pressure) in [
            ("no back-pressure", &votes, Pressure::none()),
            ("memory ready in half of the cycles", &votes, half),
            ("one vote replayed", &replayed, Pressure::none()),
            ("all votes in one bucket", &flood, Pressure::none()),
        ] {
            let mut card = card(&network, &settings);
            card.pressure = pressure;
            let cycles = cycles(&mut card, packets);
            assert!(cycles <= 8.0, "n = {n}, {what}: {cycles} cycles a vote");
            println!(
                "rtl: n = {n}, {what}: {cycles:.2} cycles a vote, {:.1} M/s at {CLOCK_MHZ} MHz",
                CLOCK_MHZ / cycles
            );
        }
    }
}

/// Good votes of one replica that fall into one bucket.
fn one_bucket(network: &Network, settings: &Settings, count: usize) -> Vec<Vec<u8>> {
    let size = tercio_rtl_cosim::Size::BENCH;
    let mut said = [9; 52];
    said[..4].copy_from_slice(&[18, 0, 1, 0]);
    said[12..20].copy_from_slice(&settings.high.to_le_bytes());
    let mut views = 0u64..;
    let mut next = || {
        let view = views.by_ref().find(|view| {
            said[4..12].copy_from_slice(&view.to_le_bytes());
            size.bucket(settings, said.first_chunk().expect("a key")) == 77
        });
        said[4..12].copy_from_slice(&view.expect("they do not end").to_le_bytes());
        vote(network, &said)
    };
    (0..count).map(|_| next()).collect()
}

/// One vote alone: from its last beat to the write that publishes its slot.
#[test]
fn a_vote_alone_takes_less_than_a_microsecond() {
    let network = Network::new(4, 9);
    let settings = settings(false);
    let mut card = card(&network, &settings);
    let vote = Packets::new(&network, settings, 3, 0).take(1);
    let given = card.run(&vote)[0];
    assert_eq!(given.verdict, Verdict::Stored);
    let cycles = given.decided - given.arrived;
    let time = cycles as f64 * 1000.0 / CLOCK_MHZ;
    assert!(time < 1000.0, "{time} ns");
    println!("rtl: a vote alone: {cycles} cycles, {time:.0} ns at {CLOCK_MHZ} MHz");
}
