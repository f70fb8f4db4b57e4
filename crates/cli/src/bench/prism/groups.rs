//! `tercio bench prism fig6|fig7|fig9|fig10`: replicated blocks and transactions against their baselines.

use super::table::{Column, Table, column};
use super::{Args, Here, Running, write};
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use tercio_bench::prism::groups::{
    self, Comparison, Effort, Load, Point, Runner, ServedGroup, System,
};
use tercio_bench::prism::paper::{self, PaperPoint, PaperRate};
use tercio_bench::prism::plot::{self, Series};
use tercio_bench::prism::{Ratio, Transport};

/// The most objects of these figures: each is there for two systems and three replicas.
const MAX_OBJECTS: u32 = 1 << 17;
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::UdpGso];
/// The paper's clients, in a closed loop.
const CLIENTS: usize = 100;

/// Whether a claim of the paper holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Grade {
    /// Within what was asked for.
    #[serde(rename = "REPRODUCED")]
    Reproduced,
    /// The better system is the better one here, by less.
    #[serde(rename = "TREND-ONLY")]
    TrendOnly,
    /// It is the other way round.
    #[serde(rename = "NOT-REPRODUCED")]
    NotReproduced,
    /// This machine cannot tell.
    #[serde(rename = "NOT-TESTABLE-HERE")]
    NotTestableHere,
}

#[derive(Clone, Debug, Serialize)]
struct Verdict {
    claim: String,
    transport: Transport,
    /// What was measured: a ratio.
    value: f64,
    /// The least and the most of the pairs, where there are pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<(f64, f64)>,
    /// What it must be.
    needed: String,
    grade: Grade,
}

#[derive(Serialize)]
struct GroupsReport {
    points: Vec<Point>,
    comparisons: Vec<Comparison>,
    verdicts: Vec<Verdict>,
    /// What no run on this machine can say.
    not_testable_here: Vec<&'static str>,
    objects: u32,
    value_bytes: usize,
    replicas: usize,
    /// How the servers ran.
    servers: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paper: Vec<PaperPoint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paper_rates: Vec<PaperRate>,
    files: Vec<String>,
    machine: Here,
}

const SERVERS: &str = "one process with one polling thread has all replicas' memories";
const HARDWARE: &str = "the paper's baselines on RDMA hardware: there is no RDMA card; both systems are \
                        measured on one software transport";

fn objects(args: &Args) -> u32 {
    args.objects.min(MAX_OBJECTS)
}

const fn effort(args: &Args) -> Effort {
    if args.short { Effort::SHORT } else { Effort::NORMAL }
}

/// What a figure has measured.
#[derive(Default)]
struct Measured {
    points: Vec<Point>,
    comparisons: Vec<Comparison>,
}

impl Measured {
    /// Measures loads on servers that are started for it, on each transport.
    fn run(args: &Args, transactions: bool, loads: &[Load]) -> Result<Self, Failure> {
        let mut measured = Self::default();
        for transport in TRANSPORTS {
            let running: Running<ServedGroup> =
                Running::start_groups(args, transport, transactions, objects(args))?;
            let systems = groups::systems(transactions);
            let runners = groups::runners(&running.served, systems).map_err(Failure::new)?;
            measured.on(runners, transport, loads, effort(args))?;
        }
        Ok(measured)
    }

    fn on(
        &mut self,
        mut runners: Vec<Runner>,
        transport: Transport,
        loads: &[Load],
        effort: Effort,
    ) -> Result<(), Failure> {
        for load in loads {
            let measured = groups::compare(&mut runners, transport, load, effort);
            let (points, comparisons) = measured.map_err(Failure::new)?;
            self.points.extend(points);
            self.comparisons.extend(comparisons);
        }
        Ok(())
    }

    fn comparison(
        &self,
        system: System,
        transport: Transport,
        theta: f64,
        clients: usize,
    ) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| {
            c.system == system
                && c.transport == transport
                && (c.theta - theta).abs() < 1e-9
                && c.clients == clients
        })
    }

    fn point(&self, system: System, transport: Transport, theta: f64) -> Option<&Point> {
        self.points.iter().find(|p| {
            p.system == system && p.transport == transport && (p.theta - theta).abs() < 1e-9
        })
    }

    fn report(self, args: &Args, machine: Here, verdicts: Vec<Verdict>) -> GroupsReport {
        GroupsReport {
            points: self.points,
            comparisons: self.comparisons,
            verdicts,
            not_testable_here: vec![HARDWARE],
            objects: objects(args),
            value_bytes: args.value,
            replicas: groups::REPLICAS,
            servers: SERVERS,
            paper: Vec::new(),
            paper_rates: Vec::new(),
            files: Vec::new(),
            machine,
        }
    }
}

/// A ratio that must be at most `most`; a trend below one.
fn at_most(claim: &str, transport: Transport, ratio: Option<&Ratio>, most: f64) -> Verdict {
    let grade = |value: f64| match value {
        value if value <= most => Grade::Reproduced,
        value if value < 1.0 => Grade::TrendOnly,
        _ => Grade::NotReproduced,
    };
    verdict(claim, transport, ratio, format!("<= {most}"), grade)
}

/// A ratio that must be at least `least`; a trend above one.
fn at_least(claim: &str, transport: Transport, ratio: Option<&Ratio>, least: f64) -> Verdict {
    let grade = |value: f64| match value {
        value if value >= least => Grade::Reproduced,
        value if value > 1.0 => Grade::TrendOnly,
        _ => Grade::NotReproduced,
    };
    verdict(claim, transport, ratio, format!(">= {least}"), grade)
}

fn verdict(
    claim: &str,
    transport: Transport,
    ratio: Option<&Ratio>,
    needed: String,
    grade: impl Fn(f64) -> Grade,
) -> Verdict {
    let (value, spread) = match ratio {
        Some(ratio) => (ratio.median, (ratio.pairs > 1).then_some((ratio.min, ratio.max))),
        None => (0.0, None),
    };
    let grade = ratio.map_or(Grade::NotTestableHere, |ratio| grade(ratio.median));
    Verdict { claim: claim.to_owned(), transport, value, spread, needed, grade }
}

pub(super) fn fig6(args: &Args, machine: Here) -> Result<(), Failure> {
    let load = |clients| Load { writes: 50, theta: 0.0, clients };
    let loads: Vec<_> = curve(args).map(load).collect();
    let measured = Measured::run(args, false, &loads)?;
    let mut verdicts = Vec::new();
    for transport in TRANSPORTS {
        for system in [System::PrismRs, System::PrismRsPaper] {
            let one = measured.comparison(system, transport, 0.0, 1);
            let many = measured.comparison(system, transport, 0.0, CLIENTS);
            let claim = format!("{} p50 over abd_lock's, one client", system.name());
            verdicts.push(at_most(&claim, transport, one.map(|c| &c.p50_ratio), 0.55));
            let claim = format!("{} throughput over abd_lock's", system.name());
            verdicts.push(at_least(&claim, transport, many.map(|c| &c.throughput_ratio), 1.5));
        }
    }
    curves(args, machine, measured, verdicts, ("fig6", "Half PUTs, three replicas", &paper::FIG6))
}

pub(super) fn fig9(args: &Args, machine: Here) -> Result<(), Failure> {
    let load = |clients| Load { writes: 0, theta: 0.0, clients };
    let loads: Vec<_> = curve(args).map(load).collect();
    let measured = Measured::run(args, true, &loads)?;
    let mut verdicts = Vec::new();
    for transport in TRANSPORTS {
        let one = measured.comparison(System::PrismTx, transport, 0.0, 1);
        let many = measured.comparison(System::PrismTx, transport, 0.0, CLIENTS);
        let claim = "prism_tx p50 over farm's, one client";
        verdicts.push(at_most(claim, transport, one.map(|c| &c.p50_ratio), 0.82));
        let claim = "prism_tx throughput over farm's";
        verdicts.push(at_least(claim, transport, many.map(|c| &c.throughput_ratio), 1.2));
    }
    curves(args, machine, measured, verdicts, ("fig9", "YCSB-T, one shard", &paper::FIG9))
}

/// How many clients a curve's points have.
fn curve(args: &Args) -> impl Iterator<Item = usize> {
    let all: &[usize] = if args.short { &[1, CLIENTS] } else { &[1, 4, 16, 48, CLIENTS] };
    all.iter().copied()
}

/// Latency against throughput.
fn curves(
    args: &Args,
    machine: Here,
    measured: Measured,
    verdicts: Vec<Verdict>,
    (name, title, published): (&str, &str, &[PaperPoint]),
) -> Result<(), Failure> {
    let at = |point: &Point| (point.rate_per_s / 1e6, point.latency.p50_us);
    let mut series = groups::series(&measured.points, at);
    for point in published {
        let points = vec![(point.x.parse().unwrap_or(0.0), point.us)];
        series.push(Series { name: format!("paper: {}", point.series), points, marks: true });
    }
    let svg = plot::lines(title, "million operations a second", "p50, us", &series);
    let mut report = measured.report(args, machine, verdicts);
    report.paper = published.to_vec();
    finish(args, name, &svg, report)
}

const FIG7_THETAS: [f64; 5] = [0.6, 0.8, 0.9, 1.0, 1.1];

pub(super) fn fig7(args: &Args, machine: Here) -> Result<(), Failure> {
    let load = |theta| Load { writes: 50, theta, clients: CLIENTS };
    let measured = Measured::run(args, false, &FIG7_THETAS.map(load))?;
    let mut verdicts = Vec::new();
    for transport in TRANSPORTS {
        let latency = |system, theta, of: fn(&Point) -> f64| {
            measured.point(system, transport, theta).map_or(0.0, of)
        };
        let single = |value: f64| {
            let value = tercio_bench::prism::round(value, 3);
            Ratio { median: value, min: value, max: value, pairs: 1 }
        };
        let p50s = FIG7_THETAS.map(|theta| latency(System::PrismRs, theta, |p| p.latency.p50_us));
        let least = p50s.iter().copied().fold(f64::MAX, f64::min).max(1e-3);
        let spread = single(p50s.iter().copied().fold(0.0, f64::max) / least);
        let flat = |value: f64| match value {
            value if value <= 1.1 => Grade::Reproduced,
            value if value <= 1.5 => Grade::TrendOnly,
            _ => Grade::NotReproduced,
        };
        let claim = "prism_rs p50, the most over the least of the exponents";
        verdicts.push(verdict(claim, transport, Some(&spread), "<= 1.1".into(), flat));
        // Half of the operations may be on blocks that nobody else wants: what waits shows in the mean.
        let mean = |theta| latency(System::AbdLock, theta, |p| p.latency.mean_us);
        let last = FIG7_THETAS[FIG7_THETAS.len() - 1];
        let rise = single(mean(last) / mean(FIG7_THETAS[0]).max(1e-3));
        let claim = "abd_lock mean latency at 1.1 over that at 0.6";
        verdicts.push(at_least(claim, transport, Some(&rise), 5.0));
    }
    let at = |point: &Point| (point.theta, point.latency.mean_us);
    let mut series = groups::series(&measured.points, at);
    series.extend(published(&paper::FIG7));
    let title = "Half PUTs, 100 clients, against skew";
    let svg = plot::lines(title, "Zipf's exponent", "mean latency, us", &series);
    let mut report = measured.report(args, machine, verdicts);
    report.paper = paper::FIG7.to_vec();
    finish(args, "fig7", &svg, report)
}

/// Published points as series, by their names.
fn published(points: &[PaperPoint]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let (name, at) =
            (format!("paper: {}", point.series), (point.x.parse().unwrap_or(0.0), point.us));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(at),
            None => series.push(Series { name, points: vec![at], marks: true }),
        }
    }
    series
}

pub(super) fn fig10(args: &Args, machine: Here) -> Result<(), Failure> {
    let thetas = [1.0, 1.2, 1.5];
    let load = |theta| Load { writes: 0, theta, clients: CLIENTS };
    let measured = Measured::run(args, true, &thetas.map(load))?;
    let mut verdicts = Vec::new();
    for transport in TRANSPORTS {
        for theta in thetas {
            let compared = measured.comparison(System::PrismTx, transport, theta, CLIENTS);
            let claim = format!("prism_tx throughput over farm's, Zipf {theta}");
            verdicts.push(at_least(&claim, transport, compared.map(|c| &c.throughput_ratio), 1.2));
        }
    }
    let at = |point: &Point| (point.theta, point.rate_per_s / 1e6);
    let mut series = groups::series(&measured.points, at);
    for name in ["PRISM-TX", "FaRM"] {
        let of = paper::FIG10.iter().filter(|point| point.series == name);
        let points = of.map(|point| (point.theta, point.million_per_s)).collect();
        series.push(Series { name: format!("paper: {name}"), points, marks: true });
    }
    let title = "YCSB-T, 100 clients, against skew";
    let svg = plot::lines(title, "Zipf's exponent", "million transactions a second", &series);
    let mut report = measured.report(args, machine, verdicts);
    report.paper_rates = paper::FIG10.to_vec();
    finish(args, "fig10", &svg, report)
}

const COLUMNS: [Column; 10] = [
    column("system", "system", 0),
    column("transport", "transport", 0),
    column("zipf", "zipf", 1),
    column("clients", "clients", 0),
    column("p50_us", "p50 us", 2),
    column("p99_us", "p99 us", 2),
    column("mean_us", "mean us", 2),
    column("rate_per_s", "per s", 0),
    column("requests_per_op", "requests", 1),
    column("bytes_per_op", "bytes", 0),
];

fn table(points: &[Point]) -> Table<'static> {
    let row = |p: &Point| {
        [
            p.system.name().into(),
            p.transport.name().into(),
            p.theta.into(),
            p.clients.into(),
            p.latency.p50_us.into(),
            p.latency.p99_us.into(),
            p.latency.mean_us.into(),
            p.rate_per_s.into(),
            p.requests.into(),
            p.bytes.into(),
        ]
    };
    Table::new(&COLUMNS, points.iter().map(row))
}

fn finish(args: &Args, name: &str, svg: &str, mut report: GroupsReport) -> Result<(), Failure> {
    let csv = table(&report.points).csv();
    report.files = write(args, name, &csv, Some(svg))?;
    output::report(args.json, &report, print)
}

fn print(report: &GroupsReport) {
    let line = output::line;
    line(&format!(
        "{} objects of {} bytes; {}",
        report.objects, report.value_bytes, report.servers
    ));
    table(&report.points).lines().iter().for_each(|row| line(row));
    for v in &report.verdicts {
        let grade = serde_json::to_string(&v.grade).unwrap_or_default();
        let spread =
            v.spread.map(|(least, most)| format!(" ({least:.2} to {most:.2})")).unwrap_or_default();
        line(&format!(
            "{:<16} {}, {}: {:.2}{spread}, needed {}",
            grade.trim_matches('"'),
            v.claim,
            v.transport.name(),
            v.value,
            v.needed
        ));
    }
    for what in &report.not_testable_here {
        line(&format!("NOT-TESTABLE-HERE {what}"));
    }
    line(&format!("files: {}", report.files.join(" ")));
}
