//! What is said about blocks: certificates in one file, attestations in one file a segment.
//!
//! Each record proves itself, and none is needed: what a later certificate covers needs no earlier
//! one, and the other replicas have them all. So a record that cannot be read is as if it had never
//! been put, when the files are opened ([`salvage`]) and later.

use super::Recovery;
use crate::LedgerError;
use crate::disk::Disk;
use crate::records::{Ahead, FileKind, Ident, LIMIT, Record, RecordFile, damage};
use crate::salvage;
use crate::segment::{attestation_name, parse_name};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use tercio_types::{
    CertifiedCheckpoint, ChainId, Digest, Height, MAX_REPLICAS, ReplicaId, SeqNum, SignatureBytes,
    Suite,
};
use tercio_wire::{Decode, DecodeError, Encode, Reader};

pub(crate) const CERTIFICATES: &str = "certificates";

pub(crate) fn certificates_ident(chain: ChainId) -> Ident {
    Ident { kind: FileKind::Certificates, chain, number: 0 }
}

pub(crate) fn attestations_ident(chain: ChainId, segment: Height) -> Ident {
    Ident { kind: FileKind::Attestations, chain, number: segment.0 }
}

/// Decodes the certificate in a record.
pub(crate) fn certificate(record: &Record) -> Result<CertifiedCheckpoint, LedgerError> {
    let bad = |e: DecodeError| damage(CERTIFICATES, record.offset, format!("certificate: {e}"));
    let found = CertifiedCheckpoint::from_bytes(&record.bytes, Suite::default()).map_err(bad)?;
    if found.checkpoint.height.0 != record.tag {
        return Err(damage(CERTIFICATES, record.offset, "height of the certificate"));
    }
    if found.checkpoint.height.0 >= LIMIT || found.checkpoint.seq.0 >= LIMIT {
        return Err(damage(CERTIFICATES, record.offset, "number of the certificate"));
    }
    Ok(found)
}

/// Signatures on one block.
pub(crate) struct Attestation {
    pub(crate) block: Digest,
    pub(crate) signatures: Vec<(ReplicaId, SignatureBytes)>,
}

impl Encode for Attestation {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block.0);
        out.extend_from_slice(&(self.signatures.len() as u32).to_le_bytes());
        for (replica, signature) in &self.signatures {
            out.extend_from_slice(&replica.0.to_le_bytes());
            signature.encode(out);
        }
    }
}

impl Decode for Attestation {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let block = input.digest("attestation")?;
        let count = input.count(4, MAX_REPLICAS, "attestation")?;
        let signature = |input: &mut Reader| {
            Ok((ReplicaId(input.u16("attestation")?), SignatureBytes::decode(input)?))
        };
        let signatures = (0..count).map(|_| signature(input)).collect::<Result<_, _>>()?;
        Ok(Self { block, signatures })
    }
}

pub(crate) fn attestation(file: &str, record: &Record) -> Result<Attestation, LedgerError> {
    Attestation::from_bytes(&record.bytes, Suite::default())
        .map_err(|e| damage(file, record.offset, format!("attestation: {e}")))
}

/// Where a certificate stands.
#[derive(Clone, Copy)]
struct Place {
    seq: SeqNum,
    offset: u64,
}

pub(super) struct Side {
    chain: ChainId,
    certificates: RecordFile,
    index: BTreeMap<Height, Place>,
    /// The files that still take signatures, by the first height of their segment: at most two.
    attestations: BTreeMap<Height, RecordFile>,
}

impl Side {
    /// Opens the certificates.
    pub(super) fn open(
        disk: &mut Disk,
        chain: ChainId,
        recovery: &mut Recovery,
    ) -> Result<Self, LedgerError> {
        let ident = certificates_ident(chain);
        let mut index = BTreeMap::new();
        let name = CERTIFICATES.to_owned();
        let certificates = if disk.storage().list()?.contains(&name) {
            let (file, all, cuts) =
                salvage::recover(disk, name, ident, |record| certificate(record).is_ok())?;
            recovery.cuts.extend(cuts);
            for record in &all {
                let seq = certificate(record)?.checkpoint.seq;
                index.insert(Height(record.tag), Place { seq, offset: record.offset });
            }
            file
        } else {
            RecordFile::new(name, ident, Ahead::NONE)
        };
        Ok(Self { chain, certificates, index, attestations: BTreeMap::new() })
    }

    /// Opens the attestations from segment `newest` on, and removes those from before segment
    /// `first` that an interrupted pruning left.
    pub(super) fn open_attestations(
        &mut self,
        disk: &mut Disk,
        (first, newest): (Height, Height),
        recovery: &mut Recovery,
    ) -> Result<(), LedgerError> {
        let names = disk.storage().list()?;
        for segment in names.iter().filter_map(|name| parse_name(name, "attest")) {
            let name = attestation_name(segment);
            if segment < first {
                disk.change(|s| s.remove(&name))?;
            } else if segment >= newest {
                let ident = attestations_ident(self.chain, segment);
                let keeps = |record: &Record| attestation(&name, record).is_ok();
                let (file, _, cuts) = salvage::recover(disk, name.clone(), ident, keeps)?;
                recovery.cuts.extend(cuts);
                self.attestations.insert(segment, file);
            }
        }
        Ok(())
    }

    /// The height of the highest checkpoint that has a certificate; 0 without any.
    pub(super) fn certified(&self) -> Height {
        self.index.last_key_value().map_or(Height(0), |(height, _)| *height)
    }

    /// The blocks at these heights of which a certificate says which they are.
    pub(super) fn certified_blocks(
        &self,
        disk: &Disk,
        heights: RangeInclusive<Height>,
    ) -> Result<BTreeMap<Height, Digest>, LedgerError> {
        let mut blocks = BTreeMap::new();
        for (&height, &place) in self.index.range(heights) {
            if let Some((_, found)) = self.read(disk, place)? {
                blocks.insert(height, found.checkpoint.block);
            }
        }
        Ok(blocks)
    }

    pub(super) fn flush(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        self.certificates.flush(disk)?;
        self.attestations.values_mut().try_for_each(|file| file.flush(disk))
    }

    pub(super) fn sync(&mut self, disk: &mut Disk) -> Result<(), LedgerError> {
        self.certificates.sync(disk)?;
        self.attestations.values_mut().try_for_each(|file| file.sync(disk))
    }

    pub(super) fn put_certificate(
        &mut self,
        disk: &mut Disk,
        certificate: &CertifiedCheckpoint,
    ) -> Result<(), LedgerError> {
        disk.check()?;
        let (height, seq) = (certificate.checkpoint.height, certificate.checkpoint.seq);
        if self.index.get(&height).is_some_and(|place| place.seq >= seq) {
            return Ok(());
        }
        let offset = self.certificates.push(height.0, &certificate.to_bytes());
        self.certificates.flush(disk)?;
        self.index.insert(height, Place { seq, offset });
        Ok(())
    }

    pub(super) fn certificate_at_or_after(
        &self,
        disk: &Disk,
        height: Height,
    ) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        self.first_readable(disk, self.index.range(height..).map(|(_, place)| *place))
    }

    pub(super) fn latest_certificate(
        &self,
        disk: &Disk,
    ) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        self.first_readable(disk, self.index.values().rev().copied())
    }

    fn first_readable(
        &self,
        disk: &Disk,
        places: impl Iterator<Item = Place>,
    ) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        for place in places {
            if let Some((_, found)) = self.read(disk, place)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A certificate, with its encoding; `None` when it cannot be read any more.
    fn read(
        &self,
        disk: &Disk,
        place: Place,
    ) -> Result<Option<(Bytes, CertifiedCheckpoint)>, LedgerError> {
        let read = self.certificates.read(disk, place.offset);
        match read.and_then(|record| Ok((record.bytes.clone(), certificate(&record)?))) {
            Ok(found) => Ok(Some(found)),
            Err(LedgerError::Damage { .. }) => Ok(None),
            // The file is gone, or ends too early.
            Err(LedgerError::Io(error))
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) =>
            {
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    pub(super) fn put_attestation(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        height: Height,
        block: Digest,
        signatures: &[(ReplicaId, SignatureBytes)],
    ) -> Result<(), LedgerError> {
        disk.check()?;
        assert!(signatures.len() <= MAX_REPLICAS, "a replica signs a block once");
        if !self.attestations.contains_key(&segment) {
            let ident = attestations_ident(self.chain, segment);
            let file = RecordFile::new(attestation_name(segment), ident, Ahead::NONE);
            self.attestations.insert(segment, file);
            while self.attestations.len() > 2 {
                let (_, mut oldest) = self.attestations.pop_first().expect("more than two");
                oldest.sync(disk)?;
            }
        }
        let file = self.attestations.get_mut(&segment).expect("just put there");
        file.push(height.0, &Attestation { block, signatures: signatures.to_vec() }.to_bytes());
        Ok(())
    }

    pub(super) fn attestations(
        &mut self,
        disk: &mut Disk,
        segment: Height,
        height: Height,
    ) -> Result<Vec<(Digest, ReplicaId, SignatureBytes)>, LedgerError> {
        if let Some(file) = self.attestations.get_mut(&segment) {
            file.flush(disk)?;
        }
        let name = attestation_name(segment);
        if !disk.storage().list()?.contains(&name) {
            return Ok(vec![]);
        }
        let storage = disk.storage();
        let whole = salvage::scan(storage, &name, segment.0, None, |_| true)?.records;
        let of_block = whole.iter().filter(|record| record.tag == height.0);
        let said = of_block.filter_map(|record| attestation(&name, record).ok());
        let each = |Attestation { block, signatures }| {
            signatures.into_iter().map(move |(replica, signature)| (block, replica, signature))
        };
        Ok(said.flat_map(each).collect())
    }

    /// Forgets what is attested about blocks before `first`, whose files go, and what is certified
    /// of blocks before `lowest`, the lowest that has a file still: whoever opens the log before
    /// that is removed serves it, with its certificates. The certificate of the block right before
    /// it is kept, and the latest; one that cannot be read goes too.
    pub(super) fn prune(
        &mut self,
        disk: &mut Disk,
        first: Height,
        lowest: Height,
    ) -> Result<(), LedgerError> {
        self.attestations.retain(|segment, _| *segment >= first);
        let Some((&latest, _)) = self.index.last_key_value() else { return Ok(()) };
        let base = latest.min(Height(lowest.0.saturating_sub(1)));
        if self.index.range(..base).next().is_none() {
            return Ok(());
        }
        let kept = self.index.split_off(&base);
        let mut content: Vec<(u64, Bytes)> = Vec::with_capacity(kept.len());
        let mut places = Vec::with_capacity(kept.len());
        for (height, place) in kept {
            if let Some((bytes, _)) = self.read(disk, place)? {
                content.push((height.0, bytes));
                places.push((height, place));
            }
        }
        let (image, offsets) = RecordFile::image(&certificates_ident(self.chain), &content);
        disk.change(|s| s.write_atomic(CERTIFICATES, &image))?;
        self.certificates.replaced(image.len() as u64);
        self.index = (places.into_iter().zip(offsets))
            .map(|((height, place), offset)| (height, Place { offset, ..place }))
            .collect();
        Ok(())
    }
}
