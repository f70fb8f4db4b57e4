//! Wycheproof's vectors for the schemes that libraries verify.

use super::{p256, secp256k1};
use crate::{SignatureItem, public_key, verify};
use tercio_types::{Scheme, SignatureBytes};
use wycheproof::{TestResult, ecdsa, eddsa, rsa_pkcs1_verify as rsa};

/// Our verdict on bytes from anywhere.
fn verdict(scheme: Scheme, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = public_key(scheme, key) else { return false };
    let Some(signature) = SignatureBytes::new(signature) else { return false };
    verify(&SignatureItem { key: &key, message, signature: &signature })
}

/// Of ECDSA we take one of the two signatures that hold, and Wycheproof takes both.
fn has_high_s(scheme: Scheme, signature: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; 64]>::try_from(signature) else { return false };
    let low = match scheme {
        Scheme::EcdsaP256 => p256::with_low_s(bytes),
        Scheme::Secp256k1 => secp256k1::with_low_s(bytes),
        _ => None,
    };
    low.is_some_and(|low| low != *bytes)
}

#[track_caller]
fn check(id: usize, result: TestResult, scheme: Scheme, key: &[u8], parts: [&[u8]; 2]) -> bool {
    let [message, signature] = parts;
    let ours = verdict(scheme, key, message, signature);
    match result {
        TestResult::Valid => assert_eq!(ours, !has_high_s(scheme, signature), "{scheme:?} {id}"),
        TestResult::Invalid => assert!(!ours, "{scheme:?} {id}"),
        TestResult::Acceptable => {}
    }
    ours
}

#[test]
fn ecdsa_has_wycheproofs_verdicts() {
    for (scheme, name) in [
        (Scheme::EcdsaP256, ecdsa::TestName::EcdsaSecp256r1Sha256P1363),
        (Scheme::Secp256k1, ecdsa::TestName::EcdsaSecp256k1Sha256P1363),
    ] {
        let (mut total, mut good) = (0, 0);
        for group in ecdsa::TestSet::load(name).unwrap().test_groups {
            for test in &group.tests {
                let parts = [&test.msg[..], &test.sig[..]];
                good += usize::from(check(test.tc_id, test.result, scheme, &group.key.key, parts));
                total += 1;
            }
        }
        assert!(total > 200 && good > 50, "{scheme:?}: {good} of {total}");
    }
}

/// The vector whose R is y = 1 with a sign bit. RFC 8032 refuses it; ZIP-215, which we keep to so
/// that single and batch verification agree, takes every encoding of a point of the curve.
const ODD_R: usize = 151;

#[test]
fn ed25519_has_wycheproofs_verdicts() {
    let mut good = 0;
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap().test_groups {
        for test in &group.tests {
            let (key, parts) = (&group.key.pk, [&test.msg[..], &test.sig[..]]);
            if test.tc_id == ODD_R {
                assert!(verdict(Scheme::Ed25519, key, parts[0], parts[1]));
                continue;
            }
            good += usize::from(check(test.tc_id, test.result, Scheme::Ed25519, key, parts));
        }
    }
    assert!(good > 50, "{good}");
}

#[test]
fn rsa_has_wycheproofs_verdicts() {
    let mut good = 0;
    for group in rsa::TestSet::load(rsa::TestName::Rsa2048Sha256).unwrap().test_groups {
        for test in &group.tests {
            let parts = [&test.msg[..], &test.sig[..]];
            let key = &group.asn_key;
            good += usize::from(check(test.tc_id, test.result, Scheme::Rsa2048, key, parts));
        }
    }
    assert!(good > 5, "{good}");
}
