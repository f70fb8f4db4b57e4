//! V3: what a new view begins with. The property that view changes stand on: whatever f liars
//! claim, a batch that may have committed is chosen again, and correct replicas' VIEW-CHANGEs
//! always decide.

mod common;

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
            _ => PbftMessage::Attest { height: Height(s), block: digest, signature: signer.sign(&[0; 52]) },
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
