//! `tercio bench prism ...`: what remote memory costs, and the figures of the PRISM paper.
//!
//! Each run starts a server as a process of its own, on one processor, and measures from another.

mod groups;
mod table;

use crate::failure::Failure;
use crate::{output, stop};
use serde::Serialize;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use table::{Column, Table, column};
use tercio_bench::Machine;
use tercio_bench::prism::groups::ServedGroup;
use tercio_bench::prism::loads::{self, Comparison, Distance, Load, Point, System};
use tercio_bench::prism::ops::{self, Measured, OpFigure};
use tercio_bench::prism::paper::{self, PaperPoint};
use tercio_bench::prism::plot::{self, Series};
use tercio_bench::prism::{self, Served, Transport};
use tercio_prism::ycsb::Workload;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Latency and rate of single operations, and of PRISM-KV's
    Ops(OpsArgs),
    /// The paper's figure 1: what each operation takes
    Fig1(Args),
    /// Figure 2: one indirect READ against two READs, over four distances
    Fig2(Args),
    /// Figure 3: reads only (YCSB-C), PRISM-KV against Pilaf
    Fig3(Args),
    /// Figure 4: half reads, half updates (YCSB-A), PRISM-KV against Pilaf
    Fig4(Args),
    /// Figure 6: half PUTs on three replicas, PRISM-RS against ABD with locks
    Fig6(Args),
    /// Figure 7: the same with 100 clients, against the skew of their choices
    Fig7(Args),
    /// Figure 9: read-modify-write transactions (YCSB-T), PRISM-TX against FaRM
    Fig9(Args),
    /// Figure 10: the same with 100 clients, against the skew of their choices
    Fig10(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Objects in each store
    #[arg(long, default_value_t = 1 << 20)]
    objects: u32,
    /// Bytes of an object
    #[arg(long, default_value_t = 512)]
    value: usize,
    /// Where CSV and pictures go
    #[arg(long, default_value = "prism-figures", value_name = "DIR")]
    out: PathBuf,
    /// Measure for as short as gives any figure: to try it out
    #[arg(long)]
    short: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpsArgs {
    #[command(flatten)]
    args: Args,
    /// Only these transports: shm, shm-direct, udp, udp-gso, tcp, verbs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    transport: Vec<String>,
    /// Only these operations, such as read, indirect_read, kv_get
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    op: Vec<String>,
}

impl OpsArgs {
    fn transports(&self) -> Result<Vec<Transport>, Failure> {
        chosen(&self.transport, &Transport::ALL, Transport::of_name, "transport")
    }

    fn ops(&self) -> Result<Vec<Measured>, Failure> {
        let of_name = |wanted: &str| Measured::ALL.into_iter().find(|op| op.name() == wanted);
        chosen(&self.op, &Measured::ALL, of_name, "operation")
    }
}

/// Those that are named; `all` when none is.
fn chosen<T: Copy>(
    names: &[String],
    all: &[T],
    of_name: impl Fn(&str) -> Option<T>,
    what: &str,
) -> Result<Vec<T>, Failure> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        of_name(wanted).ok_or_else(|| Failure::Usage(format!("there is no {what} '{wanted}'")))
    };
    names.iter().map(find).collect()
}

/// A measurement's server, which ends with this value.
struct Running<S = Served> {
    process: Child,
    served: S,
    _folder: stop::TemporaryDir,
}

impl Running {
    fn start(args: &Args, transport: Transport, delay_us: f64) -> Result<Self, Failure> {
        Self::launch(args, transport, args.objects, &["--delay-us", &delay_us.to_string()])
    }
}

impl Running<ServedGroup> {
    /// The servers of replicated blocks, or of transactions.
    fn start_groups(
        args: &Args,
        transport: Transport,
        transactions: bool,
        objects: u32,
    ) -> Result<Self, Failure> {
        let what = if transactions { "tx" } else { "rs" };
        Self::launch(args, transport, objects, &["--measured", what])
    }
}

impl<S: serde::de::DeserializeOwned> Running<S> {
    fn launch(
        args: &Args,
        transport: Transport,
        objects: u32,
        more: &[&str],
    ) -> Result<Self, Failure> {
        let folder = stop::temporary_dir("tercio-prism-")?;
        // What cannot work here is said before anything is started.
        if transport == Transport::Verbs {
            transport.endpoint(folder.path()).port().map_err(Failure::new)?;
        }
        let program = std::env::current_exe().map_err(Failure::new)?;
        let mut process = Process::new(program)
            .args(["prism", "serve", "--busy", "--shm"])
            .arg(folder.path().join("shm"))
            .args(["--transport", transport.name()])
            .args(["--measure", &objects.to_string(), "--value", &args.value.to_string()])
            .args(more)
            // It ends when this process does, however it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::new)?;
        let mut line = String::new();
        let out = process.stdout.take().expect("it was piped");
        BufReader::new(out).read_line(&mut line).map_err(Failure::new)?;
        let served = serde_json::from_str(&line)
            .map_err(|_| Failure::new("the measurement's server did not start"));
        match served {
            Ok(served) => Ok(Self { process, served, _folder: folder }),
            Err(failure) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(failure)
            }
        }
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let (Command::Ops(OpsArgs { args, .. })
    | Command::Fig1(args)
    | Command::Fig2(args)
    | Command::Fig3(args)
    | Command::Fig4(args)
    | Command::Fig6(args)
    | Command::Fig7(args)
    | Command::Fig9(args)
    | Command::Fig10(args)) = command;
    if !(64..=8192).contains(&args.value) || !args.value.is_multiple_of(8) {
        let what = "--value takes 64 to 8192 bytes, a multiple of 8";
        return Err(Failure::Usage(what.into()));
    }
    if !(1000..=1 << 24).contains(&args.objects) {
        return Err(Failure::Usage("--objects takes 1000 to 16777216".into()));
    }
    // Before this process keeps to one processor: it is not all that there is.
    let machine = Here { machine: Machine::here(), line: prism::line_round_trip_ns() };
    prism::pin(1);
    match command {
        Command::Ops(args) => ops(args, machine),
        Command::Fig1(args) => fig1(args, machine),
        Command::Fig2(args) => fig2(args, machine),
        Command::Fig3(args) => loads(args, ("fig3", Workload::C, &paper::FIG3), machine),
        Command::Fig4(args) => loads(args, ("fig4", Workload::A, &paper::FIG4), machine),
        Command::Fig6(args) => groups::fig6(args, machine),
        Command::Fig7(args) => groups::fig7(args, machine),
        Command::Fig9(args) => groups::fig9(args, machine),
        Command::Fig10(args) => groups::fig10(args, machine),
    }
}

/// Where a run was measured.
#[derive(Serialize)]
struct Here {
    #[serde(flatten)]
    machine: Machine,
    /// What a cache line takes between the two processors, there and back.
    #[serde(rename = "line_round_trip_ns")]
    line: Option<u64>,
}

#[derive(Serialize)]
struct OpsReport {
    ops: Vec<OpFigure>,
    objects: u32,
    value_bytes: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paper: Vec<PaperPoint>,
    files: Vec<String>,
    machine: Here,
}

fn measure(
    args: &Args,
    transports: &[Transport],
    which: &[Measured],
    machine: Here,
) -> Result<OpsReport, Failure> {
    let effort = if args.short { ops::Effort::SHORT } else { ops::Effort::NORMAL };
    let mut figures = Vec::new();
    for transport in transports {
        let running = Running::start(args, *transport, 0.0)?;
        let more = ops::measure(&running.served, which, effort);
        figures.extend(more.map_err(Failure::new)?);
    }
    Ok(OpsReport {
        ops: figures,
        objects: args.objects,
        value_bytes: args.value,
        paper: Vec::new(),
        files: Vec::new(),
        machine,
    })
}

fn ops(args: &OpsArgs, machine: Here) -> Result<(), Failure> {
    let mut report = measure(&args.args, &args.transports()?, &args.ops()?, machine)?;
    report.files = write(&args.args, "ops", &ops_table(&report.ops).csv(), None)?;
    output::report(args.args.json, &report, print_ops)
}

fn fig1(args: &Args, machine: Here) -> Result<(), Failure> {
    let which = [
        Measured::Read,
        Measured::Write,
        Measured::IndirectRead,
        Measured::Allocate,
        Measured::Cas,
    ];
    let mut report = measure(args, &[Transport::Shm, Transport::Udp], &which, machine)?;
    report.paper = paper::FIG1.to_vec();
    let of = |transport, op: &str| {
        let figure = report.ops.iter().find(|f| f.transport == transport && f.op == op);
        figure.map(|figure| figure.p50_us)
    };
    let published = |series: &str, op: &str| {
        paper::FIG1.iter().find(|p| p.series == series && p.x == op).map(|p| p.us)
    };
    let series = ["PRISM software", "RDMA", "PRISM BlueField", "PRISM ASIC (model)"];
    let groups: Vec<_> = ["read", "write", "indirect_read", "allocate", "cas"]
        .map(|op| {
            let mut values = vec![of(Transport::Shm, op), of(Transport::Udp, op)];
            values.extend(series.map(|series| published(series, op)));
            (op.to_owned(), values)
        })
        .into();
    let names = [
        "here: shared memory",
        "here: UDP, loopback",
        "paper: PRISM software",
        "paper: RDMA",
        "paper: BlueField",
        "paper: ASIC (model)",
    ];
    let svg = plot::bars("Latency of 512-byte operations", "p50, us", &names, &groups);
    report.files = write(args, "fig1", &ops_table(&report.ops).csv(), Some(&svg))?;
    output::report(args.json, &report, print_ops)
}

const OPS_COLUMNS: [Column; 10] = [
    column("op", "operation", 0),
    column("transport", "transport", 0),
    column("p50_us", "p50 us", 2),
    column("p99_us", "p99 us", 2),
    column("mean_us", "", 2),
    column("rate_per_s", "per s", 0),
    column("random_read_fraction", "of READ's rate", 2),
    column("floor_us", "", 2),
    column("memory_us", "", 2),
    column("", "of floor", 0),
];

fn ops_table(figures: &[OpFigure]) -> Table<'static> {
    let row = |f: &OpFigure| {
        let of_floor = match (f.of_floor, f.floor_us, f.memory_us) {
            (Some(of), Some(floor_us), Some(memory_us)) => {
                format!("{of:.2} x {floor_us:.2} us (memory {memory_us:.2})")
            }
            _ => String::new(),
        };
        [
            f.op.into(),
            f.transport.name().into(),
            f.p50_us.into(),
            f.p99_us.into(),
            f.mean_us.into(),
            f.rate_per_s.into(),
            f.random_read_fraction.into(),
            f.floor_us.into(),
            f.memory_us.into(),
            of_floor.as_str().into(),
        ]
    };
    Table::new(&OPS_COLUMNS, figures.iter().map(row))
}

fn print_ops(report: &OpsReport) {
    let line = output::line;
    line(&format!("{} objects of {} bytes, random", report.objects, report.value_bytes));
    if let Some(ns) = report.machine.line {
        line(&format!("a cache line takes {ns} ns to the other processor and back"));
    }
    ops_table(&report.ops).lines().iter().for_each(|row| line(row));
    line(&format!("files: {}", report.files.join(" ")));
}

#[derive(Serialize)]
struct DistanceReport {
    points: Vec<Distance>,
    objects: u32,
    value_bytes: usize,
    paper: Vec<PaperPoint>,
    files: Vec<String>,
    machine: Here,
}

const DISTANCE_COLUMNS: [Column; 5] = [
    column("distance_us", "distance us", 1),
    column("transport", "transport", 0),
    column("two_reads_p50_us", "2 READs us", 2),
    column("indirect_read_p50_us", "indirect READ us", 2),
    column("ratio", "ratio", 2),
];

fn distance_table(points: &[Distance]) -> Table<'static> {
    let row = |p: &Distance| {
        let (two, one) = (p.two_reads.p50_us, p.indirect_read.p50_us);
        [p.distance_us.into(), p.transport.name().into(), two.into(), one.into(), p.ratio.into()]
    };
    Table::new(&DISTANCE_COLUMNS, points.iter().map(row))
}

/// What is added to each round trip, in microseconds: nothing, a rack, a cluster, a data centre.
const DISTANCES_US: [f64; 4] = [0.0, 0.6, 3.0, 24.0];

fn fig2(args: &Args, machine: Here) -> Result<(), Failure> {
    let duration_ns = if args.short { 10_000_000 } else { 300_000_000 };
    let mut points = Vec::new();
    for transport in [Transport::Shm, Transport::Udp] {
        for distance_us in DISTANCES_US {
            let running = Running::start(args, transport, distance_us)?;
            let point = loads::distance(&running.served, distance_us, duration_ns);
            points.push(point.map_err(Failure::new)?);
        }
    }
    let csv = distance_table(&points).csv();
    let mut series = Vec::new();
    for transport in [Transport::Shm, Transport::Udp] {
        let mut add = |what: &str, of: fn(&Distance) -> f64| {
            let here = points.iter().filter(|point| point.transport == transport);
            let points = here.map(|point| (point.distance_us, of(point))).collect();
            let name = format!("here: {what}, {}", transport.name());
            series.push(Series { name, points, marks: false });
        };
        add("2 READs", |point| point.two_reads.p50_us);
        add("indirect READ", |point| point.indirect_read.p50_us);
    }
    for name in ["2 x RDMA", "PRISM software"] {
        let of = paper::FIG2.iter().filter(|point| point.series == name);
        let points = of.map(|point| (point.x.parse().unwrap_or(0.0), point.us)).collect();
        series.push(Series { name: format!("paper: {name}"), points, marks: true });
    }
    let title = "An indirect READ against two READs";
    let svg = plot::lines(title, "added to each round trip, us", "p50, us", &series);
    let files = write(args, "fig2", &csv, Some(&svg))?;
    let report = DistanceReport {
        points,
        objects: args.objects,
        value_bytes: args.value,
        paper: paper::FIG2.to_vec(),
        files,
        machine,
    };
    output::report(args.json, &report, |report| {
        distance_table(&report.points).lines().iter().for_each(|row| output::line(row));
        output::line(&format!("files: {}", report.files.join(" ")));
    })
}

#[derive(Serialize)]
struct LoadsReport {
    workload: Workload,
    comparisons: Vec<Comparison>,
    points: Vec<Point>,
    objects: u32,
    value_bytes: usize,
    hash: &'static str,
    paper: Vec<PaperPoint>,
    files: Vec<String>,
    machine: Here,
}

const LOADS_COLUMNS: [Column; 7] = [
    column("system", "system", 0),
    column("transport", "transport", 0),
    column("window", "window", 0),
    column("p50_us", "p50 us", 2),
    column("p99_us", "p99 us", 2),
    column("mean_us", "mean us", 2),
    column("rate_per_s", "per s", 0),
];

fn loads_table(points: &[Point]) -> Table<'static> {
    let row = |p: &Point| {
        [
            p.system.name().into(),
            p.transport.name().into(),
            p.window.into(),
            p.latency.p50_us.into(),
            p.latency.p99_us.into(),
            p.latency.mean_us.into(),
            p.rate_per_s.into(),
        ]
    };
    Table::new(&LOADS_COLUMNS, points.iter().map(row))
}

fn loads(
    args: &Args,
    (name, workload, paper): (&str, Workload, &[PaperPoint]),
    machine: Here,
) -> Result<(), Failure> {
    let effort = if args.short { loads::Effort::SHORT } else { loads::Effort::NORMAL };
    let load = Load { workload, theta: 0.0 };
    let systems: &[System] = match workload {
        Workload::C => &[System::PrismKv],
        _ => &[System::PrismKv, System::PrismKvTwoRounds],
    };
    let (mut points, mut comparisons) = (Vec::new(), Vec::new());
    for transport in [Transport::Shm, Transport::Udp, Transport::UdpGso] {
        let running = Running::start(args, transport, 0.0)?;
        let measured = loads::compare(&running.served, systems, &load, effort);
        let (more, compared) = measured.map_err(Failure::new)?;
        points.extend(more);
        comparisons.extend(compared);
    }
    let csv = loads_table(&points).csv();
    let mut series: Vec<Series> = Vec::new();
    for point in &points {
        let name = format!("here: {}, {}", point.system.name(), point.transport.name());
        let at = (point.rate_per_s / 1e6, point.latency.mean_us);
        match series.last_mut() {
            Some(series) if series.name == name => series.points.push(at),
            _ => series.push(Series { name, points: vec![at], marks: false }),
        }
    }
    for point in paper {
        let points = vec![(point.x.parse().unwrap_or(0.0), point.us)];
        series.push(Series { name: format!("paper: {}", point.series), points, marks: true });
    }
    let title = format!("YCSB-{workload:?}, {} bytes, uniform", args.value);
    let svg = plot::lines(&title, "million commands a second", "mean latency, us", &series);
    let files = write(args, name, &csv, Some(&svg))?;
    let report = LoadsReport {
        workload,
        comparisons,
        points,
        objects: args.objects,
        value_bytes: args.value,
        hash: "collisionless",
        paper: paper.to_vec(),
        files,
        machine,
    };
    output::report(args.json, &report, |report| {
        loads_table(&report.points).lines().iter().for_each(|row| output::line(row));
        for c in &report.comparisons {
            output::line(&format!(
                "{} against pilaf on {}: latency {:.2}x ({:.2} to {:.2}), throughput {:.2}x \
                 ({:.2} to {:.2})",
                c.system.name(),
                c.transport.name(),
                c.latency_ratio.median,
                c.latency_ratio.min,
                c.latency_ratio.max,
                c.throughput_ratio.median,
                c.throughput_ratio.min,
                c.throughput_ratio.max
            ));
        }
        output::line(&format!("files: {}", report.files.join(" ")));
    })
}

/// Writes a figure's data and picture; gives their paths.
fn write(args: &Args, name: &str, csv: &str, svg: Option<&str>) -> Result<Vec<String>, Failure> {
    fs::create_dir_all(&args.out).map_err(|error| Failure::at(&args.out, error))?;
    let mut files = Vec::new();
    let mut put = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| Failure::at(path, error))?;
        files.push(path.display().to_string());
        Ok::<(), Failure>(())
    };
    put(&args.out.join(format!("prism-{name}.csv")), csv)?;
    if let Some(svg) = svg {
        put(&args.out.join(format!("prism-{name}.svg")), svg)?;
    }
    Ok(files)
}
