//! How far a start is: replaying the log may take long, and nothing else is known meanwhile.

use crate::report::Starting;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tercio_types::Height;

/// How far a start is. Clones are the same one, so that another thread can look on.
#[derive(Clone, Debug, Default)]
pub struct StartProgress(Arc<Heights>);

#[derive(Debug, Default)]
struct Heights {
    from: AtomicU64,
    at: AtomicU64,
    to: AtomicU64,
}

impl StartProgress {
    /// The blocks above `from` are replayed, up to `to`.
    pub(crate) fn begin(&self, from: Height, to: Height) {
        self.0.from.store(from.0, Ordering::Relaxed);
        self.0.at.store(from.0, Ordering::Relaxed);
        self.0.to.store(to.0, Ordering::Relaxed);
    }

    /// The block of this height was.
    pub(crate) fn reach(&self, height: Height) {
        self.0.at.store(height.0, Ordering::Relaxed);
    }

    /// The height that was reached.
    #[must_use]
    pub fn height(&self) -> Height {
        Height(self.0.at.load(Ordering::Relaxed))
    }

    /// How many blocks were replayed, of how many.
    #[must_use]
    pub fn starting(&self) -> Starting {
        let [from, at, to] =
            [&self.0.from, &self.0.at, &self.0.to].map(|height| height.load(Ordering::Relaxed));
        Starting { replayed: at.saturating_sub(from), blocks: to.saturating_sub(from) }
    }
}
