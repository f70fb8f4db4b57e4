//! What is kept of a block's results: the content of a record of a results file.
//!
//! ```text
//! record  flags: u8 (1 nothing before it was kept, 2 a state follows, 4 always) | suite: u8
//!         | chained results before the block: 32 B | results root: 32 B | [state: 32 B]
//!         | count: u32 | packages | their results, one behind the other
//! package client: u64 | first number: u64 | 1: u8 | length of its results: u32
//!         or, when they are too long to be kept, client: u64 | first number: u64 | 0: u8 | digest: 32 B
//! ```
//! The digests of its packages make the results root, and results are chained
//! (`R(h) = H(R(h-1) | root [| state])`), so that a certificate above proves each of them. The results
//! of a block are one buffer from execution to the file.

use bytes::{Bytes, BytesMut};
use std::ops::Range;
use tercio_crypto::{hash, merkle_root};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite};
use tercio_wire::{DecodeError, Reader, results_digest};

/// The most bytes of results of a package that are kept.
pub(crate) const MAX_KEPT: usize = 1 << 20;
/// The most bytes of results of a block that are kept.
const MAX_BLOCK: usize = 64 << 20;
/// The most packages in a block, as a bound for readers.
const MAX_PACKAGES: usize = 1 << 20;
const FLAG_BASE: u8 = 1;
const FLAG_STATE: u8 = 2;
/// Always set: records of an earlier form, without it, count as lost.
const FLAG_FORM: u8 = 4;

/// The results of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageResults {
    /// Who asked.
    pub client: ClientId,
    /// The number of its first operation.
    pub first: RequestSeq,
    /// What there is of them.
    pub kept: Kept,
}

/// What is kept of a package's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// They stand there in [`BlockResults::bodies`], as [`tercio_wire::encode_results`] writes them.
    Results(Range<usize>),
    /// What names them ([`tercio_wire::results_digest`]): they are too long.
    Digest(Digest),
}

/// The results of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockResults {
    /// The block.
    pub height: Height,
    /// What it is hashed with.
    pub suite: Suite,
    /// The chained results before it.
    pub before: Digest,
    /// Its results root.
    pub root: Digest,
    /// The state after it, where headers carry states.
    pub state: Option<Digest>,
    /// Of each package in order.
    pub packages: Vec<PackageResults>,
    /// The results of all packages, one behind the other.
    pub bodies: Bytes,
}

impl BlockResults {
    /// The chained results after it.
    #[must_use]
    pub fn chained(&self) -> Digest {
        match &self.state {
            None => hash(self.suite, &[&self.before.0, &self.root.0]),
            Some(state) => hash(self.suite, &[&self.before.0, &self.root.0, &state.0]),
        }
    }

    /// The results of a package of it; none when they are too long to be kept.
    #[must_use]
    pub fn body(&self, package: &PackageResults) -> Option<Bytes> {
        match &package.kept {
            Kept::Results(range) => Some(self.bodies.slice(range.clone())),
            Kept::Digest(_) => None,
        }
    }

    /// What names the results of a package of it.
    ///
    /// # Errors
    /// When they are no results.
    pub fn digest(&self, package: &PackageResults) -> Result<Digest, DecodeError> {
        match (&package.kept, self.body(package)) {
            (Kept::Digest(digest), _) => Ok(*digest),
            (_, body) => {
                let body = body.unwrap_or_default();
                results_digest(self.suite, package.client, package.first, &body)
            }
        }
    }

    /// Whether its packages' results have the root.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        let digests = self.packages.iter().map(|package| self.digest(package));
        let digests: Vec<Digest> =
            digests.collect::<Result<_, _>>().map_err(|_| "results of a package")?;
        match merkle_root(self.suite, &digests) == self.root {
            true => Ok(()),
            false => Err("results root"),
        }
    }

    /// Puts other results, or a digest, in the place of package `i`'s.
    ///
    /// # Panics
    /// When there is no such package.
    pub fn replace(&mut self, i: usize, with: Result<&[u8], Digest>) {
        self.packages[i].kept = match with {
            Err(digest) => Kept::Digest(digest),
            Ok(results) => {
                let mut bodies = BytesMut::from(&self.bodies[..]);
                bodies.extend_from_slice(results);
                let from = self.bodies.len();
                self.bodies = bodies.freeze();
                Kept::Results(from..self.bodies.len())
            }
        };
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.before, self.root, self.state) == (other.before, other.root, other.state)
    }

    /// These, as others are given them; without results when `stripped`.
    #[must_use]
    pub fn encode(&self, stripped: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.to_record(false, if stripped { 0 } else { MAX_KEPT }, &mut out);
        out
    }

    /// Reads what [`Self::encode`] wrote of a block.
    ///
    /// # Errors
    /// When the bytes are no such thing.
    pub fn decode(height: Height, bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::of_record(height.0, bytes).map(|(results, _)| results)
    }

    /// Writes the record, with those results that have at most `longest` bytes.
    pub(crate) fn to_record(&self, base: bool, longest: usize, out: &mut Vec<u8>) {
        out.reserve(104 + 21 * self.packages.len() + self.bodies.len().min(MAX_BLOCK));
        let state = if self.state.is_some() { FLAG_STATE } else { 0 };
        out.push(FLAG_FORM | state | if base { FLAG_BASE } else { 0 });
        out.push(self.suite.number());
        out.extend_from_slice(&self.before.0);
        out.extend_from_slice(&self.root.0);
        out.extend(self.state.iter().flat_map(|state| state.0));
        out.extend_from_slice(&(self.packages.len() as u32).to_le_bytes());
        let mut room = MAX_BLOCK;
        // Stretches of `bodies`: one, unless something is left out.
        let mut bodies: Vec<Range<usize>> = Vec::new();
        for package in &self.packages {
            let PackageResults { client, first, kept } = package;
            let mut head = [0; 21];
            head[..8].copy_from_slice(&client.0.to_le_bytes());
            head[8..16].copy_from_slice(&first.0.to_le_bytes());
            match kept {
                Kept::Results(range) if range.len() <= longest.min(room) => {
                    room -= range.len();
                    head[16] = 1;
                    head[17..].copy_from_slice(&(range.len() as u32).to_le_bytes());
                    out.extend_from_slice(&head);
                    match bodies.last_mut() {
                        Some(last) if last.end == range.start => last.end = range.end,
                        _ => bodies.push(range.clone()),
                    }
                }
                _ => {
                    out.extend_from_slice(&head[..17]);
                    let digest = self.digest(package).unwrap_or(Digest::NULL);
                    out.extend_from_slice(&digest.0);
                }
            }
        }
        bodies.into_iter().for_each(|range| out.extend_from_slice(&self.bodies[range]));
    }

    /// Reads what a record of a results file has; also whether nothing before it was kept.
    pub(crate) fn of_record(tag: u64, bytes: &Bytes) -> Result<(Self, bool), DecodeError> {
        const WHAT: &str = "results of a block";
        let mut input = Reader::new(bytes.clone(), Suite::default());
        let (flags, suite) = (input.u8(WHAT)?, input.u8(WHAT)?);
        if flags & !(FLAG_BASE | FLAG_STATE) != FLAG_FORM {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        let found = u64::from(suite);
        let suite = Suite::from_number(suite).ok_or(DecodeError::Unknown { what: WHAT, found })?;
        let (before, root) = (input.digest(WHAT)?, input.digest(WHAT)?);
        let state = match flags & FLAG_STATE {
            0 => None,
            _ => Some(input.digest(WHAT)?),
        };
        let count = input.count(21, MAX_PACKAGES, WHAT)?;
        let mut packages = Vec::with_capacity(count);
        let mut end = 0usize;
        for _ in 0..count {
            let (client, first) = (ClientId(input.u64(WHAT)?), RequestSeq(input.u64(WHAT)?));
            let kept = match input.flag(WHAT)? {
                false => Kept::Digest(input.digest(WHAT)?),
                true => {
                    let from = end;
                    let too_long = DecodeError::NotCanonical(WHAT);
                    end = end.checked_add(input.u32(WHAT)? as usize).ok_or(too_long)?;
                    Kept::Results(from..end)
                }
            };
            packages.push(PackageResults { client, first, kept });
        }
        let bodies = input.take(end, WHAT)?;
        input.finish()?;
        let height = Height(tag);
        let results = Self { height, suite, before, root, state, packages, bodies };
        Ok((results, flags & FLAG_BASE != 0))
    }
}
