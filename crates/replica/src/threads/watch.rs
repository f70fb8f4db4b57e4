//! The probe of a replica on threads: it counts what passes the borders of the stages, and measures
//! the time in between when somebody may ask for that (decision 0040).
//!
//! What is in flight is kept in tables of a fixed size, whatever is in flight. Who meets another in
//! his place takes it: of the other the time is not measured, and nothing else happens.

use super::Clock;
use crate::metrics::{Counts, Measured, Metrics, Stage};
use crate::probe::Probe;
use std::collections::VecDeque;
use tercio_consensus::{BatchStep, Delivery, Instant, PersistId, ViewStep};
use tercio_types::{ClientId, Package, Principal, RequestSeq, SeqNum};
use tercio_wire::{Key, Kind};

/// Places for packages in flight: a power of two.
const PACKAGES: usize = 4096;
/// Places for batches.
const BATCHES: usize = 1024;
/// Of how many packages the time to be verified is measured for one: to read the clock for each would
/// cost more than all the rest of what is done for it here.
const VERIFIED: u64 = 8;
/// The most records that are followed to the disk.
const RECORDS: usize = 4096;

/// Counts, measures, and says which views begin and end.
pub(super) struct Watch {
    counts: Counts,
    times: Option<InFlight>,
}

impl Watch {
    pub(super) fn new(metrics: &Metrics, clock: Clock) -> Self {
        let times = metrics.measured.as_ref().map(|to| InFlight::new(to.clone(), clock));
        Self { counts: metrics.counts.clone(), times }
    }
}

impl Probe for Watch {
    fn frame(&mut self, from: Principal, bytes: &[u8], now: Instant) {
        let frames = match from {
            Principal::Client(_) => &self.counts.client_frames,
            Principal::Replica(_) => &self.counts.replica_frames,
        };
        frames.inc();
        self.counts.received_bytes.inc_by(bytes.len() as u64);
        if let (Some(times), Principal::Client(client)) = (&mut self.times, from)
            && let Some((Kind::REQUEST, first)) = Key::peek(bytes)
        {
            times.packages.put(client, RequestSeq(first), now);
        }
    }

    fn request(&mut self, package: &Package) {
        if let Some(times) = &mut self.times {
            times.verified(package);
        }
    }

    fn step(&mut self, step: BatchStep, seq: SeqNum) {
        if let Some(times) = &mut self.times {
            times.step(step, seq);
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        if let Some(batch) = &delivery.batch {
            let packages = &batch.batch.packages;
            self.counts.batches.inc();
            self.counts.packages.inc_by(packages.len() as u64);
            let operations = packages.iter().map(|package| package.ops.len() as u64).sum();
            self.counts.operations.inc_by(operations);
        }
        if let Some(times) = &mut self.times {
            times.delivered(delivery);
        }
    }

    fn executed(&mut self, seq: SeqNum) {
        if let Some(times) = &mut self.times {
            times.executed(seq);
        }
    }

    fn persist(&mut self, id: PersistId) {
        if let Some(times) = &mut self.times {
            times.persist(id);
        }
    }

    fn persisted(&mut self, id: PersistId) {
        if let Some(times) = &mut self.times {
            times.persisted(id);
        }
    }

    fn view(&mut self, step: ViewStep) {
        match step {
            ViewStep::Left { view, next, cause } => {
                self.counts.leave(cause);
                let (view, next, reason) = (view.0, next.0, cause.reason());
                tracing::warn!(view, next, cause = reason, "left view {view} for {next}: {cause}");
            }
            ViewStep::Entered { view, primary } => {
                let (view, primary) = (view.0, primary.0);
                tracing::info!(view, primary, "view {view} begins, its primary is {primary}");
            }
        }
    }
}

/// When what is in flight came to where it is.
struct InFlight {
    to: Measured,
    clock: Clock,
    /// How many packages were verified.
    verified: u64,
    packages: Packages,
    batches: Vec<InFlightBatch>,
    /// Records that are not durable yet.
    records: VecDeque<(PersistId, Instant)>,
}

#[derive(Clone, Debug, Default)]
struct InFlightBatch {
    seq: SeqNum,
    proposed: Option<Instant>,
    prepared: Option<Instant>,
    delivered: Option<Instant>,
    /// When its packages came.
    came: Vec<Instant>,
}

impl InFlight {
    fn new(to: Measured, clock: Clock) -> Self {
        let batches = vec![InFlightBatch::default(); BATCHES];
        let (packages, records) = (Packages::default(), VecDeque::new());
        Self { to, clock, verified: 0, packages, batches, records }
    }

    fn observe(&self, stage: Stage, since: Instant, now: Instant) {
        self.to.stages.of(stage).observe(now.since(since));
    }

    /// The place of a batch, which is its own from here on.
    fn batch(&mut self, seq: SeqNum) -> &mut InFlightBatch {
        let batch = &mut self.batches[seq.0 as usize % BATCHES];
        if batch.seq != seq {
            batch.came.clear();
            let came = std::mem::take(&mut batch.came);
            *batch = InFlightBatch { seq, came, ..InFlightBatch::default() };
        }
        batch
    }

    fn verified(&mut self, package: &Package) {
        self.verified += 1;
        if self.verified % VERIFIED != 1 {
            return;
        }
        if let Some(came) = self.packages.get(package.client, package.first) {
            self.observe(Stage::Verify, came, self.clock.now());
        }
    }

    fn step(&mut self, step: BatchStep, seq: SeqNum) {
        let now = self.clock.now();
        let batch = self.batch(seq);
        match step {
            BatchStep::Proposed => drop(batch.proposed.get_or_insert(now)),
            BatchStep::Prepared => {
                if let (Some(proposed), None) = (batch.proposed, batch.prepared.replace(now)) {
                    self.observe(Stage::Prepare, proposed, now);
                }
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let now = self.clock.now();
        let batch = self.batch(delivery.seq);
        batch.delivered = Some(now);
        let prepared = batch.prepared;
        let mut came = std::mem::take(&mut batch.came);
        if let Some(prepared) = prepared {
            self.observe(Stage::Commit, prepared, now);
        }
        let packages = delivery.batch.iter().flat_map(|batch| &batch.batch.packages);
        for package in packages {
            if let Some(at) = self.packages.take(package.client, package.first) {
                self.observe(Stage::Order, at, now);
                came.push(at);
            }
        }
        self.batch(delivery.seq).came = came;
    }

    fn executed(&mut self, seq: SeqNum) {
        let now = self.clock.now();
        let batch = self.batch(seq);
        let Some(delivered) = batch.delivered.take() else { return };
        let mut came = std::mem::take(&mut batch.came);
        self.observe(Stage::Execute, delivered, now);
        came.drain(..).for_each(|came| self.to.request.observe(now.since(came)));
        self.batch(seq).came = came;
    }

    fn persist(&mut self, id: PersistId) {
        if self.records.len() < RECORDS {
            self.records.push_back((id, self.clock.now()));
        }
    }

    fn persisted(&mut self, id: PersistId) {
        let now = self.clock.now();
        while let Some((_, since)) = self.records.pop_front_if(|(first, _)| *first <= id) {
            self.observe(Stage::Persist, since, now);
        }
    }
}

/// When packages came that are in flight.
struct Packages(Vec<Option<(ClientId, RequestSeq, Instant)>>);

impl Default for Packages {
    fn default() -> Self {
        Self(vec![None; PACKAGES])
    }
}

impl Packages {
    fn place(
        &mut self,
        client: ClientId,
        first: RequestSeq,
    ) -> &mut Option<(ClientId, RequestSeq, Instant)> {
        // Numbers of a client ascend in steps of one size: a multiplicative hash spreads them evenly.
        let hash = (client.0.rotate_left(32) ^ first.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.0[(hash >> 40) as usize % PACKAGES]
    }

    /// A package came; one that comes again keeps its first time.
    fn put(&mut self, client: ClientId, first: RequestSeq, now: Instant) {
        let place = self.place(client, first);
        if place.is_none_or(|known| (known.0, known.1) != (client, first)) {
            *place = Some((client, first, now));
        }
    }

    fn get(&mut self, client: ClientId, first: RequestSeq) -> Option<Instant> {
        let known = (*self.place(client, first))?;
        ((known.0, known.1) == (client, first)).then_some(known.2)
    }

    fn take(&mut self, client: ClientId, first: RequestSeq) -> Option<Instant> {
        let came = self.get(client, first)?;
        *self.place(client, first) = None;
        Some(came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_once_and_never_taken_for_others() {
        let mut packages = Packages::default();
        let (client, number) = (ClientId(7), RequestSeq(65));
        packages.put(client, number, Instant(5));
        packages.put(client, number, Instant(9));
        assert_eq!(packages.get(client, number), Some(Instant(5)), "its first time");
        assert_eq!(packages.get(ClientId(8), number), None);
        assert_eq!(packages.take(client, number), Some(Instant(5)));
        assert_eq!(packages.take(client, number), None);
        // What is in flight at once has places of its own, mostly, whatever the packages' size.
        for step in [1, 16, 64, 1024] {
            let mut packages = Packages::default();
            let all = || {
                (0..4).flat_map(|c| (0..256).map(move |i| (ClientId(c), RequestSeq(1 + i * step))))
            };
            all().for_each(|(client, first)| packages.put(client, first, Instant(1)));
            let found = all().filter(|(client, first)| packages.get(*client, *first).is_some());
            let found = found.count();
            assert!(found > 850, "{found} of 1024 in steps of {step}");
        }
    }

    #[test]
    fn a_batch_that_meets_another_in_its_place_takes_it() {
        let mut times = InFlight::new(Measured::default(), Clock::new());
        let (old, new) = (SeqNum(3), SeqNum(3 + BATCHES as u64));
        times.step(BatchStep::Proposed, old);
        times.step(BatchStep::Prepared, new);
        times.step(BatchStep::Prepared, old);
        assert_eq!(times.to.stages.of(Stage::Prepare).count(), 0, "neither was seen whole");
        times.step(BatchStep::Proposed, new);
        times.step(BatchStep::Prepared, new);
        times.step(BatchStep::Prepared, new);
        assert_eq!(times.to.stages.of(Stage::Prepare).count(), 1, "once");
        let delivery = Delivery { seq: new, batch: None, checkpoint: false };
        times.delivered(&delivery);
        times.executed(new);
        times.executed(new);
        let count = |stage| times.to.stages.of(stage).count();
        assert_eq!((count(Stage::Commit), count(Stage::Execute)), (1, 1));
    }

    #[test]
    fn records_are_measured_up_to_the_one_that_is_durable() {
        let mut times = InFlight::new(Measured::default(), Clock::new());
        (1..=3).for_each(|id| times.persist(PersistId(id)));
        times.persisted(PersistId(2));
        assert_eq!(times.to.stages.of(Stage::Persist).count(), 2);
        (0..2 * RECORDS as u64).for_each(|id| times.persist(PersistId(4 + id)));
        assert_eq!(times.records.len(), RECORDS);
    }
}
