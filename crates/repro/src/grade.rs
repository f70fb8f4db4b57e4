//! Verdicts of what runs gave.
//!
//! The interval of a value is that of a bootstrap: the repetitions are drawn anew, with replacement,
//! all series together, since what was measured in turns belongs together; of each drawing the medians
//! are taken, and of those the value. The interval has 95 % of these values. The drawings come from a
//! generator whose seed is the figure's name, so the same runs always give the same verdict.

use crate::claim::{Claim, Verdict};
use crate::environment::Host;
use crate::figure::{Figure, Needs};
use crate::points::{Measured, Points, X};
use serde::Serialize;
use std::collections::BTreeMap;

/// How often repetitions are drawn anew.
const DRAWINGS: usize = 1000;
/// What part of the values lies below the interval, and above it.
const TAIL: f64 = 0.025;

/// Whether a figure can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can.
    Ready,
    /// Nothing can make it yet: what it waits for.
    Waits(String),
    /// This machine cannot: what it lacks.
    NotHere(String),
}

/// Whether a figure can be made here.
#[must_use]
pub fn state(figure: &Figure, host: &Host) -> State {
    match (&figure.waits, host.lacks(&figure.needs)) {
        (Some(what), _) => State::Waits(what.clone()),
        (None, Some(what)) => State::NotHere(what),
        (None, None) => State::Ready,
    }
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimOutcome {
    /// The comparison.
    pub holds: String,
    /// What it says, in words.
    pub says: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
    /// The value of the medians.
    pub value: Option<f64>,
    /// Where its interval begins.
    pub low: Option<f64>,
    /// Where it ends.
    pub high: Option<f64>,
}

/// A point as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The place on the x axis.
    pub x: X,
    /// The median.
    pub median: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

/// What became of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub id: String,
    /// The verdict: the worst of those claims that can be tested.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
    /// Each claim.
    pub claims: Vec<ClaimOutcome>,
    /// Each series' points.
    pub points: BTreeMap<String, Vec<Point>>,
    /// How often each command was run.
    pub repetitions: usize,
}

impl Outcome {
    /// That of a figure of which there is nothing to grade.
    #[must_use]
    pub fn untested(figure: &Figure, reason: &str) -> Self {
        let claims = figure.claims.iter().map(|claim| untested(claim, reason)).collect();
        Self {
            id: figure.id.clone(),
            verdict: Verdict::NotTestableHere,
            reason: reason.to_owned(),
            claims,
            points: BTreeMap::new(),
            repetitions: 0,
        }
    }
}

fn untested(claim: &Claim, reason: &str) -> ClaimOutcome {
    let waits = claim.waits.as_ref().map(|what| format!("waits for {what}"));
    ClaimOutcome {
        holds: claim.holds.to_string(),
        says: claim.says.clone(),
        verdict: Verdict::NotTestableHere,
        reason: waits.unwrap_or_else(|| reason.to_owned()),
        value: None,
        low: None,
        high: None,
    }
}

/// Grades what the runs of a figure gave on this machine.
#[must_use]
pub fn grade(figure: &Figure, measured: &Measured, host: &Host) -> Outcome {
    if let Err(error) = measured.check() {
        return Outcome::untested(figure, &error.to_string());
    }
    let repetitions = measured.repetitions();
    if repetitions == 0 {
        return Outcome::untested(figure, "nothing was measured");
    }
    let medians = measured.medians(&(0..repetitions).collect::<Vec<_>>());
    let mut random = Random::of(&figure.id);
    let drawn: Vec<Points> = (0..DRAWINGS)
        .map(|_| {
            measured
                .medians(&(0..repetitions).map(|_| random.below(repetitions)).collect::<Vec<_>>())
        })
        .collect();
    let claims: Vec<_> =
        figure.claims.iter().map(|claim| grade_claim(claim, host, (&medians, &drawn))).collect();
    let tested = || claims.iter().filter(|claim| claim.verdict != Verdict::NotTestableHere);
    let worst = tested().max_by_key(|claim| claim.verdict);
    let verdict = worst.map_or(Verdict::NotTestableHere, |claim| claim.verdict);
    let reason = match worst {
        Some(claim) => format!("{}: {}", claim.holds, claim.reason),
        None => claims.first().map_or_else(
            || "the publication claims nothing that could be compared".to_owned(),
            |claim| claim.reason.clone(),
        ),
    };
    Outcome {
        id: figure.id.clone(),
        verdict,
        reason,
        points: points(&medians, &drawn),
        claims,
        repetitions,
    }
}

fn grade_claim(claim: &Claim, host: &Host, (medians, drawn): (&Points, &[Points])) -> ClaimOutcome {
    let lacks = host.lacks(&Needs { cores: claim.cores, ..Needs::default() });
    if let Some(lacks) = lacks.or_else(|| claim.waits.clone()) {
        return untested(claim, &lacks);
    }
    let value = match claim.holds.value(medians) {
        Ok(value) => value,
        Err(error) => return untested(claim, &error.to_string()),
    };
    let values = drawn.iter().filter_map(|points| claim.holds.value(points).ok()).collect();
    let (low, high) = interval(values);
    let (verdict, reason) = claim.judge(value, (low, high));
    ClaimOutcome {
        holds: claim.holds.to_string(),
        says: claim.says.clone(),
        verdict,
        reason,
        value: Some(value),
        low: Some(low),
        high: Some(high),
    }
}

fn points(medians: &Points, drawn: &[Points]) -> BTreeMap<String, Vec<Point>> {
    let of = |(name, points): (&String, &Vec<(X, f64)>)| {
        let point = |(i, (x, y)): (usize, &(X, f64))| {
            let (low, high) = interval(drawn.iter().map(|points| points[name][i].1).collect());
            Point { x: x.clone(), median: *y, low, high }
        };
        (name.clone(), points.iter().enumerate().map(point).collect())
    };
    medians.iter().map(of).collect()
}

/// Where all but the tails lie; of no values it is no number.
fn interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return (f64::NAN, f64::NAN) };
    let tail = (last as f64 * TAIL).floor() as usize;
    (values[tail], values[last - tail])
}

/// SplitMix64: small, and good enough to draw from.
struct Random(u64);

impl Random {
    /// Its seed is a hash of the text (FNV-1a).
    fn of(text: &str) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(claims: &str) -> Figure {
        let text = format!(
            "seed = \"000\"\nitem = \"i\"\ntitle = \"t\"\npublished = \"p\"\n\
             [runs]\ncost_s = 1\nquick_cost_s = 1\n[x]\nlabel = \"x\"\nvalues = [1, 2]\n\
             [y]\nlabel = \"y\"\n\
             [[series]]\nname = \"a\"\ncommand = \"{{x}}\"\nvalue = \"v\"\n\
             [[series]]\nname = \"b\"\ncommand = \"b {{x}}\"\nvalue = \"v\"\n{claims}"
        );
        Figure::parse("000-made-up.toml", &text).unwrap()
    }

    const HOST: Host = Host { cores: 2, memory_gb: 8, root: false, gpu: false, path: vec![] };

    const RATIO: &str = "[[claim]]\nholds = 'at(\"a\", 2) / at(\"b\", 2) >= 2'\n\
                         tolerance_percent = 15\ntrend = 1\n";

    /// Five repetitions: the second value of `a` is these.
    fn measured(of_a: [f64; 5]) -> Measured {
        let mut measured = Measured::default();
        for (repetition, a) in of_a.into_iter().enumerate() {
            let noise = 1.0 + repetition as f64 / 1000.0;
            measured.add("a", repetition, vec![(X::Number(1.0), 1.0), (X::Number(2.0), a)]);
            measured.add("b", repetition, vec![(X::Number(1.0), 1.0), (X::Number(2.0), noise)]);
        }
        measured
    }

    #[test]
    fn made_up_data_reaches_each_verdict() {
        let figure = figure(RATIO);
        for (of_a, verdict, reason) in [
            ([2.1, 2.0, 1.9, 2.2, 2.0], Verdict::Reproduced, "all of it at least 1.700"),
            ([1.5, 1.4, 1.6, 1.3, 1.5], Verdict::TrendOnly, "it is not, but all above 1.000"),
            ([2.1, 1.3, 2.0, 1.4, 2.0], Verdict::TrendOnly, "the median is, the interval is not"),
            ([1.0, 0.9, 1.1, 0.8, 0.9], Verdict::NotReproduced, "it is not"),
        ] {
            let outcome = grade(&figure, &measured(of_a), &HOST);
            assert_eq!(outcome.verdict, verdict, "{of_a:?}: {}", outcome.reason);
            assert!(outcome.reason.contains(reason), "{}", outcome.reason);
            assert_eq!(
                outcome,
                grade(&figure, &measured(of_a), &HOST),
                "the same runs, the same verdict"
            );
        }
        let outcome = grade(&figure, &Measured::default(), &HOST);
        assert_eq!(
            (outcome.verdict, &*outcome.reason),
            (Verdict::NotTestableHere, "nothing was measured")
        );
    }

    #[test]
    fn the_worst_claim_that_can_be_tested_counts() {
        let order = "[[claim]]\nholds = 'fall(\"a\") <= 1'\n";
        let waits = "[[claim]]\nholds = 'max(\"Java\") <= 1'\nwaits = \"a Java peer\"\n";
        let of_a = [2.1, 2.0, 1.9, 2.2, 2.0];
        let outcome = grade(&figure(&[RATIO, order, waits].concat()), &measured(of_a), &HOST);
        let verdicts: Vec<_> = outcome.claims.iter().map(|claim| claim.verdict).collect();
        use Verdict::{NotReproduced, NotTestableHere, Reproduced};
        assert_eq!(verdicts, [Reproduced, NotReproduced, NotTestableHere]);
        assert_eq!(outcome.verdict, NotReproduced);
        assert!(outcome.reason.starts_with("fall(\"a\") <= 1: "), "{}", outcome.reason);
        let cores = "[[claim]]\nholds = 'max(\"a\") <= 1'\ncores = 8\n";
        let outcome = grade(&figure(cores), &measured(of_a), &HOST);
        assert_eq!(outcome.reason, "this machine lacks 8 cores (there are 2)");
        let outcome = grade(&figure(waits), &measured(of_a), &HOST);
        assert_eq!(outcome.verdict, NotTestableHere);
        assert_eq!(outcome.reason, "waits for a Java peer");
        assert_eq!(grade(&figure(""), &measured(of_a), &HOST).verdict, NotTestableHere);
    }

    #[test]
    fn runs_that_were_cut_off_are_not_graded() {
        let mut measured = measured([2.0; 5]);
        measured.add("a", 5, vec![(X::Number(1.0), 1.0)]);
        let outcome = grade(&figure(RATIO), &measured, &HOST);
        assert_eq!(outcome.verdict, Verdict::NotTestableHere);
        assert!(outcome.reason.contains("different numbers of points"), "{}", outcome.reason);
    }

    #[test]
    fn intervals_are_of_medians_and_narrower_than_the_runs() {
        let outcome = grade(&figure(RATIO), &measured([1.0, 2.0, 2.0, 2.0, 9.0]), &HOST);
        let point = &outcome.points["a"][1];
        assert_eq!((point.median, outcome.repetitions), (2.0, 5));
        assert!(point.low >= 1.0 && point.high <= 9.0 && point.low <= 2.0, "{point:?}");
        let one = interval(vec![3.0]);
        assert_eq!(one, (3.0, 3.0));
        assert_eq!(interval((0..1001).map(f64::from).collect()), (25.0, 975.0));
        let mut random = Random::of("x");
        let drawn: Vec<_> = (0..1000).map(|_| random.below(5)).collect();
        assert!((0..5).all(|n| (150..250).contains(&drawn.iter().filter(|d| **d == n).count())));
    }
}
