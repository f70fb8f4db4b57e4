//! A replica's own configuration: its home directory.
//!
//! ```text
//! tercio.toml   this replica's settings
//! genesis.toml  the network's (crate::genesis)
//! key           the secret of its identity, mode 0600
//! data/         what it writes (tercio_ledger::DataDir)
//! ```
//!
//! `docs/configuration.md` has every key with its default, and a test that holds it to the parser.

use crate::genesis::{Genesis, GenesisError};
use crate::sync::SyncSettings;
use crate::toml_error::{At, Source};
use crate::{Layout, NoLog, NodeSettings, VerifySettings};
use serde::Deserialize;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_consensus::{MAX_PACKAGE, Settings};
use tercio_crypto::SecretKey;
use tercio_crypto::sm2::{Backend, Unavailable};
use tercio_ledger::{BlockLogSettings, DataDir, DataDirError, Identity, MemStorage, WalSettings};
use tercio_transport::{Limits, Listen};
use tercio_types::ReplicaId;
use thiserror::Error;
use zeroize::Zeroizing;

pub use crate::toml_error::FileError;

/// The file of a replica's own settings.
pub const CONFIG_FILE: &str = "tercio.toml";
/// The file of the network's genesis.
pub const GENESIS_FILE: &str = "genesis.toml";
/// The file of the replica's secret key.
pub const KEY_FILE: &str = "key";
/// The directory of what the replica writes.
pub const DATA_DIR: &str = "data";

/// A configuration file is far shorter.
const MAX_FILE: u64 = 16 << 20;
/// The least that others must be given each second: who waits long for an answer asks elsewhere.
const MIN_SERVE_BYTES: u64 = 1 << 20;
/// How long a replica busy-polls for frames after one came (`[links] poll_us`): about one request of a
/// client that has one in flight, so that replicas stay awake for the next.
const POLL: Duration = Duration::from_micros(200);
const MAX_POLL_US: u64 = 10_000;

/// Why a replica's home cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file is missing.
    #[error("{} does not exist; `tercio testnet -o DIR` makes a network with all its files, `tercio init DIR` the home of one of its members", .0.display())]
    Missing(PathBuf),
    /// A file exists already and is not written over.
    #[error("{} exists already and is not written over; name a new directory", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A secret that others can read.
    #[error(
        "{}: others can read this secret key (mode {mode:03o}); run `chmod 600 {}`, and make a new \
         key if somebody may have seen it", path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file that holds no secret key.
    #[error("{}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A key or value in the configuration file.
    #[error("{0}")]
    File(#[from] FileError),
    /// The data directory cannot be made.
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    /// The genesis.
    #[error("{}{why}", if matches!(why, GenesisError::File(_)) { String::new() } else { format!("{}: ", path.display()) })]
    Genesis {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: GenesisError,
    },
}

impl ConfigError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::AlreadyExists => Self::Exists(path),
            _ => Self::Io { action, path, source },
        }
    }
}

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
entry!(RetainEntry { bytes: u64, blocks: u64, snapshot_bytes: u64 });
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
entry!(VerifyEntry { batch: At<usize>, gather_us: At<u64>, sm2: At<String> });

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

/// Reads a file that is text and not absurdly long.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    let meta = fs::metadata(path).map_err(ConfigError::io("read", path))?;
    if meta.len() > MAX_FILE {
        let source = io::Error::new(io::ErrorKind::InvalidData, "the file is too long");
        return Err(ConfigError::Io { action: "read", path: path.to_owned(), source });
    }
    fs::read_to_string(path).map_err(ConfigError::io("read", path))
}

/// Reads a secret key from a file that only its owner can read.
///
/// # Errors
/// When others can read it, or it is no secret key.
pub fn read_secret(path: &Path) -> Result<SecretKey, ConfigError> {
    SecretKey::from_file_text(&read_private(path)?)
        .map_err(|why| ConfigError::Key { path: path.to_owned(), why: why.to_string() })
}

/// Reads a file that only its owner can read.
pub(crate) fn read_private(path: &Path) -> Result<Zeroizing<String>, ConfigError> {
    let meta = fs::metadata(path).map_err(ConfigError::io("read", path))?;
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(ConfigError::Exposed { path: path.to_owned(), mode });
    }
    read(path).map(Zeroizing::new)
}

/// Writes a secret key to a new file of mode 0600.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write_secret(path: &Path, secret: &SecretKey) -> Result<(), ConfigError> {
    write_new(path, secret.to_file_text().as_bytes(), 0o600)
}

pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ConfigError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(ConfigError::io("write", path))
}

/// Reads the genesis file.
///
/// # Errors
/// When it cannot be read or makes no network.
pub fn read_genesis(path: &Path) -> Result<Genesis, ConfigError> {
    Genesis::from_toml(&read(path)?, path)
        .map_err(|why| ConfigError::Genesis { path: path.to_owned(), why })
}

/// Writes a genesis to a new file.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write_genesis(path: &Path, genesis: &Genesis) -> Result<(), ConfigError> {
    write_new(path, genesis.to_toml().as_bytes(), 0o644)
}

/// Makes a replica's home: the three files and the data directory, in a directory that does not have
/// them yet. `settings` is the text of `tercio.toml` below the line that names the replica.
///
/// The write-ahead log is begun here, so that a start that finds none knows that it was lost.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn create_home(
    home: &Path,
    replica: ReplicaId,
    genesis: &Genesis,
    secret: &SecretKey,
    settings: &str,
) -> Result<(), ConfigError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.map_err(ConfigError::io("create", home))?;
    write_secret(&home.join(KEY_FILE), secret)?;
    join_as_replica(home, replica, genesis, settings)
}

/// Writes genesis and settings into a home that has its key.
///
/// # Errors
/// When a file exists or cannot be written.
pub fn join_as_replica(
    home: &Path,
    replica: ReplicaId,
    genesis: &Genesis,
    settings: &str,
) -> Result<(), ConfigError> {
    write_genesis(&home.join(GENESIS_FILE), genesis)?;
    let text = format!("replica = {replica}\n{settings}");
    write_new(&home.join(CONFIG_FILE), text.as_bytes(), 0o644)?;
    let (chain, suite) = (genesis.chain(), genesis.suite);
    DataDir::create(home.join(DATA_DIR), &Identity { chain, replica, suite })?;
    Ok(())
}

impl ReplicaConfig {
    /// Reads a replica's home.
    ///
    /// # Errors
    /// When a file is missing, unreadable, or wrong; names file, line and key.
    pub fn load(home: &Path) -> Result<(Self, Genesis), ConfigError> {
        let file = home.join(CONFIG_FILE);
        let text = read(&file)?;
        let genesis = read_genesis(&home.join(GENESIS_FILE))?;
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
        } = source.parse::<File>()?;
        let me = ReplicaId(*replica.get());
        let Some(member) = genesis.replicas.get(me.index()) else {
            let last = genesis.replicas.len() - 1;
            let what = format!("the genesis has replicas 0 to {last}");
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
        set(&mut config.node.snapshot_bytes, retain.snapshot_bytes);
        ledger.apply(&source, &mut config.node)?;
        links.apply(&source, &mut config.limits)?;
        catch_up.apply(&source, &mut config.node.sync)?;
        verify.apply(&source, &mut config.node.verify)?;
        if let Err(error) = config.node.consensus.check(&config.node.membership) {
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
            limits: Limits { poll: POLL, ..Limits::default() },
        }
    }
}
