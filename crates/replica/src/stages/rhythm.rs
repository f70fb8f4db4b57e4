//! When to take a snapshot: a function of the chain, so that all replicas have the same ones and a
//! replica that fetches state finds several sources of each.

/// Decides at which checkpoints a snapshot is taken.
///
/// With a step of 2^k bytes, the least such power that is at least the setting and the length of the
/// last snapshot's data, one is taken at the first checkpoint at which the bodies of all blocks together
/// have passed a multiple of the step. So writing snapshots costs no more than writing blocks, and
/// replicas that once differed agree again at the next multiple.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    /// How many checkpoints from one snapshot to the next; 0 for not by their number.
    every: u64,
    /// The least step; 0 for not by bytes.
    bytes: u64,
    checkpoints: u64,
    /// How long the bodies of all blocks are together; behind a state of others, as they say.
    chain_bytes: u64,
    /// The same at the last checkpoint.
    checked: u64,
    /// How long the last snapshot's data were.
    last: u64,
}

impl Rhythm {
    pub(crate) fn new(every: u64, bytes: u64) -> Self {
        Self { every, bytes, checkpoints: 0, chain_bytes: 0, checked: 0, last: 0 }
    }

    /// A block was executed.
    pub(crate) fn block(&mut self, body: usize) {
        self.chain_bytes = self.chain_bytes.saturating_add(body as u64);
    }

    /// A checkpoint is made; whether a snapshot is due with it.
    pub(crate) fn checkpoint(&mut self) -> bool {
        self.checkpoints += 1;
        let by_number = self.every > 0 && self.checkpoints >= self.every;
        let step = self.bytes.max(self.last).checked_next_power_of_two().unwrap_or(u64::MAX);
        let by_bytes = self.bytes > 0 && self.chain_bytes / step > self.checked / step;
        self.checked = self.chain_bytes;
        by_number || by_bytes
    }

    /// A snapshot with `data` bytes was taken; how long the bodies of all blocks up to it
    /// are together.
    pub(crate) fn taken(&mut self, bytes: u64) -> u64 {
        self.checkpoints = 0;
        self.last = bytes;
        self.chain_bytes
    }

    /// The state is that of a snapshot with this many bytes of data now.
    pub(crate) fn restored(&mut self, chain_bytes: u64, bytes: u64) {
        (self.chain_bytes, self.checked) = (chain_bytes, chain_bytes);
        self.taken(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the blocks after which a snapshot is taken, with a checkpoint after each.
    fn run(rhythm: &mut Rhythm, blocks: std::ops::Range<u64>, size: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        for block in blocks {
            rhythm.block(10);
            if rhythm.checkpoint() {
                rhythm.taken(size);
                taken.push(block);
            }
        }
        taken
    }

    #[test]
    fn a_snapshot_costs_no_more_than_the_blocks_before_it() {
        assert_eq!(run(&mut Rhythm::new(0, 100), 0..50, 5), [12, 25, 38]);
        assert_eq!(run(&mut Rhythm::new(0, 100), 0..60, 200), [12, 25, 51]);
        assert_eq!(run(&mut Rhythm::new(3, 0), 0..9, 1), [2, 5, 8]);
        assert_eq!(run(&mut Rhythm::new(0, 0), 0..500, 1), [0; 0]);
    }

    /// Whatever others say that the chain has, it goes on.
    #[test]
    fn no_length_of_the_chain_is_too_much() {
        for chain_bytes in [0, u64::MAX - 15, u64::MAX] {
            let mut rhythm = Rhythm::new(0, 100);
            rhythm.restored(chain_bytes, u64::MAX);
            run(&mut rhythm, 0..40, u64::MAX);
        }
    }

    /// One that comes from a snapshot of another takes the next ones with it, and so does one that
    /// forgot how large the last was.
    #[test]
    fn those_that_differed_agree_again() {
        let mut steady = Rhythm::new(0, 64);
        let first = run(&mut steady, 0..30, 300);
        let mut joined = Rhythm::new(0, 64);
        joined.restored(first[0] * 10 + 10, 300);
        let from = first[0] + 1;
        let mut again = Rhythm::new(0, 64);
        assert_eq!(run(&mut joined, from..300, 300), run(&mut Rhythm { ..steady }, 30..300, 300));
        run(&mut again, 0..30, 9);
        let (steady, again) = (run(&mut steady, 30..300, 300), run(&mut again, 30..300, 300));
        assert!(again.ends_with(&steady[1..]), "{again:?} {steady:?}");
    }
}
