//! What is kept of a block's results: the content of a record of a results file.
//!
//! ```text
//! record  flags: u8 (1 nothing before it was kept, 2 a state follows) | suite: u8
//!         | chained results before the block: 32 B | results root: 32 B | [state: 32 B]
//!         | count: u32 | packages
//! package client: u64 | first number: u64 | digest of its results: 32 B | kept: u8 | [length: u32
//!         | results]
//! ```
//! The digests of its packages make the results root, and results are chained
//! (`R(h) = H(R(h-1) | root [| state])`), so that a certificate above proves each of them.

use bytes::Bytes;
use tercio_crypto::{hash, merkle_root};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite};
use tercio_wire::{DecodeError, Reader, results_digest};

/// The most bytes of results of a package that are kept.
const MAX_KEPT: usize = 1 << 20;
/// The most bytes of results of a block that are kept.
const MAX_BLOCK: usize = 64 << 20;
/// The most packages in a block, as a bound for readers.
const MAX_PACKAGES: usize = 1 << 20;
const FLAG_BASE: u8 = 1;
const FLAG_STATE: u8 = 2;

/// The results of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageResults {
    /// Who asked.
    pub client: ClientId,
    /// The number of its first operation.
    pub first: RequestSeq,
    /// What names its results ([`tercio_wire::results_digest`]).
    pub digest: Digest,
    /// The results, as [`tercio_wire::encode_results`] writes them; none when they are too long to be
    /// kept.
    pub body: Option<Bytes>,
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

    /// Whether results have their digests, and these the root.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        for package in &self.packages {
            let Some(body) = &package.body else { continue };
            let digest = results_digest(self.suite, package.client, package.first, body);
            if digest != Ok(package.digest) {
                return Err("digest of a package's results");
            }
        }
        let digests: Vec<Digest> = self.packages.iter().map(|package| package.digest).collect();
        match merkle_root(self.suite, &digests) == self.root {
            true => Ok(()),
            false => Err("results root"),
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.before, self.root, self.state) == (other.before, other.root, other.state)
    }

    /// These, as others are given them; without results when `stripped`.
    #[must_use]
    pub fn encode(&self, stripped: bool) -> Vec<u8> {
        if !stripped {
            return self.to_record(false);
        }
        let packages = self.packages.iter().cloned();
        let packages = packages.map(|package| PackageResults { body: None, ..package }).collect();
        Self { packages, ..self.clone() }.to_record(false)
    }

    /// Reads what [`Self::encode`] wrote of a block.
    ///
    /// # Errors
    /// When the bytes are no such thing.
    pub fn decode(height: Height, bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::of_record(height.0, bytes).map(|(results, _)| results)
    }

    pub(crate) fn to_record(&self, base: bool) -> Vec<u8> {
        let kept = |package: &PackageResults| package.body.as_ref().map_or(0, Bytes::len);
        let bodies: usize = self.packages.iter().map(kept).sum();
        let mut out = Vec::with_capacity(104 + 53 * self.packages.len() + bodies.min(MAX_BLOCK));
        let state = if self.state.is_some() { FLAG_STATE } else { 0 };
        out.push(state | if base { FLAG_BASE } else { 0 });
        out.push(self.suite.number());
        out.extend_from_slice(&self.before.0);
        out.extend_from_slice(&self.root.0);
        out.extend(self.state.iter().flat_map(|state| state.0));
        out.extend_from_slice(&(self.packages.len() as u32).to_le_bytes());
        let mut room = MAX_BLOCK;
        for PackageResults { client, first, digest, body } in &self.packages {
            out.extend_from_slice(&client.0.to_le_bytes());
            out.extend_from_slice(&first.0.to_le_bytes());
            out.extend_from_slice(&digest.0);
            let body = body.as_ref().filter(|body| body.len() <= MAX_KEPT.min(room));
            out.push(body.is_some().into());
            if let Some(body) = body {
                room -= body.len();
                out.extend_from_slice(&(body.len() as u32).to_le_bytes());
                out.extend_from_slice(body);
            }
        }
        out
    }

    /// Reads what a record of a results file has; also whether nothing before it was kept.
    pub(crate) fn of_record(tag: u64, bytes: &Bytes) -> Result<(Self, bool), DecodeError> {
        const WHAT: &str = "results of a block";
        let mut input = Reader::new(bytes.clone(), Suite::default());
        let (flags, suite) = (input.u8(WHAT)?, input.u8(WHAT)?);
        if flags & !(FLAG_BASE | FLAG_STATE) != 0 {
            return Err(DecodeError::NotCanonical(WHAT));
        }
        let found = u64::from(suite);
        let suite = Suite::from_number(suite).ok_or(DecodeError::Unknown { what: WHAT, found })?;
        let (before, root) = (input.digest(WHAT)?, input.digest(WHAT)?);
        let state = match flags & FLAG_STATE {
            0 => None,
            _ => Some(input.digest(WHAT)?),
        };
        let count = input.count(49, MAX_PACKAGES, WHAT)?;
        let mut packages = Vec::with_capacity(count);
        for _ in 0..count {
            let (client, first) = (ClientId(input.u64(WHAT)?), RequestSeq(input.u64(WHAT)?));
            let digest = input.digest(WHAT)?;
            let body = match input.flag(WHAT)? {
                false => None,
                true => {
                    let len = input.u32(WHAT)? as usize;
                    Some(input.take(len, WHAT)?)
                }
            };
            packages.push(PackageResults { client, first, digest, body });
        }
        input.finish()?;
        let height = Height(tag);
        Ok((Self { height, suite, before, root, state, packages }, flags & FLAG_BASE != 0))
    }
}
