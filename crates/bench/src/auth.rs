//! `bench auth`: what ordering reaches for each way in which clients authenticate their packages,
//! and each number of requests in a package.
//!
//! Every row is a network of its own under a closed loop. Client, primary and backups share the
//! machine, so a scheme whose signing is slow holds the clients up first: a row says how busy the
//! busiest of them was.

use crate::Machine;
use crate::bft::{self, Bft, Offer};
use crate::figures::round;
use crate::load::Pace;
use crate::setup::{BenchError, Running, Settings, Setup};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tercio_network::Auth;
use tercio_types::Scheme;

/// Themis, page 19: throughput with ECDSA over that with RSA.
const THEMIS_ECDSA_OVER_RSA: f64 = 1.93;

/// All ways in which clients authenticate packages.
pub const ALL: [Auth; 6] = [
    Auth::Mac,
    Auth::Signed(Scheme::Ed25519),
    Auth::Signed(Scheme::Sm2),
    Auth::Signed(Scheme::EcdsaP256),
    Auth::Signed(Scheme::Secp256k1),
    Auth::Signed(Scheme::Rsa2048),
];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The network; its authentication and package are those of each row instead.
    pub setup: Setup,
    /// The ways to authenticate.
    pub auths: Vec<Auth>,
    /// The numbers of requests in a package.
    pub packages: Vec<usize>,
    /// How long a row is measured.
    pub measure: Duration,
}

/// One way to authenticate packages of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `mac`, or the scheme of the signatures.
    pub auth: &'static str,
    /// Requests in a package.
    pub package: usize,
    /// Requests per second that were executed and answered.
    pub throughput_rps: f64,
    /// Packages per second, each with one signature.
    pub packages_per_s: f64,
    /// Processor time of the first primary for a request.
    pub cpu_us_per_request_primary: f64,
    /// The same of a backup, their mean.
    pub cpu_us_per_request_backup: f64,
    /// The part of a processor that the busiest client used.
    pub busiest_client_cpu: f64,
}

/// What was published, beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Where.
    pub source: &'static str,
    /// What was published.
    pub published: String,
    /// What was measured here.
    pub measured: String,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct AuthReport {
    /// The rows, by authentication, then package.
    pub rows: Vec<Row>,
    /// Published results that the rows can be held against.
    pub published: Vec<Comparison>,
    /// How long each row was measured at least: longer where that was too short for anything.
    pub seconds: f64,
    /// All settings of the first row; those after it differ in `auth` and `package`.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
}

/// Measures. The replicas are processes of `program`, or threads of this one; their homes are made
/// in `dir`. `said` is told what is going on, `done` each row.
///
/// # Errors
/// When a network fails or an operation is not executed.
///
/// # Panics
/// When there is nothing to measure.
pub fn run(
    sweep: &Sweep,
    program: Option<&Path>,
    dir: &Path,
    said: &dyn Fn(&str),
    done: &dyn Fn(&Row),
) -> Result<AuthReport, BenchError> {
    let machine = Machine::here();
    let mut rows = vec![];
    let mut settings = None;
    let all = sweep.auths.len() * sweep.packages.len();
    for auth in &sweep.auths {
        for package in &sweep.packages {
            said(&format!("{} of {all}: {}, packages of {package}", rows.len() + 1, auth.name()));
            let spec = sweep.setup.spec.clone().with_auth(*auth);
            let setup = Setup { spec, package: *package, ..sweep.setup.clone() };
            let home = dir.join(format!("{}-{package}", auth.name()));
            settings.get_or_insert_with(|| setup.settings(program.is_some(), "closed"));
            rows.push(row(setup, sweep.measure, program, &home, said)?);
            done(&rows[rows.len() - 1]);
        }
    }
    Ok(AuthReport {
        published: published(&rows),
        rows,
        seconds: sweep.measure.as_secs_f64(),
        settings: settings.expect("there is a row"),
        machine,
    })
}

/// Measures so long, and longer until something was executed and every replica has used processor
/// time: the kernel counts that in ticks of 10 ms, and a busy machine may do nothing for a while.
fn row(
    setup: Setup,
    measure: Duration,
    program: Option<&Path>,
    home: &Path,
    said: &dyn Fn(&str),
) -> Result<Row, BenchError> {
    let mut running = setup.launch(program, home)?;
    let mut bft = Bft { setup, offer: Offer::Closed, measure, trials: 1, one_client: false };
    let (trial, cpu) = loop {
        let trial = bft::measure(&mut running, &bft, Pace::Closed, &|_| {})?;
        let completed = trial.outcome.completed;
        let cpu = bft::cpu_us_per_request(&trial.before, &trial.after, completed);
        if completed > 0 && cpu.iter().all(|us| *us > 0.0) {
            break (trial, cpu);
        }
        bft.measure *= 2;
        said(&format!("too little to measure: again, for {} s", bft.measure.as_secs_f64()));
    };
    let Running { replicas, clients, .. } = running;
    drop(clients);
    replicas.stop()?;
    let backups = &cpu[1..];
    let rate = trial.outcome.rate();
    Ok(Row {
        auth: bft.setup.spec.auth().name(),
        package: bft.setup.package,
        throughput_rps: round(rate, 3),
        packages_per_s: round(rate / bft.setup.package as f64, 3),
        cpu_us_per_request_primary: cpu[0],
        cpu_us_per_request_backup: round(
            backups.iter().sum::<f64>() / backups.len().max(1) as f64,
            3,
        ),
        busiest_client_cpu: round(trial.outcome.busiest_client, 3),
    })
}

fn published(rows: &[Row]) -> Vec<Comparison> {
    let mut out = vec![];
    for auth in ALL.iter().filter(|auth| **auth != Auth::Mac) {
        let mut these: Vec<&Row> = rows.iter().filter(|row| row.auth == auth.name()).collect();
        these.sort_by_key(|row| row.package);
        let steps = these.windows(2);
        if these.len() < 2 {
            continue;
        }
        let rises = steps.clone().all(|pair| pair[1].throughput_rps > pair[0].throughput_rps);
        let falls = steps.clone().all(|pair| pair[1].packages_per_s < pair[0].packages_per_s);
        let (first, last) = (these[0], these[these.len() - 1]);
        let yes = |really| if really { "at each step" } else { "not at each step" };
        out.push(Comparison {
            source: "002, table 9",
            published: "from 1 to 30 orders a transaction orders/s rise, transactions/s fall"
                .into(),
            measured: format!(
                "{}, {} to {} requests a package: requests/s times {:.2} (rise {}), packages/s \
                 times {:.2} (fall {})",
                auth.name(),
                first.package,
                last.package,
                last.throughput_rps / first.throughput_rps,
                yes(rises),
                last.packages_per_s / first.packages_per_s,
                yes(falls)
            ),
        });
    }
    let of = |auth: Scheme, package| {
        rows.iter().find(|row| row.auth == auth.name() && row.package == package)
    };
    for ecdsa in rows.iter().filter(|row| row.auth == Scheme::EcdsaP256.name()) {
        if let Some(rsa) = of(Scheme::Rsa2048, ecdsa.package) {
            out.push(Comparison {
                source: "004, page 19",
                published: format!("throughput with ECDSA: {THEMIS_ECDSA_OVER_RSA} times RSA's"),
                measured: format!(
                    "p256, packages of {}: {:.2} times rsa's",
                    ecdsa.package,
                    ecdsa.throughput_rps / rsa.throughput_rps
                ),
            });
        }
    }
    out
}
