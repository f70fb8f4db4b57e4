//! V3: what a new view begins with. The property that view changes stand on: whatever f liars
//! claim, a batch that may have committed is chosen again, and correct replicas' VIEW-CHANGEs
//! always decide.

use crate::common;

use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tercio_consensus::pbft::{Claimed, PbftMessage, SignedViewChange, ViewChange, select};
use tercio_types::*;
use tercio_wire::{Frame, Message};

fn digest(i: u8) -> Digest {
    Digest([i + 1; 32])
}

fn vc(
    sender: usize,
    view: u64,
    prepared: Vec<Claimed>,
    mut preprepared: Vec<Claimed>,
) -> Arc<SignedViewChange> {
    preprepared.sort();
    preprepared.dedup_by_key(|c| (c.seq, c.digest));
    let content =
        ViewChange { view: View(view), stable: None, prepared, preprepared, blamed: vec![] };
    let signature = SignatureBytes::new(&[0; 64]).unwrap();
    let sender = ReplicaId(sender as u16);
    Arc::new(SignedViewChange { sender, content, body: Bytes::new(), signature })
}

/// A correct replica's promises at the number: what it prepared last, and all that it accepted with
/// their latest views; digests by their index.
type Promises = (Option<(u64, u8)>, Vec<(u8, u64)>);

/// A history of one number in a network of 3f+1: for each view, which digest its primary proposed
/// to whom, who prepared, who committed. Correct replicas accept one digest a view, prepare only
/// on a quorum of accepts, and what a quorum prepared is proposed in all later views.
#[derive(Debug, Clone)]
struct History {
    n: usize,
    f: usize,
    /// P and Q of each correct replica.
    promises: Vec<Promises>,
    committed: Option<u8>,
    views: u64,
}

fn history(f: usize) -> impl Strategy<Value = History> {
    let n = 3 * f + 1;
    let view = (0..3u8, any::<u128>(), any::<u128>(), any::<u128>());
    proptest::collection::vec(view, 1..6).prop_map(move |views| {
        let correct = n - f;
        let quorum = 2 * f + 1;
        let mut promises = vec![(None, Vec::<(u8, u64)>::new()); correct];
        let mut committed = None;
        for (view, (proposed, accepts, prepares, liars)) in views.iter().enumerate() {
            let view = view as u64;
            // After a commit, view changes force the committed digest.
            let d = committed.unwrap_or(*proposed);
            let accepting: Vec<usize> = (0..correct).filter(|i| accepts >> i & 1 == 1).collect();
            for &i in &accepting {
                match promises[i].1.iter_mut().find(|(q, _)| *q == d) {
                    Some(q) => q.1 = view,
                    None => promises[i].1.push((d, view)),
                }
            }
            // Liars vote for whatever helps.
            let helped = (liars % (f as u128 + 1)) as usize;
            if accepting.len() + helped < quorum {
                continue;
            }
            let preparing: Vec<usize> =
                accepting.into_iter().filter(|i| prepares >> i & 1 == 1).collect();
            preparing.iter().for_each(|&i| promises[i].0 = Some((view, d)));
            if preparing.len() + f >= quorum {
                committed = Some(d);
            }
        }
        History { n, f, promises, committed, views: views.len() as u64 }
    })
}

fn claims(promise: &Promises) -> (Vec<Claimed>, Vec<Claimed>) {
    let seq = SeqNum(1);
    let claim = |d: u8, v: u64| Claimed { seq, digest: digest(d), view: View(v) };
    (
        promise.0.iter().map(|&(v, d)| claim(d, v)).collect(),
        promise.1.iter().map(|&(d, v)| claim(d, v)).collect(),
    )
}

fn check(history: &History, order: u64, lies: &[(u8, u64, u8, u64)]) {
    let (n, f) = (history.n, history.f);
    let (quorum, weak) = (2 * f + 1, f + 1);
    let view = history.views;
    let honest: Vec<_> = (0..n - f)
        .map(|i| {
            let (p, q) = claims(&history.promises[i]);
            vc(i, view, p, q)
        })
        .collect();
    let liars: Vec<_> = (0..f)
        .map(|i| {
            let (pd, pv, qd, qv) = lies[i % lies.len()];
            let promise = ((pv % 3 > 0).then_some((pv % view, pd % 4)), vec![(qd % 4, qv % view)]);
            let (p, q) = claims(&promise);
            vc(n - f + i, view, p, q)
        })
        .collect();
    // Any quorum out of everybody, liars first.
    let mut order = order;
    let mut chosen = liars.clone();
    let mut rest = honest.clone();
    while chosen.len() < quorum {
        chosen.push(rest.swap_remove((order % rest.len() as u64) as usize));
        order /= 7;
    }
    for set in [chosen, [honest.clone(), liars].concat(), honest.clone()] {
        let selection = select(&set, quorum, weak);
        if let (Some(selection), Some(d)) = (&selection, history.committed) {
            assert_eq!(selection.chosen, [(SeqNum(1), digest(d))], "{history:?}");
        }
        if set.len() == honest.len() {
            assert!(selection.is_some() || set != honest, "correct ones decide: {history:?}");
        }
    }
}

/// Four replicas: a quorum is three, and f+1 are two.
fn choice(on: &[Arc<SignedViewChange>]) -> Option<Vec<(SeqNum, Digest)>> {
    select(on, 3, 2).map(|selection| selection.chosen)
}

fn one(d: u8, v: u64) -> Vec<Claimed> {
    vec![Claimed { seq: SeqNum(1), digest: digest(d), view: View(v) }]
}

/// A1: a quorum says nothing against it; one that knows of a later view is against it.
#[test]
fn a1_takes_a_quorum() {
    let on = [vc(0, 9, one(0, 1), one(0, 1)), vc(1, 9, vec![], one(0, 1))];
    let against = vc(2, 9, one(1, 2), vec![]);
    assert_eq!(choice(&[&on[..], std::slice::from_ref(&against)].concat()), None);
    let more = [&on[..], &[against, vc(3, 9, vec![], vec![])]].concat();
    assert_eq!(choice(&more), Some(vec![(SeqNum(1), digest(0))]));
}

/// A1: another digest of the same view is against it.
#[test]
fn a1_another_digest_of_the_same_view_is_against_it() {
    let on =
        [vc(0, 9, one(0, 2), one(0, 2)), vc(1, 9, vec![], one(0, 2)), vc(2, 9, one(1, 2), vec![])];
    assert_eq!(choice(&on), None);
}

/// A2: f+1 accepted it, in that view or later.
#[test]
fn a2_takes_f_and_one() {
    let nothing = || vc(2, 9, vec![], vec![]);
    let claims = vc(0, 9, one(0, 2), one(0, 2));
    assert_eq!(choice(&[claims.clone(), vc(1, 9, vec![], vec![]), nothing()]), None);
    assert_eq!(choice(&[claims.clone(), vc(1, 9, vec![], one(0, 1)), nothing()]), None);
    let chosen = choice(&[claims, vc(1, 9, vec![], one(0, 3)), nothing()]);
    assert_eq!(chosen, Some(vec![(SeqNum(1), digest(0))]));
}

/// B: a quorum claims nothing, and f+1 that do not are no quorum.
#[test]
fn b_takes_a_quorum() {
    let on = [vc(0, 9, one(0, 2), vec![]), vc(1, 9, vec![], vec![]), vc(2, 9, vec![], vec![])];
    assert_eq!(choice(&on), None);
    let on = [&on[..], &[vc(3, 9, vec![], vec![])]].concat();
    assert_eq!(choice(&on), Some(vec![]), "a null request at the end, by B");
}

/// Of two that may be chosen, the one of the later view.
#[test]
fn the_latest_view_is_tried_first() {
    let both = || [one(0, 1), one(1, 2)].concat();
    for (early, late) in [(0, 1), (1, 0)] {
        let both = || {
            both().into_iter().map(|c| {
                let (d, v) = if c.digest == digest(0) { (early, 1) } else { (late, 2) };
                one(d, v).remove(0)
            })
        };
        let on = [
            vc(0, 9, one(early, 1), one(early, 1)),
            vc(1, 9, one(late, 2), both().collect()),
            vc(2, 9, vec![], both().collect()),
            vc(3, 9, vec![], both().collect()),
        ];
        assert_eq!(choice(&on), Some(vec![(SeqNum(1), digest(late))]));
    }
}

/// Fewer than a quorum decide nothing, not even that there is nothing.
#[test]
fn a_quorum_of_view_changes_is_needed() {
    let on: Vec<_> = (0..3).map(|sender| vc(sender, 9, vec![], vec![])).collect();
    assert_eq!(choice(&on[..2]), None);
    assert_eq!(choice(&on), Some(vec![]));
}

/// A null request that somebody says prepared stays, also at the end.
#[test]
fn a_null_request_by_condition_a_stays() {
    let null = || vec![Claimed { seq: SeqNum(1), digest: Digest::NULL, view: View(2) }];
    let on = [vc(0, 9, null(), null()), vc(1, 9, vec![], null()), vc(2, 9, vec![], vec![])];
    assert_eq!(choice(&on), Some(vec![(SeqNum(1), Digest::NULL)]));
}

/// The highest checkpoint that any VIEW-CHANGE proves.
#[test]
fn the_highest_checkpoint_counts() {
    let with = |sender: usize, seq: u64| {
        let mut said = (*vc(sender, 9, vec![], vec![])).clone();
        let zero = Digest::NULL;
        let checkpoint = Checkpoint {
            seq: SeqNum(seq),
            height: Height(seq),
            block: zero,
            results: zero,
            state: zero,
            clients: zero,
            membership: zero,
            epoch: Epoch(0),
            time: Timestamp(0),
        };
        said.content.stable = Some(CertifiedCheckpoint { checkpoint, signatures: vec![] });
        Arc::new(said)
    };
    let selection = select(&[with(0, 8), with(1, 16), with(2, 8)], 3, 2).unwrap();
    assert_eq!((selection.low(), selection.last()), (SeqNum(16), SeqNum(16)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_may_have_committed_is_chosen_again_f1(
        history in history(1), order: u64, lies in proptest::collection::vec(any::<(u8, u64, u8, u64)>(), 1..3)
    ) {
        check(&history, order, &lies);
    }

    #[test]
    fn what_may_have_committed_is_chosen_again_f3(
        history in history(3), order: u64, lies in proptest::collection::vec(any::<(u8, u64, u8, u64)>(), 1..4)
    ) {
        check(&history, order, &lies);
    }

    /// Every message of PBFT has one encoding, and garbage is none.
    #[test]
    fn messages_round_trip(
        kind in 0..6u8, v: u64, s: u64, d: [u8; 32], flip: usize, with: u8
    ) {
        let (view, seq, digest) = (View(v), SeqNum(s), Digest(d));
        let membership = membership(4);
        let signer = signer(&membership, 1);
        let claim = Claimed { seq, digest, view };
        let content = ViewChange {
            view, stable: None, prepared: vec![claim], preprepared: vec![claim],
            blamed: vec![ClientId(3)],
        };
        let signed = Arc::new(SignedViewChange::new(ReplicaId(1), content, &signer, SUITE));
        let message = match kind {
            0 => PbftMessage::Prepare { view, seq, digest },
            1 => PbftMessage::Commit { view, seq, digest },
            2 => PbftMessage::FetchBody { seq, digest },
            3 => PbftMessage::ViewChange(signed),
            4 => PbftMessage::NewView(Arc::new(tercio_consensus::pbft::SignedNewView::new(
                ReplicaId(1), view, vec![signed.clone(), signed], &signer, SUITE,
            ))),
            _ => PbftMessage::Attest { height: Height(s), block: digest, signature: signer.sign(&[0; 52]).into() },
        };
        let ring = ring(&membership, Principal::Replica(ReplicaId(1)));
        let frame = message.to_frame(ReplicaId(1), SUITE, |key| ring.mac_vector(key));
        let read = PbftMessage::from_frame(&frame, SUITE).unwrap();
        let again = read.to_frame(ReplicaId(1), SUITE, |key| ring.mac_vector(key));
        prop_assert_eq!(&frame, &again);
        let mut bytes = frame.to_bytes().to_vec();
        let at = flip % bytes.len();
        bytes[at] ^= with | 1;
        if let Ok(frame) = Frame::decode(&bytes.into(), SUITE) {
            let _ = PbftMessage::from_frame(&frame, SUITE);
        }
    }
}
