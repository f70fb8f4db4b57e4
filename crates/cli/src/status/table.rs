//! What `status --watch` shows: a table that fits a terminal of 80 columns.

use super::state::State;
use super::{Report, Row, seconds};
use crate::output;
use std::collections::BTreeMap;
use tercio_bench::figures::round;

/// The widest line.
const COLUMNS: usize = 80;

/// What each replica had done at the last look.
#[derive(Default)]
pub(super) struct Rates {
    /// When its report was written, and its height then.
    last: BTreeMap<u16, (u64, u64)>,
}

impl Rates {
    /// How many blocks in a second it made since the last look; none at the first.
    pub(super) fn of(&mut self, state: &State) -> Option<f64> {
        let report = state.report()?;
        let (at, height) = (report.written_unix_ms, report.height);
        let (then, before) = self.last.insert(report.id, (at, height))?;
        let ms = at.checked_sub(then).filter(|ms| *ms > 0)?;
        Some(round(height.saturating_sub(before) as f64 * 1e3 / ms as f64, 1))
    }
}

pub(super) fn print(report: &Report) {
    lines(report).iter().for_each(|line| output::line(line));
}

fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![columns(
        ["replica", "state", "height", "blocks/s", "view", "waiting", "oldest", "progress", "MB"]
            .map(str::to_owned),
    )];
    lines.extend(report.replicas.iter().map(row));
    lines.extend(report.network.sentences.iter().flat_map(|sentence| folded(sentence)));
    lines
}

fn row(row: &Row) -> String {
    let mut cells = <[String; 9]>::default();
    (cells[0], cells[1]) = (row.id.to_string(), row.state.word().to_owned());
    if let Some(r) = row.state.report() {
        let rate = row.blocks_per_s.map_or_else(String::new, |rate| format!("{rate:.1}"));
        let oldest = r.oldest_pending_ms.map_or_else(String::new, seconds);
        (cells[2], cells[3], cells[4]) = (r.height.to_string(), rate, r.view.to_string());
        (cells[5], cells[6], cells[7]) = (r.pending.to_string(), oldest, seconds(r.progress_ms));
        cells[8] = format!("{:.0}", r.rss_mb);
    }
    columns(cells)
}

/// Nine cells: two to the left and the numbers to the right.
fn columns([id, state, height, rate, view, pending, oldest, progress, mb]: [String; 9]) -> String {
    let line = format!(
        "{id:<7} {state:<11} {height:>10} {rate:>9} {view:>6} {pending:>7} {oldest:>7} \
         {progress:>8} {mb:>6}"
    );
    line.trim_end().to_owned()
}

/// A sentence in lines of [`COLUMNS`], broken between words, those after the first set in.
fn folded(sentence: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::network::Network;
    use super::*;
    use tercio_replica::report::ReplicaReport;

    fn up(id: u16, written_unix_ms: u64, height: u64) -> State {
        State::Up(Box::new(ReplicaReport {
            id,
            written_unix_ms,
            height,
            ..ReplicaReport::default()
        }))
    }

    #[test]
    fn rates_are_from_one_look_to_the_next() {
        let mut rates = Rates::default();
        assert_eq!(rates.of(&up(0, 1000, 50)), None);
        assert_eq!(rates.of(&up(0, 1000, 50)), None, "the same report");
        assert_eq!(rates.of(&up(0, 3000, 75)), Some(12.5));
        assert_eq!(rates.of(&up(1, 3000, 75)), None, "each has its own");
    }

    #[test]
    fn it_has_a_header_and_fits_eighty_columns() {
        let long = ReplicaReport {
            id: 99,
            height: 9_999_999_999,
            view: 999_999,
            pending: 65_536,
            oldest_pending_ms: Some(599_000),
            progress_ms: 3_600_000,
            learning: Some("learner, since its log was lost: votes again in a later view".into()),
            rss_mb: 99_999.0,
            ..ReplicaReport::default()
        };
        let row = |state: State| Row {
            id: 99,
            address: String::new(),
            role: state.role(),
            blocks_per_s: Some(12_345.6),
            state,
        };
        let silent = State::Silent { since_ms: 3000, pid: 77, height: 7 };
        let sentence = "replica 99 is somewhere and does what nobody can say in a few words";
        let report = Report {
            name: "net".into(),
            protocol: "pbft",
            faults: "byzantine",
            replicas: vec![row(State::Up(Box::new(long))), row(silent)],
            network: Network {
                n: 2,
                f: 0,
                quorum: 2,
                voting: 0,
                executing: 0,
                may_fail: 0,
                works: false,
                sentences: vec![[sentence; 4].join(", ")],
            },
        };
        let lines = lines(&report);
        assert!(
            lines[0].starts_with("replica state") && lines[0].contains("blocks/s"),
            "{lines:#?}"
        );
        assert!(lines[1].contains("learner") && lines[1].contains("12345.6"), "{lines:#?}");
        assert_eq!(lines[2], "99      silent");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:#?}");
        assert_eq!(lines.len(), 3 + 4, "{lines:#?}");
        assert!(lines[4].starts_with("  "), "{lines:#?}");
    }
}
