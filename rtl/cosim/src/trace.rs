//! What the card was given once and what it made of it, as text: recorded where the tools are,
//! played to any other [`Backend`] where they are not.
//!
//! ```text
//! # a comment
//! network N SEED ME                 the replicas (keys follow from N and SEED), and the card's
//! set ADDRESS PORT KINDS MEMBERS PLACE LOW HIGH MURMUR-SEED DIRECT BASE
//! key SENDER MIDSTATES              inner and outer, in hex; or `none`
//! packet VERDICT BYTES              in hex, or `=K` for the bytes of the K-th packet before it
//! slot INDEX DIGEST                 a slot that the packets above left changed: the first 16 bytes
//!                                   of the SHA-256 of its bytes, in hex
//! free BUCKET SLOTS
//! counters NAME=VALUE...            those that are not 0
//! ```
//! Numbers are decimal. Packets that follow each other went through the card together.

use crate::table::{SLOT_BYTES, Size};
use crate::{Backend, Midstates, Model, Network, Settings, Verdict};
use std::fmt::Write as _;
use tercio_types::Suite;

/// Where a trace and a backend part, or what of a trace is no trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line of the trace, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Mismatch {}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8; 2]| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| odd.is_empty()).ok_or_else(|| "not pairs of hexadecimal digits".to_owned())
}

/// What a trace keeps of a slot.
fn digest(slot: &[u8]) -> String {
    hex(&tercio_crypto::hash(Suite::default(), &[slot]).0[..16])
}

fn number<T: std::str::FromStr>(word: Option<&str>) -> Result<T, String> {
    let word = word.ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("'{word}' is no number that fits here"))
}

impl Midstates {
    fn to_hex(self) -> String {
        let words = self.inner.iter().chain(&self.outer);
        hex(&words.flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>())
    }
}

/// Writes a trace of what a backend does.
#[derive(Debug)]
pub struct Recorder<B> {
    backend: B,
    text: String,
    packets: Vec<Vec<u8>>,
    network: Option<(Network, u8)>,
}

impl<B: Backend> Recorder<B> {
    /// Begins a trace with a comment.
    #[must_use]
    pub fn new(backend: B, comment: &str) -> Self {
        let text = comment.lines().map(|line| format!("# {line}\n")).collect();
        Self { backend, text, packets: Vec::new(), network: None }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The replicas have these keys from now on; all are given to the backend.
    pub fn network(&mut self, n: u8, seed: u8, me: u8) {
        let network = Network::new(n, seed);
        self.line(&format!("network {n} {seed} {me}"));
        for sender in 0..n {
            let key = network.card_key(sender, me);
            self.line(&format!("key {sender} {}", key.to_hex()));
            self.backend.set_key(sender.into(), Some(&key));
        }
        self.network = Some((network, me));
    }

    /// Settings.
    pub fn set(&mut self, settings: &Settings) {
        let Settings { address, port, kinds, members, place, low, high, seed, direct, base } =
            *settings;
        let (address, direct) = (u32::from_be_bytes(address), u8::from(direct));
        self.line(&format!(
            "set {address} {port} {kinds} {members} {place} {low} {high} {seed} {direct} {base}"
        ));
        self.backend.set(settings);
    }

    /// A sender's key is forgotten.
    pub fn forget(&mut self, sender: u16) {
        self.line(&format!("key {sender} none"));
        self.backend.set_key(sender, None);
    }

    /// Slots become free.
    pub fn free(&mut self, bucket: u32, slots: u8) {
        self.line(&format!("free {bucket} {slots}"));
        self.backend.free(bucket, slots);
    }

    /// Packets that go through together.
    pub fn packets(&mut self, packets: Vec<Vec<u8>>) {
        let before = self.backend.memory().to_vec();
        let verdicts = self.backend.receive(&packets);
        for (packet, verdict) in packets.into_iter().zip(verdicts) {
            let same = self.packets.iter().rev().position(|earlier| *earlier == packet);
            let bytes = same.map_or_else(|| hex(&packet), |back| format!("={}", back + 1));
            self.line(&format!("packet {} {bytes}", verdict.name()));
            self.packets.push(packet);
        }
        let slots = before.chunks(SLOT_BYTES).zip(self.backend.memory().chunks(SLOT_BYTES));
        let changed = slots.enumerate().filter(|(_, (before, after))| before != after);
        let lines: Vec<_> =
            changed.map(|(index, (_, after))| format!("slot {index} {}", digest(after))).collect();
        lines.iter().for_each(|line| self.line(line));
    }

    /// The trace.
    #[must_use]
    pub fn finish(mut self) -> String {
        let counters = self.backend.counters();
        let named =
            Verdict::ALL.iter().map(|verdict| (verdict.name(), counters[*verdict as usize]));
        let words = named.filter(|(_, value)| *value > 0).map(|(name, n)| format!(" {name}={n}"));
        let line = format!("counters{}", words.collect::<String>());
        self.line(&line);
        self.text
    }
}

/// A trace being played to the model.
struct Player {
    network: Network,
    me: u8,
    model: Model,
    packets: Vec<Vec<u8>>,
    /// What the slots held before the packets of this run.
    before: Vec<u8>,
    /// Slots that the trace names as changed by them.
    named: Vec<usize>,
}

fn settings(words: &mut std::str::SplitAsciiWhitespace<'_>) -> Result<Settings, String> {
    Ok(Settings {
        address: number::<u32>(words.next())?.to_be_bytes(),
        port: number(words.next())?,
        kinds: number(words.next())?,
        members: number(words.next())?,
        place: number(words.next())?,
        low: number(words.next())?,
        high: number(words.next())?,
        seed: number(words.next())?,
        direct: number::<u8>(words.next())? == 1,
        base: number(words.next())?,
    })
}

impl Player {
    fn new() -> Self {
        let network = Network::new(1, 0);
        let nothing = Settings {
            address: [0; 4],
            port: 0,
            kinds: 0,
            members: 0,
            place: 0,
            low: 0,
            high: 0,
            seed: 0,
            direct: false,
            base: 0,
        };
        let model = Model::new(Size::BENCH, nothing, network.ring(0).clone());
        let before = model.memory().to_vec();
        Self { network, me: 0, model, packets: vec![], before, named: vec![] }
    }

    /// What changed besides the slots that the trace names.
    fn end_of_run(&mut self) -> Result<(), String> {
        let slots = self.before.chunks(SLOT_BYTES).zip(self.model.memory().chunks(SLOT_BYTES));
        let changed: Vec<_> =
            slots.enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
        if changed != self.named {
            return Err(format!(
                "the model changed the slots {changed:?}, the card {:?}",
                self.named
            ));
        }
        Ok(())
    }

    fn begin_run(&mut self) {
        self.before = self.model.memory().to_vec();
        self.named.clear();
    }

    fn key(&mut self, sender: u16, word: &str) -> Result<(), String> {
        if word == "none" {
            self.model.set_key(sender, None);
            return Ok(());
        }
        let from = u8::try_from(sender).ok().filter(|from| *from < self.network.n());
        let key = self.network.card_key(from.ok_or("no such replica")?, self.me);
        if key.to_hex() != word {
            return Err(format!("the engine's key of {sender} is {}", key.to_hex()));
        }
        self.model.set_key(sender, Some(&key));
        Ok(())
    }

    fn packet(&mut self, verdict: &str, bytes: &str) -> Result<(), String> {
        let packet = match bytes.strip_prefix('=') {
            None => from_hex(bytes)?,
            Some(back) => {
                let at = self.packets.len().checked_sub(number(Some(back))?);
                at.and_then(|at| self.packets.get(at)).ok_or("no such packet")?.clone()
            }
        };
        let found = self.model.take(&packet).name();
        self.packets.push(packet);
        if found == verdict { Ok(()) } else { Err(format!("{found}, but the card said {verdict}")) }
    }

    fn slot(&mut self, index: usize, said: &str) -> Result<(), String> {
        self.named.push(index);
        let found = self.model.memory().chunks(SLOT_BYTES).nth(index).ok_or("no such slot")?;
        if digest(found) == said {
            Ok(())
        } else {
            Err(format!("the model's slot holds {}", hex(found)))
        }
    }

    fn counters(&mut self, words: std::str::SplitAsciiWhitespace<'_>) -> Result<(), String> {
        let mut said = [0; 16];
        for word in words {
            let (name, value) = word.split_once('=').ok_or("NAME=VALUE is missing")?;
            let verdict = Verdict::ALL.iter().find(|verdict| verdict.name() == name);
            said[*verdict.ok_or_else(|| format!("no verdict '{name}'"))? as usize] =
                number(Some(value))?;
        }
        let found = self.model.counters();
        if found == said { Ok(()) } else { Err(format!("the model counted {found:?}")) }
    }

    fn line(&mut self, line: &str, before: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().unwrap_or("#");
        let in_run = verb == "slot" || (verb == "packet" && before == "packet");
        if ["packet", "slot"].contains(&before) && !in_run {
            self.end_of_run()?;
        }
        match verb {
            "#" => {}
            "network" => {
                let (n, seed): (u8, u8) = (number(words.next())?, number(words.next())?);
                self.me = number(words.next())?;
                if !(1..=100).contains(&n) || self.me >= n {
                    return Err("no such network".to_owned());
                }
                self.network = Network::new(n, seed);
                self.model.set_ring(self.network.ring(self.me).clone());
            }
            "set" => self.model.set(&settings(&mut words)?),
            "key" => self.key(number(words.next())?, words.next().ok_or("no key")?)?,
            "packet" => {
                if before != "packet" {
                    self.begin_run();
                }
                self.packet(words.next().unwrap_or(""), words.next().ok_or("no bytes")?)?;
            }
            "slot" => {
                let index = number(words.next())?;
                self.slot(index, words.next().unwrap_or(""))?;
            }
            "free" => {
                let (bucket, slots): (u32, u8) = (number(words.next())?, number(words.next())?);
                if bucket >= Size::BENCH.buckets || slots >= 16 {
                    return Err("no such slots".to_owned());
                }
                self.model.free(bucket, slots);
            }
            "counters" => self.counters(words)?,
            other => return Err(format!("no trace has '{other}'")),
        }
        Ok(())
    }
}

/// Plays a trace to the model, and gives how many packets it had.
///
/// # Errors
/// At the first line in which the model does something else than the card did, or that is none.
pub fn replay(text: &str) -> Result<usize, Mismatch> {
    let mut player = Player::new();
    let mut before = "";
    for (at, line) in text.lines().enumerate() {
        player.line(line, before).map_err(|what| Mismatch { line: at + 1, what })?;
        before = line.split_ascii_whitespace().next().unwrap_or("#");
    }
    if before != "counters" {
        let what = "the trace does not end with its counters".to_owned();
        return Err(Mismatch { line: text.lines().count(), what });
    }
    Ok(player.packets.len())
}
