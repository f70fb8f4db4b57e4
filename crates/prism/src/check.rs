//! Is a history of GETs, PUTs and DELETEs linearizable? Keys are independent, so each is decided for
//! itself (linearizability is local; Herlihy and Wing, TOPLAS 1990), by the search of Wing and Gong
//! with Lowe's memory of visited states.

use std::collections::BTreeSet;

/// What was done to a key, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Read this value, or none.
    Get(Option<u64>),
    /// Set this value.
    Put(u64),
    /// Removed; says whether there was a value.
    Delete(bool),
}

/// An action with its time. Times of one history are distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was done. Of one that did not return only the kind and the value set count.
    pub act: Act,
    /// When it began.
    pub began: u64,
    /// When it returned. `None`: it never did, and may have taken effect any time later, or not.
    pub returned: Option<u64>,
}

/// The most events of one key.
pub const MAX_EVENTS: usize = 128;

/// Whether the events of one key, which has no value at first, have an order in which each is
/// between its begin and its return and gives what it gave. Gives the number of states that were
/// visited, or nothing when there is no such order.
///
/// # Panics
/// When there are more than [`MAX_EVENTS`].
#[must_use]
pub fn linearizable(events: &[Event]) -> Option<usize> {
    assert!(events.len() <= MAX_EVENTS, "more events than the search has bits for");
    let mut seen = BTreeSet::new();
    let all = events.iter().enumerate().filter(|(_, event)| event.returned.is_some());
    let must: u128 = all.fold(0, |mask, (i, _)| mask | 1 << i);
    let mut stack = vec![(0u128, None::<u64>)];
    while let Some((done, value)) = stack.pop() {
        if done & must == must {
            return Some(seen.len().max(1));
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let open = || events.iter().enumerate().filter(|(i, _)| done >> i & 1 == 0);
        // Whatever comes next began before every other open one returned.
        let limit = open().filter_map(|(_, event)| event.returned).min().unwrap_or(u64::MAX);
        for (i, event) in open().filter(|(_, event)| event.began < limit) {
            let lost = event.returned.is_none();
            let next = match event.act {
                Act::Get(got) if lost || got == value => value,
                Act::Put(new) => Some(new),
                Act::Delete(was) if lost || was == value.is_some() => None,
                _ => continue,
            };
            stack.push((done | 1 << i, next));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(act: Act, began: u64, returned: u64) -> Event {
        Event { act, began, returned: (returned > 0).then_some(returned) }
    }

    #[test]
    fn what_can_be_ordered_is_accepted() {
        let overlapping = [
            event(Act::Put(1), 1, 10),
            event(Act::Get(Some(1)), 2, 3),
            event(Act::Get(None), 4, 5),
        ];
        assert_eq!(linearizable(&overlapping), None, "once read, a value stays until changed");
        let history = [
            event(Act::Put(1), 1, 10),
            event(Act::Get(None), 2, 3),
            event(Act::Get(Some(1)), 4, 5),
            event(Act::Delete(true), 11, 12),
            event(Act::Delete(false), 13, 14),
        ];
        assert!(linearizable(&history).is_some());
    }

    #[test]
    fn an_unfinished_put_may_take_effect_late_or_never() {
        let put = event(Act::Put(7), 1, 0);
        for got in [None, Some(7)] {
            assert!(linearizable(&[put, event(Act::Get(got), 100, 101)]).is_some());
        }
        let back = [put, event(Act::Get(Some(7)), 100, 101), event(Act::Get(None), 102, 103)];
        assert_eq!(linearizable(&back), None);
    }

    #[test]
    fn lost_and_invented_values_are_refused() {
        let lost = [event(Act::Put(1), 1, 2), event(Act::Get(None), 3, 4)];
        assert_eq!(linearizable(&lost), None);
        assert_eq!(linearizable(&[event(Act::Get(Some(9)), 3, 4)]), None);
        let twice =
            [event(Act::Put(1), 1, 2), event(Act::Put(2), 3, 4), event(Act::Get(Some(1)), 5, 6)];
        assert_eq!(linearizable(&twice), None);
    }
}
