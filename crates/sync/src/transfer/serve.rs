//! The side that serves: answers from the file of a snapshot, record by record.

use super::message::{
    FetchState, LEVELS, Offer, Path, SHOWN, STATE_ANSWER_BYTES, State, bounded_chain_bytes,
    put_cut, put_leaf,
};
use crate::results::read_results;
use bytes::Bytes;
use std::collections::BTreeSet;
use tercio_ledger::{BlockLog, LedgerError, SnapshotRecord, SnapshotStore};
use tercio_types::{Height, SeqNum};
use tercio_wire::Encode;

/// Finds its way in the snapshot that was asked for last.
#[derive(Debug, Default)]
pub struct Server {
    of: Option<SeqNum>,
    roots: Vec<(u8, u64)>,
    /// The last way, and the offset of each record on it, the root's first.
    path: Option<Path>,
    trail: Vec<u64>,
    /// Snapshots whose files are damaged. They are offered no more.
    damaged: BTreeSet<SeqNum>,
}

impl Server {
    /// The body of the answer, and whether a snapshot was found damaged on the way: the replica
    /// goes on, and the next one takes its place. About [`STATE_ANSWER_BYTES`] are read at most.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn answer(
        &mut self,
        snapshots: &mut SnapshotStore,
        blocks: &mut BlockLog,
        request: &FetchState,
    ) -> Result<(Bytes, bool), LedgerError> {
        if let FetchState::Results { from, to } = request {
            return Ok((read_results(blocks, *from, *to)?, false));
        }
        let seq = match request {
            FetchState::Nodes { seq, .. } | FetchState::Chunks { seq, .. } => Some(*seq),
            FetchState::Offer { .. } => snapshots.kept().last().copied(),
            FetchState::Results { .. } => None,
        };
        match self.try_answer(snapshots, blocks, request) {
            Err(LedgerError::Damage { .. }) => {
                self.damaged.extend(seq);
                Ok((State::Offer(None).to_bytes(), true))
            }
            state => Ok((state?.to_bytes(), false)),
        }
    }

    fn try_answer(
        &mut self,
        snapshots: &mut SnapshotStore,
        blocks: &BlockLog,
        request: &FetchState,
    ) -> Result<State, LedgerError> {
        Ok(match request {
            FetchState::Offer { height } => self.offer(snapshots, blocks, *height)?,
            FetchState::Nodes { seq, .. } | FetchState::Chunks { seq, .. }
                if !snapshots.kept().contains(seq) || self.damaged.contains(seq) =>
            {
                self.offer(snapshots, blocks, Height(u64::MAX))?
            }
            FetchState::Nodes { seq, paths } => {
                self.open(snapshots, *seq)?;
                self.nodes(snapshots, *seq, paths)?
            }
            FetchState::Chunks { seq, parts } => {
                self.open(snapshots, *seq)?;
                self.chunks(snapshots, *seq, parts)?
            }
            FetchState::Results { .. } => State::Offer(None),
        })
    }

    /// The latest snapshot.
    fn offer(
        &self,
        snapshots: &SnapshotStore,
        blocks: &BlockLog,
        height: Height,
    ) -> Result<State, LedgerError> {
        let last = snapshots.kept().last().filter(|seq| !self.damaged.contains(seq));
        let Some(&seq) = last else { return Ok(State::Offer(None)) };
        let (head, state_bytes) = snapshots.head(seq)?;
        let up_to = head.certificate.checkpoint.height;
        Ok(State::Offer(Some(Box::new(Offer {
            certificate: head.certificate,
            state_bytes,
            // The file may be of an earlier version, which took any number from others.
            chain_bytes: bounded_chain_bytes(up_to, head.chain_bytes),
            block_bytes: blocks.bytes_after(height).unwrap_or(u64::MAX),
        }))))
    }

    fn open(&mut self, snapshots: &mut SnapshotStore, seq: SeqNum) -> Result<(), LedgerError> {
        let roots = snapshots.roots(seq)?;
        if self.of != Some(seq) {
            let damaged = std::mem::take(&mut self.damaged);
            *self = Self { of: Some(seq), roots, damaged, ..Self::default() };
        }
        Ok(())
    }

    /// The record at the end of a way; none when there is no such way.
    fn find(
        &mut self,
        snapshots: &SnapshotStore,
        seq: SeqNum,
        path: &Path,
    ) -> Result<Option<(u64, SnapshotRecord)>, LedgerError> {
        let shared = match &self.path {
            Some(last) if last.tree == path.tree => {
                last.shared(path).min(self.trail.len().saturating_sub(1))
            }
            _ => {
                // There may be no such tree: then there is no last way, either.
                (self.path, self.trail) = (None, Vec::new());
                let root = self.roots.iter().find(|(tree, _)| *tree == path.tree);
                let Some((_, offset)) = root else { return Ok(None) };
                self.trail.push(*offset);
                0
            }
        };
        self.trail.truncate(shared + 1);
        self.path = Some(path.clone());
        let mut record = snapshots.record(seq, self.trail[shared])?;
        for turn in shared..path.len() {
            let SnapshotRecord::Node(children) = &record else { return Ok(None) };
            let offset = children[usize::from(path.turn(turn))].offset;
            self.trail.push(offset);
            record = snapshots.record(seq, offset)?;
        }
        Ok(Some((self.trail[path.len()], record)))
    }

    fn nodes(
        &mut self,
        snapshots: &SnapshotStore,
        seq: SeqNum,
        paths: &[Path],
    ) -> Result<State, LedgerError> {
        let (mut subtrees, mut bytes) = (Vec::new(), 0);
        for path in paths {
            let Some((_, record)) = self.find(snapshots, seq, path)? else { break };
            let mut out = Vec::new();
            show(snapshots, seq, &record, LEVELS, STATE_ANSWER_BYTES - bytes, &mut out)?;
            bytes += out.len();
            subtrees.push(out.into());
            if bytes >= STATE_ANSWER_BYTES {
                break;
            }
        }
        Ok(State::Nodes(subtrees))
    }

    fn chunks(
        &mut self,
        snapshots: &SnapshotStore,
        seq: SeqNum,
        parts: &[(Path, u64)],
    ) -> Result<State, LedgerError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (path, offset) in parts {
            let record = self.find(snapshots, seq, path)?;
            let Some((_, SnapshotRecord::Chunk { at, len, .. })) = record else { break };
            let Some(left) = len.checked_sub(*offset) else { break };
            let room = (STATE_ANSWER_BYTES - bytes) as u64;
            if left > room && !found.is_empty() {
                break;
            }
            let part = snapshots.data(seq, at + offset, left.min(room) as usize)?;
            bytes += part.len();
            found.push((left > room, part));
        }
        Ok(State::Chunks(found))
    }
}

/// Writes a subtree: levels below the top, as long as there is room.
fn show(
    snapshots: &SnapshotStore,
    seq: SeqNum,
    record: &SnapshotRecord,
    levels: u32,
    room: usize,
    out: &mut Vec<u8>,
) -> Result<(), LedgerError> {
    match record {
        SnapshotRecord::Chunk { label, digest, .. } => put_leaf(out, &label[1..], *digest),
        SnapshotRecord::Node(children) => {
            out.push(SHOWN);
            for child in children {
                if levels == 1 || out.len() >= room {
                    put_cut(out, child.digest);
                } else {
                    let record = snapshots.record(seq, child.offset)?;
                    show(snapshots, seq, &record, levels - 1, room, out)?;
                }
            }
        }
    }
    Ok(())
}
