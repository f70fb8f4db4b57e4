//! Whether a network keeps up with an open loop (is stable): the backlog must neither grow nor stand.
//!
//! The *backlog* is all that was due by a time and had no result by then, sent or not. It is given
//! as the time in which so much is offered; where as much comes as goes, that is the mean latency
//! (Little's law). It goes up and down, and after a pause of the machine it is long for a while. So it is
//! held against itself three ways:
//!
//! - Its least value in a stretch of time: a network that keeps up comes down to the same value again
//!   and again, one that does not never does, however little it lacks.
//! - Its median in the last third and in the first: a backlog that comes down now and then, and is longer
//!   each time, grows.
//! - Its median of all, by itself: what came together before anything was counted, and does not go away,
//!   is a queue. A network that has room to spare drains it.

use crate::figures::{median, round};
use crate::load::{Outcome, PIECE};
use serde::Serialize;

/// How much longer the backlog may be at the end than at the beginning.
const GROWTH_MS: f64 = 25.0;
/// How long it may stay above that in between.
const HIGH_S: f64 = 10.0;
/// How long half of all that is offered may wait: what a replica lets stand before it pushes back is 60 ms
/// (rule Q1), the rest is for ordering, and for disks.
const DELAY_MS: f64 = 100.0;

/// The backlog of a phase at one rate, looked at ten times a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Backlog {
    /// The least in the first quarter of the phase, in milliseconds of what is offered.
    pub begin_ms: f64,
    /// The least in the last quarter.
    pub end_ms: f64,
    /// The median of all of it.
    pub median_ms: f64,
    /// The median of its last third, less that of its first.
    pub growth_ms: f64,
    /// The greatest.
    pub max_ms: f64,
    /// The longest time in a row in which it was more than 25 ms, and a package of each client,
    /// above `begin_ms`; in seconds.
    pub high_s: f64,
    /// Whether it is kept up with. It came down to where it began: at the end, and at least every ten
    /// seconds; its median is at most 100 ms, and grew by 25 ms at most; each and a package of each
    /// client.
    pub drained: bool,
}

impl Backlog {
    /// The backlog of a phase in which `rate` operations a second were offered, in steps of `step`.
    pub(crate) fn of(outcome: &Outcome, rate: f64, step: f64) -> Self {
        let ms = |ops: f64| ops / rate.max(1e-6) * 1e3;
        let all: Vec<f64> = outcome.pieces.iter().map(|piece| ms(piece.backlog as f64)).collect();
        let quarter = all.len().div_ceil(4);
        let least = |part: &[f64]| part.iter().copied().reduce(f64::min).unwrap_or_default();
        let begin = least(&all[..quarter]);
        let end = least(&all[all.len() - quarter..]);
        let high = begin + GROWTH_MS + ms(step);
        let longest = all.split(|ms| *ms <= high).map(<[f64]>::len).max().unwrap_or(0);
        let high_s = longest as f64 * PIECE.as_secs_f64();
        let (median_ms, third) = (median(&all), all.len().div_ceil(3));
        let growth_ms = median(&all[all.len() - third..]) - median(&all[..third]);
        let low = median_ms <= DELAY_MS + ms(step) && growth_ms <= GROWTH_MS + ms(step);
        Self {
            begin_ms: round(begin, 1),
            end_ms: round(end, 1),
            median_ms: round(median_ms, 1),
            growth_ms: round(growth_ms, 1),
            max_ms: round(all.iter().copied().fold(0.0, f64::max), 1),
            high_s: round(high_s, 1),
            drained: end <= high && high_s <= HIGH_S && low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Piece;

    /// What one sees of a queue that is offered 100,000/s, holds `base_ms` of them when all is well,
    /// and can do `speed(second)` times as much as that.
    fn seen(seconds: f64, base_ms: f64, speed: impl Fn(f64) -> f64) -> Backlog {
        let (mut pieces, mut waits) = (vec![], 0.0f64);
        for i in 0..(seconds * 10.0) as u64 {
            waits = (waits + 100.0 * (1.0 - speed(i as f64 / 10.0))).max(0.0);
            // Whatever happens to be in flight at a moment.
            let noise = (i * 7 % 5) as f64;
            let backlog = ((waits + base_ms + noise) * 100.0) as u64;
            pieces.push(Piece { backlog, ..Piece::default() });
        }
        Backlog::of(&Outcome { pieces, ..Outcome::default() }, 100_000.0, 1.0)
    }

    /// The same of a backlog as it was seen, ten times a second, in milliseconds of what is offered.
    fn of(series: impl IntoIterator<Item = f64>) -> Backlog {
        let piece = |ms: f64| Piece { backlog: (ms * 100.0) as u64, ..Piece::default() };
        let pieces = series.into_iter().map(piece).collect();
        Backlog::of(&Outcome { pieces, ..Outcome::default() }, 100_000.0, 1.0)
    }

    #[test]
    fn a_steady_backlog_is_kept_up_with_when_it_is_short() {
        for base in [5.0, 90.0] {
            let backlog = seen(5.0, base, |_| 1.05);
            assert!(backlog.drained && backlog.high_s == 0.0, "{backlog:?}");
            assert_eq!((backlog.begin_ms, backlog.end_ms), (base, base));
        }
    }

    /// What was there when it began, and did not go away: all that is offered is done, and late.
    #[test]
    fn a_queue_that_stands_is_not_kept_up_with() {
        for ms in [133.0, 180.0, 228.0] {
            let backlog = seen(5.0, ms, |_| 1.0);
            assert!(!backlog.drained && backlog.growth_ms.abs() < 5.0, "{backlog:?}");
        }
        // It becomes no better by a moment in which it was gone.
        let backlog = of((0..50).map(|i| if i % 20 == 19 { 8.0 } else { 150.0 }));
        assert!(!backlog.drained && backlog.end_ms == 8.0, "{backlog:?}");
        // Whoever drains it keeps up.
        let backlog = of((0..50).map(|i| (150.0 - 10.0 * f64::from(i)).max(6.0)));
        assert!(backlog.drained, "{backlog:?}");
    }

    /// Each time that it comes down it rises higher.
    #[test]
    fn a_queue_that_grows_between_its_lows_is_not_kept_up_with() {
        let wave = |i: i32| if i % 6 == 0 { 6.0 } else { 6.0 + 1.5 * f64::from(i) };
        let backlog = of((0..50).map(wave));
        assert_eq!((backlog.begin_ms, backlog.end_ms), (6.0, 6.0));
        assert!(!backlog.drained && backlog.median_ms < 60.0, "{backlog:?}");
        assert!(backlog.growth_ms > 25.0, "{backlog:?}");
    }

    #[test]
    fn one_that_grows_is_not_however_slowly() {
        // What lacks is small enough for 98 % of what is offered to be done in each case.
        for (seconds, lack) in [(2.0, 0.02), (5.0, 0.01), (300.0, 0.001)] {
            let backlog = seen(seconds, 5.0, |_| 1.0 - lack);
            assert!(!backlog.drained && backlog.end_ms > backlog.begin_ms + 25.0, "{backlog:?}");
        }
    }

    /// Five minutes of which one is too slow: at the end all is done, and for minutes it was not.
    #[test]
    fn one_that_is_gone_only_at_the_end_is_not() {
        let slow = |s| if (60.0..120.0).contains(&s) { 0.95 } else { 1.03 };
        let backlog = seen(300.0, 5.0, slow);
        assert_eq!((backlog.begin_ms, backlog.end_ms), (5.0, 5.0));
        assert!(!backlog.drained && backlog.max_ms > 2_900.0, "{backlog:?}");
        assert!(backlog.high_s > 100.0, "{backlog:?}");
    }

    #[test]
    fn a_pause_is_forgiven_once_its_backlog_is_gone() {
        let pause = |at: f64| move |s: f64| if (at..at + 0.2).contains(&s) { 0.0 } else { 1.05 };
        let backlog = seen(8.0, 5.0, pause(2.0));
        assert!(backlog.drained && backlog.max_ms > 200.0, "{backlog:?}");
        assert!((3.0..5.0).contains(&backlog.high_s), "{backlog:?}");
        // Too late to be seen to be gone.
        assert!(!seen(8.0, 5.0, pause(6.0)).drained);
    }

    #[test]
    fn a_package_that_is_due_is_no_backlog() {
        let at = |backlog| Piece { backlog, ..Piece::default() };
        let pieces = [0, 0, 1000, 1000].map(at).to_vec();
        let outcome = Outcome { pieces, ..Outcome::default() };
        assert!(Backlog::of(&outcome, 10_000.0, 1000.0).drained);
        assert!(!Backlog::of(&outcome, 10_000.0, 1.0).drained);
        assert!(Backlog::of(&Outcome::default(), 10_000.0, 1.0).drained);
    }
}
