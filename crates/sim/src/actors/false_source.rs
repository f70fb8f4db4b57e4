//! False source: lies to those who fetch blocks and state from it.

use super::{Actor, Stage};
use crate::Rng;
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_sync::Blocks;
use tercio_sync::transfer::message::State;
use tercio_types::Principal;
use tercio_wire::{Decode, Encode, Frame, Kind, block_hash};

/// A way to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falsehood {
    /// Bytes that are nothing.
    Junk,
    /// No answer.
    Silence,
    /// Another chunk, or another node, than was asked for.
    OtherPieces,
    /// It takes back what it offered.
    Lower,
    /// Blocks of its own, with a certificate that it signed alone.
    Forgery,
    /// Offers with this number wherever a number is that nobody certifies.
    Numbers(u64),
}

/// Lies in one way, or in all of them by turns.
#[derive(Debug)]
pub struct FalseSource {
    one: Option<Falsehood>,
}

impl FalseSource {
    /// Lies in every way.
    #[must_use]
    pub fn new() -> Self {
        Self { one: None }
    }

    /// Lies in this way.
    #[must_use]
    pub fn of(one: Falsehood) -> Self {
        Self { one: Some(one) }
    }
}

impl Default for FalseSource {
    fn default() -> Self {
        Self::new()
    }
}

fn any(rng: &mut Rng) -> Falsehood {
    let numbers = [u64::MAX, 0, rng.bits()];
    let number = *rng.pick(&numbers);
    *rng.pick(&[
        Falsehood::Junk,
        Falsehood::Silence,
        Falsehood::OtherPieces,
        Falsehood::Lower,
        Falsehood::Forgery,
        Falsehood::Numbers(number),
    ])
}

/// The chain with another time in each block, whole in itself, and a certificate to match. It has
/// the signatures of the true one, which are now good for nothing but the liar's own to make again.
fn forge(mut blocks: Blocks) -> Blocks {
    let mut parent = None;
    for block in &mut blocks.blocks {
        block.header.time.0 += 1;
        if let Some(parent) = parent {
            block.header.parent = parent;
        }
        parent = Some(block_hash(&block.header));
    }
    if let (Some(certificate), Some(parent)) = (&mut blocks.certificate, parent) {
        certificate.checkpoint.block = parent;
    }
    blocks
}

/// The body of a lie; none where there is nothing to lie about in this way.
fn lie(how: Falsehood, kind: Kind, body: &Bytes, suite: tercio_types::Suite) -> Option<Bytes> {
    if kind == Kind::BLOCKS {
        let blocks = Blocks::from_bytes(body, suite).ok()?;
        return (how == Falsehood::Forgery).then(|| forge(blocks).to_bytes());
    }
    match (how, State::from_bytes(body, suite).ok()?) {
        (Falsehood::Numbers(number), State::Offer(Some(mut offer))) => {
            (offer.state_bytes, offer.chain_bytes, offer.block_bytes) = (number, number, number);
            Some(State::Offer(Some(offer)).to_bytes())
        }
        (_, State::Offer(_))
        | (Falsehood::Forgery | Falsehood::Silence | Falsehood::Numbers(_), _) => None,
        (Falsehood::Junk, _) => Some(Bytes::from_static(b"junk")),
        (Falsehood::Lower, _) => Some(State::Offer(None).to_bytes()),
        (Falsehood::OtherPieces, State::Chunks(mut parts)) => {
            parts.iter_mut().for_each(|(_, part)| *part = Bytes::from_static(b"another chunk"));
            Some(State::Chunks(parts).to_bytes())
        }
        (Falsehood::OtherPieces, State::Nodes(_)) => None,
    }
}

impl Actor for FalseSource {
    fn name(&self) -> &'static str {
        "false source"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let key = peek_key(&bytes);
        let Some(key) = key.filter(|key| [Kind::STATE, Kind::BLOCKS].contains(&key.kind)) else {
            return stage.send(to, bytes);
        };
        let how = self.one.unwrap_or_else(|| any(stage.rng));
        let suite = stage.forger.membership().suite();
        let Ok(frame) = Frame::decode(&bytes, suite) else { return };
        let offers = frame.body.first() == Some(&0);
        if how == Falsehood::Silence && key.kind == Kind::STATE && !offers {
            return;
        }
        match lie(how, key.kind, &frame.body, suite) {
            None => stage.send(to, bytes),
            Some(body) => {
                let lie = stage.forger.plain(to, key, body);
                stage.send(to, lie);
            }
        }
    }
}
