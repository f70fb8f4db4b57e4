//! Promise consistency: what a correct replica has sent, it never contradicts; a crash and a
//! restart in between are no excuse (rule P1 of `docs/protocol/pbft.md`).

use super::{Violation, demand};
use crate::trace::kind_name;
use std::collections::BTreeMap;
use tercio_consensus::ProtocolKind;
use tercio_consensus::pbft::{Pbft, ViewChange};
use tercio_types::{Digest, ReplicaId, SeqNum, View};
use tercio_wire::{Key, Kind};

/// Kinds of PBFT's promises, by their number on the wire.
pub mod kinds {
    use tercio_wire::Kind;

    /// The primary proposes.
    pub const PRE_PREPARE: Kind = Kind(16);
    /// A backup accepts.
    pub const PREPARE: Kind = Kind(17);
    /// A quorum accepted.
    pub const COMMIT: Kind = Kind(18);
    /// A replica leaves its view.
    pub const VIEW_CHANGE: Kind = Kind(19);
    /// A primary begins a view.
    pub const NEW_VIEW: Kind = Kind(20);
    /// A batch that was asked for.
    pub const BODY: Kind = Kind(23);
    /// A certificate of a state.
    pub const STABLE: Kind = Kind(24);
}

/// What one replica has promised.
#[derive(Clone, Debug, Default)]
struct Said {
    votes: BTreeMap<(Kind, View, SeqNum), Digest>,
    view_changes: BTreeMap<View, Digest>,
    new_views: BTreeMap<View, Digest>,
    checkpoints: BTreeMap<SeqNum, Digest>,
    /// Its latest VIEW-CHANGE: it has left all views below that one's.
    left: Option<ViewChange>,
}

/// Whether a replica that left with this VIEW-CHANGE told everybody of the vote in it. A replica
/// that crashed between recording a vote and sending it may send it after its VIEW-CHANGE: what
/// the new view begins with has taken it into account.
fn tells_of(left: &ViewChange, kind: Kind, view: View, seq: SeqNum, digest: Digest) -> bool {
    let claims = if kind == kinds::COMMIT { &left.prepared } else { &left.preprepared };
    claims.iter().any(|c| (c.seq, c.digest) == (seq, digest) && c.view >= view)
}

/// Whether a VIEW-CHANGE tells of a vote as far as rule V1 asks: P has for each number what
/// prepared in the latest view, and Q the six digests that were accepted latest.
fn covers(left: &ViewChange, kind: Kind, view: View, seq: SeqNum, digest: Digest) -> bool {
    if kind == kinds::COMMIT {
        let at = left.prepared.iter().filter(|claim| claim.seq == seq);
        return at
            .into_iter()
            .any(|claim| claim.view > view || claim.view == view && claim.digest == digest);
    }
    let at = || left.preprepared.iter().filter(|claim| claim.seq == seq);
    let told = at().any(|claim| claim.digest == digest && claim.view >= view);
    told || at().filter(|claim| claim.digest != digest && claim.view > view).count() >= Q_DIGESTS
}

/// The most digests that Q has for one number.
const Q_DIGESTS: usize = 6;

/// What all correct replicas have promised.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    said: BTreeMap<ReplicaId, Said>,
}

fn once<K: Ord + Copy + std::fmt::Debug>(
    said: &mut BTreeMap<K, Digest>,
    at: K,
    digest: Digest,
    by: ReplicaId,
    what: &str,
) -> Result<(), Violation> {
    let first = *said.entry(at).or_insert(digest);
    demand(first == digest, "promises", || {
        format!("{by:?} sent two {what}s at {at:?}: {first:?} and {digest:?}")
    })
}

impl Promises {
    /// A correct replica sent a frame with this key.
    ///
    /// # Errors
    /// When it contradicts what the same replica sent before.
    pub fn sent(&mut self, by: ReplicaId, key: &Key) -> Result<(), Violation> {
        let said = self.said.entry(by).or_default();
        let (view, seq) = (View(key.view), SeqNum(key.seq));
        match key.kind {
            kinds::PRE_PREPARE | kinds::PREPARE | kinds::COMMIT => {
                let name = kind_name(key.kind, Pbft::message_name);
                let at = (key.kind, view, seq);
                // To repeat an old vote is no contradiction.
                let new = !said.votes.contains_key(&at);
                if let Some(left) = said.left.as_ref().filter(|left| new && view < left.view) {
                    demand(tells_of(left, key.kind, view, seq, key.digest), "promises", || {
                        format!(
                            "{by:?} sent {name} at view {view} seq {seq} after it had left for \
                             view {}, without a word of it in its VIEW-CHANGE",
                            left.view
                        )
                    })?;
                }
                let first = *said.votes.entry(at).or_insert(key.digest);
                demand(first == key.digest, "promises", || {
                    let second = key.digest;
                    format!(
                        "{by:?} sent two {name}s at view {view} seq {seq}: {first:?} and \
                         {second:?}"
                    )
                })
            }
            kinds::VIEW_CHANGE => once(&mut said.view_changes, view, key.digest, by, "VIEW-CHANGE"),
            Kind::CHECKPOINT => once(&mut said.checkpoints, seq, key.digest, by, "CHECKPOINT"),
            _ => Ok(()),
        }
    }

    /// A correct replica sent a VIEW-CHANGE with this content: it tells of every vote above its
    /// certificate that the replica ever sent in a view below, as P and Q of rule V1 do.
    ///
    /// # Errors
    /// When it does not.
    pub fn left(&mut self, by: ReplicaId, content: ViewChange) -> Result<(), Violation> {
        let said = self.said.entry(by).or_default();
        let low = content.low();
        for (&(kind, view, seq), &digest) in &said.votes {
            let binds = kind != kinds::PRE_PREPARE && view < content.view && seq > low;
            demand(!binds || covers(&content, kind, view, seq, digest), "promises", || {
                let name = kind_name(kind, Pbft::message_name);
                format!(
                    "{by:?} left for view {} without a word of the {name} for {digest:?} that it \
                     sent at view {view} seq {seq}, above its certificate for {low}",
                    content.view
                )
            })?;
        }
        if said.left.as_ref().is_none_or(|left| left.view < content.view) {
            said.left = Some(content);
        }
        Ok(())
    }

    /// A replica has lost its log. It may leave for the view that it left for before, in other words:
    /// what they tell is still all that it has promised. Everything else binds it as ever.
    pub fn lost_log(&mut self, by: ReplicaId) {
        self.said.entry(by).or_default().view_changes.clear();
    }

    /// A correct replica sent its own NEW-VIEW, of which `digest` is the content's hash.
    ///
    /// # Errors
    /// When it began the same view differently before.
    pub fn began(&mut self, by: ReplicaId, view: View, digest: Digest) -> Result<(), Violation> {
        let said = self.said.entry(by).or_default();
        once(&mut said.new_views, view, digest, by, "NEW-VIEW")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_consensus::pbft::Claimed;
    use tercio_types::{CertifiedCheckpoint, Checkpoint, Epoch, Height, Timestamp};

    const ME: ReplicaId = ReplicaId(2);

    fn key(kind: Kind, view: u64, seq: u64, digest: u8) -> Key {
        Key::of_replica(kind, ME, view, seq, Digest([digest; 32]))
    }

    #[test]
    fn a_second_vote_is_caught_and_a_repetition_is_not() {
        for kind in [kinds::PRE_PREPARE, kinds::PREPARE, kinds::COMMIT] {
            let mut check = Promises::default();
            check.sent(ME, &key(kind, 1, 1, 7)).unwrap();
            check.sent(ME, &key(kind, 1, 1, 7)).unwrap();
            check.sent(ME, &key(kind, 2, 1, 8)).unwrap();
            check.sent(ReplicaId(3), &key(kind, 1, 1, 8)).unwrap();
            assert!(check.sent(ME, &key(kind, 1, 1, 8)).is_err());
        }
    }

    #[test]
    fn a_vote_that_its_view_change_did_not_tell_of_is_caught() {
        let mut check = Promises::default();
        check.sent(ME, &key(kinds::PREPARE, 0, 1, 7)).unwrap();
        let claim = |seq| Claimed { seq: SeqNum(seq), digest: Digest([7; 32]), view: View(1) };
        let (prepared, preprepared) = (vec![claim(2)], vec![claim(2), claim(3)]);
        let view = View(2);
        let content = ViewChange { view, stable: None, prepared, preprepared, blamed: vec![] };
        assert!(check.clone().left(ME, content.clone()).is_err(), "no word of the first");
        let stable = certificate(1);
        check.left(ME, ViewChange { stable, ..content }).unwrap();
        check.sent(ME, &key(kinds::PREPARE, 0, 1, 7)).unwrap();
        assert!(check.sent(ME, &key(kinds::COMMIT, 1, 1, 7)).is_err());
        check.sent(ME, &key(kinds::COMMIT, 2, 1, 7)).unwrap();
        // It told of these, and may say them late.
        check.sent(ME, &key(kinds::COMMIT, 1, 2, 7)).unwrap();
        check.sent(ME, &key(kinds::PREPARE, 1, 3, 7)).unwrap();
        assert!(check.sent(ME, &key(kinds::COMMIT, 1, 3, 7)).is_err());
    }

    fn certificate(seq: u64) -> Option<CertifiedCheckpoint> {
        let zero = Digest::default();
        let checkpoint = Checkpoint {
            seq: SeqNum(seq),
            height: Height(seq),
            block: zero,
            results: zero,
            state: zero,
            clients: zero,
            membership: zero,
            epoch: Epoch(0),
            time: Timestamp(1),
        };
        Some(CertifiedCheckpoint { checkpoint, signatures: vec![] })
    }

    /// Rule V1: P and Q tell of what was sent above the certificate, however long ago.
    #[test]
    fn a_view_change_that_keeps_a_vote_to_itself_is_caught() {
        let claim = |seq, digest, view| Claimed {
            seq: SeqNum(seq),
            digest: Digest([digest; 32]),
            view: View(view),
        };
        let leaves = |prepared: &[Claimed], preprepared: &[Claimed], low: u64| ViewChange {
            view: View(3),
            stable: (low > 0).then(|| certificate(low)).flatten(),
            prepared: prepared.to_vec(),
            preprepared: preprepared.to_vec(),
            blamed: vec![],
        };
        let mut check = Promises::default();
        check.sent(ME, &key(kinds::PREPARE, 1, 9, 7)).unwrap();
        check.sent(ME, &key(kinds::COMMIT, 1, 9, 7)).unwrap();
        let told = claim(9, 7, 1);
        check.clone().left(ME, leaves(&[told], &[told], 8)).unwrap();
        check.clone().left(ME, leaves(&[], &[], 9)).unwrap();
        // What prepared later stands for what prepared before; a vote in a view that it does not
        // leave is nobody's business yet.
        check.clone().left(ME, leaves(&[claim(9, 8, 2)], &[told, claim(9, 8, 2)], 8)).unwrap();
        check.sent(ME, &key(kinds::PREPARE, 3, 10, 7)).unwrap();
        check.clone().left(ME, leaves(&[told], &[told], 0)).unwrap();
        for (prepared, preprepared) in [
            (&[][..], &[told][..]),
            (&[told], &[]),
            (&[claim(9, 7, 0)], &[told]),
            (&[claim(9, 8, 1)], &[told]),
            (&[told], &[claim(9, 7, 0)]),
            (&[told], &[claim(9, 8, 2)]),
        ] {
            let violation = check.clone().left(ME, leaves(prepared, preprepared, 8)).unwrap_err();
            assert!(violation.seen.contains("without a word"), "{violation}");
        }
        // A log that was lost is no excuse: what it held lies below the certificate.
        check.lost_log(ME);
        assert!(check.left(ME, leaves(&[], &[], 8)).is_err());
    }

    /// Q has six digests a number; the oldest view's go first.
    #[test]
    fn q_may_drop_what_six_later_ones_displaced() {
        let claim = |digest, view| Claimed {
            seq: SeqNum(1),
            digest: Digest([digest; 32]),
            view: View(view),
        };
        let leaves = |later: u8| ViewChange {
            view: View(9),
            stable: None,
            prepared: vec![],
            preprepared: (1..=later).map(|i| claim(i, u64::from(i))).collect(),
            blamed: vec![],
        };
        let mut check = Promises::default();
        check.sent(ME, &key(kinds::PREPARE, 0, 1, 99)).unwrap();
        check.clone().left(ME, leaves(6)).unwrap();
        assert!(check.left(ME, leaves(5)).is_err());
    }

    #[test]
    fn two_words_on_one_view_or_state_are_caught() {
        let mut check = Promises::default();
        check.sent(ME, &key(kinds::VIEW_CHANGE, 2, 0, 1)).unwrap();
        assert!(check.sent(ME, &key(kinds::VIEW_CHANGE, 2, 8, 2)).is_err());
        check.sent(ME, &key(Kind::CHECKPOINT, 0, 8, 1)).unwrap();
        assert!(check.sent(ME, &key(Kind::CHECKPOINT, 0, 8, 2)).is_err());
        check.began(ME, View(2), Digest([1; 32])).unwrap();
        assert!(check.began(ME, View(2), Digest([2; 32])).is_err());
    }
}
