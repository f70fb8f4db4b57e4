//! The genesis: what all replicas of a network must agree on before the first batch.
//!
//! `genesis.toml` is the same at every replica and client. `docs/configuration.md` has every key
//! with its default, and a test that holds it to the parser.
//!
//! The chain id is the hash of all of it but the addresses, in the canonical encoding of
//! [`Genesis::encode`]. It enters every key and signature.

use crate::toml_file::{At, FileError, Source};
use crate::{App, Apps, GenesisError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::{ProtocolFacts, Settings};
use tercio_crypto::{identity_from_text, key_text, signing_key_from_text, signing_key_text};
use tercio_types::{
    ChainId, ClientId, ClientInfo, DEFAULT_PROTOCOL, Epoch, FaultModel, Member, Membership,
    PublicKey, ReplicaId, Scheme, Suite,
};
use toml::de::{DeTable, ValueDeserializer};

/// The window of a new network, where its size allows that: with a checkpoint every 128 numbers
/// ordering may run more than 2,000 batches ahead of an execution that halts.
const NEW_WINDOW: u64 = 2560;

/// The bound on the time of proposals of a new network, in milliseconds. Clocks that are kept in step
/// differ by some; a leap second that is not smeared by a second; and a primary that lies takes agreed
/// time no further than this from the clock of a correct replica.
const NEW_TIME_AHEAD_MS: u64 = 2000;

/// What all replicas of a network agree on before the first batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Genesis {
    /// The network's name.
    pub name: String,
    /// Hash and signature scheme.
    pub suite: Suite,
    /// How many heights late headers carry results and state digest; 0 for not at all.
    pub lag: u16,
    /// The ordering protocol, which says what replicas may do when they fail.
    pub protocol: ProtocolFacts,
    /// The replicas, by their numbers.
    pub replicas: BTreeMap<ReplicaId, Member>,
    /// The clients.
    pub clients: BTreeMap<ClientId, ClientInfo>,
    /// What is executed.
    pub app: App,
    /// The protocol's settings that all must share; the others are each replica's own.
    pub consensus: SharedSettings,
}

/// The settings of the ordering protocol that are part of the genesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SharedSettings {
    /// The checkpoint interval K, in sequence numbers.
    pub checkpoint_interval: u64,
    /// How far numbers may run ahead of the stable checkpoint.
    pub window: u64,
    /// Whether the application is asked before proposing and before voting.
    pub proposal_hooks: bool,
    /// Whether a batch is proposed only on top of an executed one.
    pub execute_before_propose: bool,
    /// How far the time of a proposal may be ahead of a backup's clock, in milliseconds; any in a
    /// network that says nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_ahead_ms: Option<u64>,
}

/// What a file means that says nothing of them; a new network's window and bound on time are others
/// ([`Genesis::with_new_rules`]).
impl Default for SharedSettings {
    fn default() -> Self {
        let Settings {
            checkpoint_interval, window, proposal_hooks, execute_before_propose, ..
        } = Settings::default();
        let max_time_ahead_ms = None;
        Self {
            checkpoint_interval,
            window,
            proposal_hooks,
            execute_before_propose,
            max_time_ahead_ms,
        }
    }
}

impl SharedSettings {
    /// Puts them into a replica's own settings.
    pub fn apply(&self, settings: &mut Settings) {
        settings.checkpoint_interval = self.checkpoint_interval;
        settings.window = self.window;
        settings.proposal_hooks = self.proposal_hooks;
        settings.execute_before_propose = self.execute_before_propose;
        settings.max_time_ahead = self.max_time_ahead_ms.map(Duration::from_millis);
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaEntry<Text, Id> {
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    id: Option<Id>,
    key: Text,
    address: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientEntry<Id, Text> {
    id: Id,
    key: Text,
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    signing: Option<Text>,
}

/// What the file says before the application's table. `Text` knows its place in it when it is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head<Text> {
    name: Text,
    #[serde(default = "Option::default")]
    suite: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    protocol: Option<Text>,
    #[serde(default)]
    lag: u16,
    #[serde(default)]
    consensus: SharedSettings,
}

/// What it says behind that. `Id` knows its place, too.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<Text, Id, Number> {
    replica: Vec<ReplicaEntry<Text, Number>>,
    #[serde(default = "Vec::new")]
    client: Vec<ClientEntry<Id, Text>>,
}

/// The keys of [`Head`] and of [`Members`]; every other one must be an application.
const HEAD: [&str; 5] = ["name", "suite", "protocol", "lag", "consensus"];
const MEMBERS: [&str; 2] = ["replica", "client"];

/// Takes the entries of these keys out of a table.
fn take<'i>(table: &mut DeTable<'i>, keys: &[&str]) -> DeTable<'i> {
    let taken = keys.iter().filter_map(|key| table.remove_entry(*key));
    taken.collect()
}

/// The application that the rest of a file names.
fn read_app(source: &Source<'_>, rest: DeTable<'_>, apps: &Apps) -> Result<App, FileError> {
    let known = || apps.names().iter().map(|name| format!("[{name}]")).collect::<Vec<_>>();
    if let Some((name, _)) = rest.iter().find(|(_, value)| !value.get_ref().is_table()) {
        if apps.kind(name.get_ref()).is_some() {
            let what = format!("an application is a table: write [{0}]", name.get_ref());
            return Err(source.error(name.span(), what));
        }
        let keys = HEAD.into_iter().chain(apps.names()).chain(MEMBERS);
        let keys: Vec<_> = keys.map(|key| format!("`{key}`")).collect();
        let what =
            format!("unknown field `{}`, expected one of {}", name.get_ref(), keys.join(", "));
        return Err(source.error(name.span(), what));
    }
    let mut rest = rest.into_iter();
    match (rest.next(), rest.next()) {
        (Some((name, table)), None) => {
            let Some(kind) = apps.kind(name.get_ref()) else {
                let what = format!(
                    "this program has no application '{}' (it has {}); run the network's own",
                    name.get_ref(),
                    known().join(", ")
                );
                return Err(source.error(name.span(), what));
            };
            let read = kind.read(ValueDeserializer::from(table));
            read.map_err(|error| source.parse_error(&error))
        }
        (_, second) => {
            let what = format!("name the application by exactly one of {}", known().join(", "));
            Err(source.error(second.map_or(0..0, |(name, _)| name.span()), what))
        }
    }
}

/// Appends a text or key with its length before it.
fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn key(source: &Source<'_>, suite: Suite, text: &At<String>) -> Result<PublicKey, FileError> {
    identity_from_text(suite, text.get()).map_err(|_| {
        let digits = if suite == Suite::Sm3Sm2 { 130 } else { 64 };
        let what = format!(
            "a public key of suite {} is {digits} hexadecimal digits; `tercio keygen` prints one",
            suite.name()
        );
        source.at(text, what)
    })
}

/// The protocol that a file names, or the default.
fn read_protocol(
    source: &Source<'_>,
    text: Option<&At<String>>,
    apps: &Apps,
) -> Result<ProtocolFacts, FileError> {
    let name = text.map_or(DEFAULT_PROTOCOL, |text| text.get());
    apps.protocol(name).ok_or_else(|| {
        let known = apps.protocol_names().join(", ");
        let what = format!(
            "this program has no protocol '{name}' (it has {known}); run the network's own"
        );
        text.map_or_else(|| source.error(0..0, what.clone()), |text| source.at(text, what.clone()))
    })
}

/// The replicas of a file: either each with its number, or in order from 0 on.
fn read_replicas(
    source: &Source<'_>,
    suite: Suite,
    entries: Vec<ReplicaEntry<At<String>, At<u16>>>,
) -> Result<BTreeMap<ReplicaId, Member>, FileError> {
    let numbered = entries.first().is_some_and(|entry| entry.id.is_some());
    let mut replicas = BTreeMap::new();
    for (place, ReplicaEntry { id, key: text, address }) in (0..).zip(entries) {
        let number = match &id {
            Some(id) if numbered => *id.get(),
            None if !numbered => place,
            _ => {
                let what = "either each replica has an id, or none has";
                return Err(source.at(&text, what));
            }
        };
        let member = Member { key: key(source, suite, &text)?, address };
        if replicas.insert(ReplicaId(number), member).is_some() {
            return Err(source.at(&text, format!("two replicas have the id {number}")));
        }
    }
    Ok(replicas)
}

impl Genesis {
    /// Reads a genesis that names one of `apps`; `file` is for errors.
    ///
    /// # Errors
    /// Names file, line and key, what is wrong and what to do.
    pub fn from_toml(text: &str, file: &Path, apps: &Apps) -> Result<Self, GenesisError> {
        let source = Source { file, text };
        let mut table = source.table()?.into_inner();
        let head = take(&mut table, &HEAD);
        let Head { name, suite, protocol, lag, consensus } =
            source.read::<Head<At<String>>>(head)?;
        let members = take(&mut table, &MEMBERS);
        let Members { replica, client } =
            source.read::<Members<At<String>, At<u64>, At<u16>>>(members)?;
        let suite = match &suite {
            None => Suite::default(),
            Some(text) => Suite::from_name(text.get()).ok_or_else(|| {
                let known = Suite::ALL.map(Suite::name).join(", ");
                source.at(text, format!("unknown suite; this build knows {known}"))
            })?,
        };
        let protocol = read_protocol(&source, protocol.as_ref(), apps)?;
        if name.get().is_empty() || name.get().len() > 64 {
            return Err(source.at(&name, "a network's name has 1 to 64 bytes").into());
        }
        let app = read_app(&source, table, apps)?;
        let replicas = read_replicas(&source, suite, replica)?;
        let mut clients = BTreeMap::new();
        for entry in client {
            let mut info = ClientInfo::new(key(&source, suite, &entry.key)?);
            if let Some(text) = &entry.signing {
                let parsed = signing_key_from_text(text.get());
                info.signing = Some(parsed.map_err(|why| source.at(text, why.to_string()))?);
            }
            if clients.insert(ClientId(*entry.id.get()), info).is_some() {
                return Err(source.at(&entry.id, "two clients have this id").into());
            }
        }
        let name = name.get().clone();
        let genesis = Self { name, suite, lag, protocol, replicas, clients, app, consensus };
        match genesis.check() {
            Err(GenesisError::Consensus(error)) => Err(source.at_key(error.key, error.why).into()),
            other => other.map(|()| genesis),
        }
    }

    /// The same for a new network: with [`Self::with_new_window`], and with a bound of two seconds on how
    /// far the time of a proposal may be ahead of a backup's clock, where the protocol has such a
    /// bound. A file without `max_time_ahead_ms` has none.
    #[must_use]
    pub fn with_new_rules(mut self) -> Self {
        self.consensus.max_time_ahead_ms = Some(NEW_TIME_AHEAD_MS);
        if self.check().is_err() {
            self.consensus.max_time_ahead_ms = None;
        }
        self.with_new_window()
    }

    /// The same for a new network: with a window of 2,560 numbers, or half of that and so on where the
    /// protocol finds it too large for so many replicas. It is never below the default, which a file
    /// without `window` has.
    #[must_use]
    pub fn with_new_window(mut self) -> Self {
        let least = self.consensus.window;
        let halved = |window: &u64| Some(window / 2);
        for window in std::iter::successors(Some(NEW_WINDOW), halved).take_while(|w| *w > least) {
            self.consensus.window = window;
            if self.check().is_ok() {
                return self;
            }
        }
        // What makes no network makes none with this one either: whoever checks it says why.
        self.consensus.window = least;
        self
    }

    /// Whether it makes a network.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), GenesisError> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err(GenesisError::Name);
        }
        let membership = self.membership()?;
        self.app.check()?;
        let mut settings = Settings::default();
        self.consensus.apply(&mut settings);
        self.protocol.check(&settings, &membership)?;
        Ok(())
    }

    /// The text of the file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let numbered = self.numbers_replicas();
        let replica = |(id, member): (&ReplicaId, &Member)| ReplicaEntry {
            id: numbered.then_some(id.0),
            key: key_text(&member.key),
            address: member.address.clone(),
        };
        let client = |(id, info): (&ClientId, &ClientInfo)| ClientEntry {
            id: id.0,
            key: key_text(&info.key),
            signing: info.signing.as_ref().map(signing_key_text),
        };
        let head = Head {
            name: self.name.clone(),
            suite: Some(self.suite.name().to_owned()),
            protocol: Some(self.protocol.name())
                .filter(|name| *name != DEFAULT_PROTOCOL)
                .map(str::to_owned),
            lag: self.lag,
            consensus: self.consensus,
        };
        let app = toml::Table::from_iter([(self.app.name().to_owned(), self.app.table())]);
        let members = Members {
            replica: self.replicas.iter().map(replica).collect(),
            client: self.clients.iter().map(client).collect(),
        };
        let parts = [toml::to_string(&head), toml::to_string(&app), toml::to_string(&members)];
        parts.map(|part| part.expect("a genesis can be written as TOML")).join("\n")
    }

    /// Whether the file and the chain id have the replicas' numbers: not when those are from 0 on.
    fn numbers_replicas(&self) -> bool {
        !self.replicas.keys().copied().eq((0..).take(self.replicas.len()).map(ReplicaId))
    }

    /// What the chain id is the hash of: everything but the addresses, each text and list with its
    /// length before it, integers little-endian.
    ///
    /// Version 1 has no protocol, no fault model and no numbers of replicas: those of networks that
    /// have PBFT and replicas from 0 on. All others have version 2.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let default = (self.protocol.name(), self.protocol.model())
            == (DEFAULT_PROTOCOL, FaultModel::Byzantine);
        let second = !default || self.numbers_replicas();
        let mut out = if second { b"tercio genesis 2" } else { b"tercio genesis 1" }.to_vec();
        put_text(&mut out, self.name.as_bytes());
        out.push(self.suite.number());
        out.extend_from_slice(&self.lag.to_le_bytes());
        if second {
            put_text(&mut out, self.protocol.name().as_bytes());
            out.push(self.protocol.model().number());
        }
        out.extend_from_slice(&(self.replicas.len() as u64).to_le_bytes());
        for (id, member) in &self.replicas {
            if second {
                out.extend_from_slice(&id.0.to_le_bytes());
            }
            put_text(&mut out, member.key.as_slice());
        }
        out.extend_from_slice(&(self.clients.len() as u64).to_le_bytes());
        for (id, info) in &self.clients {
            out.extend_from_slice(&id.0.to_le_bytes());
            put_text(&mut out, info.key.as_slice());
            out.push(info.signing.map_or(0, |signing| signing.scheme.number()));
            if let Some(signing) = &info.signing {
                put_text(&mut out, signing.key.as_slice());
            }
        }
        put_text(&mut out, self.app.name().as_bytes());
        self.app.encode(&mut out);
        let SharedSettings {
            checkpoint_interval,
            window,
            proposal_hooks,
            execute_before_propose,
            max_time_ahead_ms,
        } = self.consensus;
        out.extend_from_slice(&checkpoint_interval.to_le_bytes());
        out.extend_from_slice(&window.to_le_bytes());
        out.push(proposal_hooks.into());
        out.push(execute_before_propose.into());
        // Last, and only where it is said: the others' chain ids are as they were.
        out.extend(max_time_ahead_ms.into_iter().flat_map(u64::to_le_bytes));
        out
    }

    /// The network's name for machines: the hash of [`Self::encode`].
    #[must_use]
    pub fn chain(&self) -> ChainId {
        ChainId(tercio_crypto::hash(self.suite, &[&self.encode()]).0)
    }

    /// Whether somebody signs under this scheme.
    #[must_use]
    pub fn uses(&self, scheme: Scheme) -> bool {
        let signing = |client: &ClientInfo| client.signing_key(self.suite).scheme;
        self.suite.scheme() == scheme || self.clients.values().any(|c| signing(c) == scheme)
    }

    /// The replicas and clients of the first epoch.
    ///
    /// # Errors
    /// When the replicas make no membership.
    pub fn membership(&self) -> Result<Arc<Membership>, GenesisError> {
        self.membership_of(self.chain())
    }

    /// As [`Self::membership`], under the name of a chain.
    pub(crate) fn membership_of(&self, chain: ChainId) -> Result<Arc<Membership>, GenesisError> {
        let (epoch, model) = (Epoch(0), self.protocol.model());
        let (members, clients) = (self.replicas.clone(), self.clients.clone());
        let membership = Membership::numbered(chain, epoch, self.suite, model, members, clients)?;
        Ok(Arc::new(membership.with_protocol(self.protocol.name())))
    }
}
