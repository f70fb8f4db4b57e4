//! The specification as a program: one packet after the other, in plain Rust.

use crate::table::{Place, Size, Table};
use crate::{Backend, Midstates, Settings, Verdict};
use tercio_crypto::{Claim, Claimed, Keyring, Proof};
use tercio_types::{Principal, ReplicaId, Tags};
use tercio_wire::WIRE_VERSION;

/// The longest vector that a frame may have.
const MAX_TAGS: usize = 128;
/// Where the frame stands in a packet: behind Ethernet, IPv4 and UDP.
const FRAME_AT: usize = 42;
/// Where the vector stands.
const VECTOR_AT: usize = FRAME_AT + 64;
/// A beat of the card: it takes no vote from a packet that is shorter.
const BEAT: usize = 64;

/// The table in software. It believes what a replica's keyring believes.
#[derive(Clone, Debug)]
pub struct Model {
    size: Size,
    settings: Settings,
    ring: Keyring,
    known: Vec<bool>,
    table: Table,
    counters: [u32; 16],
}

/// A vote that was taken apart, and nothing of which is known to be true.
struct Vote<'a> {
    said: [u8; 52],
    vector: &'a [u8],
}

impl Vote<'_> {
    fn sender(&self) -> u16 {
        u16::from_le_bytes([self.said[2], self.said[3]])
    }

    fn sequence(&self) -> u64 {
        u64::from_le_bytes(*self.said[12..].first_chunk().expect("a key has 20 bytes"))
    }
}

/// A vote as the keyring sees it.
struct Said([u8; 52], Tags);

impl Claimed for Said {
    fn claims(&self, claim: &mut dyn FnMut(Claim<'_>)) {
        let by = Principal::Replica(ReplicaId(u16::from_le_bytes([self.0[2], self.0[3]])));
        claim(Claim { by, said: self.0, proof: Proof::MacVector(&self.1) });
    }
}

fn big16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn little32(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at..].first_chunk().expect("within the first beat")))
}

impl Model {
    /// An empty table of a replica that believes what `ring` believes.
    #[must_use]
    pub fn new(size: Size, settings: Settings, ring: Keyring) -> Self {
        let known = vec![false; usize::from(size.senders)];
        Self { size, settings, ring, known, table: Table::new(size), counters: [0; 16] }
    }

    /// The keyring that it believes from now on.
    pub fn set_ring(&mut self, ring: Keyring) {
        self.ring = ring;
    }

    /// What is not a vote for us, by Ethernet, IPv4 and UDP.
    fn envelope(&self, packet: &[u8]) -> Result<(), Verdict> {
        let settings = &self.settings;
        if packet.len() < FRAME_AT {
            return Err(Verdict::UpOther);
        }
        match big16(packet, 12) {
            0x0800 => {}
            0x8100 | 0x88a8 => return Err(Verdict::UpUnusual),
            _ => return Err(Verdict::UpOther),
        }
        if packet[14] >> 4 != 4 || packet[23] != 17 || packet[30..34] != settings.address {
            return Err(Verdict::UpOther);
        }
        let whole = big16(packet, 20) & 0x3fff == 0;
        if packet[14] & 15 != 5 || !whole {
            return Err(Verdict::UpUnusual);
        }
        if packet[36..38] != settings.port.to_be_bytes() {
            return Err(Verdict::UpOther);
        }
        if big16(packet, 38) + 20 != big16(packet, 16) {
            return Err(Verdict::UpUnusual);
        }
        Ok(())
    }

    /// How many tags the frame's header says that there are.
    fn header(&self, packet: &[u8]) -> Result<usize, Verdict> {
        if packet.len() < BEAT {
            return Err(Verdict::Malformed);
        }
        let length = little32(packet, 42);
        let auth_len = u64::from(u16::from_le_bytes([packet[48], packet[49]]));
        let body_len = little32(packet, 50);
        let agree = length == 60 + auth_len + body_len && length + 32 == big16(packet, 16) as u64;
        if packet[46] != WIRE_VERSION || !agree || packet[55] != 0 {
            return Err(Verdict::Malformed);
        }
        let kind = packet[54].checked_sub(16).filter(|kind| *kind < 32);
        let is_vote = kind.is_some_and(|kind| self.settings.kinds >> kind & 1 == 1);
        if !is_vote || packet[47] != 2 || body_len != 0 {
            return Err(Verdict::UpNotAVote);
        }
        let tags = auth_len as usize / 16;
        if auth_len % 16 != 0 || !(1..=MAX_TAGS).contains(&tags) {
            return Err(Verdict::Malformed);
        }
        Ok(tags)
    }

    /// Takes a packet apart, and says what can be said without a key.
    fn parse<'a>(&self, packet: &'a [u8]) -> Result<Vote<'a>, Verdict> {
        self.envelope(packet)?;
        let tags = self.header(packet)?;
        let sender = usize::from(u16::from_le_bytes([packet[56], packet[57]]));
        if !self.known.get(sender).is_some_and(|known| *known) {
            return Err(Verdict::UnknownSender);
        }
        match packet.len().cmp(&(VECTOR_AT + 16 * tags)) {
            std::cmp::Ordering::Less => return Err(Verdict::Malformed),
            std::cmp::Ordering::Greater => return Err(Verdict::UpUnusual),
            std::cmp::Ordering::Equal => {}
        }
        let said = *packet[FRAME_AT + 12..].first_chunk().expect("its length was checked");
        Ok(Vote { said, vector: &packet[VECTOR_AT..] })
    }

    /// Whether it is of use, and authentic.
    fn check(&mut self, vote: &Vote<'_>) -> Result<(), Verdict> {
        debug_assert!(usize::from(vote.sender()) < self.known.len(), "it has a key");
        if vote.sequence() <= self.settings.low {
            return Err(Verdict::Stale);
        }
        if vote.sequence() > self.settings.high {
            return Err(Verdict::Ahead);
        }
        let tags = Tags::from_bytes(bytes::Bytes::copy_from_slice(vote.vector));
        let tags = tags.ok_or(Verdict::Malformed)?;
        match self.ring.verify(Said(vote.said, tags)) {
            Ok(_) => Ok(()),
            Err(_) => Err(Verdict::BadMac),
        }
    }

    fn file(&mut self, vote: &Vote<'_>) -> Verdict {
        let key = vote.said.first_chunk().expect("52 bytes begin with a key");
        let bucket = self.size.bucket(&self.settings, key);
        match self.table.place(bucket, &vote.said) {
            Place::Free(slot) => {
                self.table.store(bucket, slot, &vote.said, vote.vector);
                Verdict::Stored
            }
            Place::Same => Verdict::Replay,
            Place::SameKey => Verdict::UpDouble,
            Place::Full => Verdict::UpOverflow,
        }
    }

    /// Takes one packet.
    pub fn take(&mut self, packet: &[u8]) -> Verdict {
        let verdict = match self.parse(packet) {
            Ok(vote) => match self.check(&vote) {
                Ok(()) => self.file(&vote),
                Err(verdict) => verdict,
            },
            Err(verdict) => verdict,
        };
        self.counters[verdict as usize] += 1;
        verdict
    }
}

impl Backend for Model {
    fn set(&mut self, settings: &Settings) {
        self.settings = *settings;
    }

    /// Only whether there is a key: which it is, the keyring knows.
    fn set_key(&mut self, sender: u16, key: Option<&Midstates>) {
        if let Some(known) = self.known.get_mut(usize::from(sender)) {
            *known = key.is_some();
        }
    }

    fn free(&mut self, bucket: u32, slots: u8) {
        self.table.free(bucket, slots);
    }

    fn receive(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict> {
        packets.iter().map(|packet| self.take(packet)).collect()
    }

    fn memory(&self) -> &[u8] {
        self.table.memory()
    }

    fn counters(&mut self) -> [u32; 16] {
        self.counters
    }
}
