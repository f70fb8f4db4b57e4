//! What came of a load.

use crate::figures::Recorder;
use std::time::Duration;

/// How long the pieces are in which completions are counted.
pub const PIECE: Duration = Duration::from_millis(100);

/// What came in one [`PIECE`] of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Operations whose results came.
    pub completed: u64,
    /// How long they took from their intended times, together.
    pub taken: Duration,
    /// Operations that waited at its end: due by then, sent or not, and without a result.
    pub backlog: u64,
}

/// What came of a phase.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations whose results came during the phase.
    pub completed: u64,
    /// The same for each tenth of a second of it.
    pub pieces: Vec<Piece>,
    /// The latencies of those that were to be sent during it, from the intended time. Those that
    /// were not sent count with how late they were at the end.
    pub latency: Recorder,
    /// How long the phase was.
    pub elapsed: Duration,
    /// The processor time of the busiest client's thread, as a fraction of the phase.
    pub busiest_client: f64,
    /// Packages that were to be sent during it and were retransmitted because a replica did not
    /// answer.
    pub resent_packages: u64,
    /// The most retransmissions of one package.
    pub most_resent: u32,
    /// Operations that were to be sent during it and have no result.
    pub failed: u64,
    /// The longest time that ended during it in which no result came to any client.
    pub longest_gap: Duration,
}

impl Outcome {
    /// Operations per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The piece of this number.
    pub(super) fn piece(&mut self, number: usize) -> &mut Piece {
        self.pieces.resize(self.pieces.len().max(number + 1), Piece::default());
        &mut self.pieces[number]
    }

    /// This phase and the one after it, as one.
    pub(crate) fn then(&self, next: &Self) -> Self {
        let mut both = self.clone();
        both.merge(&Self { pieces: Vec::new(), ..next.clone() });
        both.pieces.extend_from_slice(&next.pieces);
        both.elapsed = self.elapsed + next.elapsed;
        both
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.pieces.resize(self.pieces.len().max(other.pieces.len()), Piece::default());
        for (all, one) in self.pieces.iter_mut().zip(&other.pieces) {
            all.completed += one.completed;
            all.taken += one.taken;
            all.backlog += one.backlog;
        }
        self.latency.merge(&other.latency);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.busiest_client = self.busiest_client.max(other.busiest_client);
        self.resent_packages += other.resent_packages;
        self.most_resent = self.most_resent.max(other.most_resent);
        self.failed += other.failed;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_add_up() {
        let piece = |n| Piece { completed: n, taken: Duration::from_secs(n), backlog: n };
        let pieces = vec![piece(2), piece(3)];
        let one = Outcome { completed: 5, pieces, failed: 1, ..Outcome::default() };
        let mut all =
            Outcome { completed: 1, pieces: vec![piece(1)], most_resent: 2, ..one.clone() };
        all.merge(&one);
        assert_eq!((all.completed, &all.pieces[..], all.failed), (6, &[piece(3); 2][..], 2));
        assert_eq!(all.most_resent, 2);
        all.elapsed = Duration::from_secs(2);
        let both = all.then(&Outcome { elapsed: Duration::from_secs(1), ..one });
        assert_eq!((both.completed, both.elapsed), (11, Duration::from_secs(3)));
        assert_eq!(both.pieces, [piece(3), piece(3), piece(2), piece(3)]);
    }
}
