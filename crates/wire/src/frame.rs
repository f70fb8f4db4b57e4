//! A message as it travels: header, key, value.
//!
//! ```text
//! header (12 B): length of all that follows this field: u32 | version: u8 | auth kind: u8
//!                | auth length: u16 | body length: u32
//! key (20 B)     kind, flags, sender, view, sequence
//! value          digest (32 B) | authenticator | body
//! ```
//! A body is bound by the digest: when there is one, the digest is its hash; but a REPLY's is the
//! root over the digests of its entries ([`crate::decode_replies`]), which its reader checks.

use crate::codec::{
    SIGNATURE, authenticator_kind, authenticator_len, put_authenticator, take_authenticator,
};
use crate::{AUTHENTICATED, DecodeError, Key, Kind, Reader};
use bytes::Bytes;
use tercio_types::{Authenticator, Suite};

/// The version of the wire format that this build speaks; any other is refused.
pub const WIRE_VERSION: u8 = 2;

/// The bytes of the header.
pub const FRAME_HEADER: usize = 12;

/// The longest frame, header included.
pub const MAX_FRAME: usize = 16 << 20;

/// The header, read before the rest has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    auth_kind: u8,
    auth_len: usize,
    body_len: usize,
}

impl FrameHeader {
    /// Reads a header from the front of `bytes`; `None` while fewer than [`FRAME_HEADER`] are
    /// there.
    ///
    /// # Errors
    /// When the version is another, the lengths disagree or are above [`MAX_FRAME`]. The stream
    /// cannot be followed any further then.
    pub fn peek(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some(head) = bytes.first_chunk::<FRAME_HEADER>() else { return Ok(None) };
        let [l0, l1, l2, l3, version, auth_kind, a0, a1, b0, b1, b2, b3] = *head;
        if version != WIRE_VERSION {
            return Err(DecodeError::Version { found: version, expected: WIRE_VERSION });
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let auth_len = usize::from(u16::from_le_bytes([a0, a1]));
        let body_len = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        if length > MAX_FRAME - 4 {
            let (found, limit) = (length as u64, MAX_FRAME as u64 - 4);
            return Err(DecodeError::TooLong { what: "frame", found, limit });
        }
        if length != FRAME_HEADER - 4 + AUTHENTICATED + auth_len + body_len {
            return Err(DecodeError::NotCanonical("frame length"));
        }
        Ok(Some(Self { auth_kind, auth_len, body_len }))
    }

    /// Whether it says that its sender has signed it.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.auth_kind == SIGNATURE
    }

    /// How many bytes the whole frame has, header included.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        FRAME_HEADER + AUTHENTICATED + self.auth_len + self.body_len
    }
}

/// The bytes of header and key.
const FIXED: usize = FRAME_HEADER + AUTHENTICATED;

/// Header and key of a frame.
fn fixed_part(key: &Key, auth: &Authenticator, body: usize) -> [u8; FIXED] {
    let auth_len = authenticator_len(auth);
    let length = FIXED - 4 + auth_len + body;
    assert!(length <= MAX_FRAME - 4, "our own frames keep the limit");
    let mut out = [0; FIXED];
    out[..4].copy_from_slice(&(length as u32).to_le_bytes());
    out[4..6].copy_from_slice(&[WIRE_VERSION, authenticator_kind(auth)]);
    out[6..8].copy_from_slice(&(auth_len as u16).to_le_bytes());
    out[8..FRAME_HEADER].copy_from_slice(&(body as u32).to_le_bytes());
    out[FRAME_HEADER..].copy_from_slice(&key.to_array());
    out
}

/// A frame that is written body first, in one buffer: what stands before the body depends on it.
#[derive(Debug)]
pub struct FrameWriter {
    buffer: Vec<u8>,
    head: usize,
}

impl FrameWriter {
    /// Room for an authenticator of exactly `auth_len` bytes and a body of about `body_len`.
    #[must_use]
    pub fn new(auth_len: usize, body_len: usize) -> Self {
        let head = FIXED + auth_len;
        let mut buffer = Vec::with_capacity(head + body_len);
        buffer.resize(head, 0);
        Self { buffer, head }
    }

    /// Where the body is to be appended.
    pub fn body(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// What was appended.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.buffer[self.head..]
    }

    /// The whole frame.
    ///
    /// # Panics
    /// When the authenticator has another length than was said.
    #[must_use]
    pub fn finish(self, key: &Key, auth: &Authenticator) -> Bytes {
        let Self { mut buffer, head } = self;
        let fixed = fixed_part(key, auth, buffer.len() - head);
        buffer[..FIXED].copy_from_slice(&fixed);
        let mut written = Vec::new();
        buffer[FIXED..head].copy_from_slice(match auth {
            Authenticator::Mac(tag) => &tag.0,
            Authenticator::MacVector(tags) => tags.as_bytes(),
            Authenticator::Signature(signature) => signature.as_slice(),
            Authenticator::Attested(_) => {
                put_authenticator(auth, &mut written);
                &written
            }
        });
        buffer.into()
    }
}

/// A message between decoding and verification: its parts are well-formed, and nothing in it is
/// known to be true yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the authenticator covers.
    pub key: Key,
    /// Shows who sent it.
    pub auth: Authenticator,
    /// The body; empty for votes.
    pub body: Bytes,
}

impl Frame {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(FIXED + authenticator_len(&self.auth) + self.body.len());
        out.extend_from_slice(&fixed_part(&self.key, &self.auth, self.body.len()));
        put_authenticator(&self.auth, out);
        out.extend_from_slice(&self.body);
    }

    /// The frame alone.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(
            FRAME_HEADER + AUTHENTICATED + authenticator_len(&self.auth) + self.body.len(),
        );
        self.encode(&mut out);
        out.into()
    }

    /// Reads one whole frame; the body is a slice of `bytes`. The digest of a body is checked, but
    /// for that of a REPLY.
    ///
    /// # Errors
    /// When the bytes are not exactly one well-formed frame.
    pub fn decode(bytes: &Bytes, suite: Suite) -> Result<Self, DecodeError> {
        let header = FrameHeader::peek(bytes)?.ok_or(DecodeError::Truncated("header"))?;
        let mut input = Reader::new(bytes.clone(), suite);
        input.array::<FRAME_HEADER>("header")?;
        let key = Key::decode(&mut input)?;
        let auth = take_authenticator(header.auth_kind, header.auth_len, &mut input)?;
        let left = input.remaining();
        if left > header.body_len {
            return Err(DecodeError::Trailing(left - header.body_len));
        }
        if left < header.body_len {
            return Err(DecodeError::Truncated("body"));
        }
        let body = input.take_rest();
        // A REPLY's digest is the root over those of its entries.
        let named = !body.is_empty() && key.kind != Kind::REPLY;
        if named && tercio_crypto::hash(suite, &[&body]) != key.digest {
            return Err(DecodeError::Digest);
        }
        Ok(Self { key, auth, body })
    }
}
