//! A state at one moment, to be gone through later and on another thread.

use bytes::Bytes;
use std::fmt;

/// A state as labelled chunks in ascending order of label, as it was when this was taken. Chunks are
/// made, or shared, as they are asked for: the reader pays for that, not whoever
/// executes meanwhile.
pub struct Snapshot {
    bytes: u64,
    chunks: Box<dyn Iterator<Item = (Bytes, Bytes)> + Send>,
}

impl Snapshot {
    /// The state that `chunks` gives, whose data are `bytes` long together.
    #[must_use]
    pub fn new(bytes: u64, chunks: impl Iterator<Item = (Bytes, Bytes)> + Send + 'static) -> Self {
        Self { bytes, chunks: Box::new(chunks) }
    }

    /// How long the data of all chunks were together when it was taken; labels do not count.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Iterator for Snapshot {
    type Item = (Bytes, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        self.chunks.next()
    }
}

/// A state whose chunks are all there: of few bytes, or one that came from elsewhere.
impl From<Vec<(Bytes, Bytes)>> for Snapshot {
    fn from(chunks: Vec<(Bytes, Bytes)>) -> Self {
        let bytes = chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum();
        Self::new(bytes, chunks.into_iter())
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
