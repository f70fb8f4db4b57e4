//! Record files of which every record proves itself: certificates and attestations.
//!
//! Such a file is written again and again between two syncs, so that a power failure may leave a
//! hole in it with whole records behind. No record of it is needed: each says something that holds
//! without the others, and that the other replicas can say again. So a place that holds no whole
//! record is passed over, wherever it lies, and what is whole is kept. (The write-ahead log is not
//! read so: a promise that is lost must not go unnoticed.)

use crate::disk::{Disk, Window};
use crate::records::{
    Ahead, Cut, FILE_HEADER, Flaw, Ident, RECORD_HEADER, RECORD_MAGIC, Record, RecordFile, damage,
    is_zero_from, read_header, read_record,
};
use crate::{LedgerError, Storage};
use bytes::Bytes;
use std::io;
use tercio_types::zoo::{Defence, stands};

/// Bytes that are no whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// What is wrong where it begins.
    pub(crate) field: &'static str,
    /// The bytes end too early there; those that are there are not known to be wrong.
    pub(crate) short: bool,
}

/// The whole records of a file, and what lies between them.
pub(crate) struct Salvage {
    pub(crate) records: Vec<Record>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) len: u64,
}

impl Salvage {
    /// One bad place behind another is one gap.
    fn gap(&mut self, at: u64, end: u64, flaw: Flaw) {
        match self.gaps.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.gaps.push(Gap { at, end, field: flaw.field, short: flaw.short }),
        }
    }

    /// The gaps with a whole record behind them.
    pub(crate) fn holes(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.end < self.len)
    }

    /// The gap at the end.
    pub(crate) fn tail(&self) -> Option<&Gap> {
        self.gaps.last().filter(|gap| gap.end == self.len)
    }
}

/// Reads all whole records of which `keeps` says that they can be what is kept there. A header
/// that is not whole counts as a gap.
pub(crate) fn read(
    storage: &dyn Storage,
    name: &str,
    ident: &Ident,
    keeps: impl Fn(&Record) -> bool,
) -> Result<Salvage, LedgerError> {
    let mut window = Window::exact(storage, name)?;
    let header = match read_header(&mut window, name, ident) {
        // The header of another file of ours stands here.
        Err(LedgerError::Damage { .. }) => {
            Some(Flaw { field: "file header", short: false, resume: 0 })
        }
        other => other?,
    };
    Ok(scan(storage, name, ident.number, header, keeps)?)
}

/// The same of a file whose header was looked at before.
pub(crate) fn scan(
    storage: &dyn Storage,
    name: &str,
    number: u64,
    header: Option<Flaw>,
    keeps: impl Fn(&Record) -> bool,
) -> io::Result<Salvage> {
    let mut window = Window::new(storage, name)?;
    let len = window.len();
    let mut found = Salvage { records: Vec::new(), gaps: Vec::new(), len };
    let mut at = len.min(FILE_HEADER as u64);
    if let Some(flaw) = header {
        found.gap(0, at, flaw);
    }
    while at < len {
        let flaw = match read_record(&mut window, number, at)? {
            Ok(record) => {
                let end = at + (RECORD_HEADER + record.bytes.len()) as u64;
                if keeps(&record) {
                    found.records.push(record);
                    at = end;
                    continue;
                }
                Flaw { field: "record content", short: false, resume: end }
            }
            Err(flaw) => flaw,
        };
        let next = window.find(flaw.resume, RECORD_MAGIC)?.unwrap_or(len);
        found.gap(at, next, flaw);
        at = next;
    }
    Ok(found)
}

/// Opens a file that was being appended to: keeps its whole records, cuts out the rest, and makes
/// what is left durable. The records are given with the places where they stand now.
pub(crate) fn recover(
    disk: &mut Disk,
    name: String,
    ident: Ident,
    keeps: impl Fn(&Record) -> bool,
) -> Result<(RecordFile, Vec<Record>, Vec<Cut>), LedgerError> {
    let mut found = read(disk.storage(), &name, &ident, keeps)?;
    let mut cuts: Vec<Cut> = Vec::new();
    for gap in &found.gaps {
        if gap.end < found.len || gap.at == 0 || !is_zero_from(disk.storage(), &name, gap.at)? {
            cuts.push(Cut { file: name.clone(), at: gap.at, bytes: gap.end - gap.at });
        }
    }
    let hole = found.holes().next();
    if let Some(hole) = hole
        && !stands(Defence::F49SalvageSideFiles)
    {
        return Err(damage(&name, hole.at, hole.field));
    }
    let len = if hole.is_none() {
        let end = found.tail().map_or(found.len, |tail| tail.at);
        disk.rewrite(&name, &[], end)?;
        end
    } else {
        let content: Vec<(u64, Bytes)> =
            found.records.iter().map(|record| (record.tag, record.bytes.clone())).collect();
        let (image, offsets) = RecordFile::image(&ident, &content);
        disk.change(|s| s.write_atomic(&name, &image))?;
        found.records.iter_mut().zip(offsets).for_each(|(record, at)| record.offset = at);
        image.len() as u64
    };
    let mut file = RecordFile::new(name, ident, Ahead::NONE);
    if len > 0 {
        file.replaced(len);
    }
    Ok((file, found.records, cuts))
}
