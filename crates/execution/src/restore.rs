//! Snapshots of the engine: what is in one, and going to the state of one.
//!
//! Labels start with a byte that says whose the chunk is. What follows is the label in the tree of
//! that part: the checkpoint's `state` is the root over the application's chunks, its `clients` over
//! the client table's; the engine's single chunk follows from its `results`.

use crate::client_table::ClientTable;
use crate::execution::{Execution, Lagged, Late};
use crate::{AppError, Snapshot};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tercio_crypto::hash;
use tercio_types::{Checkpoint, Digest, EMPTY_ROOT, Membership, Suite};
use tercio_wire::{DecodeError, Reader};
use thiserror::Error;

/// The first byte of the labels of the application's chunks.
pub const APP: u8 = b'a';
/// The first byte of the labels of the client table's chunks.
pub const CLIENT: u8 = b'c';
/// The label of the engine's own chunk.
pub const ENGINE: u8 = b'e';

/// Why a snapshot was not restored. The engine is of no use then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A label is unknown, missing, or not above the one before.
    #[error("snapshot label {0:02x?} is out of place")]
    Label(Bytes),
    /// The snapshot has no engine chunk.
    #[error("the snapshot has no engine chunk")]
    NoEngine,
    /// A chunk cannot be read.
    #[error("snapshot chunk: {0}")]
    Chunk(#[from] DecodeError),
    /// The application refused its chunks.
    #[error("application: {0}")]
    Application(#[from] AppError),
    /// What was restored is not what the checkpoint names.
    #[error("{what} is {found}, but the checkpoint has {expected}")]
    Mismatch {
        /// Which part.
        what: &'static str,
        /// The checkpoint's digest or number.
        expected: String,
        /// What the snapshot gives.
        found: String,
    },
}

impl Execution {
    /// All that [`Self::restore`] needs beside the checkpoint of the same moment, as labelled
    /// chunks.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut engine = Vec::new();
        if self.lag > 0 {
            engine.extend_from_slice(&self.before_lagged.0);
        }
        for block in &self.lagged {
            engine.extend_from_slice(&block.root.0);
            engine.extend_from_slice(&block.late.state.0);
        }
        let (app, clients) = (self.executor.snapshot(), self.clients.snapshot());
        let bytes = app.bytes() + clients.bytes() + engine.len() as u64;
        let label = |kind: u8, rest: &[u8]| Bytes::from([&[kind], rest].concat());
        let app = app.map(move |(rest, chunk)| (label(APP, &rest), chunk));
        let clients = clients.map(move |(rest, chunk)| (label(CLIENT, &rest), chunk));
        let engine = (label(ENGINE, b""), Bytes::from(engine));
        Snapshot::new(bytes, app.chain(clients).chain(std::iter::once(engine)))
    }

    /// Goes to the state of `checkpoint`, which the caller knows to be certified, and of which
    /// `chunks` are the snapshot.
    ///
    /// # Errors
    /// When the chunks do not give the digests that the checkpoint names. The state is unspecified
    /// then, and the caller makes a new engine.
    pub fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        chunks: &[(Bytes, Bytes)],
    ) -> Result<(), RestoreError> {
        expect("epoch", checkpoint.epoch, self.genesis.epoch())?;
        self.clients = ClientTable::new(self.suite);
        let mut app = Vec::new();
        let mut engine = None;
        let mut last: Option<&Bytes> = None;
        for (label, chunk) in chunks {
            let misplaced = || RestoreError::Label(label.clone());
            if last.is_some_and(|last| last >= label) {
                return Err(misplaced());
            }
            last = Some(label);
            match label.first() {
                Some(&APP) => app.push((label.slice(1..), chunk.clone())),
                Some(&CLIENT) => self.clients.restore(&label[1..], chunk)?,
                Some(&ENGINE) if label.len() == 1 => engine = Some(chunk),
                _ => return Err(misplaced()),
            }
        }
        self.restore_results(engine.ok_or(RestoreError::NoEngine)?, checkpoint)?;
        self.executor.restore(&app)?;
        expect("state", checkpoint.state, self.executor.state_digest())?;
        expect("client table", checkpoint.clients, self.clients.digest())?;
        self.restore_membership()?;
        expect("membership", checkpoint.membership, self.membership_digest)?;
        self.seq = checkpoint.seq;
        self.height = checkpoint.height;
        self.block = checkpoint.block;
        self.time = checkpoint.time;
        Ok(())
    }

    /// The genesis' membership with the clients that the table says were added.
    fn restore_membership(&mut self) -> Result<(), RestoreError> {
        let mut membership = Membership::clone(&self.genesis);
        for (client, info) in self.clients.added() {
            if membership.next_client() != Some(client) {
                return Err(DecodeError::NotCanonical("added clients").into());
            }
            membership = membership.with_client(info.clone());
        }
        self.set_membership(Arc::new(membership));
        Ok(())
    }

    fn restore_results(&mut self, chunk: &Bytes, to: &Checkpoint) -> Result<(), RestoreError> {
        let chained = chained_results(self.suite, self.lag, to, chunk)?;
        (self.before_lagged, self.lagged, self.results) = chained;
        expect("results", to.results, self.results)
    }
}

/// The chained results before the last `lag` blocks, those blocks, and the results after them, as
/// an engine's chunk has them.
fn chained_results(
    suite: Suite,
    lag: u16,
    to: &Checkpoint,
    chunk: &Bytes,
) -> Result<(Digest, VecDeque<Lagged>, Digest), DecodeError> {
    const WHAT: &str = "engine chunk";
    let mut input = Reader::new(chunk.clone(), suite);
    // Without a lag the checkpoint has it all.
    let mut results = if lag == 0 { to.results } else { input.digest(WHAT)? };
    let before = if lag == 0 { EMPTY_ROOT } else { results };
    let mut lagged = VecDeque::new();
    for _ in 0..to.height.0.min(lag.into()) {
        let (root, state) = (input.digest(WHAT)?, input.digest(WHAT)?);
        results = hash(suite, &[&results.0, &root.0, &state.0]);
        lagged.push_back(Lagged { root, late: Late { results, state } });
    }
    input.finish()?;
    Ok((before, lagged, results))
}

/// Whether `chunk` is the engine's own chunk at a certified checkpoint: no tree is over it, but
/// the checkpoint's results follow from it. Empty when headers carry nothing late.
#[must_use]
pub fn engine_chunk_holds(suite: Suite, lag: u16, to: &Checkpoint, chunk: &Bytes) -> bool {
    chained_results(suite, lag, to, chunk).is_ok_and(|(_, _, results)| results == to.results)
}

fn expect<T: PartialEq + ToString>(
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), RestoreError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(RestoreError::Mismatch { what, expected, found })
}
