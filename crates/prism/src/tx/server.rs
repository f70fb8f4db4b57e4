//! A shard's side: it registers the memory, tells clients where it is, and sweeps it.

use super::{
    BUFFERS, C, ENTRY, ITEM_HEADER, MAX_CLIENTS, MAX_VALUE, SLOT, Shard, Timestamp, call, status,
};
use crate::engine::Service;
use crate::memory::{Buffers, Memory, MemoryView, Rights};
use crate::op::{Addr, Capability, Reject};
use crate::sweep::{self, Sweep};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// What a shard is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many keys the whole store has: the numbers below.
    pub keys: u64,
    /// Bytes of a value, a multiple of 8.
    pub value_bytes: usize,
    /// Buffers beyond one a key: what transactions that are under way have in hand.
    pub spare: u32,
    /// Which shard it is, from 0 on.
    pub shard: usize,
    /// How many shards there are.
    pub shards: usize,
    /// A number that tells this memory from any that the shard had before.
    pub instance: u64,
    /// Fill freed buffers, so that a reader of a stale address would notice.
    pub poison: bool,
}

/// What a shard's server knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TxCount {
    /// Keys with a value.
    pub written: u64,
    /// Keys on which a transaction is prepared and not settled.
    pub unsettled: u64,
    /// Buffers that are taken.
    pub taken: u64,
    /// Buffers that are free or will be.
    pub free: u64,
    /// Buffers that a sweep found.
    pub swept: u64,
}

/// A shard's server side.
#[derive(Debug)]
pub struct TxServer {
    capability: Capability,
    shard: Shard,
    sweep: Sweep,
}

impl TxServer {
    /// Registers a shard's memory under a capability.
    ///
    /// # Errors
    /// When there is not so much memory, or the configuration makes no sense.
    pub fn new(memory: &Memory, capability: Capability, config: &Config) -> io::Result<Self> {
        let Config { value_bytes, shard, shards, instance, .. } = *config;
        let shares = (shards as u64).max(1);
        let sensible = (8..=MAX_VALUE).contains(&value_bytes)
            && value_bytes.is_multiple_of(8)
            && shard < shards
            && shards <= 256
            && config.keys >= shares
            && config.keys / shares < u64::from(u32::MAX / 2);
        if !sensible {
            let what = "a value has 8 to 4096 bytes, a multiple of 8; shards are numbered from 0 \
                        on, at most 256, and each has keys";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if config.poison {
            memory.poison_freed();
        }
        let keys = (config.keys - shard as u64).div_ceil(shares);
        let plain = Rights::READ.and(Rights::WRITE).and(Rights::ATOMIC);
        let bytes = |count: u64, size: u64| {
            usize::try_from(count * size)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many keys"))
        };
        let slots = memory.register(capability, plain, bytes(keys, SLOT)?)?;
        let intents = memory.register(capability, plain, bytes(MAX_CLIENTS, ENTRY)?)?;
        let limit = (keys as u32).saturating_add(config.spare);
        let payload = ITEM_HEADER + value_bytes;
        let rights = Rights::READ.and(Rights::ALLOCATE);
        let pool = memory.register_pool(capability, rights, payload, limit.min(1024), limit)?;
        let shard = Shard { slots, keys, value_bytes, pool, intents, shard, shards, instance };
        Ok(Self { capability, shard, sweep: Sweep::default() })
    }

    fn slots<'v>(&self, view: &'v MemoryView<'_>) -> impl Iterator<Item = &'v [AtomicU64]> {
        let slots = view.words(self.shard.slots).expect("its own region");
        slots.chunks(SLOT as usize / 8).take(self.shard.keys as usize)
    }

    /// The buffers of keys, and of transactions that are not settled.
    fn reachable(&self, view: &MemoryView<'_>) -> Vec<Addr> {
        let address = |word: &AtomicU64| Addr(word.load(Acquire));
        let mut reachable: Vec<Addr> = self.slots(view).map(|slot| address(&slot[3])).collect();
        let entries = view.words(self.shard.intents).expect("its own region");
        // Clients have numbers from 1 on; the greatest is behind their count, in entry 0.
        let clients = entries[1].load(Relaxed).min(MAX_CLIENTS - 1) as usize;
        for entry in entries.chunks(ENTRY as usize / 8).skip(1).take(clients) {
            let buffers = &entry[BUFFERS as usize / 8..];
            let same = entry[0].load(Acquire) == buffers[0].load(Relaxed);
            if same && entry[1].load(Relaxed) & status::DONE == 0 {
                reachable.extend(buffers[1..].iter().map(address));
            }
        }
        reachable.retain(|addr| !addr.is_null());
        reachable
    }

    /// Counts what is there.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn count(&self, memory: &Memory) -> TxCount {
        let view = memory.view(0);
        let pool = memory.pool_count(self.shard.pool).expect("registered by us");
        let of = |unsettled: bool| {
            let is = |slot: &&[AtomicU64]| match unsettled {
                true => slot[0].load(Relaxed) != slot[2].load(Relaxed),
                false => slot[3].load(Relaxed) != 0,
            };
            self.slots(&view).filter(is).count() as u64
        };
        TxCount {
            written: of(false),
            unsettled: of(true),
            taken: u64::from(pool.taken),
            free: u64::from(pool.free + pool.waiting),
            swept: self.sweep.found,
        }
    }

    /// Of each client its last transaction here, and whether that committed, if this shard is its home:
    /// for tests and tools.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn decisions(&self, memory: &Memory) -> Vec<(Timestamp, bool)> {
        let view = memory.view(0);
        let entries = view.words(self.shard.intents).expect("its own region");
        let clients = entries[1].load(Relaxed).min(MAX_CLIENTS - 1) as usize;
        let entries = entries.chunks(ENTRY as usize / 8).skip(1).take(clients);
        let decision = |entry: &[AtomicU64]| {
            let committed = entry[1].load(Relaxed) & status::COMMITTED != 0;
            (Timestamp(entry[0].load(Relaxed)), committed)
        };
        entries.map(decision).collect()
    }

    /// PW, PR and C of each slot and the first word of its value, for tests and tools.
    ///
    /// # Panics
    /// When the memory is another's.
    #[must_use]
    pub fn contents(&self, memory: &Memory) -> Vec<[u64; 4]> {
        let view = memory.view(0);
        let value = |addr: u64| {
            let words = view.words(Addr(addr)).filter(|_| addr != 0);
            words.map_or(0, |words| words[ITEM_HEADER / 8].load(Relaxed))
        };
        let slots = self.slots(&view).map(|slot| {
            let [pw, pr, c, addr] = [0, 1, C as usize / 8, 3].map(|i| slot[i].load(Relaxed));
            [pw, pr, c, value(addr)]
        });
        slots.collect()
    }
}

impl Service for TxServer {
    fn call(&mut self, _: &MemoryView<'_>, body: &[u64], out: &mut Vec<u64>) -> Result<(), Reject> {
        if body != [call::DESCRIBE] {
            return Err(Reject::UnknownMethod);
        }
        out.extend(self.shard.words());
        Ok(())
    }

    fn maintain(&mut self, memory: &Memory, now_ns: u64) {
        let count = memory.pool_count(self.shard.pool).expect("registered by us");
        if count.taken == count.limit {
            self.sweep.request();
        }
        let mut sweep = std::mem::take(&mut self.sweep);
        let pools = [self.shard.pool];
        sweep.step(memory, self.capability, &pools, now_ns, |view| self.reachable(view));
        self.sweep = sweep;
    }

    fn client_lost(&mut self) {
        self.sweep.request();
    }

    fn buffers(&self, view: &MemoryView<'_>) -> Buffers {
        sweep::count(view, self.capability, &[self.shard.pool], self.reachable(view))
    }
}
