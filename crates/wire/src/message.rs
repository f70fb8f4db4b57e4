//! Messages between replicas: what a frame becomes once it is understood, and before it is
//! believed.

use crate::{Decode, DecodeError, Encode, Frame, Key, Kind, request_key};
use bytes::Bytes;
use tercio_crypto::{Claim, Claimed};
use tercio_types::{
    Authenticator, Batch, Digest, Package, Principal, ReplicaId, SignatureBytes, Suite,
};

/// Which authenticator the frame of a message carries. A frame with another is refused before anything
/// of it is checked: what a signature stands for is not to be had for a tag, and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A tag for its one receiver, or one for each replica.
    Macs,
    /// The sender's signature.
    Signature,
    /// A trusted counter's certificate.
    Attested,
    /// A client's choice: a tag for each replica, or its signature.
    Client,
}

impl Carries {
    /// Whether this is one of those.
    #[must_use]
    pub fn admits(self, auth: &Authenticator) -> bool {
        match auth {
            Authenticator::Mac(_) => self == Self::Macs,
            Authenticator::MacVector(_) => matches!(self, Self::Macs | Self::Client),
            Authenticator::Signature(_) => matches!(self, Self::Signature | Self::Client),
            Authenticator::Attested(_) => self == Self::Attested,
        }
    }
}

/// A kind of message that a frame can carry.
pub trait Message: Sized {
    /// Reads the message of a frame. What the frame's key says must agree with the body.
    ///
    /// # Errors
    /// When the frame is none of these messages.
    fn from_frame(frame: &Frame, suite: Suite) -> Result<Self, DecodeError>;

    /// Which authenticator its frame carries.
    fn carries(&self) -> Carries;

    /// Lists what others than the frame's sender are said to have said: certificates, clients'
    /// packages. What is not listed is never checked.
    fn inner_claims(&self, suite: Suite, claim: &mut dyn FnMut(Claim<'_>));

    /// What a frame of `sender` with this message holds: the key, the body, and the signature if
    /// the message is a signed one. All others travel under MACs.
    fn parts(&self, sender: ReplicaId, suite: Suite) -> (Key, Bytes, Option<SignatureBytes>);

    /// The frame of this message from `sender`; `mac` authenticates the key of one that carries
    /// no signature.
    fn to_frame(
        &self,
        sender: ReplicaId,
        suite: Suite,
        mac: impl FnOnce(&[u8; 52]) -> Authenticator,
    ) -> Frame {
        let (key, body, signature) = self.parts(sender, suite);
        let auth = match signature {
            Some(signature) => signature.into(),
            None => mac(&key.to_array()),
        };
        Frame { key, auth, body }
    }
}

/// A message as it came in, with all that is needed to check it.
#[derive(Clone, Debug)]
pub struct Received<M> {
    /// The authenticated bytes of the frame.
    pub key: Key,
    /// The sender's proof.
    pub auth: Authenticator,
    /// The message.
    pub message: M,
    suite: Suite,
}

impl<M: Message> Received<M> {
    /// Reads the message of a frame.
    ///
    /// # Errors
    /// When the frame holds no such message.
    pub fn from_frame(frame: Frame, suite: Suite) -> Result<Self, DecodeError> {
        let message = M::from_frame(&frame, suite)?;
        if !message.carries().admits(&frame.auth) {
            return Err(DecodeError::NotCanonical("authenticator of another kind"));
        }
        Ok(Self { key: frame.key, auth: frame.auth, message, suite })
    }

    /// Who sent it.
    #[must_use]
    pub fn sender(&self) -> Principal {
        self.key.principal()
    }
}

impl<M: Message> Claimed for Received<M> {
    fn claims(&self, claim: &mut dyn FnMut(Claim<'_>)) {
        let (by, said) = (self.sender(), self.key.to_array());
        claim(Claim { by, said, proof: (&self.auth).into() });
        self.message.inner_claims(self.suite, claim);
    }
}

/// Says that a client said what its package says.
pub fn package_claim(package: &Package, claim: &mut dyn FnMut(Claim<'_>)) {
    let said = request_key(package).to_array();
    claim(Claim { by: Principal::Client(package.client), said, proof: (&package.auth).into() });
}

/// A package from the client itself.
#[derive(Clone, Debug)]
pub struct Request(pub Package);

impl Message for Request {
    fn from_frame(frame: &Frame, suite: Suite) -> Result<Self, DecodeError> {
        // The frame's digest is that of its body.
        let (content, auth) = (frame.body.clone(), frame.auth.clone());
        let package = crate::codec::named_package(content, frame.key.digest, auth, suite)?;
        if request_key(&package) != frame.key {
            return Err(DecodeError::NotCanonical("request key"));
        }
        Ok(Self(package))
    }

    fn carries(&self) -> Carries {
        Carries::Client
    }

    fn inner_claims(&self, _suite: Suite, _claim: &mut dyn FnMut(Claim<'_>)) {}

    fn parts(&self, _: ReplicaId, _: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        unreachable!("replicas send no requests; clients authenticate theirs themselves")
    }
}

/// A client's package that a replica forwards.
#[derive(Clone, Debug)]
pub struct Forward(pub Package);

impl Message for Forward {
    fn from_frame(frame: &Frame, suite: Suite) -> Result<Self, DecodeError> {
        if frame.key.view != 0 || frame.key.seq != 0 {
            return Err(DecodeError::NotCanonical("forward key"));
        }
        Ok(Self(Package::from_bytes(&frame.body, suite)?))
    }

    fn carries(&self) -> Carries {
        Carries::Macs
    }

    fn inner_claims(&self, _suite: Suite, claim: &mut dyn FnMut(Claim<'_>)) {
        package_claim(&self.0, claim);
    }

    fn parts(&self, sender: ReplicaId, suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let body = self.0.to_bytes();
        let digest = tercio_crypto::hash(suite, &[&body]);
        (Key::of_replica(Kind::FORWARD, sender, 0, 0, digest), body, None)
    }
}

/// A batch with its encoding and digest, each made once.
#[derive(Debug, PartialEq, Eq)]
pub struct EncodedBatch {
    /// The batch.
    pub batch: Batch,
    /// Its encoding: what is sent, logged and hashed.
    pub bytes: Bytes,
    /// The digest of the encoding.
    pub digest: Digest,
}

impl EncodedBatch {
    /// Encodes and names a batch.
    #[must_use]
    pub fn new(batch: Batch, suite: Suite) -> Self {
        let bytes = batch.to_bytes();
        let digest = tercio_crypto::hash(suite, &[&bytes]);
        Self { batch, bytes, digest }
    }

    /// Reads a batch whose digest the caller has checked or will check.
    ///
    /// # Errors
    /// When the bytes are no batch.
    pub fn from_bytes(bytes: Bytes, digest: Digest, suite: Suite) -> Result<Self, DecodeError> {
        Ok(Self { batch: Batch::from_bytes(&bytes, suite)?, bytes, digest })
    }
}
