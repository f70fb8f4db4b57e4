//! The chains of a transaction's requests.

use super::commit::{Share, Write};
use super::session::swap;
use super::{BUFFERS, C, Shard, status};
use crate::client::Draft;
use crate::op::{Action, Addr, Deref, Mode, Op, Payload, Source};
use crate::zoo::{Defence, stands};

/// The read checks; then, where something is written: the intent with its buffers, and the write checks,
/// each only if what is before it went well.
pub(super) fn draft_prepare(
    shard: &Shard,
    client: u64,
    ts: u64,
    home: usize,
    share: &Share,
    draft: &mut Draft,
) {
    for read in &share.reads {
        let words = [read.rc, ts];
        draft.op(swap(Mode::Greater, shard.slot(read.key), &words, None, (0b11, 0b11)));
    }
    if share.writes.is_empty() {
        return;
    }
    let entry = shard.entry(client);
    let intent = [ts, status::PENDING, home as u64, 0];
    draft.op(swap(Mode::Greater, entry, &intent, None, (0b0001, 0b1111)));
    let buffers = [ts, 0, 0, 0, 0, 0, 0, 0];
    let source = Source::Inline(Payload::of_words(&buffers));
    let write = Action::Write { addr: entry.plus(BUFFERS), deref: Deref::Direct, source };
    draft.op(Op::from(write).conditional());
    for (i, item) in share.items.iter().enumerate() {
        let data = Payload::of_words(item);
        let redirect = Some(entry.plus(BUFFERS + 8 * (i as u64 + 1)));
        draft.op(Op::from(Action::Allocate { pool: shard.pool, data, redirect }).conditional());
    }
    for write in &share.writes {
        let words = [ts, 0, 0, 0];
        let check = swap(Mode::Greater, shard.slot(write.key), &words, None, (0b0001, 0b0001));
        draft.op(Op::from(check).conditional());
    }
    draft.op(read_buffers(entry));
}

fn read_buffers(entry: Addr) -> Action<'static> {
    Action::Read { addr: entry.plus(BUFFERS), len: 64, deref: Deref::Direct, redirect: None }
}

/// Installs a new buffer, if C is lower.
pub(super) fn install<'a>(shard: &Shard, key: u64, new: &'a [u64; 2]) -> Action<'a> {
    swap(Mode::Greater, shard.slot(key).plus(C), new, None, (0b01, 0b11))
}

/// Raises C without a new buffer, if it is what it is said to be.
pub(super) fn settle<'a>(
    shard: &Shard,
    key: u64,
    from: &'a [u64; 1],
    to: &'a [u64; 1],
) -> Action<'a> {
    let target = shard.slot(key).plus(C);
    if stands(Defence::AbortInOrder) {
        swap(Mode::Equal, target, to, Some(from), (1, 1))
    } else {
        swap(Mode::Greater, target, to, None, (1, 1))
    }
}

/// The decision, then the installs, if it was made now: a guard before each but the first, for an install
/// that misses must not keep the next from running.
pub(super) fn draft_decide(
    shard: &Shard,
    client: u64,
    ts: u64,
    writes: &[Write],
    draft: &mut Draft,
) {
    let entry = shard.entry(client);
    let (pending, committed) = ([ts, status::PENDING], [ts, status::COMMITTED | status::DONE]);
    draft.op(swap(Mode::Equal, entry, &committed, Some(&pending), (0b11, 0b11)));
    for (i, write) in writes.iter().enumerate() {
        if i > 0 {
            draft.op(swap(Mode::Equal, entry, &committed, Some(&committed), (0b11, 0)));
        }
        let new = [ts, write.addr];
        draft.op(Op::from(install(shard, write.key, &new)).conditional());
    }
}

/// The installs of a transaction that is known to have committed, on a shard that is not its home.
pub(super) fn draft_install(
    shard: &Shard,
    client: u64,
    ts: u64,
    writes: &[Write],
    draft: &mut Draft,
) {
    for write in writes {
        let new = [ts, write.addr];
        draft.op(install(shard, write.key, &new));
    }
    let (pending, done) = ([ts, status::PENDING], [ts, status::COMMITTED | status::DONE]);
    draft.op(swap(Mode::Equal, shard.entry(client), &done, Some(&pending), (0b11, 0b11)));
}

/// Keeps an intent from coming, or marks the one that is there as aborted; and its buffers. It is not
/// done: until the keys are settled, it has to be found.
pub(super) fn draft_abort(shard: &Shard, client: u64, ts: u64, home: usize, draft: &mut Draft) {
    let entry = shard.entry(client);
    let (pending, aborted) = ([ts, status::PENDING], [ts, status::ABORTED]);
    let poison = [ts, status::ABORTED, home as u64, 0];
    draft.op(swap(Mode::Greater, entry, &poison, None, (0b0001, 0b1111)));
    draft.op(swap(Mode::Equal, entry, &aborted, Some(&pending), (0b11, 0b11)));
    draft.op(read_buffers(entry));
}
