//! What happened in a run: a hash over every event, and on demand a text of it.

use std::fmt::{self, Write};
use tercio_consensus::Instant;
use tercio_crypto::Hasher;
use tercio_types::{Digest, Principal, Suite};
use tercio_wire::{Frame, FrameHeader, Key, Kind, Reader};

/// The running hash of a run's events; with `text`, the events themselves too.
#[derive(Clone)]
pub struct Trace {
    hasher: Hasher,
    events: u64,
    suite: Suite,
    /// The protocol's names of its own messages.
    names: Names,
    text: Option<String>,
}

impl Trace {
    /// An empty trace of a network of this suite, whose protocol names its messages so. A text is kept
    /// only when it is asked for.
    #[must_use]
    pub fn new(suite: Suite, names: Names, text: bool) -> Self {
        let hasher = Hasher::new(Suite::default());
        Self { hasher, events: 0, suite, names, text: text.then(String::new) }
    }

    /// A frame arrived.
    pub fn frame(&mut self, now: Instant, from: Principal, to: Principal, bytes: &[u8]) {
        self.events += 1;
        self.hasher.update(&now.0.to_le_bytes());
        for (role, id) in [from, to].map(|p| match p {
            Principal::Replica(id) => (0u8, u64::from(id.0)),
            Principal::Client(id) => (1, id.0),
        }) {
            self.hasher.update(&[role]);
            self.hasher.update(&id.to_le_bytes());
        }
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
        if let Some(text) = &mut self.text {
            let (from, to) = (Short(from), Short(to));
            let said = Described(bytes, self.suite, self.names);
            let _ = writeln!(text, "{} {from} -> {to} {said}", Clock(now));
        }
    }

    /// Something else happened.
    pub fn note(&mut self, now: Instant, what: fmt::Arguments<'_>) {
        self.events += 1;
        let line = format!("{} {what}\n", Clock(now));
        self.hasher.update(line.as_bytes());
        if let Some(text) = &mut self.text {
            text.push_str(&line);
        }
    }

    /// How many events there were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The hash over all of them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.hasher.clone().finish()
    }

    /// The text; empty when none was kept.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("")
    }
}

/// A point of virtual time, in milliseconds.
pub(crate) struct Clock(pub(crate) Instant);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0 / 1000;
        write!(f, "{:>6}.{:03} ms", micros / 1000, micros % 1000)
    }
}

/// A participant in two or three letters.
pub(crate) struct Short(pub(crate) Principal);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Principal::Replica(id) => write!(f, "R{}", id.0),
            Principal::Client(id) => write!(f, "C{}", id.0),
        }
    }
}

/// What a protocol's messages of a kind are called.
pub type Names = fn(Kind) -> Option<&'static str>;

/// What a kind of message is called.
#[must_use]
pub fn kind_name(kind: Kind, names: Names) -> &'static str {
    match kind.0 {
        1 => "REQUEST",
        2 => "REPLY",
        3 => "REJECT",
        4 => "QUERY",
        5 => "ANSWER",
        8 => "CHECKPOINT",
        9 => "ATTEST",
        48 => "FETCH-BLOCKS",
        49 => "BLOCKS",
        50 => "FORWARD",
        51 => "FETCH-STATE",
        52 => "STATE",
        _ => names(kind).unwrap_or("UNKNOWN"),
    }
}

/// The key of a frame, unverified.
#[must_use]
pub fn peek_key(bytes: &[u8]) -> Option<Key> {
    FrameHeader::peek(bytes).ok()??;
    let key = bytes.get(tercio_wire::FRAME_HEADER..)?.get(..tercio_wire::AUTHENTICATED)?;
    Key::decode(&mut Reader::new(bytes::Bytes::copy_from_slice(key), Suite::default())).ok()
}

struct Described<'a>(&'a [u8], Suite, Names);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(key) = peek_key(self.0) else { return f.write_str("no frame") };
        let (name, Key { view, seq, digest, .. }) = (kind_name(key.kind, self.2), key);
        write!(f, "{name} view {view} seq {seq} {digest:?}")?;
        match Frame::decode(&bytes::Bytes::copy_from_slice(self.0), self.1) {
            Ok(frame) if !frame.body.is_empty() => write!(f, " ({} B)", frame.body.len()),
            Ok(_) => Ok(()),
            Err(error) => write!(f, " (broken: {error})"),
        }
    }
}
