//! The baseline: ABD with locks (the paper's section 7.2), for servers that have plain READ, WRITE and
//! compare-and-swap only. A block lies in place at each replica, with a lock and a tag before it. Every
//! operation takes four round trips: lock a majority, read tags and values there, write the value with
//! its tag, unlock.
//!
//! As published, a client that dies with locks in its hands blocks the block for ever. So a lock has a
//! *lease* here: the time at which it ends, after which another may take it away. Who lost its lock that
//! way must not write any more, so that the write is conditional on the lock. Clients' clocks have to
//! agree as far as a lease is long; if they do not, a lock is taken away too soon, which costs its holder
//! another attempt and nothing else.
//!
//! Clients that meet at a block wait for a random time, longer each time, before they try again.

use super::phase::{Ask, Group, Worth};
use super::server::Config;
use super::{Map, RsError, Tag, call};
use crate::client::Draft;
use crate::cluster::{Net, Reply, Round};
use crate::engine::Service;
use crate::kv::put_bytes;
use crate::memory::{Memory, MemoryView, Rights};
use crate::op::{
    Action, Addr, Capability, Cas, Deref, Masks, Mode, Op, Operand, Payload, Reject, Source, Status,
};
use crate::rng::Rng;
use crate::zoo::{Defence, stands};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Before a block: its lock (owner, end of the lease), its tag, and how many bytes of it are used.
const HEADER: u64 = 40;
const TAG: u64 = 16;
/// Attempts of one operation before it gives up.
const MAX_ATTEMPTS: u32 = 10_000;
/// The first wait after others held the lock, and the longest, in nanoseconds.
const FIRST_WAIT_NS: u64 = 10_000;
const MAX_WAIT_NS: u64 = 5_000_000;

const fn stride(block_bytes: usize) -> u64 {
    (HEADER + block_bytes as u64).next_multiple_of(64)
}

/// A replica's side of it: plain memory.
#[derive(Debug)]
pub struct LockServer {
    map: Map,
}

impl LockServer {
    /// Registers a replica's memory under a capability.
    ///
    /// # Errors
    /// When there is not so much memory, or the configuration makes no sense.
    pub fn new(memory: &Memory, capability: Capability, config: &Config) -> io::Result<Self> {
        config.check()?;
        let plain = Rights::READ.and(Rights::WRITE).and(Rights::ATOMIC);
        let Config { blocks, block_bytes, member, members, .. } = *config;
        let bytes = usize::try_from(blocks * stride(block_bytes))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many blocks"))?;
        let slots = memory.register(capability, plain, bytes)?;
        let map = Map { slots, blocks, block_bytes, pool: 0, lives: Addr::NULL, member, members };
        Ok(Self { map })
    }
}

impl Service for LockServer {
    fn call(&mut self, _: &MemoryView<'_>, body: &[u64], out: &mut Vec<u64>) -> Result<(), Reject> {
        if body != [call::DESCRIBE] {
            return Err(Reject::UnknownMethod);
        }
        out.extend(self.map.words());
        Ok(())
    }

    fn maintain(&mut self, _: &Memory, _: u64) {}

    fn client_lost(&mut self) {}
}

/// How a client does it.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// How long a lock is good, in nanoseconds.
    pub lease_ns: u64,
    /// How long an operation waits for f + 1 replicas, in nanoseconds.
    pub patience_ns: u64,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { lease_ns: 50_000_000, patience_ns: 10_000_000_000 }
    }
}

/// A client of blocks under locks. Clones are the same client.
#[derive(Clone, Debug)]
pub struct LockClient(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    group: Rc<Group>,
    name: u64,
    options: LockOptions,
    /// A lock has an owner and a time, and no two of this client's have the same time.
    last_lease: Cell<u64>,
    last_ts: Cell<u64>,
    rng: RefCell<Rng>,
    /// Round trips, and attempts that found the lock taken.
    phases: Cell<u64>,
    contended: Cell<u64>,
}

/// A lock that somebody has, or nobody: owner and end of the lease.
type Lock = [u64; 2];
const NOBODY: Lock = [0, 0];

impl LockClient {
    /// A client of the replicas that are these servers of the net. `name` is not zero, and different
    /// from any that any client has ever had.
    #[must_use]
    pub fn new(net: &Net, servers: Vec<usize>, name: u64, options: LockOptions) -> Self {
        let group = Group::new(net.clone(), servers, Ask::All, options.patience_ns);
        Self(Rc::new(Shared {
            group: Rc::new(group),
            name: name.max(1),
            options,
            last_lease: Cell::new(0),
            last_ts: Cell::new(0),
            rng: RefCell::new(Rng::new(name)),
            phases: Cell::new(0),
            contended: Cell::new(0),
        }))
    }

    /// Round trips so far, and attempts that found the block locked.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.0.phases.get(), self.0.contended.get())
    }

    /// The value of a block: zeros when nobody has written it.
    ///
    /// # Errors
    /// When it could not be read.
    pub async fn get(&self, block: u64) -> Result<Vec<u8>, RsError> {
        self.operate(block, None).await
    }

    /// Sets the value of a block.
    ///
    /// # Errors
    /// When it could not be set.
    pub async fn put(&self, block: u64, value: &[u8]) -> Result<(), RsError> {
        self.operate(block, Some(value)).await.map(|_| ())
    }

    async fn operate(&self, block: u64, value: Option<&[u8]>) -> Result<Vec<u8>, RsError> {
        let shared = &*self.0;
        let map = shared.group.acquaint().await?;
        if block >= map.blocks {
            return Err(RsError::NoBlock(block));
        }
        if value.is_some_and(|value| value.len() > map.block_bytes) {
            return Err(RsError::TooLong(map.block_bytes));
        }
        let (mut wait_ns, mut own) = (FIRST_WAIT_NS, None);
        for _ in 0..MAX_ATTEMPTS {
            if let Some(value) = self.attempt(block, value, &mut own).await? {
                return Ok(value);
            }
            shared.contended.set(shared.contended.get() + 1);
            let wait = shared.rng.borrow_mut().below(wait_ns);
            shared.group.net.sleep(wait).await;
            wait_ns = (wait_ns * 2).min(MAX_WAIT_NS);
        }
        Err(RsError::Contended(MAX_ATTEMPTS))
    }

    /// The four round trips. `None` when others held the lock, or took it away. `own` is the tag of a
    /// PUT from its first write on: an attempt that lost its lock may have been seen, and a second tag
    /// would let its value take effect twice.
    async fn attempt(
        &self,
        block: u64,
        value: Option<&[u8]>,
        own: &mut Option<Tag>,
    ) -> Result<Option<Vec<u8>>, RsError> {
        let shared = &*self.0;
        let now_ns = shared.group.net.now_ns();
        let ends = (now_ns + shared.options.lease_ns).max(shared.last_lease.get() + 1);
        shared.last_lease.set(ends);
        let mine = [shared.name, ends];
        let locked = self.lock(block, mine, now_ns).await?;
        if locked.len() < shared.group.quorum() {
            self.unlock(block, mine, &locked).await;
            return Ok(None);
        }
        let (held, _) =
            self.phase(&locked, |map, draft| draft_read(map, block, draft), read).await?;
        let newest = held.into_iter().map(|(_, held)| held).max_by_key(|(tag, _)| *tag);
        let (newest, held) = newest.expect("a quorum is somebody");
        if value.is_some() && own.is_none() {
            let ts = Tag::after(newest.ts, shared.last_ts.get())?;
            shared.last_ts.set(ts);
            *own = Some(Tag { ts, writer: shared.name });
        }
        // One that is newer than this PUT's stays.
        let (tag, new) = match (value, *own) {
            (Some(value), Some(own)) if own > newest => (own, value),
            _ => (newest, &held[..]),
        };
        let mut header = vec![tag.ts, tag.writer, new.len() as u64];
        put_bytes(&mut header, new);
        let written = self
            .phase(&locked, |map, draft| draft_write(map, block, mine, &header, draft), written)
            .await;
        let written = match written {
            Ok((written, _)) => written.iter().all(|(_, written)| *written),
            Err(error) => return Err(error),
        };
        self.unlock(block, mine, &locked).await;
        Ok(written.then(|| new.to_vec()))
    }

    fn count_phase(&self) {
        self.0.phases.set(self.0.phases.get() + 1);
    }

    async fn phase<T>(
        &self,
        among: &[usize],
        fill: impl Fn(&Map, &mut Draft),
        read: impl Fn(&Reply) -> Worth<T>,
    ) -> Result<(Vec<(usize, T)>, Round), RsError> {
        self.count_phase();
        self.0.group.phase(among, fill, |_, reply| (Some(0), read(reply))).await
    }

    /// Tries to lock a block everywhere; gives where that was so, as soon as a majority was or cannot be.
    async fn lock(&self, block: u64, mine: Lock, now_ns: u64) -> Result<Vec<usize>, RsError> {
        self.count_phase();
        let group = &self.0.group;
        let mut round = group.net.round([], |_, _| ());
        for member in 0..group.members() {
            if let Some(map) = group.map(member) {
                round.also(group.servers[member], |draft| {
                    draft_swap(&map, block, NOBODY, mine, draft);
                });
            }
        }
        let until_ns = group.net.now_ns() + self.0.options.patience_ns;
        let (mut locked, mut steals) = (Vec::new(), Vec::new());
        while locked.len() < group.quorum()
            && let Ok(Some((server, result))) = round.next_before(until_ns).await
        {
            let member = group.member_of(server);
            let Ok(reply) = result else { continue };
            let Some([swapped]) = reply.answer().take() else {
                group.set_map(member, None);
                continue;
            };
            match (swapped.status, swapped.data.words()) {
                (Status::Ok, _) => locked.push(member),
                (Status::Miss, [owner, ends])
                    if *ends < now_ns
                        && stands(Defence::Lease)
                        && steals.len() < group.members() =>
                {
                    // Its lease is over.
                    let (theirs, map) = ([*owner, *ends], group.map(member));
                    steals.push(member);
                    if let Some(map) = map {
                        round.also(server, |draft| draft_swap(&map, block, theirs, mine, draft));
                    }
                }
                (Status::Miss, _) => {}
                _ => group.set_map(member, None),
            }
        }
        // Locks that are granted later are not wanted any more.
        let (client, net) = (self.clone(), group.net.clone());
        round.leave(move |server, reply| {
            let group = &client.0.group;
            let granted =
                reply.answer().take().is_some_and(|[outcome]| outcome.status == Status::Ok);
            if let Some(map) = group.map(group.member_of(server)).filter(|_| granted) {
                drop(net.ask(server, |draft| draft_swap(&map, block, mine, NOBODY, draft)));
            }
        });
        Ok(locked)
    }

    async fn unlock(&self, block: u64, mine: Lock, locked: &[usize]) {
        if locked.is_empty() {
            return;
        }
        self.count_phase();
        let group = &self.0.group;
        let mut round = group.net.round([], |_, _| ());
        for member in locked {
            if let Some(map) = group.map(*member) {
                round.also(group.servers[*member], |draft| {
                    draft_swap(&map, block, mine, NOBODY, draft);
                });
            }
        }
        // What cannot be unlocked now is, when the lease ends.
        let until_ns = group.net.now_ns() + self.0.options.lease_ns;
        while let Ok(Some(_)) = round.next_before(until_ns).await {}
    }
}

fn at(map: &Map, block: u64) -> Addr {
    map.slots.plus(block * stride(map.block_bytes))
}

fn swap<'a>(target: Addr, from: &'a Lock, to: &'a Lock, swap: u8) -> Action<'a> {
    Action::Cas(Cas {
        mode: Mode::Equal,
        target,
        indirect: false,
        words: 2,
        data: Operand::Inline(to),
        comparand: Some(Operand::Inline(from)),
        masks: Masks::Words { compare: 0b11, swap },
    })
}

fn draft_swap(map: &Map, block: u64, from: Lock, to: Lock, draft: &mut Draft) {
    draft.op(swap(at(map, block), &from, &to, 0b11));
}

fn draft_read(map: &Map, block: u64, draft: &mut Draft) {
    let len = (HEADER - TAG) as usize + map.block_bytes.next_multiple_of(8);
    let addr = at(map, block).plus(TAG);
    draft.op(Action::Read { addr, len: len as u32, deref: Deref::Direct, redirect: None });
}

fn read(reply: &Reply) -> Worth<(Tag, Vec<u8>)> {
    let Some([outcome]) = reply.answer().take() else { return Worth::Outdated };
    let words = outcome.data.words();
    match (outcome.status, Tag::of(words), words.get(2)) {
        (Status::Ok, Some(tag), Some(len)) => {
            let bytes = &outcome.data.as_bytes()[(HEADER - TAG) as usize..];
            let value = match tag {
                Tag::ZERO => bytes,
                _ => bytes.get(..*len as usize).unwrap_or(bytes),
            };
            Worth::Counts((tag, value.to_vec()))
        }
        _ => Worth::Outdated,
    }
}

/// Writes tag, length and value, if the lock is still this one: two operations.
fn draft_write(map: &Map, block: u64, mine: Lock, words: &[u64], draft: &mut Draft) {
    let addr = at(map, block);
    draft.op(swap(addr, &mine, &mine, 0));
    let source = Source::Inline(Payload::of_words(words));
    let write = Action::Write { addr: addr.plus(TAG), deref: Deref::Direct, source };
    draft.op(Op::from(write).conditional());
}

/// Whether it was written.
fn written(reply: &Reply) -> Worth<bool> {
    match reply.answer().take() {
        Some([_, written]) if written.status == Status::Ok => Worth::Counts(true),
        Some([lock, _]) if lock.status == Status::Miss => Worth::Counts(false),
        _ => Worth::Outdated,
    }
}
