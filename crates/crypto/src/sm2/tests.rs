//! The official example.

use super::*;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// GB/T 32918.5, appendix A.2.
#[test]
fn the_standards_example() {
    let secret = SecretKey::from_bytes(&hex(
        "3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8",
    ))
    .unwrap();
    let key = *secret.public();
    assert_eq!(
        key.as_bytes(),
        &hex::<65>(concat!(
            "04",
            "09F9DF311E5421A150DD7D161E4BC5C672179FAD1833FC076BB08FF356F35020",
            "CCEA490CE26775A52DC6EA718CC1AA600AED05FBF35E084A6632F6072DA9AD13"
        ))
    );
    let user = UserId::default();
    assert_eq!(
        user.z(&key),
        hex::<32>("B2E14C5C79C6DF5B85F4FE7ED8DB7A262B9DA7E07CCB0EA9F4747B8CCDA8A4F3")
    );
    let digest = user.digest(&key, b"message digest");
    assert_eq!(
        digest,
        hex::<32>("F0B43E94BA45ACCAACE692ED534382EB17E6AB5A19CE7B31F4486FDFC0D28640")
    );
    let k = order::Scalar::from_be_bytes(&hex(
        "59276E27D506861A16680F3AD9C02DCCEF3CC1FA3CDBE4CE6D54B80DEAC1BC21",
    ))
    .unwrap();
    let signature = secret.sign_with(&digest, &k).unwrap();
    let expected = hex::<64>(concat!(
        "F5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3",
        "B1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA"
    ));
    assert_eq!(signature.to_bytes(), expected);
    let good = Item { key: key.as_bytes(), message: b"message digest", signature: &expected };
    let bad = Item { message: b"message Digest", ..good };
    for backend in [Backend::Portable, Backend::Scalar, Backend::Ifma] {
        if !backend.is_available() {
            continue;
        }
        let mut verifier = Verifier::new(backend, user.clone(), 4).unwrap();
        for _ in 0..2 {
            assert_eq!(verifier.verify_batch(&[good, bad]), [true, false], "{backend:?}");
            verifier.learn(&key);
        }
    }
}
