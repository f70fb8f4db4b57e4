//! Signatures, one and many, with one verdict a signature.

use crate::agreement::has_ed25519_form;
use crate::scheme::{verify_p256, verify_rsa, verify_secp256k1};
use crate::sm2;
use ed25519_zebra::{Signature, VerificationKey, VerificationKeyBytes, batch};
use getrandom::SysRng;
use rand_core::UnwrapErr;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tercio_types::{PublicKey, Scheme, SignatureBytes, SigningKey};

/// A signature to check.
#[derive(Clone, Copy, Debug)]
pub struct SignatureItem<'a> {
    /// Whose it is said to be.
    pub key: &'a SigningKey,
    /// Over what.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a SignatureBytes,
}

/// Whether the signature is good. Malformed keys and signatures are bad, never an error.
#[must_use]
pub fn verify(item: &SignatureItem<'_>) -> bool {
    let (key, message, signature) =
        (item.key.key.as_slice(), item.message, item.signature.as_slice());
    match item.key.scheme {
        Scheme::Ed25519 => verify_ed25519(key, message, signature),
        Scheme::Sm2 => verify_sm2(key, message, signature),
        Scheme::EcdsaP256 => verify_p256(key, message, signature),
        Scheme::Secp256k1 => verify_secp256k1(key, message, signature),
        Scheme::Rsa2048 => verify_rsa(key, message, signature),
        _ => unreachable!("a scheme is made only from a name that this build knows"),
    }
}

fn verify_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    // The rules of ZIP-215 take every encoding of every point; a key has one form here.
    if !has_ed25519_form(key) {
        return false;
    }
    let Ok(key) = VerificationKey::try_from(key) else { return false };
    let Ok(signature) = Signature::try_from(signature) else { return false };
    key.verify(&signature, message).is_ok()
}

/// The user id of everybody in a network: the usual one.
pub(crate) fn user_id() -> &'static sm2::UserId {
    static USER: OnceLock<sm2::UserId> = OnceLock::new();
    USER.get_or_init(sm2::UserId::default)
}

fn verify_sm2(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = sm2::PublicKey::from_bytes(key) else { return false };
    let Ok(signature) = sm2::Signature::from_bytes(signature) else { return false };
    sm2::verify_digest(&key, &user_id().digest(&key, message), &signature)
}

/// How many signatures were checked, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Signatures.
    pub signatures: u64,
    /// Batches of them.
    pub batches: u64,
    /// How often a signature was computed with, alone or among others. More than
    /// [`Self::signatures`] only where schemes that check many at once met bad ones.
    pub passes: u64,
    /// Signatures beside those that were not checked: they had been found good before, or came
    /// twice at once ([`crate::Keyring::decide`]).
    pub spared: u64,
}

impl std::iter::Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            signatures: sum.signatures + one.signatures,
            batches: sum.batches + one.batches,
            passes: sum.passes + one.passes,
            spared: sum.spared + one.spared,
        })
    }
}

/// The fewest Ed25519 signatures that are cheaper together than one by one.
const TOGETHER: usize = 4;
/// How many signatures of a key are checked one by one after a bad one.
const SUSPECT: u8 = 64;
/// How many such keys are kept.
const SUSPECTS: usize = 256;
/// How many SM2 keys may have tables.
const KEY_TABLES: usize = 256;

/// Checks many signatures, with one verdict a signature, the same that [`verify`] gives. Schemes
/// that have a faster way for many are checked so.
///
/// - SM2: eight in vector lanes. A bad signature is nobody else's matter. Keys that are met often earn
///   tables, which make their next signatures cheaper.
/// - Ed25519: all at once, which only says whether all are good. What holds a bad one is halved
///   until it is found; a half that is good is not looked at again. Whose signature was bad has
///   the next `SUSPECT` checked one by one, so that nobody can spoil batch after batch.
#[derive(Clone, Debug)]
pub struct BatchVerifier {
    backend: sm2::Backend,
    /// Made when it is first needed: its tables take memory.
    sm2: Option<Box<sm2::Verifier>>,
    /// Keys whose signatures are checked one by one, and how many more of them.
    suspects: BTreeMap<PublicKey, u8>,
    checked: Checked,
}

impl Default for BatchVerifier {
    /// On the fastest backend.
    fn default() -> Self {
        Self::new(sm2::Backend::best()).expect("the best backend is available")
    }
}

impl BatchVerifier {
    /// With SM2 on this backend.
    ///
    /// # Errors
    /// When the processor lacks what it needs.
    pub fn new(backend: sm2::Backend) -> Result<Self, sm2::Unavailable> {
        if !backend.is_available() {
            return Err(sm2::Unavailable(backend));
        }
        let (suspects, checked) = (BTreeMap::new(), Checked::default());
        Ok(Self { backend, sm2: None, suspects, checked })
    }

    /// How many signatures were checked, and how.
    #[must_use]
    pub fn checked(&self) -> Checked {
        self.checked
    }

    /// One verdict a signature, in their order.
    #[must_use]
    pub fn verify(&mut self, items: &[SignatureItem<'_>]) -> Vec<bool> {
        let mut verdicts = vec![false; items.len()];
        if items.is_empty() {
            return verdicts;
        }
        self.checked.batches += 1;
        self.checked.signatures += items.len() as u64;
        for scheme in Scheme::ALL {
            let these: Vec<usize> =
                (0..items.len()).filter(|&i| items[i].key.scheme == scheme).collect();
            match scheme {
                Scheme::Ed25519 => self.verify_ed25519(items, these, &mut verdicts),
                Scheme::Sm2 if !these.is_empty() => {
                    self.checked.passes += these.len() as u64;
                    let batch: Vec<_> = these.iter().map(|&i| sm2_item(&items[i])).collect();
                    let found = self.sm2().verify_batch(&batch);
                    these.iter().zip(found).for_each(|(&i, verdict)| verdicts[i] = verdict);
                }
                _ => self.one_by_one(items, &these, &mut verdicts),
            }
        }
        verdicts
    }

    fn sm2(&mut self) -> &mut sm2::Verifier {
        let backend = self.backend;
        self.sm2.get_or_insert_with(|| {
            let made = sm2::Verifier::new(backend, user_id().clone(), KEY_TABLES);
            Box::new(made.expect("the backend is available"))
        })
    }

    fn one_by_one(&mut self, items: &[SignatureItem<'_>], these: &[usize], verdicts: &mut [bool]) {
        self.checked.passes += these.len() as u64;
        these.iter().for_each(|&i| verdicts[i] = verify(&items[i]));
    }

    fn verify_ed25519(
        &mut self,
        items: &[SignatureItem<'_>],
        these: Vec<usize>,
        verdicts: &mut [bool],
    ) {
        let suspect = |&i: &usize| self.suspects.contains_key(&items[i].key.key);
        let (suspected, others): (Vec<_>, Vec<_>) = these.into_iter().partition(suspect);
        self.one_by_one(items, &suspected, verdicts);
        self.halve(items, &others, false, verdicts);
        for i in suspected {
            let key = &items[i].key.key;
            match self.suspects.get_mut(key) {
                Some(left) if *left > 1 => *left -= 1,
                _ => drop(self.suspects.remove(key)),
            }
        }
        for i in (0..items.len()).filter(|&i| items[i].key.scheme == Scheme::Ed25519) {
            let key = &items[i].key.key;
            if !verdicts[i] && (self.suspects.len() < SUSPECTS || self.suspects.contains_key(key)) {
                self.suspects.insert(*key, SUSPECT);
            }
        }
    }

    /// Checks Ed25519 signatures together, and the halves of what does not hold together. `spoilt`
    /// says that there is a bad one among them for certain: they need not be tried. Gives whether
    /// there was one.
    fn halve(
        &mut self,
        items: &[SignatureItem<'_>],
        these: &[usize],
        spoilt: bool,
        verdicts: &mut [bool],
    ) -> bool {
        if these.len() < TOGETHER {
            self.one_by_one(items, these, verdicts);
            return these.iter().any(|&i| !verdicts[i]);
        }
        if !spoilt {
            self.checked.passes += these.len() as u64;
            if all_good(items, these) {
                these.iter().for_each(|&i| verdicts[i] = true);
                return false;
            }
        }
        let (left, right) = these.split_at(these.len() / 2);
        let in_left = self.halve(items, left, false, verdicts);
        self.halve(items, right, !in_left, verdicts);
        true
    }
}

/// As [`BatchVerifier::verify`], without anything to remember.
#[must_use]
pub fn verify_batch(items: &[SignatureItem<'_>]) -> Vec<bool> {
    BatchVerifier::default().verify(items)
}

fn sm2_item<'a>(item: &SignatureItem<'a>) -> sm2::Item<'a> {
    sm2::Item {
        key: item.key.key.as_slice(),
        message: item.message,
        signature: item.signature.as_slice(),
    }
}

/// Whether all of them are good Ed25519 signatures. A good one never fails among others (the
/// equation has the cofactor, as ZIP-215 asks), and a bad one passes with a chance of 2^-128.
fn all_good(items: &[SignatureItem<'_>], these: &[usize]) -> bool {
    let mut verifier = batch::Verifier::new();
    for item in these.iter().map(|&i| &items[i]) {
        if !has_ed25519_form(item.key.key.as_slice()) {
            return false;
        }
        let Ok(key) = VerificationKeyBytes::try_from(item.key.key.as_slice()) else { return false };
        let Ok(signature) = Signature::try_from(item.signature.as_slice()) else { return false };
        verifier.queue((key, signature, &item.message));
    }
    verifier.verify(UnwrapErr(SysRng)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SigningSecret;

    /// Signatures of several signers of a scheme, each over a message of its own.
    struct Signed {
        keys: Vec<SigningKey>,
        messages: Vec<Vec<u8>>,
        signatures: Vec<SignatureBytes>,
    }

    impl Signed {
        fn new(scheme: Scheme, count: usize, signers: usize) -> Self {
            let secrets: Vec<_> =
                (0..signers).map(|_| SigningSecret::generate(scheme).unwrap()).collect();
            let of = |i: usize| &secrets[i % signers];
            let messages: Vec<_> = (0..count).map(|i| vec![i as u8; 100 + i]).collect();
            Self {
                keys: (0..count).map(|i| of(i).public()).collect(),
                signatures: (0..count).map(|i| of(i).sign(&messages[i])).collect(),
                messages,
            }
        }

        fn spoil(&mut self, i: usize) {
            self.messages[i].push(1);
        }

        fn items(&self) -> Vec<SignatureItem<'_>> {
            let item = |i: usize| SignatureItem {
                key: &self.keys[i],
                message: &self.messages[i],
                signature: &self.signatures[i],
            };
            (0..self.keys.len()).map(item).collect()
        }
    }

    fn passes(verifier: &mut BatchVerifier, signed: &Signed) -> (Vec<bool>, u64) {
        let before = verifier.checked().passes;
        let verdicts = verifier.verify(&signed.items());
        (verdicts, verifier.checked().passes - before)
    }

    fn all_but(bad: &[usize], count: usize) -> Vec<bool> {
        (0..count).map(|i| !bad.contains(&i)).collect()
    }

    /// Eight lanes, and each has a verdict of its own: nothing is computed twice.
    #[test]
    fn bad_sm2_signatures_cost_themselves_alone() {
        for bad in [&[][..], &[0], &[13], &[63], &[0, 1, 2, 3, 30, 31, 32, 63]] {
            let mut signed = Signed::new(Scheme::Sm2, 64, 8);
            bad.iter().for_each(|&i| signed.spoil(i));
            let mut verifier = BatchVerifier::default();
            assert_eq!(passes(&mut verifier, &signed), (all_but(bad, 64), 64), "{bad:?}");
            let expected = Checked { signatures: 64, batches: 1, passes: 64, spared: 0 };
            assert_eq!(verifier.checked(), expected);
        }
    }

    /// All of 64 are tried once; what holds the bad one is halved, and its good half is not looked
    /// at again: three looks at each signature at most, and mostly only one of them alone.
    #[test]
    fn a_bad_ed25519_signature_is_found_without_checking_the_good_ones_again() {
        let mut looks = 0;
        for bad in 0..64 {
            let mut signed = Signed::new(Scheme::Ed25519, 64, 8);
            signed.spoil(bad);
            let (verdicts, passes) = passes(&mut BatchVerifier::default(), &signed);
            assert_eq!(verdicts, all_but(&[bad], 64), "{bad}");
            assert!(passes <= 3 * 64, "{bad}: {passes}");
            looks += passes;
        }
        // On the average the bad one is in the left half of each half, or in the right one.
        assert!(looks / 64 <= 64 * 5 / 2, "{}", looks / 64);
    }

    /// Without this a client could have every batch that it is in checked three times over.
    #[test]
    fn whose_signature_was_bad_does_not_spoil_the_next_batches() {
        let mut verifier = BatchVerifier::default();
        let mut signed = Signed::new(Scheme::Ed25519, 64, 64);
        signed.spoil(20);
        assert!(passes(&mut verifier, &signed).1 > 64);
        for _ in 0..usize::from(SUSPECT) + 5 {
            assert_eq!(passes(&mut verifier, &signed), (all_but(&[20], 64), 64));
        }
        // After as many good ones it is one of many again.
        signed.messages[20].pop();
        for _ in 0..SUSPECT {
            assert!(verifier.suspects.contains_key(&signed.keys[20].key));
            assert_eq!(passes(&mut verifier, &signed), (all_but(&[], 64), 64));
        }
        assert!(verifier.suspects.is_empty());
    }

    #[test]
    fn suspects_are_bounded() {
        let mut verifier = BatchVerifier::default();
        let mut signed = Signed::new(Scheme::Ed25519, SUSPECTS + 20, SUSPECTS + 20);
        (0..SUSPECTS + 20).for_each(|i| signed.spoil(i));
        let expected: Vec<_> = (0..SUSPECTS + 20).collect();
        assert_eq!(verifier.verify(&signed.items()), all_but(&expected, SUSPECTS + 20));
        assert_eq!(verifier.suspects.len(), SUSPECTS);
    }

    /// Schemes and backends mixed, batches of none and of one, long messages: the verdict is that
    /// of one signature by itself, everywhere.
    #[test]
    fn verdicts_are_those_of_each_signature_by_itself() {
        let mut all: Vec<_> =
            Scheme::ALL.into_iter().map(|scheme| Signed::new(scheme, 6, 2)).collect();
        for (i, signed) in all.iter_mut().enumerate() {
            signed.spoil(i);
            // Far longer than what is signed here, good and bad.
            let long = SigningSecret::generate(signed.keys[0].scheme).unwrap();
            let message = vec![7; 1 << 20];
            signed.signatures.extend([long.sign(&message), long.sign(b"another")]);
            signed.messages.extend([message.clone(), message]);
            signed.keys.extend([long.public(); 2]);
        }
        let items: Vec<_> = (0..8).flat_map(|i| all.iter().map(move |s| s.items()[i])).collect();
        let expected: Vec<bool> = items.iter().map(verify).collect();
        assert_eq!(expected.iter().filter(|good| !**good).count(), 2 * Scheme::ALL.len());
        let backends = [sm2::Backend::Scalar, sm2::Backend::Ifma];
        for backend in backends.into_iter().filter(|backend| backend.is_available()) {
            let mut verifier = BatchVerifier::new(backend).unwrap();
            assert_eq!(verifier.verify(&items), expected, "{backend:?}");
            for (item, expected) in items.iter().zip(&expected) {
                assert_eq!(verifier.verify(&[*item]), [*expected], "{backend:?}");
            }
            let before = verifier.checked();
            assert_eq!(verifier.verify(&[]), [false; 0]);
            assert_eq!(verifier.checked(), before);
        }
    }
}
