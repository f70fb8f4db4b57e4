//! What comes through verification, what does not, and that each drop is counted by its reason.

use crate::common::{
    CLIENT, SUITE, Signers, Word, of_replica, package, replica, ring, secret, spoilt,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tercio_types::{Attested, AttestedKind, Authenticator, Principal, SignatureBytes, Tag};
use tercio_verify::{
    Dropped, Filter, Filtered, Gather, HostVerify, Inbound, Outcome, Plain, VerifyStage,
};
use tercio_wire::{DecodeError, Forward, Frame, Kind, request_key};

fn verifier() -> HostVerify<Word> {
    gathering(Gather::default())
}

/// One with whom a frame waits for company for 200 us.
fn gathering(gather: Gather) -> HostVerify<Word> {
    HostVerify::new(ring(replica(1), secret(1)), gather, Duration::from_micros(200))
}

/// What comes of a frame when nothing else is at hand.
fn receive(
    verifier: &mut HostVerify<Word>,
    from: Principal,
    bytes: &Bytes,
) -> Result<Inbound<Word>, Dropped> {
    submit(verifier, from, bytes).unwrap_or_else(|| decide(verifier).pop().expect("it waited").1)
}

/// What comes of a frame at once.
fn submit(
    verifier: &mut HostVerify<Word>,
    from: Principal,
    bytes: &Bytes,
) -> Option<Result<Inbound<Word>, Dropped>> {
    verifier.submit(from, bytes, Duration::ZERO);
    verifier.poll().map(|(_, result)| result)
}

/// What comes of all that waits.
fn decide(verifier: &mut HostVerify<Word>) -> Vec<Outcome<Word>> {
    verifier.work();
    std::iter::from_fn(|| verifier.poll()).collect()
}

#[test]
fn what_is_good_comes_through_as_what_it_is() {
    let mut verifier = verifier();
    let (package, content) = package();
    let frame = Frame { key: request_key(&package), auth: package.auth.clone(), body: content };
    let client = Principal::Client(CLIENT);
    let Ok(Inbound::Request(request)) = receive(&mut verifier, client, &frame.to_bytes()) else {
        panic!("a request");
    };
    assert_eq!(request.message.0, package);
    let forward = of_replica(&Forward(package));
    let Ok(Inbound::Forward(forward)) = receive(&mut verifier, replica(0), &forward) else {
        panic!("a forwarded request");
    };
    assert!(forward.doubts().is_empty());
    let word = of_replica(&Word(20));
    let Ok(Inbound::Protocol(word)) = receive(&mut verifier, replica(0), &word) else {
        panic!("a message of the protocol");
    };
    assert_eq!((word.message.0, word.sender()), (20, replica(0)));
    for kind in [Kind::FETCH_BLOCKS, Kind::BLOCKS] {
        let plain = of_replica(&Plain { kind, seq: 4, body: Bytes::from_static(b"body") });
        let message = match receive(&mut verifier, replica(0), &plain) {
            Ok(Inbound::FetchBlocks(m)) if kind == Kind::FETCH_BLOCKS => m,
            Ok(Inbound::Blocks(m)) if kind == Kind::BLOCKS => m,
            other => panic!("{other:?}"),
        };
        assert_eq!((message.message.seq, &message.message.body[..]), (4, &b"body"[..]));
    }
    assert!(verifier.dropped().is_empty());
}

/// What a message's frame carries is the message's to say: another authenticator is refused, as good
/// as it may be.
#[test]
fn a_frame_under_another_authenticator_is_refused() {
    let mut verifier = verifier();
    let from = ring(replica(0), secret(0));
    let word = Frame::decode(&of_replica(&Word(20)), SUITE).unwrap();
    let said = word.key.to_array();
    let certificate = from.sign(&said);
    let attested = Attested {
        kind: AttestedKind::Trusted,
        counter: 0,
        incarnation: 0,
        value: 0,
        previous: 0,
        certificate,
    };
    let attested = Authenticator::Attested(Box::new(attested));
    let mut refused = |from, frame: Frame| {
        let outcome = receive(&mut verifier, from, &frame.to_bytes());
        matches!(outcome, Err(Dropped::Decode(DecodeError::NotCanonical(_))))
    };
    for auth in [certificate.into(), attested.clone()] {
        assert!(refused(replica(0), Frame { auth, ..word.clone() }));
    }
    let (package, content) = package();
    let (client, key) = (Principal::Client(CLIENT), request_key(&package));
    let tag = ring(client, secret(50)).tag(replica(1), &key.to_array()).unwrap();
    let request = |auth| Frame { key, auth, body: content.clone() };
    for auth in [Authenticator::Mac(tag), attested] {
        assert!(refused(client, request(auth)));
    }
    let signed = ring(client, secret(50)).sign(&key.to_array());
    assert!(!refused(client, request(signed.into())) && !refused(client, request(package.auth)));
}

/// The sender vouches for a client's tag that is no good for us: the message comes through, in
/// doubt. A signature that is no good does not.
#[test]
fn a_clients_bad_tag_inside_is_a_doubt_and_a_bad_signature_is_not() {
    let mut verifier = verifier();
    let (mut package, _) = package();
    package.auth = vec![Tag::default(); 4].into();
    let Ok(Inbound::Forward(forward)) =
        receive(&mut verifier, replica(0), &of_replica(&Forward(package.clone())))
    else {
        panic!("a forwarded request");
    };
    assert_eq!(forward.doubts(), [CLIENT]);
    package.auth = SignatureBytes::new(&[0; 64]).unwrap().into();
    let result = receive(&mut verifier, replica(0), &of_replica(&Forward(package)));
    assert!(matches!(result, Err(Dropped::Reject(_))));
    assert_eq!(*verifier.dropped(), BTreeMap::from([("bad_signature", 1)]));
}

#[test]
fn each_drop_is_counted_by_its_reason() {
    let mut verifier = verifier();
    let word = of_replica(&Word(20));
    let mut expect = |from, bytes: &Bytes, dropped: Dropped| {
        assert_eq!(receive(&mut verifier, from, bytes).unwrap_err(), dropped);
    };
    expect(replica(2), &word, Dropped::NotThePeer { claimed: replica(0), peer: replica(2) });
    let reply = of_replica(&Word(Kind::REPLY.0));
    let (kind, from) = (Kind::REPLY, replica(0));
    expect(from, &reply, Dropped::WrongKind { kind, from });
    expect(
        replica(0),
        &Bytes::from([&word[..4], &[9], &word[5..]].concat()),
        Dropped::Decode(DecodeError::Version { found: 9, expected: 2 }),
    );
    let counted = [("not_the_peer", 1), ("wrong_kind", 1), ("wrong_version", 1)];
    assert_eq!(*verifier.dropped(), BTreeMap::from(counted));
}

/// Whether a batch is due for what waits, though more frames come and no time has passed.
fn is_batch(verifier: &HostVerify<Word>) -> bool {
    verifier.is_due(false, Duration::ZERO)
}

/// Whose frame, and its number.
fn what(outcome: &Outcome<Word>) -> (Principal, Result<u64, &'static str>) {
    let number = match &outcome.1 {
        Ok(Inbound::Request(request)) => Ok(request.message.0.first.0),
        Ok(Inbound::Query(query)) => Ok(query.message.seq),
        Ok(other) => panic!("{other:?}"),
        Err(dropped) => Err(dropped.reason()),
    };
    (outcome.0, number)
}

/// What many clients signed is checked as one batch, with a verdict for each, in the order in which
/// it came.
#[test]
fn signatures_of_many_clients_are_checked_together() {
    let (mut verifier, signers) = (verifier(), Signers::new());
    let mut expected = vec![];
    for number in 1..=3 {
        for i in 0..5 {
            let (from, bytes) = signers.request(i, number, 100);
            let bad = (i, number) == (2, 2);
            let bytes = if bad { spoilt(&bytes) } else { bytes };
            assert!(submit(&mut verifier, from, &bytes).is_none());
            expected.push((from, if bad { Err("bad_signature") } else { Ok(number) }));
        }
    }
    assert!(verifier.gathers() && !is_batch(&verifier));
    let outcomes: Vec<_> = decide(&mut verifier).iter().map(what).collect();
    assert_eq!(outcomes, expected);
    assert_eq!((verifier.checked().signatures, verifier.checked().batches), (15, 1));
    assert_eq!(*verifier.dropped(), BTreeMap::from([("bad_signature", 1)]));
    assert!(!verifier.gathers() && decide(&mut verifier).is_empty());
    assert_eq!(verifier.checked().batches, 1, "nothing waited");
}

/// What needs no signature does not wait, but for what came before it on its link.
#[test]
fn frames_of_a_link_keep_their_order_and_others_do_not_wait() {
    let (mut verifier, signers) = (verifier(), Signers::new());
    let push = |verifier: &mut HostVerify<Word>, (from, bytes): (Principal, Bytes)| {
        submit(verifier, from, &bytes).map(|result| what(&(from, result)).1)
    };
    assert_eq!(push(&mut verifier, signers.question(0, 1)), Some(Ok(1)));
    assert_eq!(push(&mut verifier, signers.request(0, 2, 10)), None);
    assert_eq!(push(&mut verifier, signers.question(0, 3)), None);
    assert_eq!(push(&mut verifier, signers.question(1, 4)), Some(Ok(4)));
    assert_eq!(push(&mut verifier, signers.request(0, 5, 10)), None);
    let numbers: Vec<_> = decide(&mut verifier).iter().map(|outcome| what(outcome).1).collect();
    assert_eq!(numbers, [Ok(2), Ok(3), Ok(5)]);
    assert_eq!(push(&mut verifier, signers.question(0, 6)), Some(Ok(6)));
}

/// What waits is bounded by signatures, by frames and by bytes.
#[test]
fn a_batch_is_full_by_signatures_by_frames_and_by_bytes() {
    let signers = Signers::new();
    let gather = Gather { signatures: 4, bytes: 10_000 };
    let fills = |frames: &[(Principal, Bytes)]| {
        let mut verifier = gathering(gather);
        let full = |(from, bytes): &(Principal, Bytes)| {
            assert!(submit(&mut verifier, *from, bytes).is_none());
            assert!(!is_batch(&verifier), "more is at hand");
            verifier.flush();
            is_batch(&verifier)
        };
        frames.iter().map(full).collect::<Vec<_>>()
    };
    let small: Vec<_> = (0..4).map(|i| signers.request(i, 1, 10)).collect();
    assert_eq!(fills(&small), [false, false, false, true]);
    let behind: Vec<_> = [signers.request(0, 1, 10)]
        .into_iter()
        .chain((2..5).map(|number| signers.question(0, number)))
        .collect();
    assert_eq!(fills(&behind), [false, false, false, true]);
    let long = [signers.request(0, 1, 5000), signers.request(1, 1, 5000)];
    assert_eq!(fills(&long), [false, true]);
}

/// However many frames of one client come before others': they are checked by turns, and replicas'
/// messages before all of them.
#[test]
fn signatures_are_checked_by_turns() {
    let signers = Signers::new();
    let gather = Gather { signatures: 4, ..Gather::default() };
    let mut verifier = gathering(gather);
    let mut submit = |i: usize, number| {
        let (from, bytes) = signers.request(i, number, 10);
        verifier.submit(from, &bytes, Duration::ZERO);
    };
    (1..=20).for_each(|number| submit(0, number));
    (1..=2).for_each(|number| submit(1, number));
    submit(2, 1);
    verifier.flush();
    let batches: Vec<Vec<_>> = std::iter::from_fn(|| {
        verifier.is_due(false, Duration::ZERO).then(|| decide(&mut verifier))
    })
    .take(3)
    .map(|batch| batch.iter().map(|outcome| outcome.0).collect())
    .collect();
    let [a, b, c] = [0, 1, 2].map(|i| signers.0[i].me());
    assert_eq!(batches, [vec![a, b, c, a], vec![b, a, a, a], vec![a; 4]]);
}

/// What waits is due when no more frames are at hand, or when the first has waited long enough.
#[test]
fn a_frame_waits_for_company_no_longer_than_it_may() {
    let (mut verifier, signers) = (verifier(), Signers::new());
    let us = Duration::from_micros;
    assert!(!verifier.is_due(true, us(1000)), "nothing waits");
    for (i, at) in [(0, 300), (1, 400)] {
        let (from, bytes) = signers.request(i, 1, 10);
        verifier.submit(from, &bytes, us(at));
    }
    assert!(!verifier.is_due(false, us(500)), "more is at hand");
    verifier.flush();
    assert!(verifier.is_due(true, us(400)) && !verifier.is_due(false, us(499)));
    assert!(verifier.is_due(false, us(500)));
    assert_eq!(decide(&mut verifier).len(), 2);
    assert!(!verifier.is_due(true, us(1000)));
}

/// What ordering would drop costs neither a signature nor a MAC, and is told as what it says it is.
#[test]
fn what_the_filter_passes_over_is_not_checked() {
    let (mut verifier, signers) = (verifier(), Signers::new());
    let filter = Filter { kinds: &[Kind(20)], last: 0, busy: true };
    verifier.set_filter(&filter);
    let number = |kind, seq| {
        let plain = Plain { kind: Kind(kind), seq, body: Bytes::new() };
        of_replica(&plain)
    };
    let mut told = |from, bytes: &Bytes| match receive(&mut verifier, from, bytes) {
        Err(Dropped::Filtered(filtered)) => Some(filtered),
        _ => None,
    };
    let beyond = Filtered::Number { kind: Kind(20), number: 1 };
    assert_eq!(told(replica(0), &number(20, 1)), Some(beyond));
    assert_eq!(told(replica(0), &number(20, 0)), None, "the last that is of use");
    assert_eq!(told(replica(0), &number(21, 1)), None, "of another kind");
    let busy = signers.request(0, 7, 10);
    assert_eq!(told(busy.0, &busy.1), Some(Filtered::Busy { first: 7 }));
    let question = signers.question(0, 1);
    assert_eq!(told(question.0, &question.1), None, "it is no package");
    assert_eq!((verifier.checked().signatures, verifier.dropped().len()), (0, 0));
    verifier.set_filter(&Filter::default());
    assert!(receive(&mut verifier, busy.0, &busy.1).is_ok());
}

/// A waiting request must not hold the receive buffer that it came in.
#[test]
fn a_short_request_is_copied_out_of_its_buffer() {
    let (package, content) = package();
    let frame = Frame { key: request_key(&package), auth: package.auth, body: content };
    let buffer = Bytes::from([&frame.to_bytes()[..], &[0; 100_000]].concat());
    let bytes = buffer.slice(..buffer.len() - 100_000);
    let received = receive(&mut verifier(), Principal::Client(CLIENT), &bytes).unwrap();
    drop(bytes);
    assert!(buffer.is_unique(), "nobody else holds the buffer");
    drop(received);
}
