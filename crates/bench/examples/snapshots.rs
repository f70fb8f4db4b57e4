//! What clients notice of snapshots: a network of four processes of `PROGRAM` with `STATE_MIB` MiB in
//! values of 1 KiB, under full load for `SECONDS`, that takes a snapshot at each `EVERY`th checkpoint.
//!
//! ```sh
//! cargo run --release -p tercio-bench --example snapshots -- PROGRAM STATE_MIB SECONDS EVERY
//! ```

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tercio_bench::load::{self, Moment, Ops, Pace, Phase, Plan};
use tercio_bench::network::{self, Network, Replicas, Spec};
use tercio_kv::{Command, Settings};
use tercio_replica::genesis::App;
use tercio_wire::Encode;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, program, mib, seconds, every] = &arguments[..] else {
        return Err("PROGRAM STATE_MIB SECONDS EVERY".into());
    };
    let (mib, seconds): (u64, u64) = (mib.parse()?, seconds.parse()?);
    let settings = Settings { fill_keys: mib * 1024, ..Settings::default() };
    let spec = Spec { clients: 2, app: App::Kv(settings), ..Spec::default() };
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    let network = Network::lay_out(dir, &spec)?;
    for id in 0..spec.replicas {
        let file = network::home(dir, id).join("tercio.toml");
        let mut file = OpenOptions::new().append(true).open(file)?;
        writeln!(file, "\n[ledger]\nsnapshot_every = {every}")?;
    }
    let replicas = Replicas::start(dir, spec.replicas, Some(Path::new(program)))?;
    let clients = (0..spec.clients).map(|i| network.client(i, spec.core_settings()));
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    let ops = Ops::new(move |client, number| {
        let at = number.wrapping_mul(0x9e37_79b1).wrapping_add(client as u64) % settings.fill_keys;
        let key = [settings.fill_key(at), b"+".to_vec()].concat().into();
        Command::Put { key, value: vec![number as u8; 74].into() }.to_bytes()
    });
    let phase = |seconds| Phase { pace: Pace::Closed, length: Duration::from_secs(seconds) };
    // Until the first snapshot is due is no part of it: the store is made then.
    let phases = vec![phase(2), phase(seconds)];
    let plan = Plan { phases, package: 1, outstanding: 512, ops, may_fail: false };
    let mut seen = BTreeSet::new();
    let outcomes = load::run(&mut clients, &plan, |moment| {
        if let Moment::Tick { phase: 1, .. } = moment {
            let files = fs::read_dir(network::home(dir, 0).join("data/snapshots"));
            let names = files.into_iter().flatten().flatten().map(|file| file.file_name());
            seen.extend(names.map(|name| name.to_string_lossy().replace(".tmp", "")));
        }
    })?;
    let peak: Vec<f64> = replicas.usage()?.iter().map(|used| used.rss_mb()).collect();
    drop(clients);
    replicas.stop()?;
    let (outcome, latency) = (&outcomes[1], outcomes[1].latency.latency());
    println!(
        "{{\"state_mb\": {mib}, \"snapshots\": {}, \"writes_per_s\": {:.0}, \"p99_ms\": {:.1}, \
         \"max_ms\": {:.1}, \"longest_gap_ms\": {:.1}, \"rss_mb\": {peak:.0?}}}",
        seen.len(),
        outcome.rate(),
        latency.p99 / 1e3,
        latency.max / 1e3,
        outcome.longest_gap.as_secs_f64() * 1e3,
    );
    Ok(())
}
