//! Signed states, and the certificates that come of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_types::{CertifiedCheckpoint, Checkpoint, ReplicaId, SeqNum, SignatureBytes};

/// The most signed states of one replica that are kept beyond those of a window.
const SPARE: usize = 8;

/// What replicas signed above the stable checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    pub(crate) stable: Option<Arc<CertifiedCheckpoint>>,
    /// A certificate above what was executed here.
    pub(crate) ahead: Option<Arc<CertifiedCheckpoint>>,
    said: BTreeMap<ReplicaId, BTreeMap<SeqNum, (Checkpoint, SignatureBytes)>>,
    /// How many of each replica.
    most: usize,
}

impl Checkpoints {
    pub(crate) fn new(stable: Option<Arc<CertifiedCheckpoint>>, in_window: u64) -> Self {
        let most = usize::try_from(in_window).unwrap_or(usize::MAX).saturating_add(SPARE);
        Self { stable, ahead: None, said: BTreeMap::new(), most }
    }

    /// The number of the stable checkpoint.
    pub(crate) fn low(&self) -> SeqNum {
        self.stable.as_ref().map_or(SeqNum(0), |stable| stable.checkpoint.seq)
    }

    /// What a replica signed at a number.
    pub(crate) fn of(&self, by: ReplicaId, seq: SeqNum) -> Option<&Checkpoint> {
        self.said.get(&by)?.get(&seq).map(|(checkpoint, _)| checkpoint)
    }

    /// All that a replica signed above a number.
    pub(crate) fn above(
        &self,
        by: ReplicaId,
        seq: SeqNum,
    ) -> impl Iterator<Item = &(Checkpoint, SignatureBytes)> {
        self.said.get(&by).into_iter().flat_map(move |said| said.range(seq.next()..)).map(|s| s.1)
    }

    /// Keeps what a replica signed; the first of a number stands.
    pub(crate) fn note(
        &mut self,
        by: ReplicaId,
        checkpoint: Checkpoint,
        signature: SignatureBytes,
    ) {
        if checkpoint.seq <= self.low() {
            return;
        }
        let said = self.said.entry(by).or_default();
        said.entry(checkpoint.seq).or_insert((checkpoint, signature));
        if said.len() > self.most {
            said.pop_first();
        }
    }

    /// The certificate of a number, once `quorum` replicas signed one state there.
    pub(crate) fn certify(&self, seq: SeqNum, quorum: usize) -> Option<CertifiedCheckpoint> {
        let here = || self.said.iter().filter_map(|(by, said)| Some((*by, said.get(&seq)?)));
        let state = here().map(|(_, (checkpoint, _))| checkpoint).find(|checkpoint| {
            here().filter(|(_, (other, _))| other == *checkpoint).count() >= quorum
        })?;
        let same = here().filter(|(_, (other, _))| other == state);
        let signatures = same.map(|(by, (_, signature))| (by, *signature)).collect();
        Some(CertifiedCheckpoint { checkpoint: state.clone(), signatures })
    }

    /// The window moves up to a certificate.
    pub(crate) fn move_to(&mut self, certificate: Arc<CertifiedCheckpoint>) {
        let above = certificate.checkpoint.seq.next();
        for said in self.said.values_mut() {
            *said = said.split_off(&above);
        }
        self.ahead.take_if(|ahead| ahead.checkpoint.seq < above);
        self.stable = Some(certificate);
    }

    /// How many signed states are kept.
    pub(crate) fn len(&self) -> usize {
        self.said.values().map(BTreeMap::len).sum()
    }
}
