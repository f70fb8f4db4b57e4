//! What clients notice of snapshots, and of what goes when they are written: a network of four processes
//! of `PROGRAM` with `STATE_MIB` MiB in values of 1 KiB, under full load for twice `SECONDS`, that takes a
//! snapshot at each `EVERY`th checkpoint and releases the blocks that none needs. The load writes
//! values of `VALUE` bytes, so that says how long those blocks are.
//!
//! ```sh
//! cargo run --profile dist -p tercio-bench --example snapshots -- \
//!     PROGRAM STATE_MIB SECONDS EVERY VALUE DURABILITY
//! ```

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tercio_bench::load::{self, Moment, Ops, Pace, Phase, Plan};
use tercio_kv::{Command, Settings};
use tercio_network::{Network, Replicas, Spec};
use tercio_wire::Encode;

/// How much of the log replicas keep, in bytes.
const RETAIN_BYTES: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, program, mib, seconds, every, value, durability] = &arguments[..] else {
        return Err("PROGRAM STATE_MIB SECONDS EVERY VALUE DURABILITY".into());
    };
    let (mib, seconds): (u64, u64) = (mib.parse()?, seconds.parse()?);
    let (value, durability) = (value.parse()?, durability.parse()?);
    let settings = Settings { fill_keys: mib * 1024, ..Settings::default() };
    let retain_bytes = Some(RETAIN_BYTES);
    let app = tercio_registry::KvKind::app(settings);
    let spec = Spec { clients: 2, durability, retain_bytes, ..Spec::new(app) };
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    let network = Network::lay_out(dir, &spec)?;
    for id in 0..spec.replicas {
        let file = tercio_network::home(dir, id).join("tercio.toml");
        let mut file = OpenOptions::new().append(true).open(file)?;
        // The table is the file's last.
        writeln!(file, "snapshot_every = {every}")?;
    }
    let replicas = Replicas::start(dir, &spec, Some(Path::new(program)))?;
    let clients = (0..spec.clients).map(|i| network.client(i, spec.core_settings()));
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    let ops = Ops::new(move |client, number| {
        let at = number.wrapping_mul(0x9e37_79b1).wrapping_add(client as u64) % settings.fill_keys;
        let key = [settings.fill_key(at), b"+".to_vec()].concat().into();
        Command::Put { key, value: vec![number as u8; value].into() }.to_bytes()
    });
    let phase = |seconds| Phase { pace: Pace::Closed, length: Duration::from_secs(seconds) };
    let phases = vec![phase(seconds)];
    let plan = Plan { phases, package: 1, outstanding: 512, ops, may_fail: false };
    // The first time is no part of it: the store is made then, and blocks that are on the disk when they
    // go, as those of an older network are. To remove what is not takes no time.
    load::run(&mut clients, &plan, |_| {})?;
    rustix::fs::sync();
    let mut seen = BTreeSet::new();
    let outcomes = load::run(&mut clients, &plan, |moment| {
        if let Moment::Tick { .. } = moment {
            let files = fs::read_dir(tercio_network::home(dir, 0).join("data/snapshots"));
            let names = files.into_iter().flatten().flatten().map(|file| file.file_name());
            seen.extend(names.map(|name| name.to_string_lossy().replace(".tmp", "")));
        }
    })?;
    let peak: Vec<f64> = replicas.usage()?.iter().map(|used| used.rss_mb()).collect();
    drop(clients);
    replicas.stop()?;
    let (outcome, latency) = (&outcomes[0], outcomes[0].latency.latency());
    println!(
        "{{\"state_mb\": {mib}, \"value\": {value}, \"durability\": \"{durability}\", \
         \"snapshots\": {}, \"writes_per_s\": {:.0}, \"p99_ms\": {:.1}, \"max_ms\": {:.1}, \
         \"longest_gap_ms\": {:.1}, \"rss_mb\": {peak:.0?}}}",
        seen.len(),
        outcome.rate(),
        latency.p99 / 1e3,
        latency.max / 1e3,
        outcome.longest_gap.as_secs_f64() * 1e3,
    );
    Ok(())
}
