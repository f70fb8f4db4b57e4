//! Records the traces of `rtl/traces` into a folder: `rtl-record FOLDER`.

use std::path::Path;
use tercio_prism::rng::Rng;
use tercio_rtl_cosim::card::{Card, Pressure};
use tercio_rtl_cosim::hostile::Packets;
use tercio_rtl_cosim::trace::Recorder;
use tercio_rtl_cosim::{ADDRESS, Network, PORT, Settings};

const COMMENT: &str =
    "What the card of rtl/ made of these packets (rtl/cosim/src/trace.rs). Recorded by
cargo run -p tercio-rtl-cosim --features verilator --bin rtl-record rtl/traces";

const ME: u8 = 1;

/// Rounds of packets; behind each the window moves and slots become free, in the third the keys
/// change, in the fourth one is forgotten.
fn record(n: u8, direct: bool, attacks: u64, seed: u64) -> String {
    let mut card = Card::new();
    card.pressure = Pressure { wire: 200, memory: 100, host: 60, rng: Rng::new(seed) };
    let mut recorder = Recorder::new(card, COMMENT);
    let mut settings = Settings {
        address: ADDRESS,
        port: PORT,
        kinds: 0b110,
        members: n,
        place: ME,
        low: 500,
        high: 900,
        seed: seed as u32,
        direct,
        base: 1 << 32,
    };
    let mut rng = Rng::new(!seed);
    for round in 0..5u64 {
        let key_seed = 9 + u8::from(round >= 3);
        let network = Network::new(n, key_seed);
        if round == 0 || round == 3 {
            recorder.network(n, key_seed, ME);
        }
        if round == 4 {
            recorder.forget(0);
        }
        recorder.set(&settings);
        // The long ones are in the simulations; here they would only be long.
        let mut packets = Packets::new(&network, settings, seed + round, attacks).take(42);
        packets.retain(|packet| packet.len() <= 512);
        recorder.packets(packets);
        for _ in 0..40 {
            recorder.free(rng.below(1024) as u32, rng.below(16) as u8);
        }
        settings.low += 50;
        settings.high += 50;
    }
    recorder.finish()
}

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1);
    let folder = folder.ok_or_else(|| std::io::Error::other("usage: rtl-record FOLDER"))?;
    std::fs::create_dir_all(&folder)?;
    for (name, text) in [
        ("votes.trace", record(4, false, 5, 1)),
        ("direct.trace", record(7, true, 40, 2)),
        ("hostile.trace", record(4, false, 90, 3)),
    ] {
        std::fs::write(Path::new(&folder).join(name), text)?;
    }
    Ok(())
}
