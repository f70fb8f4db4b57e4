//! Keys and signatures there and back with the `openssl` command.

use crate::{
    SignatureItem, SigningSecret, public_from_pem, public_to_pem, signature_from_der,
    signature_to_der, verify,
};
use std::path::Path;
use std::process::Command;
use tercio_types::Scheme;

/// Runs it in `dir`; gives what it prints, or nothing when it does not succeed.
fn openssl(dir: &Path, args: &str) -> Option<String> {
    let run = Command::new("openssl").args(args.split(' ')).current_dir(dir).output();
    let run = run.expect("it ran before");
    run.status.success().then(|| String::from_utf8_lossy(&run.stdout).into_owned())
}

fn is_installed() -> bool {
    let found = Command::new("openssl").arg("version").output();
    let three = found.is_ok_and(|run| run.stdout.starts_with(b"OpenSSL 3"));
    assert!(three || std::env::var_os("CI").is_none(), "OpenSSL 3's command is not installed");
    three
}

fn generate(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Ed25519 => "genpkey -algorithm ED25519",
        Scheme::Sm2 => "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:SM2",
        Scheme::EcdsaP256 => "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        Scheme::Secp256k1 => "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1",
        _ => "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048",
    }
}

fn digest(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Ed25519 => "",
        Scheme::Sm2 => " -digest sm3 -pkeyopt distid:1234567812345678",
        _ => " -digest sha256",
    }
}

#[test]
fn keys_and_signatures_go_there_and_back() {
    if !is_installed() {
        return;
    }
    for scheme in Scheme::ALL {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
        let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
        let run = |args: &str| openssl(dir, args);
        let digest = digest(scheme);
        write("message", b"a message");

        // A key of theirs.
        run(&format!("{} -out theirs", generate(scheme))).unwrap();
        let theirs = SigningSecret::from_pem(&String::from_utf8(read("theirs")).unwrap()).unwrap();
        assert_eq!(theirs.scheme(), scheme);
        let public = run("pkey -in theirs -pubout").unwrap();
        assert_eq!(public_from_pem(&public), Ok(theirs.public()));
        assert_eq!(public_to_pem(&theirs.public()).unwrap(), public);
        // Its signature, by their hand.
        run(&format!("pkeyutl -sign -rawin{digest} -inkey theirs -in message -out signed"))
            .unwrap();
        let signature = signature_from_der(scheme, &read("signed")).unwrap();
        let good = |message: &[u8]| {
            let key = &theirs.public();
            verify(&SignatureItem { key, message, signature: &signature })
        };
        assert!(good(b"a message"), "{scheme:?}");
        assert!(!good(b"another"));

        // A key of ours, and our signature.
        let ours = SigningSecret::generate(scheme).unwrap();
        write("ours", ours.to_pem().unwrap().as_bytes());
        let public = public_to_pem(&ours.public()).unwrap();
        assert_eq!(run("pkey -in ours -pubout").as_ref(), Some(&public));
        write("public", public.as_bytes());
        let signature = ours.sign(b"a message");
        write("signed", &signature_to_der(scheme, &signature).unwrap());
        let check = "pkeyutl -verify -rawin -pubin -inkey public -sigfile signed";
        assert!(run(&format!("{check}{digest} -in message")).is_some(), "{scheme:?}");
        write("message", b"another");
        assert!(run(&format!("{check}{digest} -in message")).is_none(), "{scheme:?}");

        // SEC 1, for keys on a named curve.
        match ours.to_sec1_pem().unwrap() {
            None => assert!(matches!(scheme, Scheme::Ed25519 | Scheme::Rsa2048)),
            Some(pem) => {
                write("sec1", pem.as_bytes());
                assert_eq!(run("pkey -in sec1 -pubout"), Some(public));
                // `pkey -traditional` does not know SM2.
                let text = run("ec -in theirs").unwrap();
                assert!(
                    text.contains("BEGIN EC PRIVATE KEY") || text.contains("BEGIN SM2 PRIVATE KEY")
                );
                assert_eq!(SigningSecret::from_pem(&text).unwrap().public(), theirs.public());
            }
        }
    }
}

/// RSA keys of other sizes and exponents than ours, and ours with the smallest and the greatest.
#[test]
fn rsa_keys_of_other_sizes_are_refused() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("message"), b"a message").unwrap();
    let make = |bits: u32, exponent: u64| {
        let (bits, exponent) = (format!("rsa_keygen_bits:{bits}"), format!("{exponent}"));
        let exponent = format!("rsa_keygen_pubexp:{exponent}");
        openssl(dir, &format!("genpkey -algorithm RSA -pkeyopt {bits} -pkeyopt {exponent} -out k"))
            .unwrap();
        let public = openssl(dir, "pkey -in k -pubout").unwrap();
        openssl(dir, "pkeyutl -sign -rawin -digest sha256 -inkey k -in message -out s").unwrap();
        let signature = std::fs::read(dir.join("s")).unwrap();
        (public_from_pem(&public), signature_from_der(Scheme::Rsa2048, &signature))
    };
    for exponent in [3, 65_537, (1 << 33) - 1] {
        let (key, signature) = make(2048, exponent);
        let (key, signature) = (key.unwrap(), signature.unwrap());
        let item = SignatureItem { key: &key, message: b"a message", signature: &signature };
        assert!(verify(&item), "exponent {exponent}");
    }
    for (bits, exponent) in
        [(1024, 65_537), (2042, 65_537), (2056, 65_537), (3072, 65_537), (2048, (1 << 33) + 1)]
    {
        let (key, _) = make(bits, exponent);
        assert_eq!(key, Err(crate::SchemeError::BadPublicKey(Scheme::Rsa2048)), "{bits} bits");
        let pem = std::fs::read_to_string(dir.join("k")).unwrap();
        assert!(SigningSecret::from_pem(&pem).is_err(), "{bits} bits");
    }
}
