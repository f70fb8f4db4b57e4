//! What many runs gave together, and whether they met enough trouble.

use tercio_sim::Tally;
use tercio_sim::run::{Failure, Report};
use tercio_types::Suite;

/// One seed of this many plays in a network of SM2 and SM3, whose signatures cost more.
pub(crate) const NATIONAL: u64 = 25;
/// From this many seeds on the totals are demanded.
pub(crate) const FULL_RUN: u64 = 1000;
/// How many of the seeds are run twice.
pub(crate) const TWICE: u64 = 20;

/// What a full run must have met of each kind.
const WANTED: &[(&str, u64)] = &[
    ("view_changes", 500),
    ("restarts", 500),
    ("equivocations", 200),
    ("lost_disks", 100),
    ("disk_failures", 50),
    ("split_commits", 5000),
    ("holes", 500),
    ("media_faults", 100),
    ("replaced_disks", 20),
    ("gone_for_good", 300),
    ("colluders", 300),
    ("false_answers", 5),
    ("own_links", 5000),
    ("long_operations", 50),
    ("reads", 2000),
    ("queries", 2000),
    ("clients_added", 100),
];

/// What all runs gave together.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) national: u64,
    pub(crate) events: u64,
    pub(crate) met: Tally,
    pub(crate) twice: u64,
    pub(crate) failures: Vec<Failure>,
}

impl Totals {
    /// Takes in what came of a run.
    pub(crate) fn add(&mut self, suite: Suite, outcome: Result<Report, Box<Failure>>) {
        self.runs += 1;
        self.national += u64::from(suite == Suite::Sm3Sm2);
        match outcome {
            Ok(report) => {
                self.events += report.events;
                self.met += report.tally;
            }
            Err(failure) => self.failures.push(*failure),
        }
    }

    /// What a full run must have met, and did not.
    pub(crate) fn missing(&self) -> Vec<String> {
        let others = [
            ("networks of SM2 and SM3", self.national, FULL_RUN / NATIONAL / 2),
            ("seeds run twice", self.twice, TWICE),
        ];
        let met = self.met.named();
        let met = WANTED.iter().map(|(key, least)| {
            let found = met.iter().find(|(name, ..)| name == key);
            let (_, what, found) = found.expect("a count of this key");
            (*what, *found, *least)
        });
        let short = met.chain(others).filter(|(_, found, least)| found < least);
        short
            .map(|(what, found, least)| format!("{found} {what}, at least {least} wanted"))
            .collect()
    }

    /// All counts in a line.
    pub(crate) fn line(&self, sizes: &[usize]) -> String {
        let met = self.met.named();
        let met: Vec<_> = met.iter().map(|(_, what, count)| format!("{count} {what}")).collect();
        format!(
            "{} runs over n = {sizes:?} ({} sm3-sm2): {} events, {}, {} seeds run twice with equal \
             traces, {} failed",
            self.runs,
            self.national,
            self.events,
            met.join(", "),
            self.twice,
            self.failures.len()
        )
    }

    /// All counts as one object.
    pub(crate) fn json(&self, sizes: &[usize], missing: &[String]) -> serde_json::Value {
        let failed: Vec<u64> = self.failures.iter().map(|failure| failure.seed).collect();
        let mut object = serde_json::json!({
            "runs": self.runs,
            "n": sizes,
            "sm3_sm2": self.national,
            "events": self.events,
            "run_twice": self.twice,
            "failed": failed,
            "missing": missing,
        });
        for (key, _, count) in self.met.named() {
            object[key] = count.into();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_that_is_wanted_is_missed() {
        let mut totals = Totals::default();
        assert_eq!(totals.missing().len(), WANTED.len() + 2, "{:?}", totals.missing());
        (totals.twice, totals.national) = (TWICE, FULL_RUN);
        totals.met.view_changes = 500;
        assert_eq!(totals.missing().len(), WANTED.len() - 1);
    }
}
