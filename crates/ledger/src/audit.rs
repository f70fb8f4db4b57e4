//! The audit of a block log, offline: that every byte is as it was written, that the blocks form
//! one chain under the rules, and that what a quorum signed is what the log says.
//!
//! A closed segment is determined by its blocks: header, records and footer are checked against
//! what they must be, so that a single flipped bit anywhere in it is found.

mod results;

pub use results::results_at;

use crate::LedgerError;
use crate::Storage;
use crate::block_log::side::{
    self, CERTIFICATES, attestation, attestations_ident, certificates_ident,
};
use crate::certificate::{verify, verify_attestation};
use crate::disk::Window;
use crate::records::{FileKind, Ident, Record, is_zero_from};
use crate::salvage;
use crate::segment::{
    BlockRecord, SEGMENT_HEADER, SegmentHeader, attestation_name, footer_field, footer_len,
    parse_name, put_footer, read_block, read_footer, results_name, segment_name,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tercio_types::{
    Batch, BlockHeader, CertifiedCheckpoint, ChainId, ClientId, Digest, EMPTY_ROOT, Height,
    Membership, RequestSeq,
};
use tercio_wire::Decode;
use thiserror::Error;

/// How far an audit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditProgress {
    /// How many blocks were checked.
    pub blocks: u64,
    /// How many bytes of segments were checked.
    pub bytes: u64,
    /// How many bytes all segments have.
    pub total_bytes: u64,
}

/// What a good log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// How many blocks.
    pub blocks: u64,
    /// How many operations are in them.
    pub operations: u64,
    /// How many segment files.
    pub segments: u64,
    /// How many certificates.
    pub certificates: u64,
    /// How many of them are about blocks above the head, which a crash may have taken.
    pub certificates_ahead: u64,
    /// How many signatures on single blocks.
    pub attestations: u64,
    /// The lowest block, when there is one.
    pub first: Option<Height>,
    /// The highest block, when there is one.
    pub last: Option<Height>,
    /// The hash of the highest block; of the block that the log starts after when there is none.
    pub head: Digest,
    /// The highest block in the log that a certificate proves.
    pub last_certified: Option<Height>,
    /// Of how many blocks results are kept.
    pub results: u64,
    /// The lowest of them.
    pub results_first: Option<Height>,
    /// The highest of them: execution may be behind.
    pub results_last: Option<Height>,
    /// The blocks whose results a certificate proves, in ascending order: results are chained, and a
    /// certificate has what they are chained to.
    pub results_proven: Vec<RangeInclusive<Height>>,
    /// Bytes of unfinished records at the end of files, which the next opening cuts.
    pub torn_bytes: u64,
    /// Places among certificates, attestations and results that hold no whole record, with whole ones
    /// behind, and results that are missing. A power failure leaves such holes; the next opening cuts
    /// them out. What they said of
    /// blocks that the log is good about is lost, and no block with it: the certificates that are
    /// left say up to where the log is proved.
    pub lost: Vec<AuditFailure>,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}{}: {field}", height.map_or(String::new(), |h| format!(", block {h}")))]
pub struct AuditFailure {
    /// The file.
    pub file: String,
    /// The block, when it is about one.
    pub height: Option<Height>,
    /// The field: 'body checksum', 'parent', 'index entry 17' and so on.
    pub field: String,
}

fn failure(file: &str, height: Option<Height>, field: impl Into<String>) -> AuditFailure {
    AuditFailure { file: file.to_owned(), height, field: field.into() }
}

fn unreadable(file: &str, error: &LedgerError) -> AuditFailure {
    match error {
        LedgerError::Damage { file, height, field, .. } => failure(file, *height, field.clone()),
        other => failure(file, None, other.to_string()),
    }
}

/// Audits the block log in `storage`, whose replicas are `membership`. `progress` is called after
/// every block.
///
/// # Errors
/// Names the first thing that is wrong: file, block and field.
pub fn audit(
    storage: &dyn Storage,
    membership: &Membership,
    progress: &mut dyn FnMut(&AuditProgress),
) -> Result<AuditReport, AuditFailure> {
    let chain = membership.chain();
    let names = storage.list().map_err(|e| failure("the directory", None, e.to_string()))?;
    let firsts = segments(storage, &names, chain);
    let mut audit = Audit {
        storage,
        membership,
        certificates: BTreeMap::new(),
        hashes: BTreeMap::new(),
        packages: BTreeMap::new(),
        certified_results: BTreeMap::new(),
        chained: None,
        run: None,
        missing: None,
        previous: Previous { height: Height(0), hash: Digest(chain.0), header: None },
        report: AuditReport::default(),
        at: AuditProgress::default(),
    };
    for &first in &firsts {
        let name = segment_name(first);
        let len = storage.len(&name).map_err(|e| failure(&name, None, e.to_string()))?;
        audit.at.total_bytes += len;
    }
    if names.iter().any(|name| name == CERTIFICATES) {
        audit.read_certificates(chain)?;
    }
    for (i, &first) in firsts.iter().enumerate() {
        audit.segment(first, i == 0, i + 1 == firsts.len(), progress)?;
        if names.contains(&attestation_name(first)) {
            audit.attestations(first)?;
        }
        audit.results(first, names.contains(&results_name(first)))?;
    }
    audit.certificates_outside()?;
    audit.report.head = audit.previous.hash;
    Ok(audit.report)
}

/// The first heights of the segments that count.
fn segments(storage: &dyn Storage, names: &[String], chain: ChainId) -> Vec<Height> {
    let mut firsts: Vec<Height> = names.iter().filter_map(|n| parse_name(n, "blocks")).collect();
    // Where the log begins anew, what lies before is void and waits to be removed.
    let begins = |first: &Height| {
        let name = segment_name(*first);
        let header = Window::exact(storage, &name)
            .map(|mut window| SegmentHeader::read(&mut window, &name, chain, *first));
        matches!(header, Ok(Ok(Ok(header))) if header.base)
    };
    firsts.drain(..firsts.iter().rposition(begins).unwrap_or(0));
    firsts
}

/// The hash of a block in a log that [`audit`] found good; `None` when the block is not in there. A
/// block names the one before it, so two logs with one hash here are one log up to here.
///
/// # Errors
/// As [`audit`].
pub fn hash_at(
    storage: &dyn Storage,
    chain: ChainId,
    height: Height,
) -> Result<Option<Digest>, AuditFailure> {
    let names = storage.list().map_err(|e| failure("the directory", None, e.to_string()))?;
    let firsts = segments(storage, &names, chain);
    let Some(first) = firsts.into_iter().rfind(|first| *first <= height) else { return Ok(None) };
    let name = segment_name(first);
    let io = |e: std::io::Error| failure(&name, None, e.to_string());
    let mut window = Window::new(storage, &name).map_err(io)?;
    let (mut at, mut next) = (SEGMENT_HEADER as u64, first);
    loop {
        let Ok(record) = read_block(&mut window, at, Some(next)).map_err(io)? else {
            return Ok(None);
        };
        if next == height {
            return Ok(Some(record.hash));
        }
        (at, next) = (record.end, next.next());
    }
}

/// The block before the next.
struct Previous {
    height: Height,
    hash: Digest,
    /// Unknown before the first block of the log.
    header: Option<BlockHeader>,
}

struct Audit<'a> {
    storage: &'a dyn Storage,
    membership: &'a Membership,
    /// By height; each has been verified.
    certificates: BTreeMap<Height, Vec<CertifiedCheckpoint>>,
    /// The hashes of the blocks of the segment at hand.
    hashes: BTreeMap<Height, Digest>,
    /// And whose packages are in them.
    packages: BTreeMap<Height, Vec<(ClientId, RequestSeq)>>,
    /// The chained results in certificates.
    certified_results: BTreeMap<Height, Digest>,
    /// The last block with results, and the chained results after it.
    chained: Option<(Height, Digest)>,
    /// Where results without a gap begin that no certificate proves yet.
    run: Option<Height>,
    /// The first results file that is not there, since the last results.
    missing: Option<String>,
    previous: Previous,
    report: AuditReport,
    at: AuditProgress,
}

impl Audit<'_> {
    fn read_certificates(&mut self, chain: ChainId) -> Result<(), AuditFailure> {
        let ident = certificates_ident(chain);
        let keeps = |record: &Record| side::certificate(record).is_ok();
        for record in &self.records(CERTIFICATES, &ident, keeps)? {
            let height = Height(record.tag);
            let certificate =
                side::certificate(record).map_err(|e| unreadable(CERTIFICATES, &e))?;
            verify(self.membership, &certificate)
                .map_err(|e| failure(CERTIFICATES, Some(height), format!("certificate: {e}")))?;
            self.certified_results.insert(height, certificate.checkpoint.results);
            self.certificates.entry(height).or_default().push(certificate);
            self.report.certificates += 1;
        }
        Ok(())
    }

    /// The whole records of a file. What is behind the last of them may be missing bytes, or zeros
    /// in their place, but no wrong ones, except of results.
    fn records(
        &mut self,
        name: &str,
        ident: &Ident,
        keeps: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Record>, AuditFailure> {
        let io = |e: std::io::Error| failure(name, None, e.to_string());
        let found =
            salvage::read(self.storage, name, ident, keeps).map_err(|e| unreadable(name, &e))?;
        self.report.lost.extend(found.holes().map(|hole| failure(name, None, hole.field)));
        if let Some(tail) = found.tail() {
            if !tail.short && !is_zero_from(self.storage, name, tail.at).map_err(io)? {
                // Results come again, or others have them.
                if ident.kind != FileKind::Results {
                    return Err(failure(name, None, tail.field));
                }
                self.report.lost.push(failure(name, None, tail.field));
            }
            self.report.torn_bytes += tail.end - tail.at;
        }
        Ok(found.records)
    }

    fn segment(
        &mut self,
        first: Height,
        is_first: bool,
        is_last: bool,
        progress: &mut dyn FnMut(&AuditProgress),
    ) -> Result<(), AuditFailure> {
        let name = segment_name(first);
        let io = |e: std::io::Error| failure(&name, None, e.to_string());
        let mut window = Window::new(self.storage, &name).map_err(io)?;
        let len = window.len();
        self.report.segments += 1;
        self.hashes.clear();
        self.packages.clear();
        let header = SegmentHeader::read(&mut window, &name, self.membership.chain(), first)
            .map_err(|e| unreadable(&name, &e))?;
        let header = match header {
            Ok(header) => header,
            Err(flaw) if flaw.short && is_last => {
                self.report.torn_bytes += len;
                return Ok(());
            }
            Err(flaw) => return Err(failure(&name, None, flaw.field)),
        };
        self.check_start(&name, &header, is_first)?;
        // Only what was never closed may end early.
        let closed = read_footer(&mut window, &header).map_err(io)?.is_ok();
        let may_be_torn = is_last && !closed;
        let mut offsets = Vec::new();
        let mut at = SEGMENT_HEADER as u64;
        while offsets.len() < header.capacity as usize && at < len {
            let height = self.previous.height.next();
            match read_block(&mut window, at, Some(height)).map_err(io)? {
                Ok(record) => {
                    offsets.push(at);
                    at = record.end;
                    self.block(&name, record)?;
                    self.at.blocks += 1;
                    self.at.bytes += at - offsets[offsets.len() - 1];
                    progress(&self.at);
                }
                Err(flaw) if may_be_torn && flaw.short => {
                    self.report.torn_bytes += len - at;
                    return Ok(());
                }
                Err(flaw) => return Err(failure(&name, Some(height), flaw.field)),
            }
        }
        if offsets.len() < header.capacity as usize {
            return match is_last {
                true => Ok(()),
                false => {
                    let next = self.previous.height.next();
                    Err(failure(&name, Some(next), "the block is missing"))
                }
            };
        }
        // The footer is determined by the records.
        let mut expected = Vec::with_capacity(footer_len(offsets.len()));
        put_footer(first, &offsets, &self.previous.hash, &mut expected);
        let found = window.take(at, expected.len() + 1).map_err(io)?;
        let differ = expected.iter().zip(&found).position(|(a, b)| a != b);
        if let Some(i) = differ {
            let field = footer_field(offsets.len(), i);
            let entry = (i.saturating_sub(52) / 8) as u64;
            let height = field.starts_with("index").then(|| Height(first.0 + entry));
            return Err(failure(&name, height, field));
        }
        if found.len() > expected.len() {
            return Err(failure(&name, None, "bytes behind the footer"));
        }
        if found.len() < expected.len() {
            if !is_last {
                return Err(failure(&name, None, "the footer is cut short"));
            }
            self.report.torn_bytes += found.len() as u64;
        }
        Ok(())
    }

    fn check_start(
        &mut self,
        name: &str,
        header: &SegmentHeader,
        is_first: bool,
    ) -> Result<(), AuditFailure> {
        if header.first.0 == 0 {
            return Err(failure(name, None, "first height"));
        }
        if is_first && header.first.0 != 1 {
            // A log that was pruned, or started after a snapshot.
            let height = Height(header.first.0 - 1);
            self.previous = Previous { height, hash: header.parent, header: None };
            return self.certified(name, height, header.parent, None);
        }
        if header.first != self.previous.height.next() {
            let missing = self.previous.height.next();
            return Err(failure(name, Some(missing), "the block is missing before this segment"));
        }
        if header.parent != self.previous.hash {
            return Err(failure(name, Some(header.first), "parent of the first block"));
        }
        Ok(())
    }

    fn block(&mut self, name: &str, record: BlockRecord) -> Result<(), AuditFailure> {
        let BlockRecord { header, hash, body, .. } = record;
        let bad = |field: &str| Err(failure(name, Some(header.height), field));
        let suite = self.membership.suite();
        if header.suite != suite {
            return bad("suite");
        }
        if header.parent != self.previous.hash {
            return bad("parent");
        }
        if header.body != tercio_crypto::hash(suite, &[&body]) {
            return bad("body digest");
        }
        let batch = match Batch::from_bytes(&body, suite) {
            Ok(batch) => batch,
            Err(error) => return bad(&format!("body: {error}")),
        };
        if batch.packages.is_empty() {
            return bad("body without packages");
        }
        if batch.ops() as u64 != u64::from(header.ops) {
            return bad("ops");
        }
        // Null requests take a sequence number and no height.
        if header.seq.0 < header.height.0 {
            return bad("seq");
        }
        if header.time < batch.time {
            return bad("time");
        }
        if header.lag == 0 && (header.results != EMPTY_ROOT || header.state != EMPTY_ROOT) {
            return bad("lag");
        }
        if let Some(before) = &self.previous.header {
            if header.seq <= before.seq {
                return bad("seq");
            }
            if header.time <= before.time {
                return bad("time");
            }
        }
        // Who signs for another epoch is not known from the genesis alone.
        if header.epoch != self.membership.epoch() {
            return bad("epoch: another than the genesis has, and there are no records of epochs");
        }
        self.certified(name, header.height, hash, Some(&header))?;
        self.report.blocks += 1;
        self.report.operations += u64::from(header.ops);
        self.report.first.get_or_insert(header.height);
        self.report.last = Some(header.height);
        self.hashes.insert(header.height, hash);
        let packages = batch.packages.iter().map(|package| (package.client, package.first));
        self.packages.insert(header.height, packages.collect());
        self.previous = Previous { height: header.height, hash, header: Some(header) };
        Ok(())
    }

    /// Holds a block against the certificates of its height.
    fn certified(
        &mut self,
        name: &str,
        height: Height,
        hash: Digest,
        header: Option<&BlockHeader>,
    ) -> Result<(), AuditFailure> {
        let Some(certificates) = self.certificates.remove(&height) else { return Ok(()) };
        for CertifiedCheckpoint { checkpoint, .. } in &certificates {
            if checkpoint.block != hash {
                return Err(failure(name, Some(height), "block hash (another is certified)"));
            }
            if let Some(header) = header
                && (checkpoint.seq < header.seq || checkpoint.time < header.time)
            {
                return Err(failure(CERTIFICATES, Some(height), "sequence number or time"));
            }
        }
        if header.is_some() {
            self.report.last_certified = Some(height);
        }
        Ok(())
    }

    fn attestations(&mut self, first: Height) -> Result<(), AuditFailure> {
        let name = attestation_name(first);
        let ident = attestations_ident(self.membership.chain(), first);
        let keeps = |record: &Record| attestation(&name, record).is_ok();
        for record in &self.records(&name, &ident, keeps)? {
            let height = Height(record.tag);
            let said = attestation(&name, record).map_err(|e| unreadable(&name, &e))?;
            match self.hashes.get(&height) {
                // A crash may have taken the block and left what was said about it.
                None if height > self.previous.height => {}
                Some(hash) if *hash == said.block => {}
                _ => return Err(failure(&name, Some(height), "block hash of the attestation")),
            }
            verify_attestation(self.membership, height, said.block, &said.signatures)
                .map_err(|e| failure(&name, Some(height), format!("attestation: {e}")))?;
            self.report.attestations += said.signatures.len() as u64;
        }
        Ok(())
    }

    /// The certificates that no block was held against.
    fn certificates_outside(&mut self) -> Result<(), AuditFailure> {
        let genesis = Digest(self.membership.chain().0);
        for (height, certificates) in &self.certificates {
            if height.0 == 0 && certificates.iter().any(|c| c.checkpoint.block != genesis) {
                return Err(failure(CERTIFICATES, Some(*height), "block hash"));
            }
            if *height > self.previous.height {
                self.report.certificates_ahead += certificates.len() as u64;
            }
        }
        Ok(())
    }
}
