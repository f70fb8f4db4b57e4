//! The contract of the stage.

use crate::{Filter, Lane, Outcome};
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
/// messages of a [`Lane`] come in the order in which their frames were submitted, those of different
/// lanes in any order. (A frame that is dropped may be told sooner: its place does not matter.)
/// Replicas' messages go first, and clients' frames and FORWARDs share what is left: by deficit round
/// robin, each lane below its part finding room. A link that costs too much in vain is not listened to
/// for a while (decision 0043).
/// Upon `set_membership`: what is submitted from then on is judged by that membership, what was
/// submitted before by the one before, or by either while it waits to be shared out. Upon `set_filter`: what is submitted from then on, and what
/// waits, may be passed over by it.
///
/// It has no clock: `now` is the time since any point that the caller keeps to.
pub trait VerifyStage<M>: Send {
    /// Installs the keys of a membership with other clients.
    fn set_membership(&mut self, membership: Arc<Membership>);

    /// Publishes what is not worth checking from now on.
    fn set_filter(&mut self, filter: &Filter);

    /// Whether frames of the link of `from` are listened to: it has not used up its time. What is
    /// submitted all the same is dropped.
    fn hears(&mut self, from: Principal, now: Duration) -> bool {
        let _ = (from, now);
        true
    }

    /// For how long a link is best not read that has used up its time: zero for any other.
    fn silence(&self, from: Principal) -> Duration {
        let _ = from;
        Duration::ZERO
    }

    /// A good frame of this lane, of so many bytes, was of no use and was answered all the same: that is
    /// charged to it.
    fn charge(&mut self, lane: Lane, bytes: usize) {
        let _ = (lane, bytes);
    }

    /// Takes a frame that came on the link of `from`.
    fn submit(&mut self, from: Principal, bytes: &Bytes, now: Duration);

    /// The next outcome that is there.
    fn poll(&mut self) -> Option<Outcome<M>>;

    /// Whether [`Self::work`] is to be called: there is a batch, no more frames are at hand
    /// (`drained`) and some wait, or the first of them has waited long enough.
    fn is_due(&self, drained: bool, now: Duration) -> bool;

    /// Whether frames wait for others: the caller looks for more without blocking.
    fn gathers(&self) -> bool;

    /// Makes outcomes of all that waits of replicas' messages and as much more as fills a batch, or
    /// takes over what others have made of what waits.
    fn work(&mut self);

    /// All that is at hand was submitted: it may be shared among the lanes, and handed on.
    fn flush(&mut self);

    /// Whether there is room for a frame of this link. Clients have a part of the room, and one of
    /// them a part of that: what finds none is to be dropped and counted. A replica's frame is
    /// always taken.
    fn has_room_for(&self, from: Principal) -> bool;

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
