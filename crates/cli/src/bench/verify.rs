//! `tercio bench verify`.

use crate::failure::Failure;
use crate::output;
use std::time::Duration;
use tercio_bench::verify::{Setup, VerifyReport, measure};
use tercio_crypto::sm2::Backend;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Scheme {
    Sm2,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendName {
    /// 64-bit integers, in the compiler's instructions
    Portable,
    /// 64-bit integers, with MULX where the processor has it
    Scalar,
    /// AVX-512 IFMA, eight signatures in vector lanes
    Ifma,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The signature scheme
    #[arg(long, value_enum, default_value = "sm2")]
    scheme: Scheme,
    /// Where the arithmetic runs [default: the fastest that this processor has]
    #[arg(long, value_enum)]
    backend: Option<BackendName>,
    /// Signatures in a batch
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Keys that the signatures are spread over
    #[arg(long, value_name = "K", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    keys: u16,
    /// Bytes of a message
    #[arg(long, value_name = "B", default_value_t = 100)]
    size: u16,
    /// Rounds of our two measurements and OpenSSL's
    #[arg(long, value_name = "T", default_value_t = 7,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Scheme::Sm2 = args.scheme;
    let backend = match args.backend {
        Some(BackendName::Portable) => Backend::Portable,
        Some(BackendName::Scalar) => Backend::Scalar,
        Some(BackendName::Ifma) => Backend::Ifma,
        None => Backend::best(),
    };
    let setup = Setup {
        backend,
        batch: args.batch.into(),
        keys: args.keys.into(),
        size: args.size.into(),
        rounds: args.rounds.into(),
        time: Duration::from_millis(200),
    };
    let report = measure(&setup).map_err(Failure::new)?;
    output::report(args.json, &report, print)
}

fn print(report: &VerifyReport) {
    output::line(&format!(
        "{} on {}: {:.0} verifications/s a core ({:.0} to {:.0}), bound {:.0}",
        report.scheme,
        report.backend,
        report.verifies_per_s,
        report.verifies_per_s_spread[0],
        report.verifies_per_s_spread[1],
        report.bound_per_s,
    ));
    output::line(&format!(
        "keys with tables: {:.0}/s, bound {:.0}",
        report.verifies_per_s_cached_keys, report.bound_per_s_cached_keys
    ));
    output::line(&match (report.openssl_verifies_per_s, report.ratio) {
        (Some(theirs), Some(ratio)) => {
            format!("{}: {theirs:.0}/s; ours is {ratio:.1} times as fast", report.openssl)
        }
        _ => format!("not compared with OpenSSL: {}", report.openssl),
    });
    output::line(&format!(
        "the bound: {} field products, {:.0} multiply instructions a verification, {:.2} thousand million issued a second",
        report.work.field_products, report.work.multiply_instructions, report.multiply_issue_gps
    ));
}
