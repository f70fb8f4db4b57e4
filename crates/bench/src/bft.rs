//! `bench bft`: what ordering costs and how long it takes, with the counter as the application.
//!
//! Unless a rate is given, a closed loop finds out what the network takes, and open-loop trials the
//! highest of a few fractions of it that the network keeps up with. The measurement offers that; if
//! the network falls behind after all, the next lower fraction is tried.

use crate::Machine;
use crate::backlog::Backlog;
use crate::calibrate::{self, Calibration};
use crate::disk::{self, DiskRate};
use crate::figures::{LatencyUs, Spread, round};
use crate::load::{Moment, Outcome, Pace, Phase};
use crate::setup::{BenchError, Running, Settings, Setup, WARM_UP, put_on};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tercio_network::Replicas;
use tercio_network::usage::Usage;

/// The fractions of the closed loop's rate that are tried, in this order.
const FRACTIONS: [f64; 10] = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.35];
/// How long a trial runs at least, and what part of the measurement it is: the longer it runs, the
/// less may lack unseen.
pub(crate) const TRIAL: Duration = Duration::from_secs(2);
const TRIAL_PART: u32 = 20;
/// How long one client with one request in flight is watched.
const ALONE: Duration = Duration::from_secs(2);
/// A generator that uses this much of a processor is the bottleneck itself.
pub(crate) const BUSY: f64 = 0.95;
/// How often memory is reported in a long measurement; how often it is looked at, and of how many
/// looks the mean is reported: it goes up and down with each checkpoint.
const MEMORY_EVERY: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS: usize = 10;

/// How fast requests are offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offer {
    /// As many per second as the network keeps up with.
    Search,
    /// This many per second.
    Rate(f64),
    /// The next when one ends.
    Closed,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Bft {
    /// The network, whose application is the counter, and its clients.
    pub setup: Setup,
    /// How fast requests are offered.
    pub offer: Offer,
    /// How long a measurement takes.
    pub measure: Duration,
    /// How many measurements there are; reported is the one of median throughput.
    pub trials: usize,
    /// Whether one client with one request in flight is measured too, next to the bare exchange.
    pub one_client: bool,
}

/// One client with one request in flight, next to the same messages with nothing done to them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OneClient {
    /// Half of its requests took at most this.
    pub p50_us: f64,
    /// The same of the bare exchange over TCP: the mean of one before and one after.
    pub bare_p50_us: f64,
    /// The first over the second.
    pub ratio: f64,
}

/// The memory of each replica at a time of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Seconds since the beginning of the measurement.
    pub at_s: u64,
    /// Of each replica the mean of ten looks, a second apart, the last at this time; with threads,
    /// that of the one process.
    pub rss_mb: Vec<f64>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BftReport {
    /// Requests per second that were executed and answered.
    pub throughput_rps: f64,
    /// The least and the greatest of several measurements, and how many there were.
    pub throughput_spread_rps: Option<Spread>,
    /// Requests per second that were offered; absent in a closed loop.
    pub offered_rps: Option<f64>,
    /// What closed-loop clients reached, when a rate was searched for.
    pub closed_loop_rps: Option<f64>,
    /// Whether less was achieved than offered, or what waited grew: then this is no result.
    pub saturated: bool,
    /// Who held it up: `generator` or `network`.
    pub saturated_by: Option<&'static str>,
    /// What waited, at what was offered; absent in a closed loop.
    pub backlog: Option<Backlog>,
    /// From the intended time of a request to its result.
    pub latency_us: LatencyUs,
    /// One client with one request in flight, after the load.
    pub one_client: Option<OneClient>,
    /// Processor time that each replica used for a request.
    pub cpu_us_per_request_per_replica: Vec<f64>,
    /// That of the loop's thread alone.
    pub loop_cpu_us_per_request_per_replica: Vec<f64>,
    /// The memory of each replica at the end; with threads, that of the one process.
    pub rss_mb: Vec<f64>,
    /// The same after each minute, and at the end.
    pub rss_mb_at: Vec<Memory>,
    /// The most that a replica's memory at the end is of what it was after a minute.
    pub rss_growth: Option<f64>,
    /// What the disk does by itself, when the durability needs it; measured before the load.
    pub disk: Option<DiskRate>,
    /// The part of a processor that the busiest client used.
    pub busiest_client_cpu: f64,
    /// What this machine could do at most, measured before the load.
    pub ceiling_rps: f64,
    /// Throughput over ceiling.
    pub fraction_of_ceiling: f64,
    /// How many requests were executed and answered during the measurement.
    pub requests: u64,
    /// How long the measurement was.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// One measurement.
pub(crate) struct Trial {
    pub(crate) outcome: Outcome,
    pub(crate) before: Vec<Usage>,
    pub(crate) after: Vec<Usage>,
    memory: Vec<Memory>,
}

/// Measures. The replicas are processes of `program`, or threads of this one; their homes are made
/// in `dir`. `said` is told what is going on.
///
/// # Errors
/// When the network fails or an operation is not executed.
pub fn run(
    bft: &Bft,
    program: Option<&Path>,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<BftReport, BenchError> {
    let setup = &bft.setup;
    let disk = match setup.spec.durability.syncs() {
        true => Some(disk::rate(dir).map_err(|error| BenchError::Files { id: 0, error })?),
        false => None,
    };
    let (mut running, ceiling) = setup.start(program, dir, said)?;
    let mut closed_loop_rps = None;
    let (pace, trials) = match bft.offer {
        Offer::Closed => (Pace::Closed, measure_all(&mut running, bft, Pace::Closed, said)?),
        Offer::Rate(rate) => {
            (Pace::Open(rate), measure_all(&mut running, bft, Pace::Open(rate), said)?)
        }
        Offer::Search => {
            said("searching for the rate that the network keeps up with");
            let closed = trial(&mut running, setup, Pace::Closed, TRIAL)?.rate();
            closed_loop_rps = Some(round(closed, 1));
            let mut below = f64::INFINITY;
            loop {
                let length = TRIAL.max(bft.measure / TRIAL_PART);
                let rate = search(&mut running, setup, (closed, below), length, said)?;
                let trials = measure_all(&mut running, bft, Pace::Open(rate), said)?;
                if setup.keeps_up(&trials[trials.len() / 2].outcome, rate) {
                    break (Pace::Open(rate), trials);
                }
                below = rate;
            }
        }
    };
    let rates: Vec<f64> = trials.iter().map(|trial| trial.outcome.rate()).collect();
    let spread = (bft.trials > 1).then(|| Spread::of(&rates));
    let one_client = if bft.one_client {
        said("one client with one request under way");
        Some(one_client(&mut running, setup)?)
    } else {
        None
    };
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let median = &trials[trials.len() / 2];
    let context = Context { bft, pace, closed_loop_rps, processes: program.is_some() };
    let report = context.report(median, &ceiling);
    Ok(BftReport { throughput_spread_rps: spread, one_client, disk, ..report })
}

/// A short load that counts.
pub(crate) fn trial(
    running: &mut Running,
    setup: &Setup,
    pace: Pace,
    length: Duration,
) -> Result<Outcome, BenchError> {
    let phases = vec![Phase { pace, length: WARM_UP }, Phase { pace, length }];
    let Running { replicas, clients, .. } = running;
    let mut outcomes = put_on(replicas, clients, &setup.plan(phases), |_, _| {})?;
    Ok(outcomes.pop().expect("one of each phase"))
}

/// All measurements at one pace, the slowest first.
fn measure_all(
    running: &mut Running,
    bft: &Bft,
    pace: Pace,
    said: &dyn Fn(&str),
) -> Result<Vec<Trial>, BenchError> {
    let mut trials = vec![];
    for number in 1..=bft.trials {
        said(&format!("measuring, {number} of {}", bft.trials));
        trials.push(measure(running, bft, pace, said)?);
    }
    trials.sort_by(|a, b| a.outcome.rate().total_cmp(&b.outcome.rate()));
    Ok(trials)
}

/// The highest rate that the network keeps up with, in two trials of `length`, of the fractions of
/// `closed` that are less than `below`; in requests per second.
pub(crate) fn search(
    running: &mut Running,
    setup: &Setup,
    (closed, below): (f64, f64),
    length: Duration,
    said: &dyn Fn(&str),
) -> Result<f64, BenchError> {
    for rate in FRACTIONS.map(|fraction| fraction * closed).into_iter().filter(|r| *r < below) {
        said(&format!("trying {rate:.0} requests/s"));
        let pace = Pace::Open(rate);
        // A second trial tells a rate that is kept up with from one that is for a moment.
        if setup.keeps_up(&trial(running, setup, pace, length)?, rate)
            && setup.keeps_up(&trial(running, setup, pace, length)?, rate)
        {
            return Ok(rate);
        }
    }
    let lowest_rps = closed * FRACTIONS[FRACTIONS.len() - 1];
    Err(BenchError::NoRate { closed_rps: closed, lowest_rps })
}

/// A load that is measured.
pub(crate) fn measure(
    running: &mut Running,
    bft: &Bft,
    pace: Pace,
    said: &dyn Fn(&str),
) -> Result<Trial, BenchError> {
    let phases = vec![Phase { pace, length: WARM_UP }, Phase { pace, length: bft.measure }];
    let Running { replicas, clients, .. } = running;
    let mut used: Vec<Vec<Usage>> = vec![];
    let (mut memory, mut looks): (Vec<Memory>, Vec<Vec<Usage>>) = (vec![], vec![]);
    let mut failed = None;
    let mut usage = |replicas: &Replicas| match replicas.usage() {
        Ok(usage) => Some(usage),
        Err(error) => {
            failed.get_or_insert(error);
            None
        }
    };
    let plan = bft.setup.plan(phases);
    let mut outcomes = put_on(replicas, clients, &plan, |moment, replicas| match moment {
        Moment::Begin(1) | Moment::End => used.extend(usage(replicas)),
        Moment::Tick { phase: 1, since } if since >= LOOK_EVERY * (looks.len() as u32 + 1) => {
            looks.extend(usage(replicas));
            if since >= MEMORY_EVERY * (memory.len() as u32 + 1) {
                let now = at(since, &looks);
                said(&format!("{} s: {:?} MB", now.at_s, now.rss_mb));
                memory.push(now);
            }
        }
        _ => {}
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let [before, after] = <[_; 2]>::try_from(used).expect("read at both ends");
    looks.push(after.clone());
    memory.push(at(bft.measure, &looks));
    Ok(Trial { outcome: outcomes.remove(1), before, after, memory })
}

/// The memory as the last looks found it.
fn at(since: Duration, looks: &[Vec<Usage>]) -> Memory {
    let last = &looks[looks.len().saturating_sub(LOOKS)..];
    let mean = |i: usize| last.iter().map(|look| look[i].rss_mb()).sum::<f64>() / last.len() as f64;
    let replicas = last.first().map_or(0, Vec::len);
    Memory { at_s: since.as_secs(), rss_mb: (0..replicas).map(|i| round(mean(i), 1)).collect() }
}

/// One client with one request in flight, between two exchanges of the same messages.
fn one_client(running: &mut Running, setup: &Setup) -> Result<OneClient, BenchError> {
    let bare = || calibrate::tcp_exchange_latency().map_err(BenchError::Calibrate);
    let alone = Setup { outstanding: 1, package: 1, ..setup.clone() };
    let phases = [WARM_UP, ALONE].map(|length| Phase { pace: Pace::Closed, length });
    let before = bare()?.p50_us;
    let plan = alone.plan(phases.to_vec());
    let Running { replicas, clients, .. } = running;
    let outcomes = put_on(replicas, &mut clients[..1], &plan, |_, _| {})?;
    let bare_p50_us = round((before + bare()?.p50_us) / 2.0, 1);
    let p50_us = outcomes[1].latency.latency().p50;
    Ok(OneClient { p50_us, bare_p50_us, ratio: round(p50_us / bare_p50_us, 3) })
}

/// How a measurement was made.
struct Context<'a> {
    bft: &'a Bft,
    pace: Pace,
    closed_loop_rps: Option<f64>,
    processes: bool,
}

/// Processor time of each replica for a request, of this many requests, in microseconds.
pub(crate) fn cpu_us_per_request(before: &[Usage], after: &[Usage], requests: u64) -> Vec<f64> {
    per_request(before, after, requests, |used| used.cpu)
}

fn per_request(
    before: &[Usage],
    after: &[Usage],
    requests: u64,
    cpu: impl Fn(&Usage) -> Duration,
) -> Vec<f64> {
    let cpu = |(before, after): (&Usage, &Usage)| {
        let used = cpu(after).saturating_sub(cpu(before));
        round(used.as_secs_f64() * 1e6 / requests.max(1) as f64, 3)
    };
    before.iter().zip(after).map(cpu).collect()
}

impl Context<'_> {
    fn report(&self, trial: &Trial, ceiling: &Calibration) -> BftReport {
        let Trial { outcome, before, after, memory } = trial;
        let offered = match self.pace {
            Pace::Open(rate) => Some(rate),
            Pace::Closed => None,
        };
        let saturated = offered.is_some_and(|rate| !self.bft.setup.keeps_up(outcome, rate));
        let by = if outcome.busiest_client >= BUSY { "generator" } else { "network" };
        let requests = outcome.completed;
        let first = &memory[0];
        let growth = memory[memory.len() - 1].rss_mb.iter().zip(&first.rss_mb);
        let growth = growth.map(|(end, minute)| end / minute).fold(0.0, f64::max);
        let pace = if self.pace == Pace::Closed { "closed" } else { "open" };
        BftReport {
            throughput_rps: round(outcome.rate(), 1),
            throughput_spread_rps: None,
            offered_rps: offered.map(|rate| round(rate, 1)),
            closed_loop_rps: self.closed_loop_rps,
            saturated,
            saturated_by: saturated.then_some(by),
            backlog: offered.map(|rate| self.bft.setup.backlog(outcome, rate)),
            latency_us: outcome.latency.latency(),
            one_client: None,
            cpu_us_per_request_per_replica: cpu_us_per_request(before, after, requests),
            loop_cpu_us_per_request_per_replica: per_request(before, after, requests, |used| {
                used.loop_cpu
            }),
            rss_mb: after.iter().map(|used| round(used.rss_mb(), 1)).collect(),
            rss_mb_at: memory.clone(),
            rss_growth: (memory.len() > 1).then(|| round(growth, 3)),
            disk: None,
            busiest_client_cpu: round(outcome.busiest_client, 3),
            ceiling_rps: round(ceiling.ceiling_rps, 1),
            fraction_of_ceiling: round(outcome.rate() / ceiling.ceiling_rps, 4),
            requests,
            seconds: round(outcome.elapsed.as_secs_f64(), 3),
            settings: self.bft.setup.settings(self.processes, pace),
            machine: ceiling.machine.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_mean_of_the_last_looks() {
        let look = |mb: u64| {
            let used = |mb| Usage { rss_bytes: mb << 20, ..Usage::default() };
            vec![used(mb), used(100)]
        };
        let mb = |looks: &[Vec<Usage>]| at(Duration::from_secs(61), looks).rss_mb;
        let looks: Vec<_> = [99].into_iter().chain(1..=10).map(look).collect();
        assert_eq!(mb(&looks), [5.5, 100.0]);
        assert_eq!(mb(&looks[..2]), [50.0, 100.0]);
        assert_eq!(mb(&[]), [0.0; 0]);
    }
}
