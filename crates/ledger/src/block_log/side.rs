//! What is said about blocks: certificates in one file, attestations in one file a segment.

use super::Recovery;
use crate::LedgerError;
use crate::disk::Disk;
use crate::records::{self, Ahead, FileKind, Ident, Record, RecordFile, damage};
use crate::segment::{attestation_name, parse_name};
use bytes::Bytes;
use std::collections::BTreeMap;
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
    /// Opens the files; those of attestations from segment `newest` on, and removes those from
    /// before segment `first` that an interrupted pruning left.
    pub(super) fn open(
        disk: &mut Disk,
        chain: ChainId,
        (first, newest): (Height, Height),
        recovery: &mut Recovery,
    ) -> Result<Self, LedgerError> {
        let names = disk.storage().list()?;
        let ident = certificates_ident(chain);
        let mut index = BTreeMap::new();
        let certificates = if names.iter().any(|name| name == CERTIFICATES) {
            let (file, all, cut) =
                RecordFile::recover(disk, CERTIFICATES.to_owned(), ident, Ahead::NONE)?;
            recovery.cuts.extend(cut);
            for record in &all {
                let seq = certificate(record)?.checkpoint.seq;
                index.insert(Height(record.tag), Place { seq, offset: record.offset });
            }
            file
        } else {
            RecordFile::new(CERTIFICATES.to_owned(), ident, Ahead::NONE)
        };
        let mut attestations = BTreeMap::new();
        for segment in names.iter().filter_map(|name| parse_name(name, "attest")) {
            if segment < first {
                disk.change(|s| s.remove(&attestation_name(segment)))?;
            } else if segment >= newest {
                let ident = attestations_ident(chain, segment);
                let (file, _, cut) =
                    RecordFile::recover(disk, attestation_name(segment), ident, Ahead::NONE)?;
                recovery.cuts.extend(cut);
                attestations.insert(segment, file);
            }
        }
        Ok(Self { chain, certificates, index, attestations })
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
        let place = self.index.range(height..).next();
        place.map(|(_, place)| self.read(disk, *place)).transpose()
    }

    pub(super) fn latest_certificate(
        &self,
        disk: &Disk,
    ) -> Result<Option<CertifiedCheckpoint>, LedgerError> {
        self.index.last_key_value().map(|(_, place)| self.read(disk, *place)).transpose()
    }

    fn read(&self, disk: &Disk, place: Place) -> Result<CertifiedCheckpoint, LedgerError> {
        certificate(&self.certificates.read(disk, place.offset)?)
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
        let ident = attestations_ident(self.chain, segment);
        let contents = records::read_all(disk.storage(), &name, &ident)?;
        let mut all = Vec::new();
        for record in contents.records.iter().filter(|record| record.tag == height.0) {
            let Attestation { block, signatures } = attestation(&name, record)?;
            all.extend(signatures.into_iter().map(|(replica, s)| (block, replica, s)));
        }
        Ok(all)
    }

    /// Forgets what is attested about blocks before `first`, whose files go, and what is certified
    /// of blocks before `lowest`, the lowest that has a file still: whoever opens the log before
    /// that is removed serves it, with its certificates. The certificate of the block right before
    /// it is kept, and the latest.
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
        for (height, place) in &kept {
            content.push((height.0, self.certificates.read(disk, place.offset)?.bytes));
        }
        let (image, offsets) = RecordFile::image(&certificates_ident(self.chain), &content);
        disk.change(|s| s.write_atomic(CERTIFICATES, &image))?;
        self.certificates.replaced(image.len() as u64);
        self.index = (kept.into_iter().zip(offsets))
            .map(|((height, place), offset)| (height, Place { offset, ..place }))
            .collect();
        Ok(())
    }
}
