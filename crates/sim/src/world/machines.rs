//! Machines go down and come up again, and what else a plan lets happen.

use super::{Act, Happening, Target, World};
use crate::checks::{Rules, Simulated};
use crate::{Crash, Disk, Host, Violation};
use std::time::Duration;
use tercio_ledger::MediaFault;
use tercio_types::{Principal, ReplicaId};

impl<P: Simulated> World<P> {
    /// Starts a replica.
    ///
    /// # Errors
    /// When it does not start, though the power did not fail.
    pub fn start(&mut self, id: ReplicaId) -> Result<(), Violation> {
        let i = self.at(id);
        self.checks.durability.restarted(id);
        self.checks.cover.restarted(id);
        let started = self.hosts[i].start(self.now);
        self.observe_deeds(i)?;
        match started {
            Ok(()) => {
                for customer in &mut self.customers {
                    customer.connected(id);
                }
                (0..self.customers.len()).try_for_each(|c| self.serve(c))?;
                self.work(i)
            }
            Err(_) if self.hosts[i].disk().blown() => {
                self.power_failed(i);
                Ok(())
            }
            Err(error) if self.hosts[i].is_beyond_repair(&error.to_string()) => {
                self.replaced(id, &error.to_string());
                self.start(id)
            }
            Err(error) if self.hosts[i].disk().failed() => {
                self.disk_failed(i, &error.to_string());
                Ok(())
            }
            Err(error) => {
                let text = format!("{id:?} does not start: {error}");
                Err(Violation::new("halt", text))
            }
        }
    }

    /// A replica has said that its disk is damaged: its operator puts an empty one in.
    pub(super) fn replaced(&mut self, id: ReplicaId, why: &str) {
        self.trace.note(self.now, format_args!("{id:?} needs another disk: {why}"));
        self.tally.replaced_disks += 1;
        self.host_mut(id).stop(Crash::Kill);
        self.lose_disk(id);
    }

    /// The medium of a machine's disk fails in some file.
    pub fn media_fault(&mut self, id: ReplicaId, target: Target, fault: MediaFault) {
        let host = self.host_mut(id);
        let Some((file, place)) = host.media_fault(fault, |name| target.has(name)) else { return };
        if target == Target::Log {
            host.distrust();
            self.faulty.insert(id);
        }
        self.tally.media_faults += 1;
        self.trace.note(self.now, format_args!("{id:?}: {fault:?} in {file} at {place:?}"));
    }

    /// Takes a replica's machine down.
    pub fn crash(&mut self, id: ReplicaId, how: Crash) {
        let i = self.at(id);
        match how {
            Crash::PowerAfter(changes) => return self.hosts[i].disk().blow_after(changes),
            Crash::DiskFailsAfter(changes) => return self.hosts[i].disk().fail_after(changes),
            Crash::DiskFullAfter(bytes) => return self.hosts[i].disk().full_after(bytes),
            Crash::Kill | Crash::Power => {}
        }
        self.trace.note(self.now, format_args!("{id:?} goes down: {how:?}"));
        self.hosts[i].stop(how);
        self.checks.cover.restarted(id);
        if how == Crash::Kill {
            // A dead process resets its connections; a machine without power just falls silent.
            for c in 0..self.customers.len() {
                self.customers[c].disconnected(id, self.now);
                self.serve(c).expect("losing a link completes nothing");
            }
        }
    }

    pub(super) fn power_failed(&mut self, i: usize) {
        let id = self.hosts[i].id();
        self.trace.note(self.now, format_args!("{id:?} goes down: the power failed at the disk"));
        self.hosts[i].stop(Crash::Power);
        if let Some(pause) = self.repair.get(&id) {
            self.plan(self.now + *pause, Act::Restart(id));
        }
    }

    /// A replica stopped, since its disk failed; the machine goes on, with what the page cache has.
    pub(super) fn disk_failed(&mut self, i: usize, why: &str) {
        let id = self.hosts[i].id();
        self.trace.note(self.now, format_args!("{id:?} stops: {why}"));
        self.tally.disk_failures += 1;
        self.hosts[i].stop(Crash::Kill);
        for c in 0..self.customers.len() {
            self.customers[c].disconnected(id, self.now);
            self.serve(c).expect("losing a link completes nothing");
        }
        if let Some(pause) = self.repair.get(&id) {
            self.plan(self.now + *pause, Act::Restart(id));
        }
    }

    /// Starts a replica again by itself, so long after its fuse has blown or its disk has failed.
    pub fn repair_after(&mut self, id: ReplicaId, pause: Duration) {
        self.repair.insert(id, pause);
    }

    /// Sets a machine's clock: so many microseconds ahead of the time of the world.
    pub fn set_clock(&mut self, id: ReplicaId, ahead_micros: i64) {
        self.trace.note(self.now, format_args!("{id:?} has its clock {ahead_micros} us ahead"));
        self.host_mut(id).set_clock(ahead_micros);
    }

    /// Replaces a machine's disk; the machine is down.
    pub fn replace_disk(&mut self, id: ReplicaId, disk: Disk) {
        self.host_mut(id).replace_disk(disk);
    }

    /// A machine's disk is gone, and there is an empty one in its place; the machine is down.
    pub fn lose_disk(&mut self, id: ReplicaId) {
        self.trace.note(self.now, format_args!("{id:?} has lost its disk"));
        self.tally.lost_disks += 1;
        self.replace_disk(id, Disk::new());
        self.rules.lost_log(id);
    }

    /// A machine has an earlier copy of its disk in its place; the machine is down.
    pub fn put_back(&mut self, id: ReplicaId, copy: Disk) {
        self.trace.note(self.now, format_args!("{id:?} has an earlier copy of its disk"));
        self.replace_disk(id, copy);
        self.rules.lost_log(id);
    }

    /// Starts a replica that is down.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self, id: ReplicaId) -> Result<(), Violation> {
        if self.hosts[self.at(id)].is_up() || self.gone.contains(id) {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("{id:?} starts again"));
        self.tally.restarts += 1;
        for c in 0..self.customers.len() {
            self.customers[c].disconnected(id, self.now);
            self.serve(c)?;
        }
        self.start(id)
    }

    /// Takes a machine down for good.
    pub fn lose_for_good(&mut self, id: ReplicaId, how: Crash) {
        if self.gone.insert(id) {
            self.trace.note(self.now, format_args!("{id:?} is gone for good"));
            self.crash(id, how);
        }
    }

    /// The primary of the greatest view that a running correct replica is in.
    #[must_use]
    pub fn primary(&self) -> ReplicaId {
        let views = self.hosts.iter().filter(|h| h.is_correct()).filter_map(Host::status);
        let view = views.map(|s| s.protocol.view).max().unwrap_or_default();
        self.cast.membership().primary(view)
    }

    /// Whatever was planned to go wrong and has not yet, will not.
    pub fn stop_trouble(&mut self) {
        self.queue.retain(|_, what| !matches!(what, Happening::Act(_)));
        for host in &self.hosts {
            host.disk().mend();
        }
    }

    pub(super) fn perform(&mut self, act: Act) -> Result<(), Violation> {
        self.trace.note(self.now, format_args!("{act:?}"));
        match act {
            Act::Crash(id, how) => self.crash(id, how),
            Act::CrashPrimary(how, pause) => {
                let id = self.primary();
                self.repair_after(id, pause);
                self.crash(id, how);
                if matches!(how, Crash::Kill | Crash::Power) {
                    self.plan(self.now + pause, Act::Restart(id));
                }
            }
            Act::Restart(id) => self.restart(id)?,
            Act::LoseDisk(id, pause) => {
                self.crash(id, Crash::Power);
                self.lose_disk(id);
                self.plan(self.now + pause, Act::Restart(id));
            }
            Act::Blackout(within) => {
                let ids: Vec<_> = self.cast.replicas().collect();
                for id in ids {
                    self.crash(id, Crash::Power);
                    let pause = self.rng.duration(Duration::ZERO, within);
                    self.plan(self.now + pause, Act::Restart(id));
                }
            }
            Act::Media(id, target, fault) => self.media_fault(id, target, fault),
            Act::AddClient(by) => self.add_client(by),
            Act::Gone(id) => self.lose_for_good(id, Crash::Power),
            Act::Partition(parts) => self.network.partition(parts),
            Act::IsolatePrimary => {
                let others: Vec<_> = self.cast.replicas().map(Principal::Replica).collect();
                self.network.isolate(self.primary(), others);
            }
            Act::Cut(from, to) => self.network.cut(from, to),
            Act::Mend => self.network.mend(),
            Act::Quality(quality) => self.network.set_quality(quality),
        }
        Ok(())
    }
}
