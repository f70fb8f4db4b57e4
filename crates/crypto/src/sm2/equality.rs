//! One verdict everywhere: the same signatures through the code on 64-bit integers, in the compiler's
//! instructions and with MULX, and the vector code, all with and without tables of keys, and
//! OpenSSL. `TERCIO_SM2_CASES` says how many (`./test crypto`).

use super::field::{Fe, P};
use super::limbs;
use super::order::{N, Scalar};
use super::point::{Affine, Jacobian};
use super::verify::{Backend, Item, Prehashed, Verifier};
use super::{PublicKey, SecretKey, Signature, UserId};
use crate::{public_to_der, signature_to_der};
use tercio_types::{Scheme, SignatureBytes, SigningKey};
use tercio_unsafe_libcrypto::Libcrypto;

/// Random numbers from a seed: the same cases on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self) -> [u8; 32] {
        limbs::to_be_bytes(&std::array::from_fn(|_| self.next()))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A scalar that is often small, or close to n, or a power of two.
    fn scalar(&mut self) -> Scalar {
        let small = [self.next() % 64, 0, 0, 0];
        match self.below(5) {
            0 => Scalar::reduce_limbs(&small),
            1 => Scalar::reduce_limbs(&small).neg(),
            2 => {
                let (bit, mut power) = (self.below(256), [0; 4]);
                power[bit / 64] = 1 << (bit % 64);
                Scalar::reduce_limbs(&power)
            }
            _ => Scalar::reduce(&self.bytes()),
        }
    }
}

/// A case: key, digest and `r || s`, all as bytes.
struct Case {
    key: [u8; 65],
    digest: [u8; 32],
    signature: [u8; 64],
    /// The verdict, where the way of making it says.
    expected: Option<bool>,
}

fn affine(point: &Jacobian) -> Affine {
    Jacobian::to_affine(&[*point])[0]
}

fn multiple_of(point: &Affine, k: &Scalar) -> Jacobian {
    (0..256).rev().fold(Jacobian::INFINITY, |sum, bit| {
        let sum = sum.double();
        if limbs::bits(k.limbs(), bit, 1) == 1 { sum.add_affine(point) } else { sum }
    })
}

/// `s G + t P` by doubling and adding.
fn sum(s: &Scalar, t: &Scalar, key: &Affine) -> Jacobian {
    (0..256).rev().fold(Jacobian::INFINITY, |sum, bit| {
        let add = |sum: Jacobian, k: &Scalar, point| match limbs::bits(k.limbs(), bit, 1) {
            0 => sum,
            _ => sum.add_affine(point),
        };
        add(add(sum.double(), s, &Affine::GENERATOR), t, key)
    })
}

fn raw(r: &Scalar, s: &Scalar) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&r.to_be_bytes());
    bytes[32..].copy_from_slice(&s.to_be_bytes());
    bytes
}

/// A valid signature for any key and any s and t: the digest is chosen last.
fn forge(key: &PublicKey, s: &Scalar, t: &Scalar) -> Option<Case> {
    let point = sum(s, t, &key.point);
    let r = t.sub(s);
    if point.is_infinity() || r.is_zero() || s.is_zero() || t.is_zero() {
        return None;
    }
    let x = Scalar::reduce_limbs(&affine(&point).x.to_limbs());
    let digest = r.sub(&x).to_be_bytes();
    let (key, signature) = (*key.as_bytes(), raw(&r, s));
    Some(Case { key, digest, signature, expected: Some(true) })
}

/// The point of a number below p, where there is one.
fn point_at(x: &limbs::Limbs) -> Option<Affine> {
    let element = Fe::from_limbs(x);
    let (three, b) = (Fe::constant(&[3, 0, 0, 0]), Fe::constant(&super::point::B));
    let right = element.square().sub(&three).mul(&element).add(&b);
    // p = 3 modulo 4: a root is the power (p + 1) / 4.
    let exponent = limbs::add(&P, &[1, 0, 0, 0]).0;
    let root = (2..256).rev().fold(Fe::ONE, |root, bit| {
        let root = root.square();
        if limbs::bits(&exponent, bit, 1) == 1 { root.mul(&right) } else { root }
    });
    Affine::new(x, &root.to_limbs())
}

/// A point whose x is from n to p - 1, so that x modulo n is another number than x.
fn point_with_large_x(dice: &mut Dice) -> Affine {
    std::iter::repeat_with(|| limbs::add(&N, &[dice.next(), 0, 0, 0]).0)
        .find_map(|x| point_at(&x))
        .expect("half of all x are on the curve")
}

struct Keys {
    secrets: Vec<SecretKey>,
    /// Small multiples of the generator, of either sign, then the secrets' keys.
    all: Vec<PublicKey>,
}

impl Keys {
    fn new(dice: &mut Dice) -> Self {
        let secrets: Vec<SecretKey> =
            (0..24).map(|_| SecretKey::from_bytes(&dice.bytes()).expect("2^-32 against")).collect();
        let small = (1..=10).flat_map(|k| {
            let k = Scalar::reduce_limbs(&[k, 0, 0, 0]);
            [k, k.neg()]
                .map(|k| PublicKey::from_point(affine(&multiple_of(&Affine::GENERATOR, &k))))
        });
        let all = small.chain(secrets.iter().map(|secret| *secret.public())).collect();
        Self { secrets, all }
    }
}

/// Numbers at the edges of every range.
fn edge_numbers() -> Vec<[u8; 32]> {
    let around =
        |a: &limbs::Limbs| [limbs::sub(a, &[1, 0, 0, 0]).0, *a, limbs::add(a, &[1, 0, 0, 0]).0];
    [around(&[1, 0, 0, 0]), around(&N), around(&P), around(&[0; 4])]
        .concat()
        .iter()
        .map(limbs::to_be_bytes)
        .collect()
}

fn case(dice: &mut Dice, keys: &Keys) -> Case {
    let secret = &keys.secrets[dice.below(keys.secrets.len())];
    let digest = dice.bytes();
    let mut case =
        Case { key: *secret.public().as_bytes(), digest, signature: [0; 64], expected: None };
    let kind = dice.below(12);
    if kind < 8 {
        case.signature = secret.sign_digest(&digest).to_bytes();
    }
    match kind {
        0 => case.expected = Some(true),
        1 => case.signature[dice.below(64)] ^= 1 << dice.below(8),
        2 => case.digest[dice.below(32)] ^= 1 << dice.below(8),
        3 => case.key[dice.below(65)] ^= 1 << dice.below(8),
        4 => case.signature.rotate_left(32),
        5 => {
            let edges = edge_numbers();
            let at = 32 * dice.below(2);
            case.signature[at..at + 32].copy_from_slice(&dice.pick(&edges));
        }
        6 => {
            // r + s = n.
            let r = Scalar::reduce(case.signature.first_chunk().expect("64 bytes"));
            case.signature = raw(&r, &r.neg());
            case.expected = Some(false);
        }
        7 => {
            let edges = edge_numbers();
            let at = 1 + 32 * dice.below(2);
            case.key[at..at + 32].copy_from_slice(&dice.pick(&edges));
        }
        // Scalars and keys of which many make additions meet equal or opposite points.
        8 | 9 => {
            let key = dice.pick(&keys.all);
            if let Some(forged) = forge(&key, &dice.scalar(), &dice.scalar()) {
                case = forged;
                if kind == 9 && dice.below(2) == 0 {
                    case.digest[31] ^= 1;
                    case.expected = None;
                }
            }
        }
        10 => {
            // A sum at infinity: P = k G, s = - t k, whatever r would have been.
            let index = dice.below(20);
            let k = Scalar::reduce_limbs(&[index as u64 / 2 + 1, 0, 0, 0]);
            let k = if index % 2 == 1 { k.neg() } else { k };
            let t = dice.scalar();
            let s = t.mul(&k).neg();
            case.key = *keys.all[index].as_bytes();
            case.signature = raw(&t.sub(&s), &s);
            case.expected = Some(false);
        }
        _ => {
            // x of the sum is not below n: the key that this needs has an unknown secret.
            let (s, t) = (dice.scalar(), dice.scalar());
            if !s.is_zero() && !t.is_zero() && t != s {
                let difference = multiple_of(&Affine::GENERATOR, &s).neg();
                let difference = difference.add_affine(&point_with_large_x(dice));
                let key = multiple_of(&affine(&difference), &t.invert());
                case = forge(&PublicKey::from_point(affine(&key)), &s, &t).expect("no edge");
            }
        }
    }
    case
}

fn cases() -> usize {
    std::env::var("TERCIO_SM2_CASES").map_or(3_000, |text| text.parse().expect("a number"))
}

/// OpenSSL, or nothing where it is not installed; under CI that is a failure.
fn openssl() -> Option<Libcrypto> {
    match Libcrypto::load() {
        Ok(library) => Some(library),
        Err(missing) if std::env::var_os("CI").is_some() => panic!("{missing}"),
        Err(missing) => {
            report(&format!("NOT COMPARED WITH OPENSSL: {missing}"));
            None
        }
    }
}

/// A line that `./test crypto` shows.
fn report(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "crypto: {line}");
}

fn der_of(signature: &[u8; 64]) -> Vec<u8> {
    let signature = SignatureBytes::new(signature).expect("64 bytes fit");
    signature_to_der(Scheme::Sm2, &signature).expect("64 bytes")
}

/// The SubjectPublicKeyInfo around bytes that need not be a key.
fn spki(key: &[u8; 65]) -> Vec<u8> {
    let key = tercio_types::PublicKey::new(key).expect("65 bytes fit");
    public_to_der(&SigningKey { scheme: Scheme::Sm2, key }).expect("65 bytes")
}

/// All backends with and without tables for `keys`.
fn verifiers(keys: &[PublicKey]) -> Vec<(String, Verifier)> {
    let mut all = vec![];
    for backend in [Backend::Portable, Backend::Scalar, Backend::Ifma] {
        if !backend.is_available() {
            report(&format!("NOT COMPARED: this processor has no {}", backend.name()));
            continue;
        }
        for tables in [0, 256] {
            let mut verifier = Verifier::new(backend, UserId::default(), tables).unwrap();
            keys.iter().for_each(|key| verifier.learn(key));
            all.push((format!("{} with {tables} tables", backend.name()), verifier));
        }
    }
    all
}

/// The first seed of the cases: other seeds make other cases (`TERCIO_SM2_SEED`).
fn seed() -> u64 {
    std::env::var("TERCIO_SM2_SEED").map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn digests_have_one_verdict() {
    /// Each has its own cases and a thread.
    const PARTS: usize = 4;
    let openssl = openssl();
    let mut dice = Dice(seed());
    let keys = Keys::new(&mut dice);
    let (keys, openssl) = (&keys, openssl.as_ref());
    let parts: Vec<Part> = std::thread::scope(|scope| {
        let part = |i| {
            let dice = Dice(dice.next());
            let count = (cases() + i) / PARTS;
            scope.spawn(move || some_digests_have_one_verdict(dice, count, keys, openssl))
        };
        let threads: Vec<_> = (0..PARTS).map(part).collect();
        threads.into_iter().map(|thread| thread.join().expect("no part fails")).collect()
    });
    let sum = |of: fn(&Part) -> usize| parts.iter().map(of).sum::<usize>();
    let (total, good) = (sum(|part| part.total), sum(|part| part.good));
    assert_eq!(total, cases());
    let against = parts[0].against.join(", ");
    let judge = openssl.map_or("no OpenSSL".into(), Libcrypto::version);
    report(&format!(
        "{total} signatures over digests (seed {}, {good} valid): {against}, {judge}: equal",
        seed()
    ));
    let enough = |met: usize, what: &str| {
        assert!(met > total / 100, "the cases are meant to meet equal and opposite points: {met}");
        report(&format!("{met} {what} met equal or opposite points, or infinity"));
    };
    enough(sum(|part| part.unusual), "additions on integers");
    #[cfg(target_arch = "x86_64")]
    if Backend::Ifma.is_available() {
        let met = super::verify::lanes::UNDECIDED.load(std::sync::atomic::Ordering::Relaxed);
        enough(met, "lanes");
    }
}

/// What a part of the cases gave.
struct Part {
    total: usize,
    /// Valid signatures among them.
    good: usize,
    /// Additions on integers that met equal or opposite points, or infinity.
    unusual: usize,
    /// Who judged them.
    against: Vec<String>,
}

fn some_digests_have_one_verdict(
    mut dice: Dice,
    count: usize,
    keys: &Keys,
    openssl: Option<&Libcrypto>,
) -> Part {
    let mut verifiers = verifiers(&keys.all);
    let (mut total, mut good) = (0, 0);
    while total < count {
        // Batches of every size, one and none included.
        let size = [0, 1, 2, 7, 8, 9, 130, 512][dice.below(8)].min(count - total);
        let batch: Vec<Case> = (0..size).map(|_| case(&mut dice, keys)).collect();
        let items: Vec<Prehashed<'_>> = batch
            .iter()
            .map(|case| Prehashed {
                key: &case.key,
                digest: &case.digest,
                signature: &case.signature,
            })
            .collect();
        let expected: Vec<bool> = batch
            .iter()
            .map(|case| {
                let key = PublicKey::from_bytes(&case.key);
                let signature = Signature::from_bytes(&case.signature);
                match (key, signature) {
                    (Ok(key), Ok(signature)) => {
                        super::verify_digest(&key, &case.digest, &signature)
                    }
                    _ => false,
                }
            })
            .collect();
        for (case, verdict) in batch.iter().zip(&expected) {
            assert!(case.expected.is_none_or(|right| right == *verdict), "{:x?}", case.signature);
        }
        for (name, verifier) in &mut verifiers {
            let verdicts = verifier.verify_prehashed(&items);
            for ((case, one), other) in batch.iter().zip(&expected).zip(&verdicts) {
                let Case { key, digest, signature, .. } = case;
                assert_eq!(one, other, "{name}: {key:x?} {digest:x?} {signature:x?}");
            }
            assert_eq!(verdicts.len(), batch.len());
        }
        if let Some(openssl) = openssl {
            for (case, verdict) in batch.iter().zip(&expected) {
                // OpenSSL takes the hybrid form of keys too; we take one form.
                let one_form = case.key[0] == 4;
                let theirs = one_form
                    && openssl.key(&spki(&case.key)).is_some_and(|mut key| {
                        key.verify_digest(&case.digest, &der_of(&case.signature))
                    });
                let Case { key, digest, signature, .. } = case;
                assert_eq!(theirs, *verdict, "OpenSSL: {key:x?} {digest:x?} {signature:x?}");
            }
        }
        total += size;
        good += expected.iter().filter(|verdict| **verdict).count();
    }
    let against = verifiers.into_iter().map(|(name, _)| name).collect();
    Part { total, good, unusual: super::abreast::UNUSUAL.get(), against }
}

#[test]
fn messages_have_one_verdict() {
    let mut dice = Dice(2);
    let keys = Keys::new(&mut dice);
    let mut verifiers = verifiers(&keys.all[20..32]);
    let openssl = openssl();
    let (user, count) = (UserId::default(), cases() / 20);
    let mut total = 0;
    while total < count {
        let size = [1, 3, 64, 300][dice.below(4)].min(count - total);
        let mut parts: Vec<(PublicKey, Vec<u8>, [u8; 64])> = vec![];
        for _ in 0..size {
            let secret = &keys.secrets[dice.below(24)];
            let length = if dice.below(50) == 0 { 5_000 } else { dice.below(200) };
            let mut message = vec![0; length];
            message.iter_mut().for_each(|byte| *byte = dice.next() as u8);
            let signature = secret.sign(&user, &message).to_bytes();
            if dice.below(2) == 0 {
                match message.first_mut() {
                    Some(byte) => *byte ^= 1,
                    None => message.push(0),
                }
            }
            parts.push((*secret.public(), message, signature));
        }
        let items: Vec<Item<'_>> = parts
            .iter()
            .map(|(key, message, signature)| Item { key: key.as_bytes(), message, signature })
            .collect();
        let expected: Vec<bool> = parts
            .iter()
            .map(|(key, message, signature)| {
                let signature = Signature::from_bytes(signature).unwrap();
                super::verify_digest(key, &user.digest(key, message), &signature)
            })
            .collect();
        for (name, verifier) in &mut verifiers {
            assert_eq!(verifier.verify_batch(&items), expected, "{name}");
        }
        if let Some(openssl) = &openssl {
            for ((key, message, signature), verdict) in parts.iter().zip(&expected) {
                let mut key = openssl.key(&spki(key.as_bytes())).expect("a key that we wrote");
                let theirs = key.verify(b"1234567812345678", message, &der_of(signature));
                assert_eq!(theirs, *verdict);
            }
        }
        total += size;
    }
    report(&format!("{total} signatures over messages: equal"));
}

/// What is no signature or no key is bad in every backend, beside good ones in one batch.
#[test]
fn malformed_input_is_bad_and_nothing_else() {
    let mut dice = Dice(3);
    let keys = Keys::new(&mut dice);
    let (user, secret) = (UserId::default(), &keys.secrets[0]);
    let (key, signature) = (*secret.public().as_bytes(), secret.sign(&user, b"m").to_bytes());
    let mut bad: Vec<(Vec<u8>, Vec<u8>)> = vec![];
    // Keys: other lengths, forms and tags, infinity, coordinates not below p or off the curve.
    let mut compressed = key[..33].to_vec();
    compressed[0] = 2 | (key[64] & 1);
    let mut hybrid = key.to_vec();
    hybrid[0] = 6 | (key[64] & 1);
    for wrong in [
        vec![],
        vec![0],
        vec![0; 65],
        key[..64].to_vec(),
        [&key[..], &[0]].concat(),
        compressed,
        hybrid,
    ] {
        bad.push((wrong, signature.to_vec()));
    }
    for edge in edge_numbers() {
        for at in [1, 33] {
            let mut wrong = key.to_vec();
            wrong[at..at + 32].copy_from_slice(&edge);
            bad.push((wrong, signature.to_vec()));
        }
        for at in [0, 32] {
            let mut wrong = signature.to_vec();
            wrong[at..at + 32].copy_from_slice(&edge);
            bad.push((key.to_vec(), wrong));
        }
    }
    // A key whose x is its own plus p, where that fits.
    let small = (1..).find_map(|x| point_at(&[x, 0, 0, 0])).expect("half of all x");
    let wrapped = limbs::add(&small.x.to_limbs(), &P).0;
    let mut not_reduced = *PublicKey::from_point(small).as_bytes();
    not_reduced[1..33].copy_from_slice(&limbs::to_be_bytes(&wrapped));
    bad.push((not_reduced.to_vec(), signature.to_vec()));
    for wrong in [&signature[..63], &[&signature[..], &[0]].concat(), &[]] {
        bad.push((key.to_vec(), wrong.to_vec()));
    }
    let count = bad.len();
    for (name, mut verifier) in verifiers(&keys.all) {
        assert!(verifier.verify_batch(&[]).is_empty());
        let good = Item { key: &key, message: b"m", signature: &signature };
        let mut items = vec![good];
        for (key, signature) in &bad {
            items.extend([Item { key, message: b"m", signature }, good]);
        }
        let verdicts = verifier.verify_batch(&items);
        for (i, verdict) in verdicts.iter().enumerate() {
            assert_eq!(*verdict, i % 2 == 0, "{name}: item {i}");
        }
        for item in items {
            let alone = verifier.verify_batch(&[item]);
            assert_eq!(alone, [item.key == key && item.signature == signature], "{name}");
        }
    }
    report(&format!("{count} malformed keys and signatures: refused everywhere"));
}
