//! A client of a group: GET and PUT.

use super::phase::{Ask, Group, Worth};
use super::server::{ADDR, SLOT, TAG_BYTES};
use super::{Map, RsError, Tag};
use crate::client::Draft;
use crate::cluster::{Frees, Net, Reply, Round};
use crate::kv::put_bytes;
use crate::op::{Action, Addr, Cas, Deref, Masks, Mode, Op, Operand, Payload, Source, Status};
use crate::wire::Outcome;
use crate::zoo::{Defence, stands};
use std::cell::Cell;
use std::rc::Rc;

/// How long to wait for a free buffer, and how often.
const WAIT_FOR_ROOM_NS: u64 = 500_000;
const MAX_WAITS: u32 = 2000;

/// How a client does it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which replicas are asked.
    pub ask: Ask,
    /// A GET always writes back what it gives, as the paper's does.
    pub always_write_back: bool,
    /// How long an operation waits for f + 1 replicas, in nanoseconds.
    pub patience_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { ask: Ask::All, always_write_back: false, patience_ns: 10_000_000_000 }
    }
}

/// What a client has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// GETs and PUTs that ended well.
    pub operations: u64,
    /// Their phases: round trips.
    pub phases: u64,
    /// GETs of one round trip.
    pub one_round_gets: u64,
    /// Swaps that missed.
    pub misses: u64,
}

/// A client of a group of replicas. Clones are the same client; their operations may run side by side.
#[derive(Clone, Debug)]
pub struct RsClient(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    group: Rc<Group>,
    writer: u64,
    always_write_back: bool,
    /// The greatest time stamp that it has written with.
    last_ts: Cell<u64>,
    frees: Frees,
    /// Whether a swap of the phase that is being read found no buffer.
    empty: Cell<bool>,
    counts: Cell<Counts>,
}

/// What a replica has of a block.
#[derive(Clone, Debug)]
struct Held {
    tag: Tag,
    /// Where in the reply the value is; none where only the tag was asked for, or nobody wrote it.
    value: Vec<u8>,
}

impl RsClient {
    /// A client of the replicas that are these servers of the net, in the order of their members'
    /// numbers. `writer` is its name, which must differ from any that any client, this one in earlier
    /// starts included, has ever had: [`crate::cluster::Cluster::draw`] gives one.
    #[must_use]
    pub fn new(net: &Net, servers: Vec<usize>, writer: u64, options: Options) -> Self {
        let group = Group::new(net.clone(), servers, options.ask, options.patience_ns);
        Self::of(Rc::new(group), writer, options.always_write_back)
    }

    pub(super) fn of(group: Rc<Group>, writer: u64, always_write_back: bool) -> Self {
        let frees = Frees::new(&group.net);
        Self(Rc::new(Shared {
            group,
            writer,
            always_write_back,
            last_ts: Cell::new(0),
            frees,
            empty: Cell::new(false),
            counts: Cell::new(Counts::default()),
        }))
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts.get()
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        let mut counts = self.0.counts.get();
        add(&mut counts);
        self.0.counts.set(counts);
    }

    /// How many blocks there are, and of how many bytes.
    ///
    /// # Errors
    /// When f + 1 replicas cannot be reached.
    pub async fn dimensions(&self) -> Result<(u64, usize), RsError> {
        let map = self.0.group.acquaint().await?;
        Ok((map.blocks, map.block_bytes))
    }

    /// The value of a block: zeros when nobody has written it.
    ///
    /// # Errors
    /// When it could not be read.
    pub async fn get(&self, block: u64) -> Result<Vec<u8>, RsError> {
        let map = self.check(block, 0).await?;
        let all = self.everybody();
        let (held, round) = self.read(block, true, &all).await?;
        // They hold nothing that is to be given back.
        drop(round);
        let quorum = self.0.group.quorum();
        let newest = held.iter().map(|(_, held)| held.tag).max().expect("a quorum is somebody");
        let agree = held.iter().filter(|(_, held)| held.tag == newest).count() >= quorum;
        let value = held.into_iter().find(|(_, held)| held.tag == newest);
        let value = value.expect("somebody has the newest").1.value;
        let fast = agree && !self.0.always_write_back;
        if newest != Tag::ZERO && !fast && stands(Defence::WriteBack) {
            self.write(block, newest, &value).await?;
        } else {
            self.count(|counts| counts.one_round_gets += 1);
        }
        self.count(|counts| counts.operations += 1);
        if newest == Tag::ZERO { Ok(vec![0; map.block_bytes]) } else { Ok(value) }
    }

    /// Sets the value of a block.
    ///
    /// # Errors
    /// When it could not be set.
    pub async fn put(&self, block: u64, value: &[u8]) -> Result<(), RsError> {
        self.check(block, value.len()).await?;
        let all = self.everybody();
        let (held, _) = self.read(block, false, &all).await?;
        let newest = held.iter().map(|(_, held)| held.tag.ts).max().expect("a quorum is somebody");
        let ts = Tag::after(newest, self.0.last_ts.get())?;
        self.0.last_ts.set(ts);
        self.write(block, Tag { ts, writer: self.0.writer }, value).await?;
        self.count(|counts| counts.operations += 1);
        Ok(())
    }

    /// Reports all buffers that are at hand, and waits until they are.
    pub async fn finish(&self) {
        self.0.frees.finish().await;
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.0.group.members()).collect()
    }

    async fn check(&self, block: u64, bytes: usize) -> Result<Map, RsError> {
        let map = self.0.group.acquaint().await?;
        if block >= map.blocks {
            return Err(RsError::NoBlock(block));
        }
        if bytes > map.block_bytes {
            return Err(RsError::TooLong(map.block_bytes));
        }
        Ok(map)
    }

    /// The read phase: of a quorum `among` the members, what they have.
    async fn read(
        &self,
        block: u64,
        values: bool,
        among: &[usize],
    ) -> Result<(Vec<(usize, Held)>, Round), RsError> {
        self.count(|counts| counts.phases += 1);
        let group = &self.0.group;
        let fill = |map: &Map, draft: &mut Draft| {
            draft_read(map, block, values, draft);
            group.draft_lives(map, draft);
        };
        group.phase(among, fill, |member, reply| self.held(member, values, reply)).await
    }

    fn held(&self, member: usize, values: bool, reply: &Reply) -> (Option<u64>, Worth<Held>) {
        let Some([held, lives]) = reply.answer().take() else { return (None, Worth::Outdated) };
        let life = self.0.group.life_in(member, &lives);
        let words = held.data.words();
        let worth = match (held.status, Tag::of(words)) {
            (Status::Ok, Some(tag)) => {
                let value = held.data.as_bytes().get(TAG_BYTES..).filter(|_| values);
                Worth::Counts(Held { tag, value: value.unwrap_or_default().to_vec() })
            }
            // Nobody has written it.
            (Status::NullPointer, _) if values => {
                Worth::Counts(Held { tag: Tag::ZERO, value: Vec::new() })
            }
            _ => Worth::Outdated,
        };
        (life, worth)
    }

    /// The write phase: a quorum has this tag or a newer one when it ends.
    pub(super) async fn write(&self, block: u64, tag: Tag, value: &[u8]) -> Result<(), RsError> {
        let group = &self.0.group;
        let mut item = vec![tag.ts, tag.writer];
        put_bytes(&mut item, value);
        let bytes = TAG_BYTES + value.len();
        for _ in 0..MAX_WAITS {
            self.count(|counts| counts.phases += 1);
            self.0.empty.set(false);
            let fill = |map: &Map, draft: &mut Draft| {
                draft_install(map, block, tag, &item, bytes, draft);
                group.draft_lives(map, draft);
            };
            let read = |member: usize, reply: &Reply| self.installed(member, reply);
            let result = group.phase(&self.everybody(), fill, read).await;
            match result {
                Ok((_, round)) => {
                    // Whoever comes later has buffers to be given back, too.
                    let client = self.clone();
                    round.leave(move |server, reply| {
                        client.installed(client.0.group.member_of(server), &reply);
                    });
                    return Ok(());
                }
                Err(RsError::NoQuorum { .. }) if self.0.empty.get() => {}
                Err(error) => return Err(error),
            }
            self.finish().await;
            group.net.sleep(WAIT_FOR_ROOM_NS).await;
        }
        Err(RsError::NoRoom)
    }

    fn installed(&self, member: usize, reply: &Reply) -> (Option<u64>, Worth<()>) {
        let Some([_, allocated, swapped, new, lives]) = reply.answer().take() else {
            return (None, Worth::Outdated);
        };
        let life = self.0.group.life_in(member, &lives);
        let worth = match (allocated.status, swapped.status) {
            (Status::Empty, _) => {
                self.0.empty.set(true);
                self.0.frees.report(self.0.group.servers[member], 1);
                return (life, Worth::Later);
            }
            (Status::Ok, Status::Ok) => {
                self.free(member, swapped.data.words().get(2).copied());
                Worth::Counts(())
            }
            (Status::Ok, Status::Miss) => {
                self.count(|counts| counts.misses += 1);
                self.free(member, new.data.words().first().copied());
                let acknowledges = stands(Defence::MissAcknowledges);
                if acknowledges { Worth::Counts(()) } else { Worth::Later }
            }
            _ => Worth::Outdated,
        };
        (life, worth)
    }

    fn free(&self, member: usize, addr: Option<u64>) {
        self.0.frees.push(self.0.group.servers[member], addr.unwrap_or(Addr::NULL.0));
    }

    /// Copies a block from a quorum `among` the members to one whose map is `to`. Says whether there was
    /// something to copy.
    pub(super) async fn copy(
        &self,
        block: u64,
        among: &[usize],
        to: (usize, &Map),
    ) -> Result<bool, RsError> {
        let (held, _) = self.read(block, true, among).await?;
        let newest = held.into_iter().map(|(_, held)| held).max_by_key(|held| held.tag);
        let Held { tag, value } = newest.expect("a quorum is somebody");
        if tag == Tag::ZERO {
            return Ok(false);
        }
        let mut item = vec![tag.ts, tag.writer];
        put_bytes(&mut item, &value);
        let (server, map) = to;
        let fill = |draft: &mut Draft| {
            draft_install(map, block, tag, &item, TAG_BYTES + value.len(), draft);
        };
        match self.0.group.net.ask(server, fill).await {
            Ok(reply) => match reply.answer().take() {
                Some([_, _, Outcome { status: Status::Ok | Status::Miss, .. }, _]) => Ok(true),
                Some([_, Outcome { status: Status::Empty, .. }, ..]) => Err(RsError::NoRoom),
                _ => Err(RsError::Confused),
            },
            Err(_) => Err(RsError::NoQuorum { answered: 0, needed: 1 }),
        }
    }
}

const TAG: Addr = Addr::scratch(0);
const NEW: Addr = Addr::scratch(ADDR);

/// Reads a block's tag, and its value, too, where that is asked for.
fn draft_read(map: &Map, block: u64, value: bool, draft: &mut Draft) {
    let slot = map.slots.plus(block * SLOT);
    let (addr, len, deref) = if value {
        (slot.plus(ADDR), TAG_BYTES + map.block_bytes.next_multiple_of(8), Deref::Bounded)
    } else {
        (slot, TAG_BYTES, Deref::Direct)
    };
    draft.op(Action::Read { addr, len: len as u32, deref, redirect: None });
}

/// Takes a buffer for a tag and a value, and installs it if the tag is greater: four operations. The
/// last one tells the buffer's address, whatever happened before.
fn draft_install(map: &Map, block: u64, tag: Tag, item: &[u64], bytes: usize, draft: &mut Draft) {
    // The slot as it will be, but for the address, which comes from the next operation.
    let words = [tag.ts, tag.writer, 0, bytes as u64];
    let source = Source::Inline(Payload::of_words(&words));
    draft.op(Action::Write { addr: TAG, deref: Deref::Direct, source });
    let data = Payload::of_words(item);
    draft
        .op(Op::from(Action::Allocate { pool: map.pool, data, redirect: Some(NEW) }).conditional());
    draft.op(Op::from(Action::Cas(Cas {
        mode: Mode::Greater,
        target: map.slots.plus(block * SLOT),
        indirect: false,
        words: 4,
        data: Operand::At(TAG),
        comparand: None,
        masks: Masks::Words { compare: 0b0011, swap: 0b1111 },
    }))
    .conditional());
    draft.op(Action::Read { addr: NEW, len: 8, deref: Deref::Direct, redirect: None });
}
