//! What waits to be verified, and in which order it is taken.
//!
//! Replicas' messages come first, in the order in which they came. Clients' frames, and the FORWARDs of
//! each replica, wait in lanes, which are served by **deficit round robin** (Shreedhar and Varghese,
//! SIGCOMM'95): a lane has its turn, gets [`QUANTUM`] of time on top of what it had left, and is served
//! while its next frame costs no more than that. So of two lanes that both have something waiting, over
//! any stretch of time, neither gets more than `QUANTUM + 2 M` ahead of the other, where `M` is what the
//! dearest frame costs. A lane that is empty loses what it had left, so nobody saves up.
//!
//! What waits is bounded, for clients and for FORWARDs each by itself ([`Bounds`]): half of the bounds
//! for all of them, a quarter for one client. When that is full, a frame still finds room if its lane
//! has less than its part (what there is by the number of lanes): the newest of the longest lane makes
//! place for it (longest queue drop). So however many frames others send, a client whose frames are
//! fewer than its part is never turned away.

use crate::Filtered;
use std::collections::{BTreeMap, VecDeque};
use tercio_types::{ClientId, Principal, ReplicaId};
use tercio_wire::{Key, Kind};

/// What a lane gets in its turn, in nanoseconds: a signature.
pub(crate) const QUANTUM: u64 = 60_000;

/// Whose frames wait together, in their order, and on whose account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// A replica's messages.
    Replica(ReplicaId),
    /// The requests that a replica forwards: apart, since they are not as urgent.
    Forwards(ReplicaId),
    /// A client's frames.
    Client(ClientId),
}

impl Lane {
    /// The lane of a frame that came on the link of `from`.
    pub(crate) fn of(from: Principal, frame: &[u8]) -> Self {
        match from {
            Principal::Client(client) => Self::Client(client),
            Principal::Replica(replica) => match Key::peek(frame) {
                Some((Kind::FORWARD, _)) => Self::Forwards(replica),
                _ => Self::Replica(replica),
            },
        }
    }

    /// Whose link it is.
    #[must_use]
    pub fn from(self) -> Principal {
        match self {
            Self::Client(client) => Principal::Client(client),
            Self::Replica(replica) | Self::Forwards(replica) => Principal::Replica(replica),
        }
    }
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Frames.
    pub frames: usize,
    /// Their bytes. A last frame may exceed it.
    pub bytes: usize,
}

impl Default for Bounds {
    /// 8,192 frames, 64 MiB.
    fn default() -> Self {
        Self { frames: 8192, bytes: 64 << 20 }
    }
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

impl Load {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.frames -= 1;
        self.bytes -= bytes;
    }

    /// Whether it comes to one `part`-th of the bounds.
    pub(crate) fn reaches(&self, bounds: &Bounds, part: usize) -> bool {
        self.frames >= bounds.frames / part || self.bytes >= bounds.bytes / part
    }
}

/// What the sender of a frame is told when it finds no room.
pub(crate) fn refusal(from: Principal, frame: &[u8]) -> Filtered {
    match (from, Key::peek(frame)) {
        (Principal::Client(_), Some((Kind::REQUEST, first))) => Filtered::Busy { first },
        _ => Filtered::NoRoom,
    }
}

/// What waits.
#[derive(Debug)]
pub(crate) struct Job<T> {
    pub(crate) lane: Lane,
    /// What it is expected to cost.
    pub(crate) cost: u64,
    pub(crate) bytes: usize,
    /// What it is told when it finds no room.
    pub(crate) refusal: Filtered,
    pub(crate) what: T,
}

#[derive(Debug)]
struct Queue<T> {
    jobs: VecDeque<Job<T>>,
    load: Load,
    /// What is left of its turns.
    deficit: u64,
    /// Whether its turn is still to begin.
    waits: bool,
}

/// What waits, by whom it is of.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    bounds: Bounds,
    urgent: VecDeque<Job<T>>,
    queues: BTreeMap<Lane, Queue<T>>,
    /// The lanes that have something waiting, in the order of their turns.
    turns: VecDeque<Lane>,
    urgent_load: Load,
    clients: Group,
    forwards: Group,
}

/// What waits in lanes of a sort.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    load: Load,
    lanes: usize,
}

impl<T> Lanes<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            urgent: VecDeque::new(),
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
            urgent_load: Load::default(),
            clients: Group::default(),
            forwards: Group::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.turns.is_empty()
    }

    /// What waits of replicas' messages.
    pub(crate) fn urgent(&self) -> Load {
        self.urgent_load
    }

    /// All that waits.
    pub(crate) fn load(&self) -> Load {
        let all = [self.urgent_load, self.clients.load, self.forwards.load];
        let sum = |of: fn(&Load) -> usize| all.iter().map(of).sum();
        Load { frames: sum(|load| load.frames), bytes: sum(|load| load.bytes) }
    }

    /// Whether anything of this lane waits.
    pub(crate) fn holds(&self, lane: Lane) -> bool {
        match lane {
            Lane::Replica(_) => self.urgent.iter().any(|job| job.lane == lane),
            _ => self.queues.contains_key(&lane),
        }
    }

    fn group(&mut self, lane: Lane) -> &mut Group {
        match lane {
            Lane::Forwards(_) => &mut self.forwards,
            _ => &mut self.clients,
        }
    }

    /// Whether a frame of this lane finds room.
    pub(crate) fn has_room(&self, lane: Lane) -> bool {
        let (group, most) = match lane {
            Lane::Replica(_) => return true,
            Lane::Forwards(_) => (&self.forwards, 2),
            Lane::Client(_) => (&self.clients, 4),
        };
        let own = self.queues.get(&lane).map(|queue| queue.load).unwrap_or_default();
        if own.reaches(&self.bounds, most) {
            return false;
        }
        let others = group.lanes + usize::from(own.frames == 0);
        !group.load.reaches(&self.bounds, 2) || !own.reaches(&self.bounds, 2 * others)
    }

    /// Takes a frame that [`Self::has_room`] is true for. Gives what makes place for it.
    pub(crate) fn push(&mut self, job: Job<T>) -> Vec<Job<T>> {
        let mut evicted = vec![];
        if let Lane::Replica(_) = job.lane {
            self.urgent_load.add(job.bytes);
            self.urgent.push_back(job);
            return evicted;
        }
        let (lane, bounds) = (job.lane, self.bounds);
        while self.group(lane).load.reaches(&bounds, 2)
            && let Some(out) = self.evict(lane)
        {
            evicted.push(out);
        }
        let queue = self.queues.entry(lane).or_insert_with(|| {
            self.turns.push_back(lane);
            Queue { jobs: VecDeque::new(), load: Load::default(), deficit: 0, waits: true }
        });
        let is_new = queue.jobs.is_empty();
        queue.load.add(job.bytes);
        let bytes = job.bytes;
        queue.jobs.push_back(job);
        let group = self.group(lane);
        group.load.add(bytes);
        group.lanes += usize::from(is_new);
        evicted
    }

    /// Takes the newest of the longest lane of this lane's sort out.
    fn evict(&mut self, of: Lane) -> Option<Job<T>> {
        let forwards = matches!(of, Lane::Forwards(_));
        let (frames, bytes) = (self.bounds.frames as u128, self.bounds.bytes as u128);
        let weight = |load: &Load| (load.frames as u128 * bytes).max(load.bytes as u128 * frames);
        let alike = |lane: &Lane| matches!(lane, Lane::Forwards(_)) == forwards;
        let longest = self.queues.iter().filter(|(lane, _)| alike(lane));
        let (lane, _) = longest.max_by_key(|(_, queue)| weight(&queue.load))?;
        let lane = *lane;
        let job = self.queues.get_mut(&lane)?.jobs.pop_back()?;
        self.gone(lane, job.bytes);
        Some(job)
    }

    /// A job of this lane was taken.
    fn gone(&mut self, lane: Lane, bytes: usize) {
        let queue = self.queues.get_mut(&lane).expect("it had a job");
        queue.load.remove(bytes);
        let is_empty = queue.jobs.is_empty();
        if is_empty {
            self.queues.remove(&lane);
            self.turns.retain(|of| *of != lane);
        }
        let group = self.group(lane);
        group.load.remove(bytes);
        group.lanes -= usize::from(is_empty);
    }

    /// The next of replicas' messages.
    pub(crate) fn next_urgent(&mut self) -> Option<Job<T>> {
        let job = self.urgent.pop_front()?;
        self.urgent_load.remove(job.bytes);
        Some(job)
    }

    /// The next of the other lanes, by deficit round robin.
    pub(crate) fn next_fair(&mut self) -> Option<Job<T>> {
        loop {
            let lane = *self.turns.front()?;
            let queue = self.queues.get_mut(&lane).expect("it waits for its turn");
            if std::mem::take(&mut queue.waits) {
                queue.deficit += QUANTUM;
            }
            let next = queue.jobs.front().expect("a lane that waits has a job");
            if next.cost <= queue.deficit {
                queue.deficit -= next.cost;
                let job = queue.jobs.pop_front();
                let bytes = job.as_ref().map_or(0, |job| job.bytes);
                self.gone(lane, bytes);
                return job;
            }
            queue.waits = true;
            self.turns.rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests;
