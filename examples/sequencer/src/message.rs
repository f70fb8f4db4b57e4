//! What replicas say to each other.

use bytes::Bytes;
use std::sync::Arc;
use tercio_crypto::{Claim, hash};
use tercio_types::{
    Authenticator, CertifiedCheckpoint, Checkpoint, Digest, ReplicaId, SeqNum, SignatureBytes,
    Suite,
};
use tercio_wire::{
    Carries, Decode, DecodeError, Encode, EncodedBatch, Frame, Key, Kind, Message, Reader,
    certificate_claims, checkpoint_key, package_claim,
};

pub(crate) const ORDER: Kind = Kind(Kind::PROTOCOL + 24);
pub(crate) const STANDING: Kind = Kind(Kind::PROTOCOL + 25);
pub(crate) const STABLE: Kind = Kind(Kind::PROTOCOL + 26);

/// A message of the protocol.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is rare, and not kept as such")]
pub enum SequencerMessage {
    /// The sequencer gives a number to a batch.
    Order {
        /// The number.
        seq: SeqNum,
        /// The batch.
        batch: Arc<EncodedBatch>,
    },
    /// 'This is my state.' Signed.
    Checkpoint {
        /// The state.
        checkpoint: Checkpoint,
        /// The sender's signature.
        signature: SignatureBytes,
    },
    /// 'This is how far I came; send me what I lack.'
    Standing {
        /// The last number that it delivered.
        delivered: SeqNum,
        /// Its stable checkpoint.
        stable: SeqNum,
    },
    /// A checkpoint certificate, for one that lags.
    Stable(Arc<CertifiedCheckpoint>),
}

impl Message for SequencerMessage {
    fn from_frame(frame: &Frame, suite: Suite) -> Result<Self, DecodeError> {
        let Key { kind, seq, digest, sender, .. } = frame.key;
        let message = match kind {
            ORDER => {
                let batch = EncodedBatch::from_bytes(frame.body.clone(), digest, suite)?;
                Self::Order { seq: SeqNum(seq), batch: Arc::new(batch) }
            }
            Kind::CHECKPOINT => {
                let Authenticator::Signature(signature) = &frame.auth else {
                    let what = "authenticator: a signature is needed";
                    return Err(DecodeError::NotCanonical(what));
                };
                let checkpoint = Checkpoint::from_bytes(&frame.body, suite)?;
                Self::Checkpoint { checkpoint, signature: **signature }
            }
            STANDING => {
                let mut input = Reader::new(frame.body.clone(), suite);
                let stable = SeqNum(input.u64("standing")?);
                input.finish()?;
                Self::Standing { delivered: SeqNum(seq), stable }
            }
            STABLE => Self::Stable(Arc::new(CertifiedCheckpoint::from_bytes(&frame.body, suite)?)),
            Kind(other) => {
                return Err(DecodeError::Unknown { what: "kind", found: other.into() });
            }
        };
        // One encoding: the key of what was read must be the key that came.
        if message.parts(ReplicaId(sender), suite).0 != frame.key {
            return Err(DecodeError::NotCanonical("key"));
        }
        Ok(message)
    }

    fn carries(&self) -> Carries {
        match self {
            Self::Checkpoint { .. } => Carries::Signature,
            Self::Order { .. } | Self::Standing { .. } | Self::Stable(_) => Carries::Macs,
        }
    }

    fn inner_claims(&self, suite: Suite, claim: &mut dyn FnMut(Claim<'_>)) {
        match self {
            Self::Order { batch, .. } => {
                batch.batch.packages.iter().for_each(|package| package_claim(package, claim));
            }
            Self::Stable(certificate) => certificate_claims(suite, certificate, claim),
            Self::Checkpoint { .. } | Self::Standing { .. } => {}
        }
    }

    fn parts(&self, sender: ReplicaId, suite: Suite) -> (Key, Bytes, Option<SignatureBytes>) {
        let key =
            |kind, seq: SeqNum, digest: Digest| Key::of_replica(kind, sender, 0, seq.0, digest);
        match self {
            Self::Order { seq, batch } => {
                (key(ORDER, *seq, batch.digest), batch.bytes.clone(), None)
            }
            Self::Checkpoint { checkpoint, signature } => {
                let key = checkpoint_key(suite, sender, checkpoint);
                (key, checkpoint.to_bytes(), Some(*signature))
            }
            Self::Standing { delivered, stable } => {
                let body = Bytes::copy_from_slice(&stable.0.to_le_bytes());
                (key(STANDING, *delivered, hash(suite, &[&body])), body, None)
            }
            Self::Stable(certificate) => {
                let body = certificate.to_bytes();
                (key(STABLE, SeqNum(0), hash(suite, &[&body])), body, None)
            }
        }
    }
}
