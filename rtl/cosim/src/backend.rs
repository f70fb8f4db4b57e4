//! What every implementation of the table has in common: settings, verdicts, and a face.

use crate::Midstates;

/// What becomes of a packet. The numbers are part of `docs/nic-table.md`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Verdict {
    /// It stands in a slot.
    Stored = 0,
    /// A frame cut short, of another version, or with lengths that disagree.
    Malformed = 1,
    /// No key for that number.
    UnknownSender = 2,
    /// At or below the low watermark.
    Stale = 3,
    /// Above the high watermark.
    Ahead = 4,
    /// Our tag is wrong, or the vector has another length than the membership.
    BadMac = 5,
    /// The table holds the same 52 bytes.
    Replay = 6,
    /// Up: not a datagram to our port.
    UpOther = 8,
    /// Up: VLAN, IP options, a fragment, bytes behind the datagram.
    UpUnusual = 9,
    /// Up: a frame of another kind or authenticator, or with a body.
    UpNotAVote = 10,
    /// Up: a good vote whose bucket is full.
    UpOverflow = 11,
    /// Up: a good vote beside another one of the same key.
    UpDouble = 12,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Stored,
        Self::Malformed,
        Self::UnknownSender,
        Self::Stale,
        Self::Ahead,
        Self::BadMac,
        Self::Replay,
        Self::UpOther,
        Self::UpUnusual,
        Self::UpNotAVote,
        Self::UpOverflow,
        Self::UpDouble,
    ];

    /// The verdict with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| *verdict as u8 == number)
    }

    /// Its name in traces and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Malformed => "malformed",
            Self::UnknownSender => "unknown_sender",
            Self::Stale => "stale",
            Self::Ahead => "ahead",
            Self::BadMac => "bad_mac",
            Self::Replay => "replay",
            Self::UpOther => "up_other",
            Self::UpUnusual => "up_unusual",
            Self::UpNotAVote => "up_not_a_vote",
            Self::UpOverflow => "up_overflow",
            Self::UpDouble => "up_double",
        }
    }

    /// Whether the host gets the packet.
    #[must_use]
    pub fn is_up(self) -> bool {
        self >= Self::UpOther
    }

    /// Whether it was given to a vote whose MAC held.
    #[must_use]
    pub fn is_verified(self) -> bool {
        matches!(self, Self::Stored | Self::Replay | Self::UpOverflow | Self::UpDouble)
    }
}

/// What the host tells the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Our IPv4 address.
    pub address: [u8; 4],
    /// The UDP port of votes.
    pub port: u16,
    /// Bit k: a frame of kind 16 + k may be a vote.
    pub kinds: u32,
    /// How many tags a vector has.
    pub members: u8,
    /// Which of them is ours.
    pub place: u8,
    /// The low watermark: numbers up to it are of no more use.
    pub low: u64,
    /// The high watermark: numbers above it are of no use yet.
    pub high: u64,
    /// The seed of Murmur3.
    pub seed: u32,
    /// Index by (sequence mod L, type, sender).
    pub direct: bool,
    /// H_A: where the table begins in memory. A multiple of 128.
    pub base: u64,
}

/// A defence of the card; in a build for tests it can be taken out. The numbers are the bits of
/// `without_t` in `rtl/src/nic_pkg.sv`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "rtl/src/nic_pkg.sv says what each taken out does")]
pub enum Defence {
    Vlan = 0,
    Fragment = 1,
    Frame = 2,
    Lengths = 3,
    Sender = 4,
    Watermark = 5,
    Count = 6,
    Mac = 7,
    Overflow = 8,
    Double = 9,
    Replay = 10,
}

impl Defence {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Vlan,
        Self::Fragment,
        Self::Frame,
        Self::Lengths,
        Self::Sender,
        Self::Watermark,
        Self::Count,
        Self::Mac,
        Self::Overflow,
        Self::Double,
        Self::Replay,
    ];
}

/// An implementation of the table.
pub trait Backend {
    /// Takes new settings, watermarks too.
    fn set(&mut self, settings: &Settings);

    /// Takes the key of a sender, or forgets it.
    fn set_key(&mut self, sender: u16, key: Option<&Midstates>);

    /// Makes slots of a bucket free: those whose bits are set in `slots`.
    fn free(&mut self, bucket: u32, slots: u8);

    /// Takes packets, in this order, and gives a verdict for each.
    fn receive(&mut self, packets: &[Vec<u8>]) -> Vec<Verdict>;

    /// The table as the host sees it, from `base` on.
    fn memory(&self) -> &[u8];

    /// How many packets had each verdict, by its number.
    fn counters(&mut self) -> [u32; 16];
}
