//! Verification: one rule, several backends.
//!
//! What is valid is decided here and in the decoders, once for all backends: a key is a point of
//! the curve in its one encoding, r and s are from 1 to n - 1, r + s is not 0 modulo n, and
//! s G + (r + s) P is a point, not at infinity, whose x is r - e modulo n (GB/T 32918.2, section
//! 7.1). A backend only answers the question about x. No inversion is needed for it: in Jacobian
//! coordinates x = X / Z^2, so X is compared with Z^2 times each number that x may be.

use super::cache::Cache;
use super::comb::{Comb, Form};
use super::key::{PublicKey, UserId};
use super::order::Scalar;
use super::point::{Affine, Jacobian};
use super::signature::{Equation, Signature};
use crate::sm3::{Message, Start, digest_many};
use std::sync::Arc;
use thiserror::Error;

/// Where the arithmetic runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// 64-bit integers, on every processor.
    Scalar,
    /// AVX-512 IFMA, eight signatures abreast.
    Ifma,
}

impl Backend {
    /// The fastest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        if Self::Ifma.is_available() { Self::Ifma } else { Self::Scalar }
    }

    /// Whether this processor has what the backend needs.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Ifma => Engine::ifma().is_some(),
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Ifma => "ifma",
        }
    }
}

/// The processor lacks what a backend needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this processor cannot run the backend '{}'", .0.name())]
pub struct Unavailable(pub Backend);

/// A backend that the processor is known to have.
#[derive(Clone, Copy, Debug)]
enum Engine {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Ifma(tercio_unsafe_lanes::Ifma),
}

impl Engine {
    #[cfg(target_arch = "x86_64")]
    fn ifma() -> Option<Self> {
        tercio_unsafe_lanes::Ifma::detect().map(Self::Ifma)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn ifma() -> Option<Self> {
        None
    }

    fn form(self) -> Form {
        match self {
            Self::Scalar => Form::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(_) => Form::Vector,
        }
    }
}

/// Issues about `count` of the vector backend's multiply instructions and says how many, for
/// measurements; zero where the processor has none.
#[must_use]
pub fn issue_vector_multiplications(count: usize) -> usize {
    match Engine::ifma() {
        #[cfg(target_arch = "x86_64")]
        Some(Engine::Ifma(ifma)) => ifma.issue_multiplications(count),
        _ => 0,
    }
}

/// A signature over a message, as bytes from anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Whose it is said to be: see [`PublicKey::from_bytes`].
    pub key: &'a [u8],
    /// Over what.
    pub message: &'a [u8],
    /// `r || s`: see [`Signature::from_bytes`].
    pub signature: &'a [u8],
}

/// A signature over a digest that was made elsewhere ([`UserId::digest`]).
#[derive(Clone, Copy, Debug)]
pub struct Prehashed<'a> {
    /// As in [`Item`].
    pub key: &'a [u8],
    /// The digest of Z and the message.
    pub digest: &'a [u8; 32],
    /// As in [`Item`].
    pub signature: &'a [u8],
}

/// What is known of an item's key.
#[derive(Clone, Debug)]
enum Key {
    Met(PublicKey),
    Tabled { z: [u8; 32], comb: Arc<Comb>, key: PublicKey },
}

/// Verifies signatures of one user id, and remembers keys that it meets often.
#[derive(Clone, Debug)]
pub struct Verifier {
    engine: Engine,
    user: UserId,
    cache: Cache,
}

impl Default for Verifier {
    /// On the fastest backend, for the usual user id, with room for 256 keys' tables.
    fn default() -> Self {
        let best = Backend::best();
        Self::new(best, UserId::default(), 256).expect("the best backend is available")
    }
}

impl Verifier {
    /// A verifier on a backend, with room for the tables of about `tables` keys, of
    /// [`Self::TABLE_BYTES`] each.
    ///
    /// # Errors
    /// When the processor lacks what the backend needs.
    pub fn new(backend: Backend, user: UserId, tables: usize) -> Result<Self, Unavailable> {
        let engine = match backend {
            Backend::Scalar => Some(Engine::Scalar),
            Backend::Ifma => Engine::ifma(),
        };
        let engine = engine.ok_or(Unavailable(backend))?;
        Ok(Self { engine, user, cache: Cache::new(tables, engine.form()) })
    }

    /// The size of a key's table.
    pub const TABLE_BYTES: usize = Comb::KEY_BYTES;

    /// Where the arithmetic runs.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self.engine {
            Engine::Scalar => Backend::Scalar,
            #[cfg(target_arch = "x86_64")]
            Engine::Ifma(_) => Backend::Ifma,
        }
    }

    /// Makes the table of a key that will be met often, rather than when it has been.
    pub fn learn(&mut self, key: &PublicKey) {
        let z = self.user.z(key);
        self.cache.learn(key, z);
    }

    /// One verdict an item, in their order. Anything malformed is bad; nothing is an error.
    #[must_use]
    pub fn verify_batch(&mut self, items: &[Item<'_>]) -> Vec<bool> {
        let keys: Vec<Option<Key>> = items.iter().map(|item| self.key(item.key)).collect();
        // Z of the keys without a table, all at once; then the digests, all at once.
        let (start, head) = self.user.before_key();
        let unhashed: Vec<Message<'_>> = keys
            .iter()
            .filter_map(|key| match key {
                Some(Key::Met(key)) => Some(Message { head, body: &key.as_bytes()[1..] }),
                _ => None,
            })
            .collect();
        let mut hashed = digest_many(start, &unhashed).into_iter();
        let zs: Vec<[u8; 32]> = keys
            .iter()
            .map(|key| match key {
                Some(Key::Met(_)) => hashed.next().expect("one digest a key"),
                Some(Key::Tabled { z, .. }) => *z,
                None => [0; 32],
            })
            .collect();
        let (indices, messages): (Vec<usize>, Vec<Message<'_>>) = (items.iter().zip(&zs))
            .zip(&keys)
            .enumerate()
            .filter(|(_, (_, key))| key.is_some())
            .map(|(i, ((item, z), _))| (i, Message { head: z, body: item.message }))
            .unzip();
        let mut digests = vec![[0; 32]; items.len()];
        for (i, digest) in indices.into_iter().zip(digest_many(&Start::EMPTY, &messages)) {
            digests[i] = digest;
        }
        let signed = items.iter().zip(&digests).map(|(item, digest)| (item.signature, digest));
        self.decide(&keys, signed)
    }

    /// The same for digests.
    #[must_use]
    pub fn verify_prehashed(&mut self, items: &[Prehashed<'_>]) -> Vec<bool> {
        let keys: Vec<Option<Key>> = items.iter().map(|item| self.key(item.key)).collect();
        self.decide(&keys, items.iter().map(|item| (item.signature, item.digest)))
    }

    /// What is known of a key; nothing when it is malformed.
    fn key(&mut self, bytes: &[u8]) -> Option<Key> {
        let array: &[u8; PublicKey::BYTES] = bytes.try_into().ok()?;
        let tabled = |known: &super::cache::Known| Key::Tabled {
            z: known.z,
            comb: Arc::clone(&known.comb),
            key: known.key,
        };
        if let Some(known) = self.cache.get(array) {
            return Some(tabled(known));
        }
        let key = PublicKey::from_bytes(array).ok()?;
        if self.cache.meet(&key) {
            let z = self.user.z(&key);
            return self.cache.learn(&key, z).map(tabled);
        }
        Some(Key::Met(key))
    }

    fn decide<'a>(
        &self,
        keys: &[Option<Key>],
        signed: impl Iterator<Item = (&'a [u8], &'a [u8; 32])>,
    ) -> Vec<bool> {
        let mut verdicts = vec![false; keys.len()];
        let mut questions: Vec<(usize, &Key, Equation)> = Vec::with_capacity(keys.len());
        for (i, (key, (signature, digest))) in keys.iter().zip(signed).enumerate() {
            let equation = Signature::from_bytes(signature)
                .ok()
                .and_then(|signature| Equation::new(&signature, digest));
            if let (Some(key), Some(equation)) = (key, equation) {
                questions.push((i, key, equation));
            }
        }
        match self.engine {
            Engine::Scalar => {
                for together in questions.chunks(TOGETHER) {
                    let asked: Vec<_> = together.iter().map(|(_, key, e)| (*key, e)).collect();
                    for ((i, ..), holds) in together.iter().zip(hold(&asked)) {
                        verdicts[*i] = holds;
                    }
                }
            }
            #[cfg(target_arch = "x86_64")]
            Engine::Ifma(ifma) => lanes::decide(ifma, &questions, &mut verdicts),
        }
        verdicts
    }
}

/// Whether a signature over a digest is good: the plain path, one at a time.
#[must_use]
pub fn verify_digest(key: &PublicKey, digest: &[u8; 32], signature: &Signature) -> bool {
    Equation::new(signature, digest).is_some_and(|equation| holds(&Key::Met(*key), &equation))
}

/// How many questions share an inversion: enough that its share of each is small, and few enough
/// that their tables stay in the first cache.
const TOGETHER: usize = 32;

/// Width of the digits on a key without a table.
const WIDTH: usize = 5;
/// How many odd multiples of the key they take.
const ODD: usize = 1 << (WIDTH - 2);

/// The question about x, on 64-bit integers.
fn holds(key: &Key, equation: &Equation) -> bool {
    hold(&[(key, equation)])[0]
}

/// The question about x of each.
fn hold(questions: &[(&Key, &Equation)]) -> Vec<bool> {
    let generator = Comb::generator(Form::Scalar);
    let mut multiples = Vec::with_capacity(ODD * questions.len());
    for (key, _) in questions {
        if let Key::Met(key) = key {
            odd_multiples(&key.point, &mut multiples);
        }
    }
    let multiples = Jacobian::to_affine(&multiples);
    let mut of_key = multiples.chunks_exact(ODD);
    let holds = |(key, equation): &(&Key, &Equation)| {
        let sum = match key {
            Key::Met(_) => {
                multiple(of_key.next().expect("each key's multiples were made"), &equation.t)
            }
            Key::Tabled { comb, .. } => comb.add_multiple(Jacobian::INFINITY, &equation.t),
        };
        let sum = generator.add_multiple(sum, &equation.s);
        let zz = sum.z.square();
        !sum.is_infinity() && equation.x().iter().any(|x| x.mul(&zz) == sum.x)
    };
    questions.iter().map(holds).collect()
}

/// Appends P, 3 P, 5 P and so on, [`ODD`] of them.
fn odd_multiples(point: &Affine, multiples: &mut Vec<Jacobian>) {
    let point = Jacobian::from(*point);
    let twice = point.double();
    let next = |sum: &Jacobian| Some(sum.add(&twice));
    multiples.extend(std::iter::successors(Some(point), next).take(ODD));
}

/// `k P` from the odd multiples of P, with signed digits that are odd or zero, most of them zero.
fn multiple(odd: &[Affine], k: &Scalar) -> Jacobian {
    let mut sum = Jacobian::INFINITY;
    for digit in non_adjacent_form::<WIDTH>(k).iter().rev() {
        sum = sum.double();
        match *digit {
            0 => {}
            1.. => sum = sum.add_affine(&odd[usize::from(digit.unsigned_abs() / 2)]),
            _ => sum = sum.add_affine(&odd[usize::from(digit.unsigned_abs() / 2)].neg()),
        }
    }
    sum
}

/// Digits, least significant first, each zero or odd and below 2^(WIDTH - 1) in magnitude, at most
/// one in WIDTH neighbours not zero.
fn non_adjacent_form<const WIDTH: usize>(k: &Scalar) -> [i8; 257] {
    let mut digits = [0; 257];
    let (mut at, mut carry) = (0, 0);
    while at < 257 {
        let bits = super::limbs::bits(k.limbs(), at, WIDTH) + carry;
        if bits & 1 == 0 {
            at += 1;
            continue;
        }
        carry = usize::from(bits >= 1 << (WIDTH - 1));
        digits[at] = (bits as i32 - ((carry as i32) << WIDTH)) as i8;
        at += WIDTH;
    }
    digits
}

#[cfg(target_arch = "x86_64")]
pub(super) mod lanes {
    //! The question about x, eight at a time.

    use super::{Comb, Equation, Form, Key, holds};
    use tercio_unsafe_lanes::{Ifma, Job, Key as LaneKey, MONTGOMERY_BITS, Outcome};

    /// How many lanes met a case outside of the formulas: tests show that theirs do.
    #[cfg(test)]
    pub(in crate::sm2) static UNDECIDED: std::sync::atomic::AtomicUsize =
        std::sync::atomic::AtomicUsize::new(0);

    pub(super) fn decide(ifma: Ifma, questions: &[(usize, &Key, Equation)], verdicts: &mut [bool]) {
        let is_tabled = |key: &Key| matches!(key, Key::Tabled { .. });
        for tabled in [false, true] {
            let chosen: Vec<_> =
                questions.iter().filter(|(_, key, _)| is_tabled(key) == tabled).collect();
            if chosen.is_empty() {
                continue;
            }
            let generator = match tabled {
                true => Comb::generator(Form::Vector),
                false => Comb::generator_window(),
            };
            let jobs: Vec<Job<'_>> = chosen
                .iter()
                .map(|(_, key, equation)| Job {
                    s: equation.s.to_odd(),
                    t: equation.t.to_odd(),
                    key: match key {
                        Key::Met(key) => LaneKey::Point(Form::Vector.row(&key.point)),
                        Key::Tabled { comb, .. } => LaneKey::Table(comb.as_lanes()),
                    },
                    x: equation.x().map(|x| x.to_montgomery(MONTGOMERY_BITS)),
                })
                .collect();
            let outcomes = ifma.check(&generator.as_lanes(), &jobs);
            #[cfg(test)]
            UNDECIDED.fetch_add(
                outcomes.iter().filter(|outcome| **outcome == Outcome::Undecided).count(),
                std::sync::atomic::Ordering::Relaxed,
            );
            for ((i, key, equation), outcome) in chosen.into_iter().zip(outcomes) {
                verdicts[*i] = match (outcome, key) {
                    (Outcome::Equal, _) => true,
                    (Outcome::Different, _) => false,
                    // The scalar code has no case that it does not cover. It takes the point,
                    // since the table's coordinates have the vector's form.
                    (Outcome::Undecided, Key::Met(key) | Key::Tabled { key, .. }) => {
                        holds(&Key::Met(*key), equation)
                    }
                };
            }
        }
    }
}
