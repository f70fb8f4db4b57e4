//! Looks for buffers that crashed clients left behind: buffers that are taken and that nobody can
//! reach are noted, and given back if that is still so after a grace period. (A chain takes a buffer
//! and stores its address within one request, so that no other live client's buffer stays unreachable
//! for that long, but for those that it is about to report: its report then comes too late and is
//! refused, which harms nobody.)

use crate::memory::{Buffers, Memory, MemoryView};
use crate::op::{Addr, Capability};
use crate::zoo::{Defence, stands};
use std::collections::BTreeSet;

/// Sweeps are at least this many nanoseconds apart.
const EVERY_NS: u64 = 100_000_000;

/// Where the buffers of these pools are, of which `reachable` gives those that are in use.
pub(crate) fn count(
    view: &MemoryView<'_>,
    by: Capability,
    pools: &[u8],
    reachable: Vec<Addr>,
) -> Buffers {
    let reachable: BTreeSet<Addr> = reachable.into_iter().collect();
    let mut buffers = Buffers::default();
    for pool in pools {
        let count = view.pool_count(*pool).expect("registered by the store");
        buffers.posted += u64::from(count.posted);
        buffers.free += u64::from(count.free + count.waiting);
        // Told by the buffers themselves, not by what is left of those that were posted.
        for addr in view.taken(*pool, by).expect("registered by the store") {
            match reachable.contains(&addr) {
                true => buffers.live += 1,
                false => buffers.in_flight += 1,
            }
        }
    }
    buffers
}

/// A store's sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    due: bool,
    last_ns: u64,
    /// Buffers that were unreachable, and the epoch in which that was seen.
    suspects: Option<(u64, Vec<Addr>)>,
    /// How many buffers were found.
    pub(crate) found: u64,
}

impl Sweep {
    /// A client was lost, or buffers run out.
    pub(crate) fn request(&mut self) {
        self.due |= stands(Defence::Sweep);
    }

    /// One step, in upkeep. `reachable` gives the buffers of these pools that are in use.
    pub(crate) fn step(
        &mut self,
        memory: &Memory,
        by: Capability,
        pools: &[u8],
        now_ns: u64,
        reachable: impl Fn(&MemoryView<'_>) -> Vec<Addr>,
    ) {
        let unreachable = |view: &MemoryView<'_>| {
            let mut reachable = reachable(view);
            reachable.sort_unstable();
            let taken = |pool: &u8| view.taken(*pool, by).expect("registered by the store");
            let mut lost: Vec<Addr> = pools
                .iter()
                .flat_map(taken)
                .filter(|addr| reachable.binary_search(addr).is_err())
                .collect();
            lost.sort_unstable();
            lost
        };
        match self.suspects.take() {
            None if self.due && now_ns.saturating_sub(self.last_ns) >= EVERY_NS => {
                (self.due, self.last_ns) = (false, now_ns);
                let unreachable = unreachable(&memory.view(0));
                self.suspects = Some((memory.epochs().retired(), unreachable));
            }
            None => {}
            Some((epoch, suspects)) if !memory.epochs().is_over(epoch) => {
                self.suspects = Some((epoch, suspects));
            }
            Some((_, suspects)) => {
                let view = memory.view(0);
                let unreachable = unreachable(&view);
                for addr in suspects {
                    let still = unreachable.binary_search(&addr).is_ok();
                    if still && view.retire(addr, by).is_ok() {
                        self.found += 1;
                    }
                }
            }
        }
    }
}
