//! Requests that wait to be ordered, and whose clients' MACs count (rules A1 to A4, T2).

mod handed_on;

use super::context::{At, Config};
use super::outbox::Outbox;
use super::{BTreeMap, BTreeSet, ClientId, Delivery, Effect, Instant, Package, ReplicaId};
use crate::pool::{Admitted, LONG, Share};
use crate::{MAX_PACKAGE, RequestPool};
use handed_on::HandedOn;
use std::time::Duration;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{Membership, RequestWindow};
use tercio_wire::reject::Reason;
use tercio_wire::{EncodedBatch, package_len};

/// A request that another replica handed on.
pub(super) struct Forwarded {
    pub(super) from: ReplicaId,
    pub(super) package: Package,
    /// Whether its client's tag fails for us.
    pub(super) doubted: bool,
}

/// What clients want, and which of them must sign it.
#[derive(Debug)]
pub(super) struct Requests {
    pool: RequestPool,
    /// Clients whose MACs count for nothing in this epoch.
    must_sign: BTreeSet<ClientId>,
    /// Requests whose tags fail for us and that others hand on.
    handed_on: HandedOn,
    /// Before when nothing is handed to all again (rule T2).
    rests_until: Instant,
}

impl Requests {
    pub(super) fn new(pool: RequestPool) -> Self {
        let (must_sign, handed_on) = (BTreeSet::new(), HandedOn::default());
        Self { pool, must_sign, handed_on, rests_until: Instant(0) }
    }

    pub(super) fn pool(&self) -> &RequestPool {
        &self.pool
    }

    /// For the primary, which takes batches out of it, and for what a driver asks.
    pub(super) fn pool_mut(&mut self) -> &mut RequestPool {
        &mut self.pool
    }

    /// Clients that must sign, in order.
    pub(super) fn must_sign(&self) -> Vec<ClientId> {
        self.must_sign.iter().copied().collect()
    }

    pub(super) fn recall_must_sign(&mut self, clients: Vec<ClientId>) {
        self.must_sign = clients.into_iter().collect();
    }

    pub(super) fn on_request(
        &mut self,
        config: &Config,
        at: At,
        package: Package,
        from_client: bool,
        out: &mut Outbox,
    ) {
        let (client, first, count) = (package.client, package.first, package.ops.len());
        let digest = package.digest;
        // A replica can hand on a longer one than its client could send us.
        if package_len(&package) > MAX_PACKAGE {
            return out.drop_message("package_too_long");
        }
        if !package.is_signed() && self.must_sign.contains(&client) {
            return out.push(Effect::Decline { client, first, reason: Reason::MustSign });
        }
        // A copy to hand on shares the package's bytes.
        let primary = at.orders(config);
        let is_primary = primary == config.me;
        let is_long = package_len(&package) > LONG && stands(Defence::F60SizeOfWhatWaits);
        let copy = (from_client && !is_primary && !is_long).then(|| package.clone());
        let share = if from_client { Share::Asked } else { Share::HandedOn };
        let admitted = self.pool.admit(package, share, at.now);
        if from_client && admitted == Admitted::Known {
            self.pool.sent_again(client, first, at.now);
        }
        match admitted {
            Admitted::Done => out.push(Effect::Repeat { client, first, count, digest }),
            Admitted::Full => out.push(Effect::Decline { client, first, reason: Reason::Busy }),
            Admitted::New | Admitted::Known if is_primary => {}
            // The client turned to us: either it does not know the primary, or the primary does
            // not answer it.
            Admitted::New | Admitted::Known => {
                if let Some(package) = copy.filter(|_| !at.changing || at.follows(at.entered)) {
                    out.push(Effect::Forward { to: primary, package });
                }
            }
        }
    }

    /// Rule A4: who hands a request on says that the client's tag is good for it. Of f+1 that hand
    /// on a request whose tag fails for us, one is correct.
    pub(super) fn on_forwarded(
        &mut self,
        config: &Config,
        at: At,
        forwarded: Forwarded,
        timeout: Duration,
        out: &mut Outbox,
    ) {
        let Forwarded { from, package, doubted } = forwarded;
        let weak = config.weak_quorum();
        if doubted && self.handed_on.note(from, &package, config.suite) < weak {
            return out.drop_message("forwarded_bad_mac");
        }
        self.on_request(config, at, package.clone(), false, out);
        self.pool.vouch(&package, from, at.ago(timeout / 2));
    }

    /// Which clients' MACs keep us from voting for a batch, beyond those that fail for us.
    pub(super) fn doubt(&self, batch: &EncodedBatch, doubts: &mut Vec<ClientId>) {
        if !self.must_sign.is_empty() {
            let unsigned = |p: &&Package| self.must_sign.contains(&p.client) && !p.is_signed();
            doubts.extend(batch.batch.packages.iter().filter(unsigned).map(|p| p.client));
        }
    }

    pub(super) fn on_delivered(&mut self, delivery: &Delivery, now: Instant) {
        for package in delivery.batch.iter().flat_map(|batch| &batch.batch.packages) {
            self.pool.delivered(package);
        }
        self.pool.trim(now);
    }

    /// State came from elsewhere.
    pub(super) fn skip_to(&mut self, windows: BTreeMap<ClientId, RequestWindow>, now: Instant) {
        self.pool.replace_windows(windows, now);
    }

    /// Rule T2: half-way to that, as it is before any back-off, a backup hands the request to all, so
    /// that all wait for it. One that waits for a view does so too: the others may need its word
    /// (rule A4) to leave as well. Of each client some at a time, once in a status interval.
    pub(super) fn forward_deadline(&self, config: &Config, at: At) -> Option<Instant> {
        let leads = at.is_primary(config) && !at.changing && at.may_vote;
        if leads || !stands(Defence::F18RequestTimers) {
            return None;
        }
        let oldest = self.pool.oldest_unforwarded()?;
        Some((oldest + at.patience(config) / 2).max(self.rests_until))
    }

    /// Rule A4: a request under MACs that too few others have handed to us as well does not stay.
    pub(super) fn unvouched_deadline(
        &self,
        config: &Config,
        at: At,
        timeout: Duration,
    ) -> Option<Instant> {
        if at.changing || at.is_primary(config) || at.catching_up {
            return None;
        }
        self.pool.oldest_unvouched().map(|since| since + timeout)
    }

    /// Lets go of what nobody vouches for, and hands on what waits.
    pub(super) fn on_timeout(
        &mut self,
        config: &Config,
        at: At,
        timeout: Duration,
        out: &mut Outbox,
    ) {
        self.pool.trim(at.now);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= at.now);
        if due(self.unvouched_deadline(config, at, timeout)) {
            let expired = self.pool.expire_unvouched(at.ago(timeout));
            out.drop_messages("request_not_vouched_for", expired);
        }
        if due(self.forward_deadline(config, at)) {
            self.rests_until = at.now + config.settings.status_interval;
            for package in self.pool.to_forward(at.ago(at.patience(config) / 2), at.now) {
                for to in config.others() {
                    out.push(Effect::Forward { to, package: package.clone() });
                }
            }
        }
    }

    /// Rule A3: these clients must sign from now on.
    pub(super) fn blame(
        &mut self,
        membership: &Membership,
        clients: impl IntoIterator<Item = ClientId>,
    ) {
        if stands(Defence::F16VouchForClients) {
            // A faulty replica blames whom it likes; that must not fill our memory.
            let known = clients.into_iter().filter(|client| membership.may_have(*client));
            self.must_sign.extend(known);
        }
    }

    /// What the old view left behind waits again, and nobody has waited yet.
    pub(super) fn requeue<'a>(
        &mut self,
        abandoned: Vec<Package>,
        carried: impl Iterator<Item = &'a Package>,
        now: Instant,
        out: &mut Outbox,
    ) {
        for package in abandoned {
            if package.is_signed() || !self.must_sign.contains(&package.client) {
                self.pool.admit(package, Share::Asked, now);
            }
        }
        self.pool.requeue(carried, now);
        let must_sign = &self.must_sign;
        let refused = self.pool.discard(|p| !p.is_signed() && must_sign.contains(&p.client));
        for (client, first) in refused {
            out.push(Effect::Decline { client, first, reason: Reason::MustSign });
        }
    }
}
