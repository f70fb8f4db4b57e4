//! Networks on this machine: keys, genesis, a home for each replica, and the replicas themselves,
//! as processes or as threads of this one.

use crate::process::ProcessError;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tercio_client::{Client, ClientAuth, ConnectError, CoreSettings};
use tercio_consensus::pbft::Pbft;
use tercio_crypto::{KeyError, SchemeError, SecretKey, SigningSecret};
use tercio_genesis::client_home::create_client_home;
use tercio_genesis::replica_home::create_home;
use tercio_genesis::{
    App, AppKind, Apps, ConfigError, GENESIS_FILE, Genesis, GenesisError, SharedSettings,
    write_genesis,
};
use tercio_replica::{
    Durability, Layout, NodeError, NodeSettings, Protocols, ReplicaConfig, ReplicaHandle, Runner,
    StartError,
};
use tercio_types::{ClientId, ClientInfo, Member, Membership, ReplicaId, Scheme, Suite};
use thiserror::Error;

/// What network to make.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The network's name.
    pub name: String,
    /// How many replicas.
    pub replicas: u16,
    /// How many clients. Their ids are 1 and up.
    pub clients: usize,
    /// The replicas' numbers, in ascending order; those from 0 on when it is empty.
    pub numbers: Vec<u16>,
    /// What is executed.
    pub app: App,
    /// What orders.
    pub protocol: Runner,
    /// The cryptography.
    pub suite: Suite,
    /// How clients authenticate their packages.
    pub auth: ClientAuth,
    /// The scheme that clients sign under, when it is not the suite's.
    pub signing: Option<Scheme>,
    /// When what is written counts as durable.
    pub durability: Durability,
    /// Which stages have a thread of their own.
    pub layout: Layout,
    /// How many threads of their own verify; 0 for the loop's thread.
    pub verify_threads: usize,
    /// The most operations of a batch.
    pub batch_ops: usize,
    /// How long a batch waits for more operations when too few are there, at most.
    pub batch_time: Duration,
    /// The most batches in flight.
    pub pipeline: u64,
    /// Old blocks go when the log is longer, in bytes; `None` to keep all.
    pub retain_bytes: Option<u64>,
}

impl Spec {
    /// As [`Self::new`], with an application of kind `K` under these rules.
    #[must_use]
    pub fn of<K: AppKind>(rules: K::Rules) -> Self {
        Self::new(App::new::<K>(rules))
    }

    /// Four replicas and a client on one machine, in memory, that run `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self {
            name: "local".into(),
            replicas: 4,
            clients: 1,
            numbers: vec![],
            app,
            protocol: Runner::of::<Pbft>(),
            suite: Suite::default(),
            auth: ClientAuth::Mac,
            signing: None,
            durability: Durability::Memory,
            layout: Layout::AllInOne,
            verify_threads: 0,
            batch_ops: tercio_consensus::Settings::default().batch_ops,
            batch_time: tercio_consensus::Settings::default().batch_time,
            pipeline: tercio_consensus::Settings::default().pipeline,
            retain_bytes: None,
        }
    }
}

/// How clients authenticate their packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// By a tag for each replica.
    Mac,
    /// By a signature under this scheme.
    Signed(Scheme),
}

impl Auth {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Signed(scheme) => scheme.name(),
        }
    }
}

impl Spec {
    /// The same network, whose clients authenticate their packages so: with their identities where
    /// those are of the scheme.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        (self.auth, self.signing) = match auth {
            Auth::Mac => (ClientAuth::Mac, None),
            Auth::Signed(scheme) => {
                (ClientAuth::Signature, Some(scheme).filter(|s| *s != self.suite.scheme()))
            }
        };
        self
    }

    /// How its clients authenticate their packages.
    #[must_use]
    pub fn auth(&self) -> Auth {
        match self.auth {
            ClientAuth::Mac => Auth::Mac,
            ClientAuth::Signature => Auth::Signed(self.signing.unwrap_or(self.suite.scheme())),
        }
    }

    /// The replicas' numbers.
    ///
    /// # Panics
    /// When it names some, and not as many as there are replicas.
    #[must_use]
    pub fn ids(&self) -> Vec<ReplicaId> {
        if self.numbers.is_empty() {
            return (0..self.replicas).map(ReplicaId).collect();
        }
        assert_eq!(self.numbers.len(), usize::from(self.replicas), "a number for each replica");
        self.numbers.iter().copied().map(ReplicaId).collect()
    }

    /// All that a program needs to know that reads this network's genesis.
    #[must_use]
    pub fn apps(&self) -> Apps {
        self.app.apps().with_protocols(&[self.protocol.facts()])
    }

    /// The replicas' own settings, as `tercio.toml` has them.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Blocks go by whole segments; batches may be long.
        let retain = self.retain_bytes.map(|bytes| {
            format!("\n[retain]\nbytes = {bytes}\n\n[ledger]\nblocks_per_segment = 16\n")
        });
        let verify = match self.verify_threads {
            0 => String::new(),
            threads => format!("\n[verify]\nthreads = {threads}\n"),
        };
        format!(
            "layout = \"{}\"\ndurability = \"{}\"\n\n[consensus]\nbatch_ops = {}\n\
             batch_time_us = {}\npipeline = {}\n{verify}{}",
            self.layout,
            self.durability,
            self.batch_ops,
            self.batch_time.as_micros(),
            self.pipeline,
            retain.unwrap_or_default()
        )
    }

    /// The settings of the network's clients, whose ids were never used: it is new.
    #[must_use]
    pub fn core_settings(&self) -> CoreSettings {
        CoreSettings { auth: self.auth, ..CoreSettings::unused_id() }
    }
}

/// Why there is no network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// No keys could be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No signing keys could be made.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// No port is free.
    #[error("cannot listen on the loopback network: {0}")]
    Port(io::Error),
    /// The genesis makes no sense.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// A replica's home cannot be made or read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A replica does not start.
    #[error("replica {id}: {error}")]
    Start {
        /// The replica.
        id: u16,
        /// Why not.
        error: StartError,
    },
    /// A replica stopped.
    #[error("replica {id} stopped: {error}")]
    Stopped {
        /// The replica.
        id: u16,
        /// Why.
        error: NodeError,
    },
    /// A replica process is of no use.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A network that was made up: its genesis and everybody's secrets.
#[derive(Debug)]
pub struct Network {
    genesis: Genesis,
    membership: Arc<Membership>,
    protocol: Protocols,
    replicas: BTreeMap<ReplicaId, SecretKey>,
    clients: Vec<ClientKeys>,
}

/// A client's secrets.
#[derive(Debug)]
struct ClientKeys {
    identity: SecretKey,
    signing: Option<Arc<SigningSecret>>,
}

impl ClientKeys {
    fn generate(spec: &Spec) -> Result<Self, NetworkError> {
        let signing = spec.signing.map(SigningSecret::generate).transpose()?;
        let identity = SecretKey::generate_for(spec.suite)?;
        Ok(Self { identity, signing: signing.map(Arc::new) })
    }

    fn info(&self) -> ClientInfo {
        let signing = self.signing.as_ref().map(|secret| secret.public());
        ClientInfo { signing, ..ClientInfo::new(self.identity.public()) }
    }
}

/// Free ports on the loopback network, held until these are dropped.
///
/// # Errors
/// When there are none.
pub fn free_ports(count: u16) -> io::Result<Vec<TcpListener>> {
    (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect()
}

impl Network {
    /// Makes keys and genesis of a network whose replicas listen at `addresses`.
    ///
    /// # Errors
    /// When the system gives no randomness, or the spec makes no network.
    pub fn found(spec: &Spec, addresses: &[SocketAddr]) -> Result<Self, NetworkError> {
        let ids = spec.ids();
        let identity = |id: &ReplicaId| Ok((*id, SecretKey::generate_for(spec.suite)?));
        let replicas =
            ids.iter().map(identity).collect::<Result<BTreeMap<_, _>, NetworkError>>()?;
        let keys = |_| ClientKeys::generate(spec);
        let clients = (0..spec.clients).map(keys).collect::<Result<Vec<_>, _>>()?;
        let member = |((id, key), address): ((&ReplicaId, &SecretKey), &SocketAddr)| {
            (*id, Member { key: key.public(), address: address.to_string() })
        };
        let client = |(i, keys): (usize, &ClientKeys)| (client_id(i), keys.info());
        let genesis = Genesis {
            name: spec.name.clone(),
            suite: spec.suite,
            lag: 0,
            protocol: spec.protocol.facts(),
            replicas: replicas.iter().zip(addresses).map(member).collect(),
            clients: clients.iter().enumerate().map(client).collect(),
            app: spec.app.clone(),
            consensus: SharedSettings::default(),
        };
        let genesis = genesis.with_new_rules();
        genesis.check()?;
        let membership = genesis.membership()?;
        let protocol = Protocols::new(&[spec.protocol]);
        Ok(Self { genesis, membership, protocol, replicas, clients })
    }

    /// Makes a network in `dir`, on ports that are free now: its genesis, and homes for its replicas
    /// ([`home`]) and its clients ([`client_home`]).
    ///
    /// # Errors
    /// When that cannot be.
    pub fn lay_out(dir: &Path, spec: &Spec) -> Result<Self, NetworkError> {
        let ports = free_ports(spec.replicas).map_err(NetworkError::Port)?;
        let addresses = ports.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>();
        let network = Self::found(spec, &addresses.map_err(NetworkError::Port)?)?;
        let genesis = &network.genesis;
        for (id, secret) in &network.replicas {
            create_home(&home(dir, id.0), *id, genesis, secret, &spec.to_toml())?;
        }
        let signs = spec.auth == ClientAuth::Signature;
        for (i, keys) in network.clients.iter().enumerate() {
            let id = client_id(i);
            let (home, signing) = (client_home(dir, &id.to_string()), keys.signing.as_deref());
            create_client_home(&home, id, genesis, &keys.identity, signing, signs)?;
        }
        write_genesis(&dir.join(GENESIS_FILE), genesis)?;
        Ok(network)
    }

    /// The genesis.
    #[must_use]
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// Who takes part.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The protocol that its replicas run.
    #[must_use]
    pub fn protocols(&self) -> &Protocols {
        &self.protocol
    }

    /// The secret of the `i`-th client.
    #[must_use]
    pub fn client_secret(&self, i: usize) -> &SecretKey {
        &self.clients[i].identity
    }

    /// What replica `id` needs to run without a home, writing into memory.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn in_memory(&self, id: ReplicaId, socket: TcpListener, spec: &Spec) -> ReplicaConfig {
        let secret = self.replicas[&id].clone();
        let mut node = NodeSettings::new(id, secret, self.membership.clone());
        self.genesis.consensus.apply(&mut node.consensus);
        node.consensus.batch_ops = spec.batch_ops;
        node.consensus.batch_time = spec.batch_time;
        node.consensus.pipeline = spec.pipeline;
        node.durability = spec.durability;
        node.verify.threads = spec.verify_threads;
        ReplicaConfig { layout: spec.layout, ..ReplicaConfig::new(node, socket) }
    }

    /// The `i`-th client, linked to a quorum of the replicas.
    ///
    /// # Errors
    /// When too few of them can be reached.
    pub fn client(&self, i: usize, core: CoreSettings) -> Result<Client, ConnectError> {
        let ClientKeys { identity, signing } = &self.clients[i];
        let core = CoreSettings { signing: signing.clone(), ..core };
        let membership = self.membership.clone();
        let settings = tercio_client::Settings::new(client_id(i), identity.clone(), membership);
        Client::connect(tercio_client::Settings { core, ..settings })
    }
}

/// The number of the `i`-th client.
#[must_use]
pub fn client_id(i: usize) -> ClientId {
    ClientId(i as u64 + 1)
}

/// The home of replica `id` of a network in `dir`.
#[must_use]
pub fn home(dir: &Path, id: u16) -> PathBuf {
    dir.join(format!("replica-{id}"))
}

/// The directory of the clients' homes of a network in `dir`.
pub const CLIENTS: &str = "clients";

/// The home of a client of a network in `dir`: of this name, or of this number in decimal digits.
#[must_use]
pub fn client_home(dir: &Path, name: &str) -> PathBuf {
    dir.join(CLIENTS).join(name)
}

/// Starts a replica in this process, with the one of `protocols` that the genesis names.
///
/// # Errors
/// When it does not start.
pub fn start(
    config: ReplicaConfig,
    genesis: &Genesis,
    protocols: &Protocols,
) -> Result<ReplicaHandle, NetworkError> {
    let id = config.node.me.0;
    let (app, suite) = (genesis.app.clone(), genesis.suite);
    let app = app.build(suite).expect("the genesis was checked");
    protocols.start(config, app).map_err(|error| NetworkError::Start { id, error })
}
