//! What clients of a counter saw, and whether one counter that executes every operation at most once
//! can have told them that.
//!
//! An operation of the counter adds one and gives the total after it, so the totals are the order of
//! execution. A history of operations with results is linearizable if and only if
//!
//! - no two operations have one total (an acknowledged one would be lost), and
//! - one that had its result before another was begun has the smaller total (otherwise the
//!   acknowledged one came later: it was reordered, or forgotten and executed again).
//!
//! Operations without a result may have been executed or not, each once at most. So the count of each
//! client at the end is not below what was acknowledged to it, nor above what it asked for.

use std::time::Duration;
use thiserror::Error;

/// One operation of a recorded client. Times count from the beginning of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// The client, by its place among those that are recorded.
    pub(crate) client: usize,
    /// The operation's number.
    pub(crate) number: u64,
    /// When it was handed to the client.
    pub(crate) invoked: Duration,
    /// When its result came, and the total that it gave; `None` while there is none.
    pub(crate) returned: Option<(Duration, u64)>,
}

/// What the counter said at the end, in ordered reads after everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All operations.
    pub(crate) total: u64,
    /// Those of each recorded client.
    pub(crate) clients: Vec<u64>,
}

/// What no correct counter says.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Wrong {
    #[error(
        "an acknowledged operation was lost: client {} number {} and client {} number {} were both \
         told total {total}", .a.0, .a.1, .b.0, .b.1
    )]
    Lost { total: u64, a: (usize, u64), b: (usize, u64) },
    #[error(
        "acknowledged operations were reordered: client {} number {} was told {} before client {} \
         number {} was begun, which was told {}", .earlier.0, .earlier.1, .totals.0, .later.0, .later.1, .totals.1
    )]
    Reordered { earlier: (usize, u64), later: (usize, u64), totals: (u64, u64) },
    #[error("client {client}: {acknowledged} operations were acknowledged, {counted} are counted")]
    Forgotten { client: usize, acknowledged: u64, counted: u64 },
    #[error(
        "an operation was executed twice: client {client} has {counted}, and it asked for {asked}"
    )]
    Doubled { client: usize, counted: u64, asked: u64 },
    #[error("total {last} was told, and {total} is the total at the end")]
    Shrunk { last: u64, total: u64 },
}

/// Holds a history against the counts at the end, as far as those are known.
///
/// # Errors
/// Names what is wrong first.
pub(crate) fn check(history: &[Op], counts: Option<&Counts>) -> Result<(), Wrong> {
    let mut told: Vec<(u64, Duration, &Op)> =
        history.iter().filter_map(|op| op.returned.map(|(at, total)| (total, at, op))).collect();
    told.sort_by_key(|(total, ..)| *total);
    let name = |op: &Op| (op.client, op.number);
    for pair in told.windows(2) {
        if let [(total, _, a), (other, _, b)] = pair
            && total == other
        {
            return Err(Wrong::Lost { total: *total, a: name(a), b: name(b) });
        }
    }
    // From the last total down: whoever was begun after the earliest return above it is misplaced.
    let mut earliest: Option<(Duration, u64, &Op)> = None;
    for &(total, at, op) in told.iter().rev() {
        if let Some((returned, above, other)) = earliest
            && returned < op.invoked
        {
            let (earlier, later) = (name(other), name(op));
            return Err(Wrong::Reordered { earlier, later, totals: (above, total) });
        }
        if earliest.is_none_or(|(returned, ..)| at < returned) {
            earliest = Some((at, total, op));
        }
    }
    counts.map_or(Ok(()), |counts| check_counts(history, told.last().map_or(0, |l| l.0), counts))
}

fn check_counts(history: &[Op], last: u64, counts: &Counts) -> Result<(), Wrong> {
    if counts.total < last {
        return Err(Wrong::Shrunk { last, total: counts.total });
    }
    for (client, &counted) in counts.clients.iter().enumerate() {
        let mine = || history.iter().filter(|op| op.client == client);
        let asked = mine().count() as u64;
        let acknowledged = mine().filter(|op| op.returned.is_some()).count() as u64;
        if counted < acknowledged {
            return Err(Wrong::Forgotten { client, acknowledged, counted });
        }
        if counted > asked {
            return Err(Wrong::Doubled { client, counted, asked });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(client: usize, number: u64, invoked: u64, returned: Option<(u64, u64)>) -> Op {
        let returned = returned.map(|(at, total)| (Duration::from_millis(at), total));
        Op { client, number, invoked: Duration::from_millis(invoked), returned }
    }

    fn counts(total: u64, clients: &[u64]) -> Counts {
        Counts { total, clients: clients.to_vec() }
    }

    #[test]
    fn what_a_counter_can_say_is_good() {
        let history = [
            op(0, 1, 0, Some((10, 1))),
            // These two overlap: either order is good.
            op(0, 2, 11, Some((30, 4))),
            op(1, 1, 12, Some((25, 3))),
            // No result; it may be total 2 or 5, or none.
            op(1, 2, 5, None),
        ];
        assert_eq!(check(&history, None), Ok(()));
        assert_eq!(check(&history, Some(&counts(4, &[2, 2]))), Ok(()));
        // A client that is not recorded had total 2.
        assert_eq!(check(&history, Some(&counts(4, &[2, 1]))), Ok(()));
        assert_eq!(check(&[], Some(&counts(0, &[]))), Ok(()));
    }

    #[test]
    fn a_lost_operation_is_seen() {
        let twice = [op(0, 1, 0, Some((10, 1))), op(1, 7, 20, Some((30, 1)))];
        assert_eq!(check(&twice, None), Err(Wrong::Lost { total: 1, a: (0, 1), b: (1, 7) }));
        let one = [op(0, 1, 0, Some((10, 1))), op(0, 2, 20, Some((30, 2)))];
        let lost = Wrong::Forgotten { client: 0, acknowledged: 2, counted: 1 };
        assert_eq!(check(&one, Some(&counts(2, &[1]))), Err(lost));
        assert_eq!(check(&one, Some(&counts(1, &[2]))), Err(Wrong::Shrunk { last: 2, total: 1 }));
    }

    #[test]
    fn an_operation_that_was_executed_twice_is_seen() {
        let one = [op(0, 1, 0, Some((10, 1))), op(0, 2, 20, Some((30, 3)))];
        let twice = Wrong::Doubled { client: 0, counted: 3, asked: 2 };
        assert_eq!(check(&one, Some(&counts(3, &[3]))), Err(twice));
    }

    #[test]
    fn real_time_order_is_held_across_clients() {
        let swapped = [op(0, 1, 0, Some((10, 5))), op(1, 1, 11, Some((20, 4)))];
        let wrong = Wrong::Reordered { earlier: (0, 1), later: (1, 1), totals: (5, 4) };
        assert_eq!(check(&swapped, None), Err(wrong));
        let overlapping = [op(0, 1, 0, Some((10, 5))), op(1, 1, 10, Some((20, 4)))];
        assert_eq!(check(&overlapping, None), Ok(()));
    }
}
