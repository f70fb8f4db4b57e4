//! A file as a process sees it and as the disk has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a disk writes as a whole, in bytes.
const SECTOR: usize = 512;
/// What a page cache writes at a time, in sectors.
const PAGE: usize = 8;
/// The most sectors that one write loses.
const LOST: usize = 16;
/// The most bits that rot at once.
const ROTTEN: u64 = 8;

/// What a medium does to bytes that were durable. No error shows it: they are merely read so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaFault {
    /// Bit rot: up to eight bits of one sector are flipped.
    BitRot,
    /// A lost write: up to sixteen sectors in a row, which the disk said it had written, read as
    /// what stood there before the last sync that covered them; as zeros, where nothing did.
    LostWrite,
    /// A misdirected write: what was to go to another sector, of this file or of another, stands at
    /// a sector of this file.
    MisdirectedWrite,
}

#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What every process sees.
    pub(super) bytes: Vec<u8>,
    /// The part of `bytes` that a sync covered.
    synced: usize,
    /// Sectors of that part that were written over since, each as the disk has it.
    overwritten: BTreeMap<usize, Vec<u8>>,
    /// Sectors of that part as the disk had them before it had what is there now; zeros where
    /// there is none.
    before: BTreeMap<usize, Vec<u8>>,
    /// What a failed sync dropped: the pages count as clean, and are not on the disk.
    dropped: Vec<Dropped>,
}

/// What the disk has from a place on instead of what every process sees.
#[derive(Clone, Debug)]
struct Dropped {
    at: usize,
    bytes: Vec<u8>,
}

impl File {
    /// With these bytes, all of them durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.len(), bytes, ..Self::default() }
    }

    pub(super) fn sync(&mut self) {
        // The sector that was appended to had its front before.
        let (sector, front) = (self.synced / SECTOR, self.synced % SECTOR);
        if front > 0 && self.bytes.len() > self.synced && !self.overwritten.contains_key(&sector) {
            let begin = sector * SECTOR;
            self.before.insert(sector, self.bytes[begin..begin + front].to_vec());
        }
        self.before.append(&mut self.overwritten);
        self.synced = self.bytes.len();
    }

    pub(super) fn fail_sync(&mut self) {
        let bytes = vec![0; self.bytes.len() - self.synced];
        self.dropped.push(Dropped { at: self.synced, bytes });
        let sectors = std::mem::take(&mut self.overwritten).into_iter();
        self.dropped.extend(sectors.map(|(i, bytes)| Dropped { at: i * SECTOR, bytes }));
        self.synced = self.bytes.len();
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let (end, len) = (at + bytes.len(), self.bytes.len());
        if at < self.synced {
            for sector in at / SECTOR..end.min(self.synced).div_ceil(SECTOR) {
                let range = self.range(sector);
                self.overwritten.entry(sector).or_insert_with(|| self.bytes[range].to_vec());
            }
        }
        self.bytes.resize(len.max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    /// The power fails: see [`super::MemStorage::crash`].
    pub(super) fn crash(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        for Dropped { at, bytes } in std::mem::take(&mut self.dropped) {
            self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        for (sector, bytes) in std::mem::take(&mut self.overwritten) {
            if choose(3) == 0 {
                let at = sector * SECTOR;
                self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        let unsynced = self.bytes.len() - self.synced;
        if unsynced > 0 {
            let kept = self.synced + choose(unsynced as u64 + 1) as usize;
            self.tear(kept, choose);
        }
        self.synced = self.bytes.len();
    }

    /// Of what was appended and not synced, so much reached the disk in some manner.
    fn tear(&mut self, kept: usize, choose: &mut dyn FnMut(u64) -> u64) {
        match choose(5) {
            // The length reached the disk and the last pages did not.
            0 => self.bytes[kept..].fill(0),
            // The last sector was written half.
            1 => {
                self.bytes.truncate(kept);
                let bad = choose((kept - self.synced) as u64 + 1) as usize;
                for byte in &mut self.bytes[kept - bad.min(SECTOR)..] {
                    *byte ^= 1 + choose(255) as u8;
                }
            }
            2 => self.bytes.truncate(kept),
            // The sectors, or pages, were written in any order, and the power failed meanwhile.
            manner => {
                self.bytes.truncate(kept);
                let piece = if manner == 3 { SECTOR } else { PAGE * SECTOR };
                let mut at = self.synced;
                while at < kept {
                    let end = (at / piece * piece + piece).min(kept);
                    if choose(3) == 0 {
                        self.bytes[at..end].fill(0);
                    }
                    at = end;
                }
            }
        }
    }

    /// How many sectors the disk has of it.
    pub(super) fn durable_sectors(&self) -> usize {
        self.synced.div_ceil(SECTOR)
    }

    fn range(&self, sector: usize) -> Range<usize> {
        sector * SECTOR..((sector + 1) * SECTOR).min(self.synced)
    }

    /// A sector as the disk has it.
    pub(super) fn sector(&self, sector: usize) -> Vec<u8> {
        let dirty = self.overwritten.get(&sector).cloned();
        dirty.unwrap_or_else(|| self.bytes[self.range(sector)].to_vec())
    }

    /// The medium fails at a place that nothing is about to write again; `stray` is what a
    /// misdirected write puts there.
    pub(super) fn fault(
        &mut self,
        fault: MediaFault,
        stray: &[u8],
        choose: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Range<usize>> {
        let clean = (0..self.durable_sectors()).filter(|i| !self.overwritten.contains_key(i));
        let clean: Vec<usize> = clean.collect();
        let count = clean.len() as u64;
        let first = (count > 0).then(|| clean[choose(count) as usize])?;
        let mut range = self.range(first);
        let was = self.bytes.clone();
        match fault {
            MediaFault::BitRot => {
                let bits = 8 * range.len() as u64;
                let rotten: BTreeSet<u64> = (0..=choose(ROTTEN)).map(|_| choose(bits)).collect();
                for bit in rotten {
                    self.bytes[range.start + bit as usize / 8] ^= 1 << (bit % 8);
                }
            }
            MediaFault::LostWrite => {
                let most = first + 1 + choose(LOST as u64) as usize;
                let run = clean.iter().skip_while(|i| **i < first).zip(first..most);
                for sector in run.take_while(|(i, next)| *i == next).map(|(i, _)| *i) {
                    let place = self.range(sector);
                    let before = self.before.get(&sector).map_or(&[][..], Vec::as_slice);
                    for (i, byte) in self.bytes[place.clone()].iter_mut().enumerate() {
                        *byte = before.get(i).copied().unwrap_or(0);
                    }
                    range.end = place.end;
                }
            }
            MediaFault::MisdirectedWrite => {
                let len = range.len().min(stray.len());
                self.bytes[range.start..][..len].copy_from_slice(&stray[..len]);
            }
        }
        let differs = |i: &usize| self.bytes[*i] != was[*i];
        let start = range.clone().find(differs)?;
        let end = range.rev().find(differs)? + 1;
        Some(start..end)
    }
}
