//! Every other encoding of a good key is refused: as a key, as a key in text, and by `verify`.

use super::{p256, secp256k1};
use crate::{
    SignatureItem, SigningSecret, public_key, public_to_der, signature_from_der, signature_to_der,
    signing_key_from_text, to_hex, verify, verify_batch,
};
use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::edwards::CompressedEdwardsY;
use tercio_types::{PublicKey, Scheme, SignatureBytes, SigningKey};

fn holds(key: &SigningKey, message: &[u8], signature: &SignatureBytes) -> bool {
    let item = SignatureItem { key, message, signature };
    let verdict = verify(&item);
    assert_eq!(verify_batch(&[item; 9]), [verdict; 9], "among others");
    verdict
}

/// A DER head with the length in its shortest form, or in one of three bytes.
fn der(tag: u8, content: &[u8], long: bool) -> Vec<u8> {
    let len = content.len();
    let [.., high, low] = len.to_be_bytes();
    let head = match len {
        _ if long => vec![tag, 0x83, 0, high, low],
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&head, content].concat()
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    der(0x30, &[der(2, modulus, false), der(2, exponent, false)].concat(), false)
}

/// A modulus of 2048 bits with the zero before it, and the exponent.
fn rsa_numbers(key: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (modulus, exponent) = (key[8..265].to_vec(), key[267..].to_vec());
    assert_eq!(rsa_key(&modulus, &exponent), key);
    (modulus, exponent)
}

/// The same key in other bytes: whoever reads them as some library does finds the same numbers.
fn other_forms(key: &SigningKey) -> Vec<Vec<u8>> {
    let bytes = key.key.as_slice();
    let mut all = vec![public_to_der(key).unwrap(), [&[0], bytes].concat()];
    match key.scheme {
        Scheme::Ed25519 => all.push([bytes, &[0]].concat()),
        Scheme::Rsa2048 => {
            let (modulus, exponent) = rsa_numbers(bytes);
            let number = |bytes: &[u8]| der(2, bytes, false);
            let both = [number(&modulus), number(&exponent)].concat();
            all.extend([
                // Zeros before a number, or none where the first bit is set.
                rsa_key(&[&[0], &modulus[..]].concat(), &exponent),
                rsa_key(&modulus[1..], &exponent),
                rsa_key(&modulus, &[&[0], &exponent[..]].concat()),
                // Lengths in more bytes than they need, and none.
                der(0x30, &both, true),
                der(0x30, &[der(2, &modulus, true), number(&exponent)].concat(), false),
                [&[0x30, 0x80], &both[..], &[0, 0]].concat(),
                // Something behind.
                [bytes, &[0]].concat(),
                der(0x30, &[both, number(&[1])].concat(), false),
            ]);
        }
        _ => {
            let (x, y) = (&bytes[1..33], &bytes[33..]);
            let odd = y[31] & 1;
            for prefix in [0, 5, 6, 7, 8] {
                all.push([&[prefix], x, y].concat());
            }
            all.extend([[&[2 | odd], x].concat(), [x, y].concat()]);
        }
    }
    all
}

/// Without the look at the first byte, P-256 has two more forms; without that at RSA's head, one.
#[test]
fn no_signature_holds_under_another_form_of_its_key() {
    for scheme in Scheme::ALL {
        let secret = SigningSecret::generate(scheme).unwrap();
        let (key, signature) = (secret.public(), secret.sign(b"m"));
        assert_eq!(public_key(scheme, key.key.as_slice()), Ok(key));
        assert!(holds(&key, b"m", &signature));
        for other in other_forms(&key) {
            assert!(public_key(scheme, &other).is_err(), "{scheme:?}: {other:02x?}");
            let text = format!("{}:{}", scheme.name(), to_hex(&other));
            assert!(signing_key_from_text(&text).is_err(), "{text}");
            if let Some(bytes) = PublicKey::new(&other) {
                let key = SigningKey { scheme, key: bytes };
                assert!(!holds(&key, b"m", &signature), "{scheme:?}: {other:02x?}");
            }
        }
        // Nor has the text of a key a second form.
        let text = crate::signing_key_text(&key);
        let digits = text.split_once(':').unwrap().1;
        for text in [
            format!("{}:{}", scheme.name(), digits.to_uppercase()),
            format!("{}:0x{digits}", scheme.name()),
            format!("{} {digits}", scheme.name()),
            format!("{text} "),
            format!("{}:{digits}", scheme.name().to_uppercase()),
        ] {
            assert!(signing_key_from_text(&text).is_err(), "{text}");
        }
    }
}

/// Points with an x so small that x + p fits 32 bytes as well, and p: none is taken twice.
#[test]
fn coordinates_are_below_p() {
    let points = [
        (
            Scheme::EcdsaP256,
            5,
            "459243b9aa581806fe913bce99817ade11ca503c64d9a3c533415c083248fbcc",
            "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
        ),
        (
            Scheme::Secp256k1,
            1,
            "4218f20ae6c646b363db68605822fb14264ca8d2587fdd6fbc750d587e76a7ee",
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f",
        ),
        (
            Scheme::Sm2,
            1,
            "9f7a091433a81e3f218f405f792355bf2aa98b5ffa95982f03870800065279a3",
            "fffffffeffffffffffffffffffffffffffffffff00000000ffffffffffffffff",
        ),
    ];
    for (scheme, x, y, p) in points {
        let [y, mut p] = [y, p].map(|digits| crate::from_hex(digits).unwrap());
        let small = [&[0; 31][..], &[x]].concat();
        assert!(public_key(scheme, &[&[4], &small[..], &y].concat()).is_ok(), "{scheme:?}");
        // No carry beyond the last byte but in the case that all before are zeros afterwards.
        for at in (0..32).rev() {
            let (sum, over) = p[at].overflowing_add(if at == 31 { x } else { 1 });
            p[at] = sum;
            if !over {
                break;
            }
        }
        assert!(public_key(scheme, &[&[4], &p[..], &y].concat()).is_err(), "{scheme:?}");
    }
}

/// Under such a key ZIP-215 takes a signature that anybody makes, of any message: R = s B.
#[test]
fn no_signature_holds_under_an_ed25519_key_of_small_order() {
    let base = curve25519_dalek::constants::ED25519_BASEPOINT_COMPRESSED.to_bytes();
    let one = [&[1], &[0; 31][..]].concat();
    let forged = SignatureBytes::new(&[&base[..], &one].concat()).unwrap();
    let mut keys: Vec<[u8; 32]> = EIGHT_TORSION.map(|t| t.compress().to_bytes()).into();
    // The encodings that RFC 8032 does not know: a sign where x is 0, and y + p.
    let sign = |mut key: [u8; 32]| {
        key[31] |= 0x80;
        key
    };
    let p_and = |k: u8| {
        let mut key = [0xff; 32];
        (key[0], key[31]) = (0xed + k, 0x7f);
        key
    };
    keys.extend([sign([[1].as_slice(), &[0; 31]].concat().try_into().unwrap())]);
    let minus_one = keys.iter().find(|key| key[..2] == [0xec, 0xff] && key[31] == 0x7f).copied();
    keys.extend([sign(minus_one.unwrap())]);
    keys.extend([p_and(0), p_and(1), sign(p_and(0)), sign(p_and(1))]);
    assert_eq!(keys.len(), 14);
    for bytes in keys {
        assert!(CompressedEdwardsY(bytes).decompress().unwrap().is_small_order());
        assert!(public_key(Scheme::Ed25519, &bytes).is_err(), "{bytes:02x?}");
        let key = SigningKey { scheme: Scheme::Ed25519, key: PublicKey::new(&bytes).unwrap() };
        assert!(!holds(&key, b"anything", &forged), "{bytes:02x?}");
    }
    // The others that RFC 8032 does not know: points of no prime order, so of nobody.
    for k in 2..19 {
        for bytes in [p_and(k), sign(p_and(k))] {
            assert!(public_key(Scheme::Ed25519, &bytes).is_err(), "{bytes:02x?}");
        }
    }
}

/// The secret of A signs for A + T too, and agrees on the same link secret: eight identities.
#[test]
fn an_ed25519_key_is_of_prime_order() {
    let key = SigningSecret::generate(Scheme::Ed25519).unwrap().public();
    let point = CompressedEdwardsY::from_slice(key.key.as_slice()).unwrap().decompress().unwrap();
    for (i, torsion) in EIGHT_TORSION.into_iter().enumerate() {
        let other = (point + torsion).compress().to_bytes();
        assert_eq!(public_key(Scheme::Ed25519, &other).is_ok(), i == 0, "{i}");
    }
}

#[test]
fn an_rsa_key_has_2048_bits_and_an_odd_exponent() {
    let secret = SigningSecret::generate(Scheme::Rsa2048).unwrap();
    let (modulus, exponent) = rsa_numbers(secret.public().key.as_slice());
    assert_eq!(exponent, [1, 0, 1]);
    let taken = |modulus: &[u8], exponent: &[u8]| {
        public_key(Scheme::Rsa2048, &rsa_key(modulus, exponent)).is_ok()
    };
    // 2041 to 2047 bits: 256 bytes, and nothing was ever verified under those.
    for bits in 1..8 {
        let small = [&[1 << (bits - 1)], &modulus[2..]].concat();
        assert!(!taken(&small, &exponent), "{} bits", 2040 + bits);
    }
    assert!(!taken(&modulus[2..], &exponent) && !taken(&[&[1], &modulus[1..]].concat(), &exponent));
    let mut even = modulus.clone();
    even[256] &= 0xfe;
    assert!(!taken(&even, &exponent));
    for good in [&[3][..], &[1, 0, 1], &[1, 0xff, 0xff, 0xff, 0xff]] {
        assert!(taken(&modulus, good), "{good:02x?}");
    }
    for bad in [&[][..], &[0], &[1], &[2], &[1, 0, 0], &[2, 0, 0, 0, 1], &[1; 9], &[0x81]] {
        assert!(!taken(&modulus, bad), "{bad:02x?}");
    }
}

/// Whoever sees r and s can write r and n - s, which ECDSA takes as well.
#[test]
fn of_two_ecdsa_signatures_that_hold_one_is_taken() {
    let orders = [
        (Scheme::EcdsaP256, "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
        (Scheme::Secp256k1, "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"),
    ];
    for (scheme, order) in orders {
        let order = crate::from_hex(order).unwrap();
        let secret = SigningSecret::generate(scheme).unwrap();
        // Half of the signatures that a library makes have a high s.
        for message in (0..40_u8).map(|i| [i]) {
            let low = secret.sign(&message);
            assert!(holds(&secret.public(), &message, &low));
            let (r, s) = low.as_slice().split_at(32);
            let mut other = [0; 32];
            let mut borrow = 0;
            for i in (0..32).rev() {
                let digit = 0x100 + i32::from(order[i]) - i32::from(s[i]) - borrow;
                other[i] = (digit % 0x100) as u8;
                borrow = i32::from(digit < 0x100);
            }
            assert!(s < &other[..]);
            let high = SignatureBytes::new(&[r, &other].concat()).unwrap();
            assert!(!holds(&secret.public(), &message, &high), "{scheme:?}");
            // What another tool wrote comes to be the one that is taken.
            let der = signature_to_der(scheme, &high).unwrap();
            assert_eq!(signature_from_der(scheme, &der), Ok(low));
        }
    }
    for s in [&[0xff; 32][..], &crate::from_hex(orders[0].1).unwrap()] {
        let none = <[u8; 64]>::try_from([&[1; 32][..], s].concat()).unwrap();
        assert_eq!((p256::with_low_s(&none), secp256k1::with_low_s(&[0xff; 64])), (None, None));
    }
}
