//! One value, one encoding: what is decoded encodes to the same bytes again, everything else is
//! refused, and no bytes make a decoder panic.

use crate::common;
use crate::values;

use bytes::Bytes;
use common::{Auth, DECODERS, Framed, Items, MAX_ITEMS, SUITE, attested};
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;
use tercio_types::{
    Attested, AttestedKind, Authenticator, Batch, CertifiedCheckpoint, ClientId, Digest, OpKind,
    ReplicaId, RequestSeq, SignatureBytes, Tag, Timestamp,
};
use tercio_wire::{
    CLIENT_SENDER, Decode, DecodeError, Encode, EncodedBatch, FRAME_HEADER, Frame, FrameHeader,
    Key, Kind, MAX_FRAME, Message, Reader, Reply, Request, WIRE_VERSION, decode_authenticator,
    decode_replies, encode_authenticator, encode_package_content, encode_replies, package_content,
    package_from_content, replies_digest, request_key,
};
use values::{
    Mutation, authenticator, batch, block_header, byte_strings, certified_checkpoint, checkpoint,
    frame, mutated, mutations, package, signature,
};

/// The rule for one value: it round-trips; no strict prefix and no extension of its encoding is an
/// encoding; what still decodes after a mutation is the one value with those very bytes.
fn canonical<T: Encode + Decode + PartialEq + Debug>(
    value: &T,
    extra: u8,
    mutations: &[Mutation],
) -> Result<(), TestCaseError> {
    let bytes = value.to_bytes();
    let read = T::from_bytes(&bytes, SUITE);
    prop_assert_eq!(read.as_ref(), Ok(value));
    for end in 0..bytes.len() {
        let prefix = T::from_bytes(&bytes.slice(..end), SUITE);
        prop_assert!(prefix.is_err(), "the first {} of {} bytes decode", end, bytes.len());
    }
    let longer: Bytes = bytes.iter().copied().chain([extra]).collect::<Vec<_>>().into();
    prop_assert!(T::from_bytes(&longer, SUITE).is_err(), "a trailing byte is accepted");
    for count in 1..=mutations.len() {
        let other = mutated(&bytes, &mutations[..count]);
        if let Ok(read) = T::from_bytes(&other, SUITE) {
            prop_assert_eq!(&read.to_bytes(), &other, "two encodings of {:?}", read);
            prop_assert_eq!(read == *value, other == bytes);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn packages_are_canonical(value in package(), extra in any::<u8>(), m in mutations()) {
        canonical(&value, extra, &m)?;
    }

    #[test]
    fn batches_are_canonical(value in batch(), extra in any::<u8>(), m in mutations()) {
        canonical(&value, extra, &m)?;
    }

    #[test]
    fn block_headers_are_canonical(value in block_header(), extra in any::<u8>(), m in mutations()) {
        canonical(&value, extra, &m)?;
    }

    #[test]
    fn checkpoints_are_canonical(value in checkpoint(), extra in any::<u8>(), m in mutations()) {
        canonical(&value, extra, &m)?;
    }

    #[test]
    fn certificates_are_canonical(
        value in certified_checkpoint(0..6),
        extra in any::<u8>(),
        m in mutations(),
    ) {
        canonical(&value, extra, &m)?;
    }

    #[test]
    fn authenticators_are_canonical(value in authenticator(), extra in any::<u8>(), m in mutations()) {
        canonical(&Auth(value), extra, &m)?;
    }

    #[test]
    fn frames_are_canonical(value in frame(0..48), extra in any::<u8>(), m in mutations()) {
        canonical(&Framed(value), extra, &m)?;
    }

    #[test]
    fn lists_are_canonical(value in byte_strings(0..12), extra in any::<u8>(), m in mutations()) {
        canonical(&Items(value), extra, &m)?;
    }

    #[test]
    fn garbage_is_refused_or_has_one_encoding(bytes in vec(any::<u8>(), 0..512)) {
        let bytes = Bytes::from(bytes);
        for (name, recode) in DECODERS {
            if let Ok(again) = recode(&bytes) {
                prop_assert_eq!(&again, &bytes, "{}", name);
            }
        }
    }

    /// Bytes that decode as one type are offered to every other.
    #[test]
    fn one_types_bytes_in_anothers_place_never_panic(value in batch(), f in frame(0..48), cut in any::<usize>()) {
        for bytes in [value.to_bytes(), f.to_bytes()] {
            let bytes = bytes.slice(cut % (bytes.len() + 1)..);
            for (name, recode) in DECODERS {
                if let Ok(again) = recode(&bytes) {
                    prop_assert_eq!(&again, &bytes, "{}", name);
                }
            }
        }
    }

    #[test]
    fn a_key_is_its_52_bytes(f in frame(0..48), flags in 1..=u8::MAX) {
        let bytes = Bytes::copy_from_slice(&f.key.to_array());
        let mut input = Reader::new(bytes.clone(), SUITE);
        prop_assert_eq!(Key::decode(&mut input), Ok(f.key));
        prop_assert_eq!(input.remaining(), 0);
        let mut reserved = bytes.to_vec();
        reserved[1] = flags;
        let refused = Key::decode(&mut Reader::new(reserved.into(), SUITE));
        prop_assert_eq!(refused, Err(DecodeError::Unknown { what: "flags", found: flags.into() }));
    }

    #[test]
    fn a_frame_binds_its_body(f in frame(1..48), at in any::<usize>(), bit in 0..8u8) {
        prop_assume!(f.key.kind != Kind::REPLY);
        let bytes = f.to_bytes();
        let mut altered = bytes.to_vec();
        altered[bytes.len() - 1 - at % f.body.len()] ^= 1 << bit;
        prop_assert_eq!(Frame::decode(&altered.into(), SUITE), Err(DecodeError::Digest));
        let mut renamed = bytes.to_vec();
        renamed[FRAME_HEADER + 20 + at % 32] ^= 1 << bit;
        prop_assert_eq!(Frame::decode(&renamed.into(), SUITE), Err(DecodeError::Digest));
    }

    /// The header tells the length of the whole before the rest has come, and waits for itself.
    #[test]
    fn a_header_is_read_before_the_rest_has_come(f in frame(0..48)) {
        let bytes = f.to_bytes();
        for end in 0..FRAME_HEADER {
            prop_assert_eq!(FrameHeader::peek(&bytes[..end]), Ok(None));
        }
        let header = FrameHeader::peek(&bytes[..FRAME_HEADER]).unwrap().unwrap();
        prop_assert_eq!(header.frame_len(), bytes.len());
    }

    #[test]
    fn any_other_wire_version_is_named(f in frame(0..48), more in 1..=u8::MAX) {
        let mut bytes = f.to_bytes().to_vec();
        let version = WIRE_VERSION.wrapping_add(more);
        bytes[4] = version;
        let refused = Frame::decode(&bytes.into(), SUITE).unwrap_err();
        prop_assert_eq!(
            refused.to_string(),
            format!("wire version {version}, but this build speaks 2")
        );
    }

    #[test]
    fn ends_that_go_backwards_are_refused(
        head in vec(any::<u8>(), 1..9),
        tail in byte_strings(1..8),
        at in any::<usize>(),
        by in any::<u32>(),
    ) {
        let items: Vec<_> = [vec![Bytes::from(head)], tail].concat();
        let mut bytes = Items(items.clone()).to_bytes().to_vec();
        let i = 1 + at % (items.len() - 1);
        let before = u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap());
        let earlier = by % before;
        bytes[4 * (i + 1)..][..4].copy_from_slice(&earlier.to_le_bytes());
        let refused = Items::from_bytes(&bytes.into(), SUITE);
        prop_assert_eq!(refused, Err(DecodeError::NotCanonical("items")));
    }

    #[test]
    fn a_count_that_lies_is_refused(items in byte_strings(0..8), more in 1..=u32::MAX) {
        let claimed = (items.len() as u32).wrapping_add(more);
        let mut bytes = Items(items).to_bytes().to_vec();
        bytes[..4].copy_from_slice(&claimed.to_le_bytes());
        let bytes = Bytes::from(bytes);
        // Another count reads items as ends or ends as items; it is refused unless those bytes
        // happen to be the one encoding of another list.
        match Items::from_bytes(&bytes, SUITE) {
            Ok(read) => prop_assert_eq!(read.to_bytes(), bytes),
            Err(DecodeError::TooLong { .. }) => prop_assert!(claimed as usize > MAX_ITEMS),
            Err(_) => {}
        }
    }

    #[test]
    fn a_list_finds_any_item_alone(items in byte_strings(0..12), past in 0..4usize) {
        let bytes = Items(items.clone()).to_bytes();
        let mut input = Reader::new(bytes, SUITE);
        let list = tercio_wire::list::List::decode(&mut input, MAX_ITEMS, "items").unwrap();
        prop_assert_eq!(list.len(), items.len());
        for (i, item) in items.iter().enumerate().rev() {
            prop_assert_eq!(list.get(i), Some(item.clone()));
        }
        prop_assert_eq!(list.get(items.len() + past), None);
    }

    #[test]
    fn signers_out_of_order_or_twice_are_refused(
        value in certified_checkpoint(2..6),
        (at, with) in any::<(usize, usize)>(),
        again in signature(),
    ) {
        let n = value.signatures.len();
        let refused = Err(DecodeError::NotCanonical("checkpoint signatures"));
        let mut unsorted = value.clone();
        let (a, b) = (at % n, with % n);
        if a != b {
            unsorted.signatures.swap(a, b);
            prop_assert_eq!(&CertifiedCheckpoint::from_bytes(&unsorted.to_bytes(), SUITE), &refused);
        }
        let mut twice = value;
        let signer = twice.signatures[a].0;
        twice.signatures.insert(a, (signer, again));
        prop_assert_eq!(CertifiedCheckpoint::from_bytes(&twice.to_bytes(), SUITE), refused);
    }

    /// A client's frame says in its key what the package says in its body.
    #[test]
    fn a_requests_key_agrees_with_its_body(value in package(), at in 0..52usize, bit in 0..8u8) {
        let (key, body) = (request_key(&value), package_content(&value));
        let frame = Frame { key, auth: value.auth.clone(), body };
        let read = Frame::decode(&frame.to_bytes(), SUITE).unwrap();
        prop_assert_eq!(Request::from_frame(&read, SUITE).unwrap().0, value);
        let mut said = key.to_array();
        said[at] ^= 1 << bit;
        if let Ok(key) = Key::decode(&mut Reader::new(said.to_vec().into(), SUITE)) {
            let other = Frame::decode(&Frame { key, ..frame }.to_bytes(), SUITE);
            prop_assert!(other.and_then(|frame| Request::from_frame(&frame, SUITE)).is_err());
        }
    }

    #[test]
    fn a_batch_keeps_the_bytes_that_it_came_in(value in batch()) {
        let made = EncodedBatch::new(value, SUITE);
        prop_assert_eq!(made.digest, tercio_crypto::hash(SUITE, &[&made.bytes]));
        let read = EncodedBatch::from_bytes(made.bytes.clone(), made.digest, SUITE);
        prop_assert_eq!(read.unwrap(), made);
    }

    /// Request numbers do not wrap, and a package has operations.
    #[test]
    fn packages_that_no_client_could_mean_are_refused(value in package(), over in 0..4u64) {
        let content = |first, ops: &[Bytes]| {
            let mut out = Vec::new();
            let first = RequestSeq(first);
            encode_package_content(value.client, first, value.kind, value.replier, ops, &mut out);
            package_from_content(&out.into(), value.auth.clone(), SUITE)
        };
        let ops: Vec<Bytes> = value.numbered().map(|(_, op)| op).collect();
        let n = ops.len() as u64;
        prop_assert!(content(u64::MAX - n, &ops).is_ok());
        let first = u64::MAX - n + 1 + over.min(n - 1);
        let wrapped = DecodeError::NotCanonical("request number");
        prop_assert_eq!(content(first, &ops), Err(wrapped));
        let empty = DecodeError::NotCanonical("package without operations");
        prop_assert_eq!(content(value.first.0, &[]), Err(empty));
    }
}

/// Every byte of one encoding of each type takes every value.
#[test]
fn no_byte_of_an_encoding_is_ignored() {
    for (name, bytes) in common::samples() {
        let (_, recode) = DECODERS.into_iter().find(|(n, _)| *n == name).expect("a decoder");
        assert_eq!(recode(&bytes).as_ref(), Ok(&bytes), "{name}");
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut other = bytes.to_vec();
                other[at] = byte;
                if let Ok(again) = recode(&other.clone().into()) {
                    assert_eq!(again, other, "{name}: byte {at} as {byte}");
                }
            }
        }
    }
}

#[test]
fn counts_above_their_limit_or_the_bytes_left_are_refused() {
    let reader = |count: u32, left: usize| {
        let mut bytes = count.to_le_bytes().to_vec();
        bytes.resize(4 + left, 0);
        Reader::new(bytes.into(), SUITE)
    };
    assert_eq!(reader(3, 12).count(4, 3, "it"), Ok(3));
    let long = DecodeError::TooLong { what: "it", found: 4, limit: 3 };
    assert_eq!(reader(4, 100).count(4, 3, "it"), Err(long));
    let short = Err(DecodeError::Truncated("it"));
    assert_eq!(reader(3, 11).count(4, 3, "it"), short);
    assert_eq!(reader(u32::MAX, 100).count(1, usize::MAX, "it"), short);
    assert_eq!(reader(u32::MAX, 100).count(usize::MAX, usize::MAX, "it"), short);

    let signatures = |n: u16| {
        let checkpoint = common::checkpoint();
        let signature = SignatureBytes::new(&[]).expect("within the limit");
        let signatures = (0..n).map(|i| (ReplicaId(i), signature)).collect();
        let bytes = CertifiedCheckpoint { checkpoint, signatures }.to_bytes();
        CertifiedCheckpoint::from_bytes(&bytes, SUITE).map(|read| read.signatures.len())
    };
    assert_eq!(signatures(128), Ok(128));
    let long = DecodeError::TooLong { what: "checkpoint signatures", found: 129, limit: 128 };
    assert_eq!(signatures(129), Err(long));
    let ops = |n: usize| {
        let mut out = Vec::new();
        let (client, first) = (ClientId(0), RequestSeq(0));
        let ops = vec![Bytes::new(); n];
        encode_package_content(client, first, OpKind::User, ReplicaId(0), &ops, &mut out);
        package_from_content(&out.into(), Authenticator::Mac(Tag::default()), SUITE)
            .map(|package| package.ops.len())
    };
    assert_eq!(ops(1 << 16), Ok(1 << 16));
    let long = DecodeError::TooLong { what: "package", found: 65_537, limit: 65_536 };
    assert_eq!(ops((1 << 16) + 1), Err(long));
}

/// Lengths that no authenticator of the kind has.
#[test]
fn authenticators_of_a_wrong_length_are_refused() {
    let of = |kind: u8, len: u16| {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&len.to_le_bytes());
        // Of an attested counter: continuing, from a value to the same.
        bytes.resize(3 + usize::from(len), 2);
        Auth::from_bytes(&bytes.into(), SUITE).map(|_| ())
    };
    let wrong = Err(DecodeError::NotCanonical("authenticator"));
    for (kind, len) in [(1, 0), (1, 15), (1, 17), (2, 0), (2, 8), (2, 24), (2, 129 * 16), (4, 44)] {
        assert_eq!(of(kind, len), wrong, "kind {kind}, {len} bytes");
    }
    let long = |found| Err(DecodeError::TooLong { what: "signature", found, limit: 256 });
    assert_eq!(of(3, 257), long(257));
    assert_eq!(of(4, 45 + 257), long(257));
    for kind in [0, 5, 255] {
        let unknown = DecodeError::Unknown { what: "authenticator", found: kind.into() };
        assert_eq!(of(kind, 16), Err(unknown));
    }
    for (kind, len) in [(1, 16), (2, 16), (2, 128 * 16), (3, 0), (3, 256), (4, 45), (4, 45 + 256)] {
        assert_eq!(of(kind, len), Ok(()), "kind {kind}, {len} bytes");
    }
}

/// A frame's lengths agree with each other and keep the limit.
#[test]
fn frame_lengths_must_agree() {
    let header = |length: u32, auth: u16, body: u32| {
        let mut head = length.to_le_bytes().to_vec();
        head.extend_from_slice(&[WIRE_VERSION, 1]);
        head.extend_from_slice(&auth.to_le_bytes());
        head.extend_from_slice(&body.to_le_bytes());
        FrameHeader::peek(&head)
    };
    assert_eq!(header(60 + 16, 16, 0).unwrap().unwrap().frame_len(), 80);
    let disagree = Err(DecodeError::NotCanonical("frame length"));
    for (length, auth, body) in
        [(0, 0, 0), (75, 16, 0), (77, 16, 0), (76, 16, 1), (60, 16, u32::MAX - 15), (76, 0, 0)]
    {
        assert_eq!(header(length, auth, body), disagree, "{length} {auth} {body}");
    }
    let longest = MAX_FRAME as u32 - 4;
    assert!(header(longest, 16, longest - 76).is_ok());
    for length in [longest + 1, u32::MAX] {
        let (what, limit) = ("frame", u64::from(longest));
        let refused = Err(DecodeError::TooLong { what, found: length.into(), limit });
        assert_eq!(header(length, 16, length.wrapping_sub(76)), refused);
    }
}

/// The bytes themselves, written down by hand: `docs/format.md` in the form of a test. A change
/// here is a new wire version.
#[test]
fn the_format_is_pinned() {
    fn le(numbers: &[(u64, usize)]) -> Vec<u8> {
        numbers.iter().flat_map(|&(value, width)| value.to_le_bytes()[..width].to_vec()).collect()
    }
    let tags = vec![Tag([0xaa; 16]), Tag([0xbb; 16])];

    // Package: authenticator (kind, length, bytes), client, first, kind, replier, list.
    let ops = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
    let mut content = Vec::new();
    let (client, first) = (ClientId(7), RequestSeq(300));
    encode_package_content(client, first, OpKind::User, ReplicaId(2), &ops, &mut content);
    let mut expected = le(&[(7, 8), (300, 8), (0, 1), (2, 2), (3, 4), (3, 4), (3, 4), (8, 4)]);
    expected.extend_from_slice(b"onethree");
    assert_eq!(content, expected);
    let auth = Authenticator::from(tags);
    let package = package_from_content(&content.clone().into(), auth.clone(), SUITE).unwrap();
    let mut expected = le(&[(2, 1), (32, 2)]);
    expected.extend_from_slice(&[0xaa; 16]);
    expected.extend_from_slice(&[0xbb; 16]);
    expected.extend_from_slice(&content);
    let package_bytes = package.to_bytes();
    assert_eq!(package_bytes, expected);

    // Batch: time, checkpoint flag, list of packages.
    let batch = Batch { time: Timestamp(5), checkpoint: true, packages: vec![package] };
    let mut expected = le(&[(5, 8), (1, 1), (1, 4), (package_bytes.len() as u64, 4)]);
    expected.extend_from_slice(&package_bytes);
    assert_eq!(batch.to_bytes(), expected);

    // Block header: 167 bytes.
    let header = common::block_header();
    let mut expected = le(&[(1, 1), (1, 8), (2, 8), (3, 8)]);
    expected.extend_from_slice(&[4; 32]);
    expected.extend_from_slice(&[5; 32]);
    expected.extend(le(&[(6, 8), (7, 4), (8, 2)]));
    expected.extend_from_slice(&[9; 32]);
    expected.extend_from_slice(&[10; 32]);
    assert_eq!(header.to_bytes(), expected);

    // Checkpoint: 192 bytes; its certificate adds a count and each signer's id and signature.
    let checkpoint = common::checkpoint();
    let mut expected = le(&[(1, 8), (2, 8)]);
    (3..=7).for_each(|i| expected.extend_from_slice(&[i; 32]));
    expected.extend(le(&[(8, 8), (9, 8)]));
    assert_eq!(checkpoint.to_bytes(), expected);
    let signature = |i| SignatureBytes::new(&[i; 64]).unwrap();
    let signatures = vec![(ReplicaId(0), signature(1)), (ReplicaId(3), signature(2))];
    let certificate = CertifiedCheckpoint { checkpoint, signatures };
    expected.extend(le(&[(2, 4), (0, 2), (64, 2)]));
    expected.extend_from_slice(&[1; 64]);
    expected.extend(le(&[(3, 2), (64, 2)]));
    expected.extend_from_slice(&[2; 64]);
    assert_eq!(certificate.to_bytes(), expected);

    // Frame: length of the rest, version, kind and length of the authenticator, length of the
    // body; key; digest; authenticator; body.
    let body = Bytes::from_static(b"body");
    let digest = tercio_crypto::hash(SUITE, &[&body]);
    let key =
        Key { kind: Kind(17), flags: 0, sender: CLIENT_SENDER, view: 0x0102, seq: 0x0304, digest };
    let mut expected = le(&[(8 + 52 + 32 + 4, 4), (2, 1), (2, 1), (32, 2), (4, 4)]);
    expected.extend(le(&[(17, 1), (0, 1), (0xffff, 2), (0x0102, 8), (0x0304, 8)]));
    expected.extend_from_slice(&digest.0);
    expected.extend_from_slice(&[0xaa; 16]);
    expected.extend_from_slice(&[0xbb; 16]);
    expected.extend_from_slice(b"body");
    assert_eq!(Frame { key, auth, body }.to_bytes(), expected);

    // Reply: list of first number, digest and results; named by the root over the digests.
    let entry = |first, digest, results: &'static [u8]| {
        let (first, digest) = (RequestSeq(first), Digest([digest; 32]));
        Reply { first, digest, results: Bytes::from_static(results) }
    };
    let replies = [entry(5, 1, b"results"), entry(6, 2, b"")];
    let mut body = Vec::new();
    let digest = encode_replies(&replies, SUITE, &mut Vec::new(), &mut body);
    let mut expected = le(&[(2, 4), (47, 4), (87, 4), (5, 8)]);
    expected.extend_from_slice(&[1; 32]);
    expected.extend_from_slice(b"results");
    expected.extend(le(&[(6, 8)]));
    expected.extend_from_slice(&[2; 32]);
    assert_eq!(body, expected);
    assert_eq!(digest, tercio_crypto::hash(SUITE, &[&[1], &[1; 32], &[2; 32]]));
    let read = decode_replies(&body.clone().into(), SUITE).unwrap();
    assert_eq!((&read[..], replies_digest(&read, SUITE)), (&replies[..], digest));
    for cut in 0..body.len() {
        assert!(decode_replies(&Bytes::copy_from_slice(&body[..cut]), SUITE).is_err());
    }
    let short = [0, 0, 0, 1, 0, 0, 0, 39, 0, 0, 0].into_iter().chain([9; 39]).skip(3);
    assert!(decode_replies(&short.collect(), SUITE).is_err(), "39 bytes are no entry");

    // The other authenticators.
    let bytes = |auth| {
        let mut out = Vec::new();
        encode_authenticator(&auth, &mut out);
        out
    };
    let mac = bytes(Authenticator::Mac(Tag([1; 16])));
    assert_eq!(mac, [&[1, 16, 0][..], &[1; 16]].concat());
    let signed = bytes(signature(9).into());
    assert_eq!(signed, [&[3, 64, 0][..], &[9; 64]].concat());
    let attested = attested(AttestedKind::Continuing, signature(9));
    let head = [
        &[4, 45 + 64, 0][..],
        &[2],
        &5u32.to_le_bytes(),
        &7u64.to_le_bytes(),
        &[9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        &[8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
    ];
    let written = bytes(Authenticator::Attested(Box::new(attested)));
    assert_eq!(written, [&head.concat()[..], &[9; 64]].concat());
}

/// A counter's values are those that its kind has; every other form of them is refused.
#[test]
fn attested_values_have_one_form() {
    let read = |attested: &Attested| {
        let mut out = Vec::new();
        encode_authenticator(&Authenticator::Attested(Box::new(attested.clone())), &mut out);
        decode_authenticator(&mut Reader::new(out.into(), SUITE))
    };
    let certificate = SignatureBytes::new(&[9; 64]).unwrap();
    let of = |kind, value, previous| Attested { value, previous, ..attested(kind, certificate) };
    let (high, half) = (u128::MAX, u128::from(u64::MAX) + 1);
    for good in [
        of(AttestedKind::Independent, high, 0),
        of(AttestedKind::Independent, 1, 0),
        of(AttestedKind::Continuing, high, half),
        of(AttestedKind::Continuing, half, half),
        of(AttestedKind::Trusted, 0, 0),
    ] {
        assert_eq!(read(&good), Ok(Authenticator::Attested(Box::new(good))));
    }
    for bad in [
        of(AttestedKind::Independent, 0, 0),
        of(AttestedKind::Independent, 9, 8),
        of(AttestedKind::Continuing, half - 1, half),
        of(AttestedKind::Trusted, 1, 0),
        of(AttestedKind::Trusted, 0, 1),
    ] {
        assert_eq!(read(&bad), Err(DecodeError::NotCanonical("attested")));
    }
    let mut out = Vec::new();
    let good = of(AttestedKind::Trusted, 0, 0);
    encode_authenticator(&Authenticator::Attested(Box::new(good)), &mut out);
    for kind in [0, 4, 255] {
        out[3] = kind;
        let read = decode_authenticator(&mut Reader::new(out.clone().into(), SUITE));
        assert_eq!(read, Err(DecodeError::Unknown { what: "attested", found: kind.into() }));
    }
}
