//! Verification: one rule, several backends.
//!
//! What is valid is decided here and in the decoders, once for all backends: a key is a point of
//! the curve in its one encoding, r and s are from 1 to n - 1, r + s is not 0 modulo n, and
//! s G + (r + s) P is a point, not at infinity, whose x is r - e modulo n (GB/T 32918.2, section
//! 7.1). A backend only answers the question about x. No inversion is needed for it: in Jacobian
//! coordinates x = X / Z^2, so X is compared with Z^2 times each number that x may be.

use super::cache::Cache;
use super::comb::{Comb, Form};
use super::field::{Arithmetic, Portable};
use super::integers;
use super::key::{PublicKey, UserId};
use super::point::Affine;
use super::signature::{Equation, Signature};
use crate::many::{HashInput, Start, digest_many};
use crate::sm3::Many;
use std::sync::Arc;
use thiserror::Error;

/// Where the arithmetic runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// 64-bit integers in the compiler's instructions: what [`Self::Scalar`] is on a processor
    /// without MULX.
    Portable,
    /// 64-bit integers, with MULX where the processor has it.
    Scalar,
    /// AVX-512 IFMA, eight signatures in vector lanes.
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
            Self::Portable | Self::Scalar => true,
            Self::Ifma => Engine::ifma().is_some(),
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
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
    Portable,
    #[cfg(target_arch = "x86_64")]
    Mulx(tercio_unsafe_lanes::Mulx),
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

    /// The fastest on 64-bit integers.
    fn scalar() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(mulx) = tercio_unsafe_lanes::Mulx::detect() {
            return Self::Mulx(mulx);
        }
        Self::Portable
    }

    fn form(self) -> Form {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(_) => Form::Vector,
            _ => Form::Scalar,
        }
    }

    /// The answers to questions about x.
    fn answer(self, questions: &[(&Key, &Equation)]) -> Vec<bool> {
        match self {
            Self::Portable => on_integers::<PORTABLE_ABREAST>(questions, Portable),
            #[cfg(target_arch = "x86_64")]
            Self::Mulx(mulx) => on_integers::<MULX_ABREAST>(questions, mulx),
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(ifma) => lanes::answer(ifma, questions),
        }
    }
}

/// How many of a few signatures are interleaved with MULX: more gain little, and hold more than the
/// first cache.
#[cfg(target_arch = "x86_64")]
const MULX_ABREAST: usize = 4;
/// The same in the compiler's instructions, where more gain nothing: the registers run out.
const PORTABLE_ABREAST: usize = 1;

/// Answers questions without and with a table apart, and puts the answers in the questions' order.
fn apart(
    questions: &[(&Key, &Equation)],
    untabled: impl FnOnce(&[(&Affine, &Equation)]) -> Vec<bool>,
    tabled: impl FnOnce(&[(&Comb, &Affine, &Equation)]) -> Vec<bool>,
) -> Vec<bool> {
    let (mut points, mut tables) = (vec![], vec![]);
    for (key, equation) in questions {
        match key {
            Key::Met(key) => points.push((&key.point, *equation)),
            Key::Tabled { comb, key, .. } => tables.push((&**comb, &key.point, *equation)),
        }
    }
    let (mut untabled, mut tabled) = (untabled(&points).into_iter(), tabled(&tables).into_iter());
    let answer = |(key, _): &(&Key, &Equation)| match key {
        Key::Met(_) => untabled.next(),
        Key::Tabled { .. } => tabled.next(),
    };
    questions.iter().map(answer).map(|answer| answer.expect("one answer a question")).collect()
}

fn on_integers<const N: usize>(questions: &[(&Key, &Equation)], by: impl Arithmetic) -> Vec<bool> {
    apart(
        questions,
        |points| integers::with_points::<N>(points, by),
        |tables| {
            let tables: Vec<_> = tables.iter().map(|(comb, _, e)| (*comb, *e)).collect();
            integers::with_tables::<N>(&tables, by)
        },
    )
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

/// Verifies signatures of one user id, and caches tables of keys that it meets often.
#[derive(Clone, Debug)]
pub struct Verifier {
    backend: Backend,
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
            Backend::Portable => Some(Engine::Portable),
            Backend::Scalar => Some(Engine::scalar()),
            Backend::Ifma => Engine::ifma(),
        };
        let engine = engine.ok_or(Unavailable(backend))?;
        Ok(Self { backend, engine, user, cache: Cache::new(tables, engine.form()) })
    }

    /// From how many signatures with tables, or without, a batch on 64-bit integers shares an
    /// inversion for each step of all of them.
    pub const MANY: usize = integers::MANY;
    /// How many share one at most.
    pub const MOST: usize = integers::MOST;

    /// The size of a key's table.
    pub const TABLE_BYTES: usize = Comb::KEY_BYTES;

    /// Where the arithmetic runs.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
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
        let unhashed: Vec<HashInput<'_>> = keys
            .iter()
            .filter_map(|key| match key {
                Some(Key::Met(key)) => Some(HashInput { head, body: &key.as_bytes()[1..] }),
                _ => None,
            })
            .collect();
        let mut hashed = digest_many::<Many>(start, &unhashed).into_iter();
        let zs: Vec<[u8; 32]> = keys
            .iter()
            .map(|key| match key {
                Some(Key::Met(_)) => hashed.next().expect("one digest a key"),
                Some(Key::Tabled { z, .. }) => *z,
                None => [0; 32],
            })
            .collect();
        let (indices, messages): (Vec<usize>, Vec<HashInput<'_>>) = (items.iter().zip(&zs))
            .zip(&keys)
            .enumerate()
            .filter(|(_, (_, key))| key.is_some())
            .map(|(i, ((item, z), _))| (i, HashInput { head: z, body: item.message }))
            .unzip();
        let mut digests = vec![[0; 32]; items.len()];
        for (i, digest) in
            indices.into_iter().zip(digest_many::<Many>(&Start::empty::<Many>(), &messages))
        {
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
        let (mut places, mut equations) = (vec![], vec![]);
        for (i, (key, (signature, digest))) in keys.iter().zip(signed).enumerate() {
            let equation = Signature::from_bytes(signature)
                .ok()
                .and_then(|signature| Equation::new(&signature, digest));
            if let (Some(key), Some(equation)) = (key, equation) {
                places.push(i);
                equations.push((key, equation));
            }
        }
        let questions: Vec<_> = equations.iter().map(|(key, equation)| (*key, equation)).collect();
        for (i, answer) in places.into_iter().zip(self.engine.answer(&questions)) {
            verdicts[i] = answer;
        }
        verdicts
    }
}

/// Whether a signature over a digest is good: one, on 64-bit integers.
#[must_use]
pub fn verify_digest(key: &PublicKey, digest: &[u8; 32], signature: &Signature) -> bool {
    Equation::new(signature, digest).is_some_and(|equation| alone(&key.point, &equation))
}

/// One answer, on 64-bit integers.
fn alone(point: &Affine, equation: &Equation) -> bool {
    let question = [(point, equation)];
    #[cfg(target_arch = "x86_64")]
    if let Some(mulx) = tercio_unsafe_lanes::Mulx::detect() {
        return integers::with_points::<1>(&question, mulx)[0];
    }
    integers::with_points::<1>(&question, Portable)[0]
}

#[cfg(target_arch = "x86_64")]
pub(super) mod lanes {
    //! The question about x, eight at a time.

    use super::{Affine, Comb, Equation, Form, Key, alone, apart};
    use tercio_unsafe_lanes::{Ifma, Job, Key as LaneKey, MONTGOMERY_BITS, Outcome};

    /// How many lanes met a case outside of the formulas: tests show that theirs do.
    #[cfg(test)]
    pub(in crate::sm2) static UNDECIDED: std::sync::atomic::AtomicUsize =
        std::sync::atomic::AtomicUsize::new(0);

    pub(super) fn answer(ifma: Ifma, questions: &[(&Key, &Equation)]) -> Vec<bool> {
        apart(
            questions,
            |points| {
                let keyed = points.iter().map(|(point, equation)| {
                    (LaneKey::Point(Form::Vector.row(point)), *point, *equation)
                });
                check(ifma, Comb::generator_window(Form::Vector), keyed.collect())
            },
            |tables| {
                let keyed = tables.iter().map(|(comb, point, equation)| {
                    (LaneKey::Table(comb.as_lanes()), *point, *equation)
                });
                check(ifma, Comb::generator(Form::Vector), keyed.collect())
            },
        )
    }

    fn check(
        ifma: Ifma,
        generator: &Comb,
        questions: Vec<(LaneKey<'_>, &Affine, &Equation)>,
    ) -> Vec<bool> {
        let jobs: Vec<Job<'_>> = questions
            .iter()
            .map(|(key, _, equation)| Job {
                s: equation.s.to_odd(),
                t: equation.t.to_odd(),
                key: *key,
                x: equation.x().map(|x| x.to_montgomery(MONTGOMERY_BITS)),
            })
            .collect();
        let outcomes = ifma.check(&generator.as_lanes(), &jobs);
        #[cfg(test)]
        UNDECIDED.fetch_add(
            outcomes.iter().filter(|outcome| **outcome == Outcome::Undecided).count(),
            std::sync::atomic::Ordering::Relaxed,
        );
        let decided = |(outcome, (_, point, equation)): (_, &(_, &Affine, &Equation))| match outcome
        {
            Outcome::Equal => true,
            Outcome::Different => false,
            // The code on 64-bit integers has no case that it does not cover. It takes the point,
            // since the table's coordinates have the vector's form.
            Outcome::Undecided => alone(point, equation),
        };
        outcomes.into_iter().zip(&questions).map(decided).collect()
    }
}
