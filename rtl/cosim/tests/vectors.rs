//! Published vectors through the single units.

use tercio_rtl_cosim::card::Card;
use tercio_rtl_cosim::{Network, midstates, murmur3};
use tercio_types::{Suite, Tag};

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.iter().map(byte).collect()
}

/// FIPS 180-2, B.1 to B.3, and SHA256ShortMsg of NIST's CAVP. A block takes at most 66 cycles.
#[test]
fn sha256_has_nists_values() {
    let mut card = Card::new();
    let million = vec![b'a'; 1_000_000];
    let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let cases: [(&[u8], &str); 6] = [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (two_blocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        (&[0xd3], "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"),
        (&[0x11, 0xaf], "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"),
        (&million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ];
    for (message, digest) in cases {
        let (found, cycles) = card.sha256(message);
        assert_eq!(found[..], hex(digest), "{} bytes", message.len());
        let slowest = cycles.iter().max().expect("there is a block");
        assert!(*slowest <= 66, "{slowest} cycles a block");
    }
    let (_, cycles) = card.sha256(b"abc");
    println!("rtl: sha256_core {} cycles a block", cycles[0]);
}

/// HMAC as RFC 2104 defines it, of any message, by the core.
fn hmac_by_core(card: &mut Card, key: &[u8], message: &[u8]) -> [u8; 32] {
    let padded =
        |pad: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ pad).collect() };
    let (inside, _) = card.sha256(&[&padded(0x36)[..], message].concat());
    card.sha256(&[&padded(0x5c)[..], &inside].concat()).0
}

/// RFC 4231, cases 1 to 3, by the core: the engine takes messages of 52 bytes only, so of those its
/// tags are held against the core's. A MAC takes at most 132 cycles.
#[test]
fn hmac_has_the_values_of_rfc_4231() {
    let mut card = Card::new();
    let said: [u8; 52] = std::array::from_fn(|i| (i * 37 + 11) as u8);
    let cases: [(&[u8], &[u8], &str); 3] = [
        (
            &[0x0b; 20],
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            &[0xaa; 20],
            &[0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        ),
    ];
    for (key, message, code) in cases {
        assert_eq!(hmac_by_core(&mut card, key, message)[..], hex(code));
        let (tag, cycles) = card.hmac(&midstates(key), &said);
        assert_eq!(tag[..], hmac_by_core(&mut card, key, &said)[..16]);
        assert!(cycles <= 132, "{cycles} cycles a MAC");
    }
    let key = tercio_crypto::MacKey::new(Suite::default(), &[0xcd; 32]);
    let (tag, cycles) = card.hmac(&midstates(&[0xcd; 32]), &said);
    assert_eq!(Tag(tag), key.tag(&said));
    println!("rtl: hmac_engine {cycles} cycles a MAC");
}

/// HMAC-SHA-256 over exactly 52 bytes, as OpenSSL gives it, under the keys of RFC 4231's cases.
#[test]
fn hmac_has_recorded_values() {
    let mut card = Card::new();
    let said: [u8; 52] = std::array::from_fn(|i| i as u8);
    for (key, tag) in HMAC_52 {
        assert_eq!(card.hmac(&midstates(&hex(key)), &said).0[..], hex(tag), "{key}");
    }
}

/// Key, tag: `openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY` of bytes 00 to 33, its first 16.
const HMAC_52: [(&str, &str); 4] = [
    ("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "8344621899668fe310fb89065137a3a8"),
    ("4a656665", "88f49aab9c0a185b66f29c2999130c1f"),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "f5d6738944a517532f5fbfd746f7fe13"),
    ("0102030405060708090a0b0c0d0e0f10111213141516171819", "92d4298932f791f533428440b5d0cbc4"),
];

/// What a replica's keyring says of a link is what the card computes with the key that it is given.
#[test]
fn the_cards_keys_are_the_engines() {
    let mut card = Card::new();
    let network = Network::new(4, 9);
    let mut said = [7; 52];
    for (from, to) in [(0, 1), (1, 0), (3, 2)] {
        said[2..4].copy_from_slice(&[from, 0]);
        let vector = network.vector(from, &said);
        let (tag, _) = card.hmac(&network.card_key(from, to), &said);
        assert_eq!(tag[..], vector[16 * usize::from(to)..][..16], "{from} to {to}");
    }
}

#[test]
fn murmur3_is_the_models() {
    let mut card = Card::new();
    let keys: Vec<[u8; 20]> =
        (0..200u32).map(|i| std::array::from_fn(|j| (i * 31 + j as u32 * 7) as u8)).collect();
    let (hashes, cycles) = card.murmur3(0x1234_5678, &keys);
    let expected: Vec<_> = keys.iter().map(|key| murmur3(0x1234_5678, key)).collect();
    assert_eq!(hashes, expected);
    assert!(cycles <= 8.0, "{cycles} cycles a key");
    println!("rtl: murmur3 {cycles:.2} cycles a key");
}
