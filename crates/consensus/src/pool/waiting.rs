//! What waits and for how long: what is to be forwarded to others (T2), what enough others have
//! vouched for (A4), and what is held against the primary (T1).

use super::{Key, RequestPool};
use crate::Instant;
use std::time::Duration;
use tercio_types::{ClientId, Package, ReplicaId, RequestSeq};
use tercio_wire::package_len;

impl RequestPool {
    /// Its client has sent a waiting package again: it is to be handed on once more.
    pub fn sent_again(&mut self, client: ClientId, first: RequestSeq, now: Instant) {
        let key = (client, first);
        if let Some(pending) = self.find_mut(&key).filter(|p| !p.to_forward) {
            pending.to_forward = true;
            let (id, at) = (pending.id, now + pending.spare);
            self.unforwarded.push_back((at, id, key));
        }
    }

    /// From now on the request is held against the primary.
    pub(super) fn hold(&mut self, key: Key, since: Instant) {
        let Some(pending) = self.find_mut(&key) else { return };
        if pending.held_since.is_none() {
            pending.held_since = Some(since);
            let id = pending.id;
            self.held.insert((since, id), key);
        }
    }

    /// Another replica has handed us a package that we hold. When enough have, it counts as held
    /// against the primary since `since`.
    pub fn vouch(&mut self, package: &Package, by: ReplicaId, since: Instant) {
        let key = (package.client, package.first);
        let needed = self.vouchers_needed;
        let Some(pending) = self.find_mut(&key) else { return };
        if pending.package.digest == package.digest {
            pending.vouchers.insert(by);
            if pending.vouchers.len() >= needed {
                self.hold(key, since);
            }
        }
    }

    /// Releases what arrived until `before` and was not vouched for. Gives how many.
    pub fn expire_unvouched(&mut self, before: Instant) -> u64 {
        let mut expired = 0;
        while let Some((_, id, key)) = self.unvouched.pop_front_if(|(at, ..)| *at <= before) {
            let pending = self.find(&key).filter(|p| p.id == id);
            if pending.is_some_and(|p| p.held_since.is_none()) {
                self.remove(&key);
                expired += 1;
            }
        }
        expired
    }

    /// When the first request arrived that nobody has vouched for enough.
    #[must_use]
    pub fn oldest_unvouched(&self) -> Option<Instant> {
        self.unvouched.front().map(|(at, ..)| *at)
    }

    /// Rule T7: how long so many bytes may take to be ordered and shipped.
    #[must_use]
    pub fn time_for(&self, bytes: usize) -> Duration {
        self.throughput.time_for(bytes)
    }

    /// Everything that waits has waited since now, or since what came before it can have been
    /// ordered (rule T7), and was forwarded to nobody.
    pub(super) fn restart_waiting(&mut self, now: Instant) {
        self.began = now;
        self.admission.restart();
        self.held.clear();
        self.unforwarded.clear();
        self.unvouched.clear();
        let mut ahead = 0;
        for (id, key) in self.by_arrival() {
            ahead += self.find(&key).map_or(0, |pending| package_len(&pending.package));
            let spare = self.throughput.time_for(ahead);
            let since = now + spare;
            let pending = self.find_mut(&key).expect("just listed");
            (pending.to_forward, pending.spare) = (true, spare);
            let held = pending.held_since.as_mut().map(|held| *held = since).is_some();
            self.unforwarded.push_back((since, id, key));
            if held {
                self.held.insert((since, id), key);
            } else {
                self.unvouched.push_back((since, id, key));
            }
        }
    }

    /// Since when the oldest request is held against the primary of this view.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((since, _), _)| *since)
    }

    /// When the request came that has waited longest, in this view or earlier ones. Goes through
    /// all that waits.
    #[must_use]
    pub fn oldest_arrival(&self) -> Option<Instant> {
        let waiting = self.clients.values().flat_map(|client| &client.waiting);
        waiting.map(|(_, pending)| pending.arrived).min()
    }

    /// When the first request arrived that is to be handed on.
    #[must_use]
    pub fn oldest_unforwarded(&self) -> Option<Instant> {
        self.unforwarded.front().map(|(at, ..)| *at)
    }

    /// Requests that are to be forwarded and arrived until `before`. Each is given once a view, and
    /// again when its client sends it again.
    pub fn to_forward(&mut self, before: Instant) -> Vec<Package> {
        let mut out = Vec::new();
        while let Some((_, id, key)) = self.unforwarded.pop_front_if(|(at, ..)| *at <= before) {
            if let Some(pending) = self.find_mut(&key).filter(|p| p.id == id) {
                pending.to_forward = false;
                out.push(pending.package.clone());
            }
        }
        out
    }
}
