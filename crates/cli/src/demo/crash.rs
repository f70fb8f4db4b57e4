//! The crash: half way the primary is killed, later it is started again.

use super::clients::Progress;
use indicatif::ProgressBar;
use serde::Serialize;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};
use tercio_bench::figures::round;
use tercio_network::process::{self, ReplicaProcess};
use tercio_network::{now, pause, poll_until, reports};
use tercio_replica::report::ReplicaReport;

/// How long each step may take before the demonstration is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Over how long the rate is measured that the bar shows.
const SPAN: Duration = Duration::from_millis(500);
/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(20);

/// What the crash came to.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Crash {
    /// The replica that was killed: the primary of that time.
    pub(crate) replica: u16,
    /// How many orders had their result when it was killed.
    pub(crate) at_order: u64,
    /// From the kill until it was started again.
    pub(crate) down_ms: f64,
    /// How many blocks it executed beyond those on its disk until it was level with the others.
    pub(crate) catch_up_blocks: u64,
    /// From its start until it was level with the others.
    pub(crate) catch_up_ms: f64,
    /// Whether orders were still coming then.
    pub(crate) under_load: bool,
}

/// What a replica is started from.
#[derive(Clone, Copy)]
pub(crate) struct Homes<'a> {
    pub(crate) program: &'a Path,
    pub(crate) dir: &'a Path,
}

impl Homes<'_> {
    fn spawn(self, id: u16) -> Result<ReplicaProcess, String> {
        ReplicaProcess::spawn(self.program, id, &tercio_network::home(self.dir, id))
            .map_err(|error| error.to_string())
    }
}

/// Whoever watches over the clients, kills and starts.
pub(crate) struct Watch<'a> {
    pub(crate) progress: &'a Progress,
    /// How many orders there will be, when that is known.
    pub(crate) count: Option<u64>,
    /// How long the clients go on, when it is not.
    pub(crate) time: Duration,
    /// Whether the clients have ended.
    pub(crate) ended: &'a dyn Fn() -> bool,
    pub(crate) bar: &'a ProgressBar,
    pub(crate) rate: Cell<Rate>,
}

/// How many orders have a result in a second, of late.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rate {
    /// When it was measured, and how many had a result then.
    last: Option<(Instant, u64)>,
    per_s: Option<f64>,
}

impl Rate {
    /// Measured over [`SPAN`] at least.
    fn at(self, now: Instant, done: u64) -> Self {
        match self.last {
            Some((then, before)) if now - then >= SPAN => {
                let per_s = done.saturating_sub(before) as f64 / (now - then).as_secs_f64();
                Self { last: Some((now, done)), per_s: Some(per_s) }
            }
            Some(_) => self,
            None => Self { last: Some((now, done)), per_s: None },
        }
    }

    fn text(self) -> String {
        self.per_s.map_or_else(String::new, |per_s| format!("{per_s:.0} orders/s  "))
    }
}

impl Watch<'_> {
    /// Kills the primary half way and starts it again once the others have a new one; returns when
    /// it has caught up and the clients have had their time, or a replica has ended by itself.
    pub(crate) fn run(
        &self,
        replicas: &mut [ReplicaProcess],
        homes: Homes<'_>,
    ) -> Result<Crash, String> {
        let begin = now();
        self.until(replicas, || self.half_way(begin))?;
        // Nobody was killed yet, so that any report of theirs will do: a newer one may come when
        // all orders are done.
        let leader = reports::leader(replicas, &vec![0; replicas.len()])?;
        let victim = usize::from(leader.primary);
        self.bar.set_message(format!("replica {victim}, the primary, is killed"));
        let killed = now();
        let mut crash =
            Crash { replica: leader.primary, at_order: self.progress.done(), ..Crash::default() };
        replicas[victim].kill().map_err(|e| format!("cannot kill replica {victim}: {e}"))?;

        let others = |replicas: &[ReplicaProcess]| {
            let alive = replicas.iter().enumerate().filter(|(i, _)| *i != victim);
            alive.filter_map(|(_, r)| r.report()).collect::<Vec<_>>()
        };
        let done = self.progress.done();
        self.wait(replicas, "elect another primary", |replicas| {
            let moved = self.progress.done() > done || (self.ended)();
            let entered = |r: &ReplicaReport| r.view > leader.view && !r.changing;
            (moved && others(replicas).iter().any(entered)).then_some(())
        })?;

        let started = now();
        crash.down_ms = millis(started - killed);
        self.bar.set_message(format!("replica {victim} is started again"));
        replicas[victim] = homes.spawn(leader.primary)?;
        replicas[victim].wait_ready().map_err(|e| e.to_string())?;
        // Level is whoever stands no lower than the slowest of the others.
        let level = self.wait(replicas, "catch up", |replicas| {
            let goal = others(replicas).iter().map(|r| r.height).min()?;
            replicas[victim].report().filter(|report| report.height >= goal)
        })?;
        crash.catch_up_ms = millis(started.elapsed());
        crash.catch_up_blocks = level.height - level.start_height;
        crash.under_load = !(self.ended)();
        self.bar.set_message(format!("replica {victim} has caught up"));
        self.until(replicas, || self.count.is_none() && begin.elapsed() >= self.time)?;
        Ok(crash)
    }

    fn half_way(&self, begin: Instant) -> bool {
        match self.count {
            Some(count) => self.progress.done() * 2 >= count,
            None => begin.elapsed() * 2 >= self.time,
        }
    }

    /// Draws the bar until `condition` holds or the clients have ended.
    fn until(
        &self,
        replicas: &mut [ReplicaProcess],
        condition: impl Fn() -> bool,
    ) -> Result<(), String> {
        loop {
            check(replicas)?;
            if condition() || (self.ended)() {
                return Ok(());
            }
            self.draw();
            pause(TICK);
        }
    }

    /// Waits for something that the replicas do.
    fn wait<T>(
        &self,
        replicas: &mut [ReplicaProcess],
        what: &str,
        mut condition: impl FnMut(&[ReplicaProcess]) -> Option<T>,
    ) -> Result<T, String> {
        let outcome = poll_until(PATIENCE, || {
            self.draw();
            check(replicas).map_or_else(|ended| Some(Err(ended)), |()| condition(replicas).map(Ok))
        });
        let late = || Err(format!("the replicas did not {what} within {PATIENCE:?}"));
        outcome.unwrap_or_else(late)
    }

    fn draw(&self) {
        self.rate.set(self.rate.get().at(now(), self.progress.done()));
        self.bar.set_prefix(self.rate.get().text());
        match self.count {
            Some(_) => self.bar.set_position(self.progress.done()),
            None => self.bar.set_position(self.bar.elapsed().as_millis() as u64),
        }
    }
}

/// Refuses once a replica has ended by itself.
fn check(replicas: &mut [ReplicaProcess]) -> Result<(), String> {
    process::check_all(replicas).map_err(|ended| ended.to_string())
}

fn millis(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1e3, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_half_second_or_more() {
        let begin = now();
        let after = |ms| begin + Duration::from_millis(ms);
        let rate = Rate::default().at(begin, 0);
        assert_eq!(rate.text(), "");
        let rate = rate.at(after(100), 900);
        assert_eq!(rate.text(), "", "too soon to say");
        let rate = rate.at(after(500), 1000);
        assert_eq!(rate.text(), "2000 orders/s  ");
        let rate = rate.at(after(900), 9000);
        assert_eq!(rate.text(), "2000 orders/s  ", "it does not flicker");
        assert_eq!(rate.at(after(1500), 1000).text(), "0 orders/s  ", "nobody leads");
    }
}
