//! Agreement: correct replicas decide the same batch at a number, execute the same block at a
//! height, and sign the same state at a checkpoint (Castro and Liskov, TOCS'02 section 4.6).

use super::{Violation, demand};
use std::collections::BTreeMap;
use tercio_types::{Checkpoint, Digest, Height, ReplicaId, SeqNum, View};

type Said<K, V> = BTreeMap<K, (ReplicaId, V)>;

/// What the first correct replica said, by place.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    committed: Said<(View, SeqNum), Digest>,
    blocks: Said<Height, Digest>,
    heads: Said<Height, Digest>,
    checkpoints: Said<SeqNum, Checkpoint>,
}

/// The first word at a place stands; every later one must be the same.
fn hold<K: Ord + Copy + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    said: &mut Said<K, V>,
    at: K,
    by: ReplicaId,
    value: V,
    what: &str,
) -> Result<(), Violation> {
    match said.get(&at) {
        None => {
            said.insert(at, (by, value));
            Ok(())
        }
        Some((first, before)) => demand(*before == value, "agreement", || {
            format!("at {at:?}, {first:?} {what} {before:?}, and {by:?} {value:?}")
        }),
    }
}

impl Agreement {
    /// A correct replica sent a COMMIT: a quorum accepted this and nothing else there.
    ///
    /// # Errors
    /// When another correct replica said otherwise.
    pub fn committed(
        &mut self,
        by: ReplicaId,
        view: View,
        seq: SeqNum,
        digest: Digest,
    ) -> Result<(), Violation> {
        hold(&mut self.committed, (view, seq), by, digest, "sent COMMIT for")
    }

    /// A correct replica executed a block. `chain` stands for the parent and the body.
    ///
    /// # Errors
    /// When another correct replica executed another block at this height.
    pub fn executed(
        &mut self,
        by: ReplicaId,
        height: Height,
        chain: Digest,
    ) -> Result<(), Violation> {
        hold(&mut self.blocks, height, by, chain, "executed")
    }

    /// A correct replica's chain ends here.
    ///
    /// # Errors
    /// When another correct replica has another block at this height.
    pub fn head(&mut self, by: ReplicaId, height: Height, head: Digest) -> Result<(), Violation> {
        hold(&mut self.heads, height, by, head, "has the head")
    }

    /// A correct replica signed a checkpoint.
    ///
    /// # Errors
    /// When another correct replica signed another one at this number.
    pub fn checkpoint(&mut self, by: ReplicaId, checkpoint: Checkpoint) -> Result<(), Violation> {
        let at = checkpoint.seq;
        hold(&mut self.checkpoints, at, by, checkpoint, "signed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);

    fn digest(byte: u8) -> Digest {
        Digest([byte; 32])
    }

    #[test]
    fn two_commits_at_one_number_are_caught() {
        let mut check = Agreement::default();
        let (view, seq) = (View(1), SeqNum(2));
        check.committed(A, view, seq, digest(1)).unwrap();
        check.committed(B, view, seq, digest(1)).unwrap();
        check.committed(B, View(2), seq, digest(2)).unwrap();
        let violation = check.committed(B, view, seq, digest(2)).unwrap_err();
        assert_eq!(violation.property, "agreement");
        assert!(violation.seen.contains("R0") && violation.seen.contains("R1"), "{violation}");
    }

    #[test]
    fn two_blocks_at_one_height_are_caught() {
        let mut check = Agreement::default();
        check.executed(A, Height(1), digest(1)).unwrap();
        check.executed(B, Height(1), digest(1)).unwrap();
        assert!(check.executed(B, Height(1), digest(2)).is_err());
        check.head(A, Height(1), digest(3)).unwrap();
        assert!(check.head(B, Height(1), digest(4)).is_err());
    }

    #[test]
    fn two_states_at_one_checkpoint_are_caught() {
        let mut check = Agreement::default();
        let one = Checkpoint {
            seq: SeqNum(8),
            height: Height(8),
            block: digest(1),
            results: digest(2),
            state: digest(3),
            clients: digest(4),
            membership: digest(5),
            epoch: tercio_types::Epoch(0),
            time: tercio_types::Timestamp(9),
        };
        check.checkpoint(A, one.clone()).unwrap();
        check.checkpoint(B, one.clone()).unwrap();
        let other = Checkpoint { state: digest(9), ..one };
        assert!(check.checkpoint(B, other).is_err());
    }
}
