//! The 52 authenticated bytes of a message: key (20) and digest (32), as in Yang et
//! al. (`docs/README.md`, sources). At most 55 bytes, so that a MAC over them costs two hash compressions.

use crate::{DecodeError, Encode, FRAME_HEADER, Reader};
use tercio_crypto::{Claim, Proof};
use tercio_types::{
    BlockHeader, CertifiedCheckpoint, Checkpoint, ClientInfo, Digest, Package, Principal,
    ReplicaId, Suite,
};

/// How many bytes every authenticator covers.
pub const AUTHENTICATED: usize = 52;

/// The sender field of a client's message; the client's id then stands in `view`.
pub const CLIENT_SENDER: u16 = u16::MAX;

/// What kind of message it is. Numbers are part of the wire format; those of a protocol are given
/// out by the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind(pub u8);

impl Kind {
    /// A client asks: body is the content of a package.
    pub const REQUEST: Self = Self(1);
    /// A replica answers.
    pub const REPLY: Self = Self(2);
    /// A replica declines, with a reason.
    pub const REJECT: Self = Self(3);
    /// Asks for an answer without ordering.
    pub const QUERY: Self = Self(4);
    /// Answers a query.
    pub const ANSWER: Self = Self(5);
    /// A client asks which of its own numbers are executed; answered as a query is.
    pub const NUMBERS: Self = Self(6);
    /// A replica's signed word on its state; the same for every protocol, so that a certificate
    /// outlives a change of protocol. The digest is that of the checkpoint's encoding.
    pub const CHECKPOINT: Self = Self(8);
    /// A replica's signature on a block; sequence is the height, the digest the header's hash.
    pub const ATTEST: Self = Self(9);
    /// A replica's operator's signature on the keys of a client that is to be added; never sent by
    /// itself. The digest is that of the keys' encoding.
    pub const APPROVE_CLIENT: Self = Self(10);
    /// The first kind of the ordering protocols (16..48).
    pub const PROTOCOL: u8 = 16;
    /// Asks a replica for blocks.
    pub const FETCH_BLOCKS: Self = Self(48);
    /// Hands blocks over.
    pub const BLOCKS: Self = Self(49);
    /// A backup hands a client's package to another replica.
    pub const FORWARD: Self = Self(50);
    /// Asks a replica for pieces of a certified state.
    pub const FETCH_STATE: Self = Self(51);
    /// Hands pieces of state over.
    pub const STATE: Self = Self(52);
}

/// What an authenticator covers.
///
/// ```text
/// kind: u8 | flags: u8 | sender: u16 | view: u64 | seq: u64 | digest: 32 B
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The kind of message.
    pub kind: Kind,
    /// Reserved; zero.
    pub flags: u8,
    /// The replica that sends it, or [`CLIENT_SENDER`].
    pub sender: u16,
    /// The view; the client's id when a client sends it.
    pub view: u64,
    /// The sequence number, or the request's.
    pub seq: u64,
    /// What is voted on; with a body, the body's digest.
    pub digest: Digest,
}

impl Key {
    /// The key of a replica's message.
    #[must_use]
    pub fn of_replica(kind: Kind, sender: ReplicaId, view: u64, seq: u64, digest: Digest) -> Self {
        Self { kind, flags: 0, sender: sender.0, view, seq, digest }
    }

    /// Who claims to have sent it.
    #[must_use]
    pub fn principal(&self) -> Principal {
        if self.sender == CLIENT_SENDER {
            Principal::Client(tercio_types::ClientId(self.view))
        } else {
            Principal::Replica(ReplicaId(self.sender))
        }
    }

    /// The 52 bytes.
    #[must_use]
    pub fn to_array(&self) -> [u8; AUTHENTICATED] {
        let mut out = [0; AUTHENTICATED];
        out[0] = self.kind.0;
        out[1] = self.flags;
        out[2..4].copy_from_slice(&self.sender.to_le_bytes());
        out[4..12].copy_from_slice(&self.view.to_le_bytes());
        out[12..20].copy_from_slice(&self.seq.to_le_bytes());
        out[20..].copy_from_slice(&self.digest.0);
        out
    }

    /// What kind a frame says that it is of, and its number, before anything of it is checked;
    /// `None` when it is too short for a key.
    #[must_use]
    pub fn peek(frame: &[u8]) -> Option<(Kind, u64)> {
        let key = frame.get(FRAME_HEADER..FRAME_HEADER + AUTHENTICATED)?;
        Some((Kind(key[0]), u64::from_le_bytes(*key[12..].first_chunk()?)))
    }

    /// Reads the 52 bytes.
    ///
    /// # Errors
    /// When they are cut short or a reserved bit is set.
    pub fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let key = Self {
            kind: Kind(input.u8("key")?),
            flags: input.u8("key")?,
            sender: input.u16("key")?,
            view: input.u64("key")?,
            seq: input.u64("key")?,
            digest: input.digest("key")?,
        };
        if key.flags != 0 {
            return Err(DecodeError::Unknown { what: "flags", found: key.flags.into() });
        }
        Ok(key)
    }
}

/// What `replica` signs when it vouches for `checkpoint`.
#[must_use]
pub fn checkpoint_key(suite: Suite, replica: ReplicaId, checkpoint: &Checkpoint) -> Key {
    let digest = tercio_crypto::hash(suite, &[&checkpoint.to_bytes()]);
    Key::of_replica(Kind::CHECKPOINT, replica, 0, checkpoint.seq.0, digest)
}

/// What the operator of `replica` signs who approves of a new client.
#[must_use]
pub fn approval_key(suite: Suite, replica: ReplicaId, client: &ClientInfo) -> Key {
    let digest = tercio_crypto::hash(suite, &[&client.to_bytes()]);
    Key::of_replica(Kind::APPROVE_CLIENT, replica, 0, 0, digest)
}

/// Lists every signature of a certificate for checking.
pub fn certificate_claims(
    suite: Suite,
    certificate: &CertifiedCheckpoint,
    claim: &mut dyn FnMut(Claim<'_>),
) {
    let mut key = checkpoint_key(suite, ReplicaId(0), &certificate.checkpoint);
    for (replica, signature) in &certificate.signatures {
        key.sender = replica.0;
        let by = Principal::Replica(*replica);
        claim(Claim { by, said: key.to_array(), proof: Proof::Signature(signature) });
    }
}

/// The hash of a block's header: what the next block names as its parent.
#[must_use]
pub fn block_hash(header: &BlockHeader) -> Digest {
    // Long enough for all of it: this is done for each block.
    let mut bytes = Vec::with_capacity(256);
    header.encode(&mut bytes);
    tercio_crypto::hash(header.suite, &[&bytes])
}

/// What a client's authenticator on `package` covers.
#[must_use]
pub fn request_key(package: &Package) -> Key {
    Key {
        kind: Kind::REQUEST,
        flags: 0,
        sender: CLIENT_SENDER,
        view: package.client.0,
        seq: package.first.0,
        digest: package.digest,
    }
}
