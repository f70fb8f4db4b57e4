//! The contract of the stage.

use crate::{Filter, Outcome};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::Checked;
use tercio_types::{Membership, Principal};

/// Turns frames into verified messages, wherever that is done. `M` is the ordering protocol's
/// message.
///
/// Upon `submit` of a frame: exactly one outcome comes out of `poll`, then or later; the verified
/// messages of a link come in the order in which their frames were submitted, those of different
/// links in any order. (A frame that is dropped may be told sooner: its place does not matter.)
/// Upon `set_membership`: what is submitted from then on is judged by that membership, what was
/// submitted before by the one before. Upon `set_filter`: what is submitted from then on, and what
/// waits, may be passed over by it.
///
/// It has no clock: `now` is the time since any point that the caller keeps to.
pub trait VerifyStage<M>: Send {
    /// Installs the keys of a membership with other clients.
    fn set_membership(&mut self, membership: Arc<Membership>);

    /// Publishes what is not worth checking from now on.
    fn set_filter(&mut self, filter: &Filter);

    /// Takes a frame that came on the link of `from`.
    fn submit(&mut self, from: Principal, bytes: &Bytes, now: Duration);

    /// The next outcome that is there.
    fn poll(&mut self) -> Option<Outcome<M>>;

    /// Whether [`Self::work`] is to be called: there is a batch, no more frames are at hand
    /// (`drained`) and some wait, or the first of them has waited long enough.
    fn is_due(&self, drained: bool, now: Duration) -> bool;

    /// Whether frames wait for others: the caller looks for more without blocking.
    fn gathers(&self) -> bool;

    /// Makes outcomes of all that waits here, or takes over what others have made of it.
    fn work(&mut self);

    /// All that is at hand was submitted: hands it on.
    fn flush(&mut self) {}

    /// Whether there is room for a frame of this link. Clients have a part of the room, and one of
    /// them a part of that: what finds none is to be dropped and counted. A replica's frame is
    /// always taken.
    fn has_room_for(&self, from: Principal) -> bool {
        let _ = from;
        true
    }

    /// Whether nothing more is to be read from the links before some of what waits is done:
    /// back-pressure.
    fn is_full(&self) -> bool {
        false
    }

    /// Waits until there are outcomes, no longer than this.
    fn wait(&mut self, at_most: Duration) {
        let _ = at_most;
    }

    /// How many frames were dropped, by reason; without those that the filter passed over.
    fn dropped(&self) -> &BTreeMap<&'static str, u64>;

    /// How many signatures were checked, and how.
    fn checked(&self) -> Checked;
}
