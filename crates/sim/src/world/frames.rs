//! Frames: from a participant through liars, gates and the network to another.

use super::{Act, Fate, Happening, Passing, World};
use crate::checks::Simulated;
use crate::trace::peek_key;
use crate::{Crash, Violation};
use bytes::Bytes;
use std::time::Duration;
use tercio_consensus::Reading;
use tercio_types::{Principal, ReplicaId, ReplicaSet, SeqNum, View};
use tercio_wire::Key;

/// How long an operator takes to put another disk in.
const OPERATOR: Duration = Duration::from_millis(200);

impl<P: Simulated> World<P> {
    pub(super) fn arrive(
        &mut self,
        from: Principal,
        to: Principal,
        bytes: &Bytes,
    ) -> Result<(), Violation> {
        self.trace.frame(self.now, from, to, bytes);
        match (to, from) {
            (Principal::Replica(id), _) => {
                let i = self.at(id);
                self.note_beginning(id, bytes);
                let extra = self.hosts[i].receive(from, bytes, self.now);
                extra
                    .into_iter()
                    .for_each(|(to, bytes)| self.send(Principal::Replica(id), to, bytes));
                self.work(i)
            }
            (Principal::Client(id), Principal::Replica(replica)) => {
                // A client that a script plays has no core; it hears nothing.
                let Some(i) = self.place_of(id) else { return Ok(()) };
                self.customers[i].handle_frame(replica, bytes, self.now);
                self.serve(i)
            }
            (Principal::Client(_), Principal::Client(_)) => Ok(()),
        }
    }

    pub(super) fn send(&mut self, from: Principal, to: Principal, mut bytes: Bytes) {
        self.tally.frames += 1;
        if let (Principal::Client(client), Principal::Replica(to)) = (from, to)
            && let Some(liar) = self.liars.get_mut(&client)
        {
            let package;
            (bytes, package) = liar.twist(to, bytes);
            if let Some(package) = package {
                self.asked_for(&package);
            }
        }
        let key = peek_key(&bytes);
        if let (Some(key), Principal::Replica(by), Principal::Replica(receiver)) = (key, from, to) {
            self.note_proposal(by, receiver, &key);
        }
        let fate = match (&mut self.gate, key) {
            (Some(gate), Some(key)) => {
                gate(&Passing { from, to, key, bytes: &bytes, now: self.now })
            }
            _ => Fate::Pass,
        };
        match fate {
            Fate::Lose => {}
            Fate::After(time) => {
                self.schedule(self.now + time, Happening::Arrival { from, to, bytes });
            }
            Fate::Pass => {
                let (link, kind) = ((from, to), key.map(|key| key.kind));
                for at in self.network.arrivals(link, kind, self.now, &mut self.rng) {
                    let bytes = self.network.damaged(link, bytes.clone(), &mut self.rng);
                    self.schedule(at, Happening::Arrival { from, to, bytes });
                }
            }
        }
    }

    pub(super) fn note_proposal(&mut self, by: ReplicaId, to: ReplicaId, key: &Key) {
        if P::reading(key.kind) != Reading::Proposal {
            return;
        }
        let at = (by, View(key.view), SeqNum(key.seq));
        let proposed = self.proposed.entry(at).or_default();
        let (digest, receivers) = proposed.first.get_or_insert((key.digest, ReplicaSet::EMPTY));
        if *digest == key.digest {
            receivers.insert(to);
        } else if !proposed.counted && receivers.iter().any(|r| r != to) {
            proposed.counted = true;
            self.tally.equivocations += 1;
        }
    }

    /// Lets a replica work, and looks at all that comes of it.
    pub(super) fn work(&mut self, i: usize) -> Result<(), Violation> {
        let (wanted, outcome) = self.hosts[i].work(self.now);
        let id = self.hosts[i].id();
        let from = Principal::Replica(id);
        self.observe_deeds(i)?;
        if self.hosts[i].is_correct() {
            self.observe_sent(id, &wanted)?;
        }
        let truth = (self.hosts[i].role() == Some("false source")).then(|| wanted.clone());
        for (to, bytes) in self.hosts[i].act(wanted) {
            let lie = truth.as_ref().is_some_and(|truth| truth.iter().all(|(_, b)| *b != bytes));
            self.tally.false_answers += u64::from(lie);
            self.send(from, to, bytes);
        }
        match outcome {
            Ok(()) => self.observe_standing(i),
            Err(_) if self.hosts[i].disk().blown() => {
                self.power_failed(i);
                Ok(())
            }
            Err(error) if self.hosts[i].is_beyond_repair(&error.to_string()) => {
                self.replaced(id, &error.to_string());
                self.plan(self.now + OPERATOR, Act::Restart(id));
                Ok(())
            }
            Err(error) if self.hosts[i].disk().failed() => {
                self.disk_failed(i, &error.to_string());
                Ok(())
            }
            Err(error) if self.hosts[i].is_correct() => {
                Err(Violation::new("halt", format!("{id:?} stopped: {error}")))
            }
            Err(error) => {
                self.trace.note(self.now, format_args!("{id:?} stopped: {error}"));
                self.hosts[i].stop(Crash::Kill);
                Ok(())
            }
        }
    }
}
