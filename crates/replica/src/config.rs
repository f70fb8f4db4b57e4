//! A replica's own settings.
//!
//! Its home ([`tercio_genesis::replica_home`]) holds them in `tercio.toml`.
//!
//! `docs/configuration.md` has every key with its default, and a test that holds it to the parser.

pub use crate::entry::Range;
use crate::entry::{entry, number};
use crate::{Layout, NoLog, NodeSettings, VerifySettings};
use serde::Deserialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_consensus::{MAX_PACKAGE, Settings};
use tercio_crypto::SecretKey;
use tercio_crypto::sm2::{Backend, Unavailable};
use tercio_genesis::replica_home::{CONFIG_FILE, DATA_DIR};
use tercio_genesis::{
    Apps, At, ConfigError, FileError, GENESIS_FILE, Genesis, KEY_FILE, Source, read_genesis,
    read_secret, read_text,
};
use tercio_ledger::{BlockLogSettings, MemStorage, WalSettings};
use tercio_sync::SyncSettings;
use tercio_transport::{Limits, Listen};
use tercio_types::{ReplicaId, ReplicaSet};

/// How long a replica busy-polls for frames after one came (`[links] poll_us`): about one request of a
/// client that has one in flight, so that replicas stay awake for the next.
const POLL: Duration = Duration::from_micros(200);
/// After how long without a link to another replica, and after which pause at most, it is dialled
/// again: about a second after a cut is over all links are there.
const DIAL_TIMEOUT: Duration = Duration::from_millis(750);
const REDIAL_MAX: Duration = Duration::from_millis(250);

/// Where a replica writes.
#[derive(Clone, Debug)]
pub enum Data {
    /// Into a directory.
    Directory(PathBuf),
    /// Into memory: for tests and measurements.
    Memory(MemStorage),
}

/// All that a replica needs to start.
#[derive(Debug)]
pub struct ReplicaConfig {
    /// The stages.
    pub node: NodeSettings,
    /// Where to listen.
    pub listen: Listen,
    /// Where to write.
    pub data: Data,
    /// Which thread runs what.
    pub layout: Layout,
    /// What peers may cost.
    pub limits: Limits,
    /// Where it answers `GET /metrics`; nowhere by default.
    pub metrics: Option<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    replica: At<u16>,
    listen: Option<At<String>>,
    layout: Option<At<String>>,
    durability: Option<At<String>>,
    #[serde(default)]
    consensus: ConsensusEntry,
    #[serde(default)]
    retain: RetainEntry,
    #[serde(default)]
    ledger: LedgerEntry,
    #[serde(default)]
    links: LinksEntry,
    #[serde(default)]
    catch_up: CatchUpEntry,
    #[serde(default)]
    verify: VerifyEntry,
    #[serde(default)]
    metrics: MetricsEntry,
}

entry!(ConsensusEntry in "consensus" {
    numbers {
        batch_ops: 1..=65_536,
        batch_bytes: 1..=8 << 20,
        batch_time_us: 0..=1_000_000,
        pipeline: 1..=65_536,
        view_timeout_ms: 20..=600_000 => "below that every pause replaces the primary",
        view_timeout_max_ms: 20..=3_600_000,
        status_interval_ms: 5..=60_000,
        idle_interval_ms: 10..=60_000,
        checkpoint_idle_ms: 10..=3_600_000,
        client_ops: 1024..=1 << 24 => "a package has up to 1024 operations",
        total_ops: 1024..=1 << 28 => "a package has up to 1024 operations",
        total_bytes: 1 << 20..=1 << 36,
    }
    others { attest: bool, }
});
entry!(RetainEntry in "retain" {
    numbers {
        bytes: 1..=1 << 60 => "leave it out for no limit",
        blocks: 1..=1 << 60 => "leave it out for no limit",
        snapshot_bytes: 0..=1 << 50,
    }
    others { results: bool, }
});
entry!(LedgerEntry in "ledger" {
    numbers {
        blocks_per_segment: 1..=1 << 20,
        wal_file_bytes: 64 << 10..=16 << 30,
        snapshot_every: 0..=1 << 30,
        scrub_bytes: 0..=64 << 30,
    }
});
entry!(LinksEntry in "links" {
    numbers {
        max_clients: 1..=1 << 20,
        max_client_frame: 1024..=MAX_PACKAGE as i64
            => "a request travels on inside frames of replicas",
        max_client_queue: 64 << 10..=1 << 30,
        max_queue: 1 << 20..=64 << 30 => "frames of replicas have up to 16 MiB",
        poll_us: 0..=10_000,
    }
});
entry!(CatchUpEntry in "catch_up" {
    numbers {
        timeout_ms: 10..=600_000,
        state_after: 0..=1 << 60,
        serve_bytes: 1 << 20..=64 << 30 => "who waits longer for an answer gives up",
    }
});
entry!(MetricsEntry in "metrics" { others { listen: At<String>, remote: bool, } });
entry!(VerifyEntry in "verify" {
    numbers {
        threads: 0..=64 => "0 for the loop's thread",
        batch: 1..=4096,
        gather_us: 0..=10_000,
    }
    others { sm2: At<String>, }
});

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// A number that was checked.
fn set_number<T: TryFrom<i64>>(slot: &mut T, value: Option<&At<i64>>) {
    set(slot, number(value));
}

fn set_ms(slot: &mut Duration, value: Option<&At<i64>>) {
    set(slot, number(value).map(Duration::from_millis));
}

fn set_us(slot: &mut Duration, value: Option<&At<i64>>) {
    set(slot, number(value).map(Duration::from_micros));
}

impl ConsensusEntry {
    fn apply(&self, source: &Source<'_>, settings: &mut Settings) -> Result<(), FileError> {
        self.check(source)?;
        set_number(&mut settings.batch_ops, self.batch_ops.as_ref());
        set_number(&mut settings.batch_bytes, self.batch_bytes.as_ref());
        set_us(&mut settings.batch_time, self.batch_time_us.as_ref());
        set_number(&mut settings.pipeline, self.pipeline.as_ref());
        set_ms(&mut settings.view_timeout, self.view_timeout_ms.as_ref());
        set_ms(&mut settings.view_timeout_max, self.view_timeout_max_ms.as_ref());
        set_ms(&mut settings.status_interval, self.status_interval_ms.as_ref());
        set_ms(&mut settings.idle_interval, self.idle_interval_ms.as_ref());
        set_ms(&mut settings.checkpoint_idle, self.checkpoint_idle_ms.as_ref());
        set(&mut settings.attest, self.attest);
        let pool = &mut settings.pool;
        set_number(&mut pool.client_ops, self.client_ops.as_ref());
        set_number(&mut pool.total_ops, self.total_ops.as_ref());
        set_number(&mut pool.total_bytes, self.total_bytes.as_ref());
        if pool.total_ops < pool.client_ops {
            let what = format!("must be at least client_ops, {}", pool.client_ops);
            return Err(source.at_key("total_ops", what));
        }
        match &self.pipeline {
            Some(pipeline) if settings.pipeline > settings.window => {
                let what = format!("must be at most the genesis' window, {}", settings.window);
                Err(source.at(pipeline, what))
            }
            _ => Ok(()),
        }
    }
}

impl RetainEntry {
    fn apply(&self, source: &Source<'_>, node: &mut NodeSettings) -> Result<(), FileError> {
        self.check(source)?;
        let blocks = &mut node.ledger.blocks;
        set(&mut blocks.retain_bytes, number(self.bytes.as_ref()));
        set(&mut blocks.retain_blocks, number(self.blocks.as_ref()));
        set(&mut blocks.keep_results, self.results);
        set_number(&mut node.snapshot_bytes, self.snapshot_bytes.as_ref());
        Ok(())
    }
}

impl LedgerEntry {
    fn apply(&self, source: &Source<'_>, node: &mut NodeSettings) -> Result<(), FileError> {
        self.check(source)?;
        let BlockLogSettings { blocks_per_segment, .. } = &mut node.ledger.blocks;
        set_number(blocks_per_segment, self.blocks_per_segment.as_ref());
        let WalSettings { file_bytes, .. } = &mut node.ledger.wal;
        set_number(file_bytes, self.wal_file_bytes.as_ref());
        set_number(&mut node.snapshot_every, self.snapshot_every.as_ref());
        set_number(&mut node.scrub_bytes, self.scrub_bytes.as_ref());
        Ok(())
    }
}

impl LinksEntry {
    fn apply(&self, source: &Source<'_>, limits: &mut Limits) -> Result<(), FileError> {
        self.check(source)?;
        set_number(&mut limits.max_clients, self.max_clients.as_ref());
        set_number(&mut limits.max_client_frame, self.max_client_frame.as_ref());
        set_number(&mut limits.max_client_queue, self.max_client_queue.as_ref());
        set_number(&mut limits.max_queue, self.max_queue.as_ref());
        set_us(&mut limits.poll, self.poll_us.as_ref());
        Ok(())
    }
}

impl CatchUpEntry {
    fn apply(&self, source: &Source<'_>, settings: &mut SyncSettings) -> Result<(), FileError> {
        self.check(source)?;
        set_ms(&mut settings.timeout, self.timeout_ms.as_ref());
        set_number(&mut settings.state_after, self.state_after.as_ref());
        set_number(&mut settings.serve_bytes, self.serve_bytes.as_ref());
        Ok(())
    }
}

impl VerifyEntry {
    fn apply(&self, source: &Source<'_>, settings: &mut VerifySettings) -> Result<(), FileError> {
        self.check(source)?;
        set_number(&mut settings.threads, self.threads.as_ref());
        set_number(&mut settings.batch.signatures, self.batch.as_ref());
        set_us(&mut settings.gather, self.gather_us.as_ref());
        if let Some(sm2) = &self.sm2 {
            settings.sm2 = backend(sm2.get()).map_err(|what| source.at(sm2, what))?;
        }
        Ok(())
    }
}

impl MetricsEntry {
    fn apply(self, source: &Source<'_>, metrics: &mut Option<SocketAddr>) -> Result<(), FileError> {
        self.check(source)?;
        let Some(listen) = &self.listen else { return Ok(()) };
        let address = resolve(listen.get()).map_err(|what| source.at(listen, what))?;
        if !address.ip().is_loopback() && self.remote != Some(true) {
            let what = format!(
                "{address} can be reached from other machines, and whoever reaches it reads the \
                 metrics; write 127.0.0.1, or `remote = true` if that is meant"
            );
            return Err(source.at(listen, what));
        }
        *metrics = Some(address);
        Ok(())
    }
}

/// The arithmetic of a name, if this processor has it.
fn backend(name: &str) -> Result<Backend, String> {
    if name == "best" {
        return Ok(Backend::best());
    }
    let known = [Backend::Scalar, Backend::Ifma].into_iter().find(|known| known.name() == name);
    let backend = known.ok_or("unknown; write best, scalar or ifma")?;
    if backend.is_available() { Ok(backend) } else { Err(Unavailable(backend).to_string()) }
}

/// Finds an address that one can listen on.
fn resolve(address: &str) -> Result<SocketAddr, String> {
    let found = address.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("\"{address}\" names no address; write host:port")),
        Err(e) => Err(format!("\"{address}\" is no address ({e}); write host:port")),
    }
}

impl ReplicaConfig {
    /// Reads the home of a replica of a network that runs one of `apps`.
    ///
    /// # Errors
    /// When a file is missing, unreadable, or wrong; names file, line and key.
    pub fn load(home: &Path, apps: &Apps) -> Result<(Self, Genesis), ConfigError> {
        let file = home.join(CONFIG_FILE);
        let text = read_text(&file)?;
        let genesis = read_genesis(&home.join(GENESIS_FILE), apps)?;
        let secret = read_secret(&home.join(KEY_FILE))?;
        let mut config = Self::from_toml(&text, &file, &genesis, secret)?;
        config.node.no_log = NoLog::Lost;
        Ok((Self { data: Data::Directory(home.join(DATA_DIR)), ..config }, genesis))
    }

    /// Reads `tercio.toml`; `file` is for errors. It writes into memory until
    /// [`Self::data`] says otherwise.
    ///
    /// # Errors
    /// Names file, line and key, what is wrong and what to do.
    pub fn from_toml(
        text: &str,
        file: &Path,
        genesis: &Genesis,
        secret: SecretKey,
    ) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let File {
            replica,
            listen,
            layout,
            durability,
            consensus,
            retain,
            ledger,
            links,
            catch_up,
            verify,
            metrics,
        } = source.parse::<File>()?;
        let me = ReplicaId(*replica.get());
        let Some(member) = genesis.replicas.get(&me) else {
            let all: ReplicaSet = genesis.replicas.keys().copied().collect();
            let what = format!("the genesis has replicas {all}");
            return Err(source.at(&replica, what).into());
        };
        let address = match &listen {
            Some(listen) => resolve(listen.get()).map_err(|what| source.at(listen, what))?,
            None => resolve(&member.address).map_err(|what| {
                source.at(&replica, format!("its address in the genesis: {what}"))
            })?,
        };
        let membership = genesis
            .membership()
            .map_err(|why| ConfigError::Genesis { path: GENESIS_FILE.into(), why })?;
        let mut config = Self::new(NodeSettings::new(me, secret, membership), address);
        genesis.consensus.apply(&mut config.node.consensus);
        config.node.lag = genesis.lag;
        if let Some(layout) = &layout {
            config.layout = layout.get().parse().map_err(|what: &str| source.at(layout, what))?;
        }
        if let Some(durability) = &durability {
            config.node.durability =
                durability.get().parse().map_err(|what: &str| source.at(durability, what))?;
        }
        consensus.apply(&source, &mut config.node.consensus)?;
        retain.apply(&source, &mut config.node)?;
        ledger.apply(&source, &mut config.node)?;
        links.apply(&source, &mut config.limits)?;
        catch_up.apply(&source, &mut config.node.sync)?;
        verify.apply(&source, &mut config.node.verify)?;
        metrics.apply(&source, &mut config.metrics)?;
        let (waiting, longest) =
            (config.node.consensus.pool.total_bytes, config.limits.max_client_frame);
        if waiting < longest {
            let what = format!("must be at least max_client_frame, {longest}");
            return Err(source.at_key("total_bytes", what).into());
        }
        if let Err(error) = genesis.protocol.check(&config.node.consensus, &config.node.membership)
        {
            return Err(source.at_key(error.key, error.why).into());
        }
        Ok(config)
    }

    /// What every number of `tercio.toml` may be, but its own number.
    pub fn ranges() -> impl Iterator<Item = &'static Range> {
        let tables = [
            ConsensusEntry::RANGES,
            RetainEntry::RANGES,
            LedgerEntry::RANGES,
            LinksEntry::RANGES,
            CatchUpEntry::RANGES,
            VerifyEntry::RANGES,
            MetricsEntry::RANGES,
        ];
        tables.into_iter().flatten()
    }

    /// A replica that writes into memory, with everything else at its default.
    #[must_use]
    pub fn new(node: NodeSettings, listen: impl Into<Listen>) -> Self {
        Self {
            node,
            listen: listen.into(),
            data: Data::Memory(MemStorage::default()),
            layout: Layout::default(),
            limits: Limits {
                poll: POLL,
                dial_timeout: DIAL_TIMEOUT,
                redial_max: REDIAL_MAX,
                ..Limits::default()
            },
            metrics: None,
        }
    }
}
