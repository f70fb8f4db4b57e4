//! The card of `rtl/`, simulated a cycle at a time, with host memory and a host beside it.

use crate::network::INITIAL;
use crate::table::Size;
use crate::{Backend, Defence, Midstates, Settings, Verdict};
use tercio_prism::rng::Rng;
use tercio_unsafe_rtl::{Bench, Inputs, Outputs};

/// With nothing handed over in so many cycles the card has stopped for good.
const STUCK: u64 = 20_000;

/// How willing the world around the card is: in how many of 256 cycles a neighbour is ready.
#[derive(Clone, Debug)]
pub struct Pressure {
    /// The wire has a beat.
    pub wire: u64,
    /// Host memory takes a write.
    pub memory: u64,
    /// The host takes a beat of a packet.
    pub host: u64,
    /// Chooses the cycles.
    pub rng: Rng,
}

impl Pressure {
    /// Everybody is always ready.
    #[must_use]
    pub fn none() -> Self {
        Self { wire: 256, memory: 256, host: 256, rng: Rng::new(0) }
    }

    fn ready(&mut self, share: u64) -> u8 {
        u8::from(self.rng.below(256) < share)
    }
}

/// A verdict, and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// What became of the packet.
    pub verdict: Verdict,
    /// In which cycle its last beat was taken.
    pub arrived: u64,
    /// In which cycle the verdict stood; a stored vote's slot is complete then.
    pub decided: u64,
}

/// The card and what is around it.
#[derive(Debug)]
pub struct Card {
    bench: Bench,
    base: u64,
    memory: Vec<u8>,
    cycle: u64,
    /// How willing its neighbours are.
    pub pressure: Pressure,
    /// The packets that went up, with the reasons, since the last call of [`Self::take_up`].
    up: Vec<(Verdict, Vec<u8>)>,
    coming_up: Vec<u8>,
}

impl Default for Card {
    fn default() -> Self {
        Self::new()
    }
}

impl Card {
    /// A card behind its reset, which knows no settings and no keys.
    #[must_use]
    pub fn new() -> Self {
        let mut card = Self {
            bench: Bench::new(),
            base: 0,
            memory: vec![0; Size::BENCH.bytes()],
            cycle: 0,
            pressure: Pressure::none(),
            up: Vec::new(),
            coming_up: Vec::new(),
        };
        card.reset();
        card
    }

    /// Resets the card; host memory begins as zeros again, as that of a replica that restarts.
    pub fn reset(&mut self) {
        for _ in 0..4 {
            self.step(&Inputs { reset: 1, ..Inputs::default() });
        }
        self.memory.fill(0);
    }

    fn step(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        self.bench.cycle(inputs, &mut outputs);
        self.cycle += 1;
        outputs
    }

    /// Writes a register.
    pub fn write(&mut self, address: u8, data: u32) {
        let (config_address, config_data) = (address, data);
        let inputs = Inputs { config_valid: 1, config_address, config_data, ..Inputs::default() };
        for _ in 0..STUCK {
            if self.step(&inputs).config_ready == 1 {
                return;
            }
        }
        panic!("the card takes no settings");
    }

    /// Takes these defences out; only a build with the feature `zoo` has the register.
    pub fn take_out(&mut self, defences: &[Defence]) {
        let bits = defences.iter().fold(0, |bits, defence| bits | 1 << *defence as u32);
        self.write(0x3f, bits);
    }

    /// The packets that went up since the last call, with the reasons.
    pub fn take_up(&mut self) -> Vec<(Verdict, Vec<u8>)> {
        std::mem::take(&mut self.up)
    }

    /// Packets through the card, back to back as far as the neighbours let them, and when what
    /// became of each was known. Ends when all that goes up is up.
    ///
    /// # Panics
    /// When the card stands still.
    pub fn run(&mut self, packets: &[Vec<u8>]) -> Vec<Given> {
        let mut beats = packets.iter().flat_map(|packet| {
            let count = packet.len().div_ceil(64);
            packet.chunks(64).enumerate().map(move |(i, beat)| (beat, i + 1 == count))
        });
        let mut offered = beats.next();
        let mut arrived = Vec::with_capacity(packets.len());
        let mut given: Vec<Given> = Vec::with_capacity(packets.len());
        let (mut expected_up, mut got_up, mut moved) = (0, 0, self.cycle);
        let mut on_wire = false;
        while arrived.len() < packets.len() || given.len() < packets.len() || got_up < expected_up {
            let mut inputs = Inputs {
                write_ready: self.pressure.ready(self.pressure.memory),
                up_ready: self.pressure.ready(self.pressure.host),
                ..Inputs::default()
            };
            // What was offered stays until it is taken.
            on_wire |= offered.is_some() && self.pressure.ready(self.pressure.wire) == 1;
            if let (Some((beat, last)), true) = (offered, on_wire) {
                inputs.in_valid = 1;
                // Lanes behind the packet's end may hold anything.
                inputs.in_data = [0xa5; 64];
                inputs.in_data[..beat.len()].copy_from_slice(beat);
                inputs.in_bytes = beat.len() as u8;
                inputs.in_last = u8::from(last);
            }
            let now = self.cycle;
            let outputs = self.step(&inputs);
            if inputs.in_valid & outputs.in_ready == 1 {
                if inputs.in_last == 1 {
                    arrived.push(now);
                }
                (offered, on_wire, moved) = (beats.next(), false, now);
            }
            if outputs.write_valid & inputs.write_ready == 1 {
                self.carry_write(&outputs);
                moved = now;
            }
            if outputs.up_valid & inputs.up_ready == 1 {
                got_up += u64::from(self.carry_up(&outputs));
                moved = now;
            }
            if outputs.verdict_valid == 1 {
                let verdict = Verdict::from_number(outputs.verdict).expect("a known verdict");
                expected_up += u64::from(verdict.is_up());
                given.push(Given { verdict, arrived: 0, decided: now });
            }
            assert!(self.cycle - moved < STUCK, "the card stands still at {}", given.len());
        }
        given.iter_mut().zip(arrived).for_each(|(given, at)| given.arrived = at);
        given
    }

    fn carry_write(&mut self, outputs: &Outputs) {
        let offset = outputs.write_address.checked_sub(self.base);
        let at = offset.expect("no write lies before the table") as usize;
        let room = self.memory.get_mut(at..at + 64).expect("no write lies behind the table");
        room.copy_from_slice(&outputs.write_data);
    }

    fn carry_up(&mut self, outputs: &Outputs) -> bool {
        self.coming_up.extend_from_slice(&outputs.up_data[..usize::from(outputs.up_bytes)]);
        if outputs.up_last == 1 {
            let verdict = Verdict::from_number(outputs.up_verdict).expect("a known verdict");
            self.up.push((verdict, std::mem::take(&mut self.coming_up)));
        }
        outputs.up_last == 1
    }

    /// SHA-256 of a message by the single core beside the card, and the cycles from a block's start
    /// to the next block's.
    pub fn sha256(&mut self, message: &[u8]) -> ([u8; 32], Vec<u64>) {
        let mut padded = message.to_vec();
        padded.push(0x80);
        padded.resize(padded.len().next_multiple_of(64), 0);
        if padded.len() < message.len() + 9 {
            padded.resize(padded.len() + 64, 0);
        }
        let at = padded.len() - 8;
        padded[at..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
        let (mut chain, mut cycles) = (INITIAL, Vec::new());
        for block in padded.as_chunks::<64>().0 {
            let words = block.as_chunks::<4>().0;
            let sha_block = std::array::from_fn(|i| u32::from_be_bytes(words[i]));
            let inputs = Inputs { sha_valid: 1, sha_chain: chain, sha_block, ..Inputs::default() };
            let start = self.cycle;
            assert_eq!(self.step(&inputs).sha_ready, 1, "an idle core takes a block");
            chain = loop {
                let outputs = self.step(&Inputs::default());
                if outputs.sha_done == 1 {
                    break outputs.sha_digest;
                }
                assert!(self.cycle - start < STUCK, "the core stands still");
            };
            // The next block could have been taken in the cycle in which this one was done.
            cycles.push(self.cycle - 1 - start);
        }
        let mut digest = [0; 32];
        digest.as_chunks_mut::<4>().0.iter_mut().zip(chain).for_each(|(to, word)| {
            *to = word.to_be_bytes();
        });
        (digest, cycles)
    }

    /// The tag of 52 bytes by the single engine beside the card, and the cycles that it took.
    pub fn hmac(&mut self, key: &Midstates, said: &[u8; 52]) -> ([u8; 16], u64) {
        let (mac_inner, mac_outer) = (key.inner, key.outer);
        let inputs =
            Inputs { mac_valid: 1, mac_said: *said, mac_inner, mac_outer, ..Inputs::default() };
        let start = self.cycle;
        assert_eq!(self.step(&inputs).mac_ready, 1, "an idle engine takes a job");
        loop {
            let outputs = self.step(&Inputs::default());
            if outputs.mac_done == 1 {
                return (outputs.mac_tag, self.cycle - 1 - start);
            }
            assert!(self.cycle - start < STUCK, "the engine stands still");
        }
    }

    /// Murmur3 of keys, back to back, by the single unit beside the card, and the cycles a key.
    pub fn murmur3(&mut self, seed: u32, keys: &[[u8; 20]]) -> (Vec<u32>, f64) {
        let (start, mut next, mut hashes) = (self.cycle, 0, Vec::new());
        while hashes.len() < keys.len() {
            let mut inputs = Inputs { hash_seed: seed, ..Inputs::default() };
            if let Some(key) = keys.get(next) {
                (inputs.hash_valid, inputs.hash_key) = (1, *key);
            }
            let outputs = self.step(&inputs);
            next += usize::from(inputs.hash_valid & outputs.hash_ready);
            if outputs.hash_done == 1 {
                hashes.push(outputs.hash_value);
            }
            assert!(self.cycle - start < STUCK + 100 * keys.len() as u64, "the hash stands still");
        }
        (hashes, (self.cycle - start) as f64 / keys.len() as f64)
    }
}

impl Backend for Card {
    fn set(&mut self, settings: &Settings) {
        let [low, high] =
            [settings.low, settings.high].map(|mark| [mark as u32, (mark >> 32) as u32]);
        self.base = settings.base;
        let kinds_port = u32::from(u16::from_le_bytes(settings.port.to_be_bytes()));
        let members = u32::from(settings.members) << 8 | u32::from(settings.place);
        let registers = [
            (0x00, u32::from(settings.direct)),
            (0x01, u32::from_le_bytes(settings.address)),
            (0x02, kinds_port),
            (0x03, members),
            (0x04, low[0]),
            (0x05, low[1]),
            (0x06, high[0]),
            (0x07, high[1]),
            (0x08, 0),
            (0x09, settings.kinds),
            (0x0a, settings.seed),
            (0x0b, settings.base as u32),
            (0x0c, (settings.base >> 32) as u32),
        ];
        for (address, data) in registers {
            self.write(address, data);
        }
    }

    fn set_key(&mut self, sender: u16, key: Option<&Midstates>) {
        if let Some(key) = key {
            let words = key.inner.iter().chain(&key.outer);
            (0x10..).zip(words).for_each(|(address, word)| self.write(address, *word));
        }
        self.write(0x20, u32::from(key.is_some()) << 16 | u32::from(sender));
    }

    fn free(&mut self, bucket: u32, slots: u8) {
        for slot in (0..4).filter(|slot| slots & (1 << slot) != 0) {
            let at = (bucket as usize * 4 + slot) * 128 + 120;
            self.memory[at..at + 8].fill(0);
        }
        self.write(0x21, u32::from(slots) << 28 | bucket);
    }

    fn receive(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        self.run(packets).into_iter().map(|given| given.verdict).collect()
    }

    fn memory(&self) -> &[u8] {
        &self.memory
    }

    fn counters(&mut self) -> [u32; 16] {
        std::array::from_fn(|which| {
            let inputs = Inputs { counter_which: which as u8, ..Inputs::default() };
            self.step(&inputs).counter_value
        })
    }
}
