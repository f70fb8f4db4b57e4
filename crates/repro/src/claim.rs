//! A claim, and what intervals say about it.

use crate::expression::Expression;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a figure claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The comparison.
    pub holds: Expression,
    /// What part of the bound may be missing.
    pub tolerance: f64,
    /// Beyond this there is an effect, if a smaller one than was published.
    pub trend: Option<f64>,
    /// What it says, in words.
    pub says: Option<String>,
    /// What it cannot be tested without, where the rest of the figure can.
    pub waits: Option<String>,
    /// How many processors it needs, where the rest of the figure may do with fewer.
    pub cores: usize,
}

/// What became of a claim, or of a figure. The worse is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// It holds here.
    #[serde(rename = "REPRODUCED")]
    Reproduced,
    /// The direction holds, the magnitude does not.
    #[serde(rename = "TREND-ONLY")]
    TrendOnly,
    /// It does not hold here.
    #[serde(rename = "NOT-REPRODUCED")]
    NotReproduced,
    /// Nothing can be said.
    #[serde(rename = "NOT-TESTABLE-HERE")]
    NotTestableHere,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Reproduced, Self::TrendOnly, Self::NotReproduced, Self::NotTestableHere];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "REPRODUCED",
            Self::TrendOnly => "TREND-ONLY",
            Self::NotReproduced => "NOT-REPRODUCED",
            Self::NotTestableHere => "NOT-TESTABLE-HERE",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Claim {
    /// What the bound is with its tolerance.
    #[must_use]
    pub fn tolerated(&self) -> f64 {
        let Expression { at_least, bound, .. } = self.holds;
        bound * if at_least { 1.0 - self.tolerance } else { 1.0 + self.tolerance }
    }

    /// The verdict on a median between two ends of an interval, and the reason.
    #[must_use]
    pub fn judge(&self, median: f64, (low, high): (f64, f64)) -> (Verdict, String) {
        // Mirrored, so that more is better.
        let sign = if self.holds.at_least { 1.0 } else { -1.0 };
        let worst = sign * if self.holds.at_least { low } else { high };
        let (bound, median_up) = (sign * self.tolerated(), sign * median);
        let needed = format!(
            "{} {}",
            if self.holds.at_least { "at least" } else { "at most" },
            shown(self.tolerated())
        );
        let found = format!("{} ({} to {})", shown(median), shown(low), shown(high));
        if worst >= bound {
            return (Verdict::Reproduced, format!("{found}, all of it {needed}"));
        }
        let part =
            if median_up >= bound { "the median is, the interval is not" } else { "it is not" };
        match self.trend {
            Some(trend) if worst > sign * trend => {
                let beyond = if self.holds.at_least { "above" } else { "below" };
                let reason =
                    format!("{found}; {needed}: {part}, but all {beyond} {}", shown(trend));
                (Verdict::TrendOnly, reason)
            }
            None if median_up >= bound => {
                (Verdict::TrendOnly, format!("{found}; {needed}: {part}"))
            }
            _ => (Verdict::NotReproduced, format!("{found}; {needed}: {part}")),
        }
    }
}

/// A number to three digits or whole.
pub(crate) fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(holds: &str, tolerance: f64, trend: Option<f64>) -> Claim {
        let holds = Expression::parse(holds).unwrap();
        Claim { holds, tolerance, trend, says: None, waits: None, cores: 0 }
    }

    #[test]
    fn the_interval_decides() {
        use Verdict::{NotReproduced, Reproduced, TrendOnly};
        let ratio = claim("at(\"a\", 1) >= 2", 0.15, Some(1.0));
        let at_most = claim("at(\"a\", 1) <= 0.5", 0.2, Some(1.0));
        let order = claim("rise(\"a\") >= 1", 0.0, None);
        for (claim, median, interval, verdict) in [
            (&ratio, 1.9, (1.7, 2.2), Reproduced),
            (&ratio, 1.9, (1.69, 2.2), TrendOnly),
            (&ratio, 1.3, (1.1, 1.5), TrendOnly),
            (&ratio, 1.3, (0.9, 1.5), NotReproduced),
            (&ratio, 0.8, (0.7, 0.9), NotReproduced),
            (&at_most, 0.55, (0.4, 0.6), Reproduced),
            (&at_most, 0.55, (0.4, 0.7), TrendOnly),
            (&at_most, 0.9, (0.8, 1.01), NotReproduced),
            (&order, 1.2, (1.0, 1.4), Reproduced),
            (&order, 1.2, (0.9, 1.4), TrendOnly),
            (&order, 0.9, (0.8, 1.4), NotReproduced),
        ] {
            let (found, reason) = claim.judge(median, interval);
            assert_eq!(found, verdict, "{} {median} {interval:?}: {reason}", claim.holds);
        }
        let (_, reason) = ratio.judge(1.9, (1.69, 2.2));
        assert!(reason.contains("1.900 (1.690 to 2.200)"), "{reason}");
        assert!(reason.contains("at least 1.700") && reason.contains("above 1.000"), "{reason}");
    }

    #[test]
    fn the_worse_is_the_greater() {
        assert!(Verdict::ALL.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
