//! A replica's side: it registers the memory, tells clients where it is, and sweeps it.

use super::{MAX_BLOCK, MAX_MEMBERS, Map, Tag, call};
use crate::engine::Service;
use crate::memory::{Buffers, Memory, MemoryView, Rights};
use crate::op::{Addr, Capability, Reject};
use crate::sweep::{self, Sweep};
use crate::zoo::{Defence, stands};
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A slot: tag, address, bound.
pub(super) const SLOT: u64 = 32;
/// Of a slot, where the address is.
pub(super) const ADDR: u64 = 16;
/// Of a buffer, the tag.
pub(super) const TAG_BYTES: usize = Tag::WORDS * 8;

/// What a replica is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many blocks.
    pub blocks: u64,
    /// The most bytes of a block.
    pub block_bytes: usize,
    /// Buffers beyond one a block: what clients have in hand.
    pub spare: u32,
    /// Which member of its group it is, from 0 on.
    pub member: usize,
    /// How many members there are, 2f + 1.
    pub members: usize,
    /// Whether the group is made now. A replica that was a member before, and whose memory is gone, must
    /// join instead.
    pub new_group: bool,
    /// Fill freed buffers, so that a reader of a stale address would notice.
    pub poison: bool,
}

impl Config {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn check(&self) -> io::Result<()> {
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.members.is_multiple_of(2) || self.members > MAX_MEMBERS {
            return wrong("a group has 1, 3, 5 or 7 members");
        }
        if self.member >= self.members {
            return wrong("members are numbered from 0 on");
        }
        if !(1..=MAX_BLOCK).contains(&self.block_bytes) {
            return wrong("a block has 1 to 12288 bytes");
        }
        if self.blocks == 0 || self.blocks > u64::from(u32::MAX / 2) {
            return wrong("a replica has 1 to 2147483647 blocks");
        }
        Ok(())
    }
}

/// What a replica's server knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RsCount {
    /// Blocks that were written.
    pub written: u64,
    /// Buffers that are taken.
    pub taken: u64,
    /// Buffers that are free or will be.
    pub free: u64,
    /// Buffers that a sweep found.
    pub swept: u64,
    /// Whether it answers clients.
    pub joined: bool,
}

/// A replica's server side.
#[derive(Debug)]
pub struct RsServer {
    capability: Capability,
    map: Map,
    joined: bool,
    sweep: Sweep,
}

impl RsServer {
    /// Registers a replica's memory under a capability.
    ///
    /// # Errors
    /// When there is not so much memory, or the configuration makes no sense.
    pub fn new(memory: &Memory, capability: Capability, config: &Config) -> io::Result<Self> {
        config.check()?;
        if config.poison {
            memory.poison_freed();
        }
        let plain = Rights::READ.and(Rights::WRITE).and(Rights::ATOMIC);
        let bytes = usize::try_from(config.blocks * SLOT)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many blocks"))?;
        let slots = memory.register(capability, plain, bytes)?;
        let lives = memory.register(capability, plain, MAX_MEMBERS * 8)?;
        let rights = Rights::READ.and(Rights::ALLOCATE);
        let limit = (config.blocks as u32).saturating_add(config.spare);
        let payload = TAG_BYTES + config.block_bytes.next_multiple_of(8);
        let pool = memory.register_pool(capability, rights, payload, limit.min(1024), limit)?;
        let Config { blocks, block_bytes, member, members, .. } = *config;
        let map = Map { slots, blocks, block_bytes, pool, lives, member, members };
        let joined = config.new_group || !stands(Defence::JoinByCopying);
        Ok(Self { capability, map, joined, sweep: Sweep::default() })
    }

    fn pointers(&self, view: &MemoryView<'_>) -> Vec<Addr> {
        let slots = view.words(self.map.slots).expect("its own region");
        let words = slots.iter().skip(ADDR as usize / 8).step_by(SLOT as usize / 8);
        let words = words.take(self.map.blocks as usize);
        words.map(|word| Addr(word.load(Acquire))).filter(|addr| !addr.is_null()).collect()
    }

    /// Counts what is there.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn count(&self, memory: &Memory) -> RsCount {
        let written = self.pointers(&memory.view(0)).len() as u64;
        let pool = memory.pool_count(self.map.pool).expect("registered by us");
        RsCount {
            written,
            taken: u64::from(pool.taken),
            free: u64::from(pool.free + pool.waiting),
            swept: self.sweep.found,
            joined: self.joined,
        }
    }

    /// The tag of each block, for tests and tools.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn tags(&self, memory: &Memory) -> Vec<Tag> {
        let view = memory.view(0);
        let slots = view.words(self.map.slots).expect("its own region");
        let tag = |slot: &[std::sync::atomic::AtomicU64]| Tag {
            ts: slot[0].load(Relaxed),
            writer: slot[1].load(Relaxed),
        };
        slots.chunks(SLOT as usize / 8).take(self.map.blocks as usize).map(tag).collect()
    }
}

impl Service for RsServer {
    fn call(&mut self, _: &MemoryView<'_>, body: &[u64], out: &mut Vec<u64>) -> Result<(), Reject> {
        match body {
            [call::DESCRIBE] if !self.joined => Err(Reject::NotJoined),
            [call::DESCRIBE | call::DESCRIBE_NEW] => {
                out.extend(self.map.words());
                Ok(())
            }
            [call::JOINED] => {
                self.joined = true;
                Ok(())
            }
            _ => Err(Reject::UnknownMethod),
        }
    }

    fn maintain(&mut self, memory: &Memory, now_ns: u64) {
        let count = memory.pool_count(self.map.pool).expect("registered by us");
        if count.taken == count.limit {
            self.sweep.request();
        }
        let mut sweep = std::mem::take(&mut self.sweep);
        let pools = [self.map.pool];
        sweep.step(memory, self.capability, &pools, now_ns, |view| self.pointers(view));
        self.sweep = sweep;
    }

    fn client_lost(&mut self) {
        self.sweep.request();
    }

    fn buffers(&self, view: &MemoryView<'_>) -> Buffers {
        sweep::count(view, self.capability, &[self.map.pool], self.pointers(view))
    }
}
