//! `tercio bench calibrate`.

use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use tercio_bench::calibrate::{self, Calibration, ExchangeLatency};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    calibration: Calibration,
    exchange_latency: Vec<ExchangeLatency>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let unusable = |error| Failure::new(format!("the loopback network cannot be used: {error}"));
    let report = Report {
        calibration: calibrate::ceiling().map_err(unusable)?,
        exchange_latency: calibrate::exchange_latencies().map_err(unusable)?,
    };
    output::report(args.json, &report, print)
}

fn print(report: &Report) {
    let Calibration { machine, formula, terms: t, batch_ops, work, work_us_per_request, .. } =
        &report.calibration;
    let line = output::line;
    line(&format!(
        "machine: {} cores, {}, Linux {}, load {:.2}",
        machine.cores, machine.cpu_model, machine.kernel, machine.load_1min
    ));
    line(&format!(
        "request frame {} B, reply frame {} B on average, batch_blocks {:.2}, batch_ops {batch_ops}",
        t.request_frame_bytes, t.reply_frame_bytes, t.batch_blocks
    ));
    line("\nterms, nanoseconds of processor time:");
    for (name, value) in [
        ("tag", t.tag_ns),
        ("sha256_block", t.sha256_block_ns),
        ("hash_request", t.hash_request_ns),
        ("hash_reply", t.hash_reply_ns),
        ("alloc_copy", t.alloc_copy_ns),
        ("write_request", t.write_request_ns),
        ("read_request", t.read_request_ns),
        ("write_reply", t.write_reply_ns),
        ("read_reply", t.read_reply_ns),
        ("lone_message", t.lone_message_ns),
    ] {
        line(&format!("  {name:<14}{value:>9.1}"));
    }
    line(&format!("\n{formula}\n"));
    line(&format!(
        "client {:.0} ns + primary {:.0} ns + 3 x backup {:.0} ns + batch share {:.0} ns = {:.2} us \
         of work per request",
        work.client_ns, work.primary_ns, work.backup_ns, work.batch_share_ns, work_us_per_request
    ));
    line(&format!("ceiling: {:.0} requests/s", report.calibration.ceiling_rps));
    line("\nbare exchange of the protocol's messages, no cryptography:");
    for ExchangeLatency { transport, p50_us, p99_us, .. } in &report.exchange_latency {
        line(&format!("  {transport:<5} p50 {p50_us:>7.1} us   p99 {p99_us:>7.1} us"));
    }
}
