//! A replica's own settings.
//!
//! Its home ([`tercio_genesis::replica_home`]) holds them in `tercio.toml`.
//!
//! `docs/configuration.md` has every key with its default, and a test that holds it to the parser.

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

/// The least that others must be given each second: who waits long for an answer asks elsewhere.
const MIN_SERVE_BYTES: u64 = 1 << 20;
/// How long a replica busy-polls for frames after one came (`[links] poll_us`): about one request of a
/// client that has one in flight, so that replicas stay awake for the next.
const POLL: Duration = Duration::from_micros(200);
const MAX_POLL_US: u64 = 10_000;
/// After how long without a link to another replica, and after which pause at most, it is dialled
/// again: about a second after a cut is over all links are there.
const DIAL_TIMEOUT: Duration = Duration::from_millis(750);
const REDIAL_MAX: Duration = Duration::from_millis(250);
/// More threads than any machine has cores to spare for a replica.
const MAX_VERIFY_THREADS: usize = 64;

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

/// Each key is optional and takes its place in the settings when it is there.
macro_rules! entry {
    ($name:ident { $($key:ident: $type:ty),* $(,)? }) => {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($key: Option<$type>,)*
        }
    };
}

entry!(ConsensusEntry {
    batch_ops: usize,
    batch_bytes: usize,
    batch_time_us: u64,
    pipeline: u64,
    view_timeout_ms: u64,
    view_timeout_max_ms: u64,
    status_interval_ms: u64,
    idle_interval_ms: u64,
    checkpoint_idle_ms: u64,
    attest: bool,
    client_ops: usize,
    total_ops: usize,
    total_bytes: usize,
});
entry!(RetainEntry { bytes: u64, blocks: u64, results: bool, snapshot_bytes: u64 });
entry!(LedgerEntry {
    blocks_per_segment: At<u32>,
    wal_file_bytes: u64,
    snapshot_every: u64,
    scrub_bytes: u64,
});
entry!(LinksEntry {
    max_clients: usize,
    max_client_frame: At<usize>,
    max_client_queue: usize,
    max_queue: usize,
    poll_us: At<u64>,
});
entry!(CatchUpEntry {
    timeout_ms: u64,
    state_after: u64,
    serve_bytes: At<u64>,
});
entry!(MetricsEntry { listen: At<String>, remote: bool });
entry!(VerifyEntry { threads: At<usize>, batch: At<usize>, gather_us: At<u64>, sm2: At<String> });

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn set_ms(slot: &mut Duration, value: Option<u64>) {
    set(slot, value.map(Duration::from_millis));
}

impl ConsensusEntry {
    fn apply(self, settings: &mut Settings) {
        set(&mut settings.batch_ops, self.batch_ops);
        set(&mut settings.batch_bytes, self.batch_bytes);
        set(&mut settings.batch_time, self.batch_time_us.map(Duration::from_micros));
        set(&mut settings.pipeline, self.pipeline);
        set_ms(&mut settings.view_timeout, self.view_timeout_ms);
        set_ms(&mut settings.view_timeout_max, self.view_timeout_max_ms);
        set_ms(&mut settings.status_interval, self.status_interval_ms);
        set_ms(&mut settings.idle_interval, self.idle_interval_ms);
        set_ms(&mut settings.checkpoint_idle, self.checkpoint_idle_ms);
        set(&mut settings.attest, self.attest);
        set(&mut settings.pool.client_ops, self.client_ops);
        set(&mut settings.pool.total_ops, self.total_ops);
        set(&mut settings.pool.total_bytes, self.total_bytes);
    }
}

impl LedgerEntry {
    fn apply(self, source: &Source<'_>, node: &mut NodeSettings) -> Result<(), FileError> {
        let BlockLogSettings { blocks_per_segment, .. } = &mut node.ledger.blocks;
        if let Some(blocks) = &self.blocks_per_segment {
            if !(1..=1 << 20).contains(blocks.get()) {
                return Err(source.at(blocks, "must be 1 to 1048576"));
            }
            *blocks_per_segment = *blocks.get();
        }
        let WalSettings { file_bytes, .. } = &mut node.ledger.wal;
        set(file_bytes, self.wal_file_bytes);
        set(&mut node.snapshot_every, self.snapshot_every);
        set(&mut node.scrub_bytes, self.scrub_bytes);
        Ok(())
    }
}

impl LinksEntry {
    fn apply(self, source: &Source<'_>, limits: &mut Limits) -> Result<(), FileError> {
        set(&mut limits.max_clients, self.max_clients);
        if let Some(bytes) = &self.max_client_frame {
            if *bytes.get() > MAX_PACKAGE {
                let what = format!(
                    "must be at most {MAX_PACKAGE}: a request travels on inside frames of replicas"
                );
                return Err(source.at(bytes, what));
            }
            limits.max_client_frame = *bytes.get();
        }
        set(&mut limits.max_client_queue, self.max_client_queue);
        set(&mut limits.max_queue, self.max_queue);
        if let Some(us) = &self.poll_us {
            if *us.get() > MAX_POLL_US {
                return Err(source.at(us, format!("must be at most {MAX_POLL_US}")));
            }
            limits.poll = Duration::from_micros(*us.get());
        }
        Ok(())
    }
}

impl CatchUpEntry {
    fn apply(self, source: &Source<'_>, settings: &mut SyncSettings) -> Result<(), FileError> {
        set_ms(&mut settings.timeout, self.timeout_ms);
        set(&mut settings.state_after, self.state_after);
        if let Some(bytes) = &self.serve_bytes {
            if *bytes.get() < MIN_SERVE_BYTES {
                let what = format!(
                    "must be at least {MIN_SERVE_BYTES}: who waits longer for an answer gives up"
                );
                return Err(source.at(bytes, what));
            }
            settings.serve_bytes = *bytes.get();
        }
        Ok(())
    }
}

impl VerifyEntry {
    fn apply(self, source: &Source<'_>, settings: &mut VerifySettings) -> Result<(), FileError> {
        if let Some(threads) = &self.threads {
            if *threads.get() > MAX_VERIFY_THREADS {
                let what = format!("must be at most {MAX_VERIFY_THREADS}; 0 for the loop's thread");
                return Err(source.at(threads, what));
            }
            settings.threads = *threads.get();
        }
        if let Some(batch) = &self.batch {
            if !(1..=4096).contains(batch.get()) {
                return Err(source.at(batch, "must be 1 to 4096"));
            }
            settings.batch.signatures = *batch.get();
        }
        if let Some(gather) = &self.gather_us {
            if *gather.get() > 10_000 {
                return Err(source.at(gather, "must be at most 10000, 10 ms"));
            }
            settings.gather = Duration::from_micros(*gather.get());
        }
        if let Some(sm2) = &self.sm2 {
            settings.sm2 = backend(sm2.get()).map_err(|what| source.at(sm2, what))?;
        }
        Ok(())
    }
}

impl MetricsEntry {
    fn apply(self, source: &Source<'_>, metrics: &mut Option<SocketAddr>) -> Result<(), FileError> {
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
        consensus.apply(&mut config.node.consensus);
        set(&mut config.node.ledger.blocks.retain_bytes, retain.bytes);
        set(&mut config.node.ledger.blocks.retain_blocks, retain.blocks);
        set(&mut config.node.ledger.blocks.keep_results, retain.results);
        set(&mut config.node.snapshot_bytes, retain.snapshot_bytes);
        ledger.apply(&source, &mut config.node)?;
        links.apply(&source, &mut config.limits)?;
        catch_up.apply(&source, &mut config.node.sync)?;
        verify.apply(&source, &mut config.node.verify)?;
        metrics.apply(&source, &mut config.metrics)?;
        if let Err(error) = genesis.protocol.check(&config.node.consensus, &config.node.membership)
        {
            return Err(source.at_key(error.key, error.why).into());
        }
        Ok(config)
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
