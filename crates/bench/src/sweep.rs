//! `bench sweep`: latency against what is offered, from little up to saturation, open-loop.
//!
//! A closed loop finds out what the network takes; parts of that are offered one after the other, the
//! last ones more than it. A rate that the network does not keep up with is marked so: there latency
//! grows for as long as the load lasts. After two of those the sweep ends.

use crate::Machine;
use crate::bft::{BUSY, TRIAL, trial};
use crate::figures::{LatencyUs, round};
use crate::load::{Outcome, Pace};
use crate::setup::{BenchError, Running, Settings, Setup};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// What parts of the closed loop's rate are offered.
const PARTS: [f64; 14] = [0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1, 1.25];
/// After so many rates in a row that are not kept up with there is nothing more to see.
const ENOUGH: usize = 2;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The network and its clients.
    pub setup: Setup,
    /// How long each rate is offered.
    pub measure: Duration,
    /// The rates, in requests per second, ascending; those that a closed loop suggests when there are
    /// none.
    pub rates: Vec<f64>,
}

/// What a rate came to.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Requests per second that were offered.
    pub offered_rps: f64,
    /// Requests per second that were executed and answered.
    pub throughput_rps: f64,
    /// Whether the network fell behind: then its latency is that of this measurement only.
    pub saturated: bool,
    /// From the intended time of a request to its result.
    pub latency_us: LatencyUs,
    /// The part of a processor that the busiest client used.
    pub busiest_client_cpu: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// What closed-loop clients reached, when the rates came from that.
    pub closed_loop_rps: Option<f64>,
    /// The rates, ascending.
    pub steps: Vec<Step>,
    /// The highest rate that was kept up with, in requests per second.
    pub sustained_rps: Option<f64>,
    /// How long each rate was offered.
    pub seconds: f64,
    /// All settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// Measures. The replicas are processes of `program`, or threads of this one; their homes are made
/// in `dir`. `said` is told what is going on.
///
/// # Errors
/// When the network fails, or the clients cannot send what they are to send.
pub fn run(
    sweep: &Sweep,
    program: Option<&Path>,
    dir: &Path,
    said: &dyn Fn(&str),
) -> Result<SweepReport, BenchError> {
    let machine = Machine::here();
    let setup = &sweep.setup;
    said("starting replicas");
    let mut running = setup.launch(program, dir)?;
    let mut closed_loop_rps = None;
    let mut rates = sweep.rates.clone();
    if rates.is_empty() {
        said("a closed loop finds out what the network takes");
        let closed = trial(&mut running, setup, Pace::Closed, TRIAL)?.rate();
        closed_loop_rps = Some(round(closed, 1));
        rates = PARTS.map(|part| part * closed).into();
    }
    let mut steps: Vec<Step> = vec![];
    for rate in rates {
        said(&format!("offering {rate:.0} requests/s"));
        let outcome = trial(&mut running, setup, Pace::Open(rate), sweep.measure)?;
        steps.push(step(setup, rate, &outcome)?);
        let last = steps.iter().rev().take(ENOUGH);
        if last.filter(|step| step.saturated).count() == ENOUGH {
            break;
        }
    }
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let kept = steps.iter().filter(|step| !step.saturated).map(|step| step.offered_rps);
    Ok(SweepReport {
        closed_loop_rps,
        sustained_rps: kept.reduce(f64::max),
        steps,
        seconds: sweep.measure.as_secs_f64(),
        settings: setup.settings(program.is_some(), "open"),
        machine,
    })
}

/// A rate that clients could not send is no point of the curve.
fn step(setup: &Setup, rate: f64, outcome: &Outcome) -> Result<Step, BenchError> {
    let saturated = !setup.keeps_up(outcome, rate);
    if saturated && outcome.busiest_client >= BUSY {
        return Err(BenchError::Generator { offered_rps: rate });
    }
    Ok(Step {
        offered_rps: round(rate, 1),
        throughput_rps: round(outcome.rate(), 1),
        saturated,
        latency_us: outcome.latency.latency(),
        busiest_client_cpu: round(outcome.busiest_client, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{PIECE, Piece};
    use tercio_network::Spec;

    /// A second in which so many operations were completed, and all the others waited.
    fn outcome(completed: u64, offered: u64, busiest_client: f64) -> Outcome {
        let waits = |i: u64| (offered - completed) * i / 10;
        let pieces = (1..=10)
            .map(|i| Piece { completed: completed / 10, backlog: waits(i), ..Piece::default() })
            .collect();
        Outcome { completed, pieces, elapsed: PIECE * 10, busiest_client, ..Outcome::default() }
    }

    #[test]
    fn a_rate_that_clients_cannot_send_is_an_error() {
        let spec = Spec::new(tercio_registry::apps().first());
        let setup =
            Setup { spec, package: 1, outstanding: 1, size: 1, reply: 1, iterations: 0, ops: None };
        let of = |completed, busy| step(&setup, 1000.0, &outcome(completed, 1000, busy));
        assert!(!of(1000, 0.99).unwrap().saturated, "it was busy, and sent all");
        assert!(of(500, 0.5).unwrap().saturated);
        let error = of(500, 0.97).unwrap_err().to_string();
        assert!(error.contains("no result") && error.contains("1000 requests/s"), "{error}");
    }
}
