//! Packets as friends and foes send them, from a seed.
//!
//! An attacker here has what a Byzantine replica has, its own keys, and what anybody on the network
//! has: every packet that was ever sent, to be sent again, changed, cut or put together anew.

use crate::packet::frame;
use crate::{Network, Settings, datagram, vote};
use tercio_prism::rng::Rng;

/// PREPARE and COMMIT.
const VOTES: [u8; 2] = [17, 18];

/// A stream of packets.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    network: &'a Network,
    settings: Settings,
    rng: Rng,
    /// What may be sent again.
    sent: Vec<Vec<u8>>,
    /// How many of a hundred packets are an attack.
    attacks: u64,
}

impl<'a> Packets<'a> {
    /// The packets of `seed` for a card with these settings, of which so many in a hundred are an
    /// attack.
    #[must_use]
    pub fn new(network: &'a Network, settings: Settings, seed: u64, attacks: u64) -> Self {
        Self { network, settings, rng: Rng::new(seed), sent: Vec::new(), attacks }
    }

    /// The settings change: watermarks move.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The next so many packets.
    pub fn take(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Vec<u8> {
        let packet = if self.rng.percent(self.attacks) { self.attack() } else { self.honest() };
        if self.sent.len() < 256 {
            self.sent.push(packet.clone());
        } else {
            let at = self.rng.below(256) as usize;
            self.sent[at].clone_from(&packet);
        }
        packet
    }

    fn pick(&mut self, limit: usize) -> usize {
        self.rng.below(limit as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.rng.next_u64() as u8
    }

    /// Some 52 bytes of another member, between the watermarks.
    fn said(&mut self) -> [u8; 52] {
        let mut said = [0; 52];
        let kind = self.pick(VOTES.len());
        let others = self.pick(usize::from(self.network.n()) - 1) as u8;
        said[0] = VOTES[kind];
        said[2] = others + u8::from(others >= self.settings.place);
        said[4..12].copy_from_slice(&self.rng.below(3).to_le_bytes());
        let window = self.settings.high - self.settings.low;
        let sequence = self.settings.low + 1 + self.rng.below(window);
        said[12..20].copy_from_slice(&sequence.to_le_bytes());
        said[20..].fill_with(|| self.rng.next_u64() as u8);
        said
    }

    fn honest(&mut self) -> Vec<u8> {
        vote(self.network, &self.said())
    }

    fn attack(&mut self) -> Vec<u8> {
        match self.rng.below(16) {
            0 | 1 => self.again(),
            2 => self.bit_flipped(),
            3 => self.cut(),
            4 => self.longer(),
            5 => self.wrong_sender(),
            6 => self.out_of_window(),
            7 => self.double(),
            8 | 9 => self.flood(),
            10 => self.another_frame(),
            11 => self.another_vector(),
            12 => self.fragment(),
            13 => self.tagged(),
            14 => self.header_changed(),
            _ => self.garbage(),
        }
    }

    /// An old packet, whatever it was, once more.
    fn again(&mut self) -> Vec<u8> {
        if self.sent.is_empty() {
            return self.honest();
        }
        let at = self.pick(self.sent.len());
        self.sent[at].clone()
    }

    fn bit_flipped(&mut self) -> Vec<u8> {
        let mut packet = self.again();
        let at = self.pick(packet.len());
        packet[at] ^= 1 << self.rng.below(8);
        packet
    }

    fn cut(&mut self) -> Vec<u8> {
        let mut packet = self.again();
        let left = 1 + self.pick(packet.len());
        packet.truncate(left);
        packet
    }

    /// Bytes behind the datagram, up to several beats.
    fn longer(&mut self) -> Vec<u8> {
        let mut packet = self.again();
        let more = 1 + self.pick(3000);
        packet.resize(packet.len() + more, 0);
        packet
    }

    /// In the name of somebody else: a member, ourselves, nobody, a client.
    fn wrong_sender(&mut self) -> Vec<u8> {
        let said = self.said();
        let vector = self.network.vector(said[2], &said);
        let mut claimed = said;
        let far = self.rng.next_u64() as u16;
        let names = [far % u16::from(self.network.n()), 15, 16, 127, far, 0xffff];
        let name = names[self.pick(names.len())];
        claimed[2..4].copy_from_slice(&name.to_le_bytes());
        datagram(&frame(&claimed, &vector))
    }

    fn out_of_window(&mut self) -> Vec<u8> {
        let mut said = self.said();
        let (low, high) = (self.settings.low, self.settings.high);
        let far = self.rng.next_u64();
        let numbers = [0, low, low.saturating_sub(1), high.saturating_add(1), far, u64::MAX];
        let number = numbers[self.pick(numbers.len())];
        said[12..20].copy_from_slice(&number.to_le_bytes());
        vote(self.network, &said)
    }

    /// The key of an old vote with another digest, well authenticated.
    fn double(&mut self) -> Vec<u8> {
        let packet = self.again();
        let Some(mut said) = packet.get(54..).and_then(|rest| rest.first_chunk::<52>().copied())
        else {
            return packet;
        };
        if said[2] >= self.network.n() || said[3] != 0 {
            return packet;
        }
        said[20] = self.byte();
        vote(self.network, &said)
    }

    /// Votes that a Byzantine replica makes up so that they all fall into a few buckets.
    fn flood(&mut self) -> Vec<u8> {
        let size = crate::Size::BENCH;
        loop {
            let said = self.said();
            let key = said.first_chunk().expect("52 bytes begin with a key");
            let view = self.rng.next_u64();
            let mut key = *key;
            key[4..12].copy_from_slice(&view.to_le_bytes());
            let bucket = size.bucket(&self.settings, &key);
            if self.settings.direct || bucket % 128 == 5 {
                let mut said = said;
                said[..20].copy_from_slice(&key);
                return vote(self.network, &said);
            }
        }
    }

    /// Another kind, flags, version, authenticator, or a body.
    fn another_frame(&mut self) -> Vec<u8> {
        let mut packet = self.honest();
        let byte = self.byte();
        match self.rng.below(6) {
            0 => packet[54] = byte,
            1 => packet[55] = byte,
            2 => packet[46] = byte,
            3 => packet[47] = byte % 6,
            4 => packet[42 + usize::from(byte % 12)] ^= 1 + byte % 31,
            _ => {
                let (said, body) = (self.said(), vec![byte; 1 + usize::from(byte)]);
                let mut frame = frame(&said, &self.network.vector(said[2], &said));
                let length = frame.len() as u32 - 4 + body.len() as u32;
                frame[..4].copy_from_slice(&length.to_le_bytes());
                frame[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
                frame.extend_from_slice(&body);
                packet = datagram(&frame);
            }
        }
        packet
    }

    /// A vector of another length, with good tags; also of none, of many, and of half a tag.
    fn another_vector(&mut self) -> Vec<u8> {
        let said = self.said();
        let mut vector = self.network.vector(said[2], &said);
        let lengths = [0, 1, 2, 3, 5, 6, 17, 32, 64, 100, 128, 129];
        let tags = lengths[self.pick(lengths.len())];
        vector.resize(16 * tags + usize::from(self.rng.percent(10)) * 8, 7);
        datagram(&frame(&said, &vector))
    }

    fn fragment(&mut self) -> Vec<u8> {
        let mut packet = self.honest();
        packet[20] = (self.byte() & 0x3f) | (self.byte() & 0x40);
        packet[21] = if self.rng.percent(50) { 0 } else { self.byte() };
        packet
    }

    /// A VLAN tag, one that is only said to be there, and a tag in a tag.
    fn tagged(&mut self) -> Vec<u8> {
        let mut packet = self.honest();
        match self.rng.below(3) {
            0 => drop(packet.splice(12..12, [0x81, 0x00, 0x00, 0x05])),
            1 => packet[12..14].copy_from_slice(&[0x81, 0x00]),
            _ => drop(packet.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2])),
        }
        packet
    }

    /// Any byte of Ethernet's, IP's and UDP's headers.
    fn header_changed(&mut self) -> Vec<u8> {
        let mut packet = self.honest();
        let at = 12 + self.pick(30);
        packet[at] = self.byte();
        packet
    }

    fn garbage(&mut self) -> Vec<u8> {
        let bytes = 1 + self.pick(400);
        (0..bytes).map(|_| self.byte()).collect()
    }
}
