//! What the write-ahead log keeps: every promise, and the bodies they name, each body once
//! (`docs/format.md`). A restarted replica reads them back, says the same again, and nothing else
//! (f03, f05).

use super::normal::SlotPromises;
use super::view_change::ViewPromises;
use super::{
    Arc, Bytes, CertifiedCheckpoint, ClientId, Digest, Floor, SeqNum, SignedNewView,
    SignedViewChange, View,
};
use tercio_types::MAX_REPLICAS;
use tercio_wire::{Decode, DecodeError, Encode, Reader};

/// The most slots or digests that a record is read with.
const MAX_ENTRIES: usize = 1 << 17;

/// Everything that binds us, but for bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promises {
    /// The checkpoint that all of it lies above: the record stands for what was forgotten below, so it
    /// must not be known without that.
    pub(super) stable: Option<Arc<CertifiedCheckpoint>>,
    pub(super) view: ViewPromises,
    /// Clients that must sign, in order.
    pub(super) must_sign: Vec<ClientId>,
    pub(super) slots: Vec<SlotPromises>,
    /// That our log was lost, with the floor if it is known.
    pub(super) learning: Option<Option<Floor>>,
    /// What lies below was promised in another life, which operators ended ([`super::agreed`]).
    pub(super) agreed: Option<Floor>,
}

/// A record of the write-ahead log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// We accepted a proposal; with its body if the log does not hold it yet.
    Accepted { view: View, seq: SeqNum, digest: Digest, body: Option<Bytes> },
    /// It prepared.
    Prepared { view: View, seq: SeqNum, digest: Digest },
    /// We left all views below.
    Leave(Arc<SignedViewChange>),
    /// We entered a view.
    Enter(Arc<SignedNewView>),
    /// All of it at once, at a stable checkpoint, so that older records may go.
    State(Promises),
    /// Our log was lost; with what bounds the promises in it, once that is known.
    Learning(Option<Floor>),
    /// The window was moved to a certificate that was not reached (rule W3).
    Skipped(Arc<CertifiedCheckpoint>),
    /// What others signed last, each under that signature alone: no promise of ours, but they may
    /// ask (rule L7).
    Heard(Vec<CertifiedCheckpoint>),
}

fn put_floor(out: &mut Vec<u8>, floor: Option<&Floor>) {
    out.push(floor.is_some().into());
    if let Some(Floor { seq, view }) = floor {
        out.extend_from_slice(&seq.0.to_le_bytes());
        out.extend_from_slice(&view.0.to_le_bytes());
    }
}

fn take_floor(input: &mut Reader) -> Result<Option<Floor>, DecodeError> {
    Ok(match input.flag("floor")? {
        true => {
            let seq = SeqNum(input.u64("floor")?);
            Some(Floor { seq, view: View(input.u64("floor")?) })
        }
        false => None,
    })
}

fn put_pair(out: &mut Vec<u8>, pair: Option<(View, Digest)>) {
    out.push(pair.is_some().into());
    if let Some((view, digest)) = pair {
        out.extend_from_slice(&view.0.to_le_bytes());
        out.extend_from_slice(&digest.0);
    }
}

fn take_pair(input: &mut Reader) -> Result<Option<(View, Digest)>, DecodeError> {
    Ok(match input.flag("promise")? {
        true => Some((View(input.u64("promise")?), input.digest("promise")?)),
        false => None,
    })
}

fn put_part(out: &mut Vec<u8>, part: Option<Bytes>) {
    let part = part.unwrap_or_default();
    out.extend_from_slice(&(part.len() as u32).to_le_bytes());
    out.extend_from_slice(&part);
}

fn take_part<P: Decode>(input: &mut Reader) -> Result<Option<P>, DecodeError> {
    let len = input.u32("part")? as usize;
    let part = input.take(len, "part")?;
    (len > 0).then(|| P::from_bytes(&part, input.suite())).transpose()
}

impl Record {
    /// The number with which the record loses its worth; zero when a later `State` replaces it.
    pub(super) fn tag(&self) -> SeqNum {
        match self {
            Self::Accepted { seq, .. } | Self::Prepared { seq, .. } => *seq,
            Self::Skipped(certificate) => certificate.checkpoint.seq,
            Self::Leave(_)
            | Self::Enter(_)
            | Self::State(_)
            | Self::Learning(_)
            | Self::Heard(_) => SeqNum(0),
        }
    }
}

impl Encode for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, view: &View, seq: &SeqNum, digest: &Digest| {
            out.push(kind);
            out.extend_from_slice(&view.0.to_le_bytes());
            out.extend_from_slice(&seq.0.to_le_bytes());
            out.extend_from_slice(&digest.0);
        };
        match self {
            Self::Accepted { view, seq, digest, body } => {
                head(out, 1, view, seq, digest);
                out.extend_from_slice(body.as_deref().unwrap_or_default());
            }
            Self::Prepared { view, seq, digest } => head(out, 2, view, seq, digest),
            Self::Leave(view_change) => {
                out.push(3);
                view_change.encode(out);
            }
            Self::Enter(new_view) => {
                out.push(4);
                new_view.encode(out);
            }
            Self::State(promises) => {
                out.push(if promises.agreed.is_some() { 10 } else { 8 });
                if let Some(Floor { seq, view }) = promises.agreed {
                    out.extend_from_slice(&seq.0.to_le_bytes());
                    out.extend_from_slice(&view.0.to_le_bytes());
                }
                put_part(out, promises.stable.as_ref().map(|stable| stable.to_bytes()));
                let ViewPromises { view, changing, leave, enter } = &promises.view;
                out.extend_from_slice(&view.0.to_le_bytes());
                out.push((*changing).into());
                put_part(out, leave.as_ref().map(|leave| leave.to_bytes()));
                put_part(out, enter.as_ref().map(|enter| enter.to_bytes()));
                out.extend_from_slice(&(promises.must_sign.len() as u32).to_le_bytes());
                for client in &promises.must_sign {
                    out.extend_from_slice(&client.0.to_le_bytes());
                }
                out.extend_from_slice(&(promises.slots.len() as u32).to_le_bytes());
                for slot in &promises.slots {
                    out.extend_from_slice(&slot.seq.0.to_le_bytes());
                    put_pair(out, slot.accepted);
                    put_pair(out, slot.prepared);
                    out.extend_from_slice(&(slot.preprepared.len() as u32).to_le_bytes());
                    for (digest, view) in &slot.preprepared {
                        out.extend_from_slice(&digest.0);
                        out.extend_from_slice(&view.0.to_le_bytes());
                    }
                }
                if let Some(floor) = &promises.learning {
                    put_floor(out, floor.as_ref());
                }
            }
            Self::Learning(floor) => {
                out.push(6);
                put_floor(out, floor.as_ref());
            }
            Self::Skipped(certificate) => {
                out.push(7);
                certificate.encode(out);
            }
            Self::Heard(heard) => {
                out.push(9);
                out.extend_from_slice(&(heard.len() as u32).to_le_bytes());
                heard.iter().for_each(|said| said.encode(out));
            }
        }
    }
}

impl Decode for Record {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let suite = input.suite();
        let kind = input.u8("record")?;
        Ok(match kind {
            1 | 2 => {
                let view = View(input.u64("record")?);
                let seq = SeqNum(input.u64("record")?);
                let digest = input.digest("record")?;
                if kind == 2 {
                    Self::Prepared { view, seq, digest }
                } else {
                    let body = Some(input.take_rest()).filter(|body| !body.is_empty());
                    Self::Accepted { view, seq, digest, body }
                }
            }
            3 => Self::Leave(Arc::new(SignedViewChange::from_bytes(&input.take_rest(), suite)?)),
            4 => Self::Enter(Arc::new(SignedNewView::from_bytes(&input.take_rest(), suite)?)),
            5 | 8 | 10 => {
                let agreed = match kind {
                    10 => {
                        let seq = SeqNum(input.u64("record")?);
                        Some(Floor { seq, view: View(input.u64("record")?) })
                    }
                    _ => None,
                };
                // Before it had the certificate it was kind 5.
                let stable = if kind == 5 { None } else { take_part(input)?.map(Arc::new) };
                let view = View(input.u64("record")?);
                let changing = input.flag("record")?;
                let leave = take_part(input)?.map(Arc::new);
                let enter = take_part(input)?.map(Arc::new);
                let view = ViewPromises { view, changing, leave, enter };
                let mut must_sign = Vec::new();
                for _ in 0..input.count(8, MAX_ENTRIES, "record")? {
                    must_sign.push(ClientId(input.u64("record")?));
                }
                let mut slots = Vec::new();
                for _ in 0..input.count(14, MAX_ENTRIES, "record")? {
                    let seq = SeqNum(input.u64("record")?);
                    let (accepted, prepared) = (take_pair(input)?, take_pair(input)?);
                    let mut preprepared = Vec::new();
                    for _ in 0..input.count(40, MAX_ENTRIES, "record")? {
                        let digest = input.digest("record")?;
                        preprepared.push((digest, View(input.u64("record")?)));
                    }
                    slots.push(SlotPromises { seq, accepted, prepared, preprepared });
                }
                // At the end, and only of a learner: the records of others are as they were.
                let learning = (input.remaining() > 0).then(|| take_floor(input)).transpose()?;
                Self::State(Promises { stable, view, must_sign, slots, learning, agreed })
            }
            6 => Self::Learning(take_floor(input)?),
            7 => Self::Skipped(Arc::new(CertifiedCheckpoint::decode(input)?)),
            9 => {
                let count = input.count(64, MAX_REPLICAS, "record")?;
                let heard = (0..count).map(|_| CertifiedCheckpoint::decode(input));
                Self::Heard(heard.collect::<Result<_, _>>()?)
            }
            other => {
                return Err(DecodeError::Unknown { what: "record kind", found: other.into() });
            }
        })
    }
}
