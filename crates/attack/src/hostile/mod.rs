//! The attackers: processes of their own, so that what they use is theirs and they end at once.
//!
//! An attacker knows what the network's directory says, holds the keys that its part has, and stops
//! when its standard input ends. Then it prints how many frames or connections it made.

mod frames;
mod idle;
mod links;
mod openings;

use crate::Trouble;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tercio_crypto::SecretKey;
use tercio_genesis::{Apps, GENESIS_FILE, KEY_FILE, read_genesis};
use tercio_network::{client_home, client_id, home, poll_until};
use tercio_types::{ClientId, Membership, ReplicaId};

/// What an attacker makes in the network's directory that needs a while to be ready.
pub(crate) const READY_FILE: &str = "attacker-ready";
/// How long an attacker may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Many clients with keys open links to all replicas, and say nothing
    Idle,
    /// Nobody in particular opens connections, and says nothing
    Strangers,
    /// A client sends well-formed requests with false signatures to all
    Signatures,
    /// A replica forwards such requests
    Forwards,
    /// A client sends 8 requests of 900 KB to all every 2 s
    Large,
    /// A client sends such requests to all as fast as they are taken
    LargeFlood,
    /// A client sends good requests whose numbers are far ahead
    Far,
    /// Openings of handshakes whose cryptographic half is junk
    Junk,
    /// The same openings again and again, which were good once
    Replays,
}

/// What an attacker has to work with.
pub(crate) struct Means {
    dir: PathBuf,
    pub(crate) membership: Arc<Membership>,
    pub(crate) addresses: BTreeMap<ReplicaId, SocketAddr>,
    /// The client whose key it holds, the first of them when they are many.
    pub(crate) client: usize,
    pub(crate) count: usize,
    stop: Arc<AtomicBool>,
}

impl Means {
    fn new(dir: &Path, client: usize, count: usize) -> Result<Self, Trouble> {
        let apps: Apps = tercio_registry::apps();
        let genesis = read_genesis(&dir.join(GENESIS_FILE), &apps)
            .map_err(|error| Trouble::Means(error.to_string()))?;
        let membership = genesis.membership().map_err(|error| Trouble::Means(error.to_string()))?;
        let address = |(id, member): (&ReplicaId, &tercio_types::Member)| {
            Some((*id, member.address.parse().ok()?))
        };
        let addresses = genesis.replicas.iter().filter_map(address).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = stop.clone();
        std::thread::spawn(move || {
            // Until whoever started us ends, or closes it.
            let _ = std::io::stdin().read_to_end(&mut vec![]);
            of_thread.store(true, Ordering::SeqCst);
        });
        Ok(Self { dir: dir.to_owned(), membership, addresses, client, count, stop })
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Tells whoever started us that what the attack needs is there.
    pub(crate) fn tell_ready(&self) -> Result<(), Trouble> {
        Ok(std::fs::write(self.dir.join(READY_FILE), b"")?)
    }

    pub(crate) fn id(&self) -> ClientId {
        client_id(self.client)
    }

    pub(crate) fn secret_of(&self, client: ClientId) -> Result<SecretKey, Trouble> {
        self.key(&client_home(&self.dir, &client.to_string()))
    }

    pub(crate) fn replica_secret(&self, id: ReplicaId) -> Result<SecretKey, Trouble> {
        self.key(&home(&self.dir, id.0))
    }

    fn key(&self, home: &Path) -> Result<SecretKey, Trouble> {
        let read = tercio_genesis::read_secret(&home.join(KEY_FILE));
        read.map_err(|error| Trouble::Means(error.to_string()))
    }
}

/// Plays a part until told to stop; gives how many frames or connections that were.
pub(crate) fn play(part: Part, dir: &Path, client: usize, count: usize) -> Result<u64, Trouble> {
    let means = Means::new(dir, client, count)?;
    match part {
        Part::Idle => idle::clients(&means),
        Part::Strangers => idle::strangers(&means),
        Part::Signatures => frames::signatures(&means),
        Part::Forwards => frames::forwards(&means),
        Part::Large => frames::large(&means, Some(Duration::from_secs(2))),
        Part::LargeFlood => frames::large(&means, None),
        Part::Far => frames::far(&means),
        Part::Junk => openings::junk(&means),
        Part::Replays => openings::replays(&means),
    }
}

/// An attacker that runs. Ends with this value.
#[derive(Debug)]
pub(crate) struct Attacker {
    part: Part,
    child: Child,
}

impl Attacker {
    /// Starts one on the network in `dir`, with the keys of `count` clients from `client` on.
    pub(crate) fn start(
        part: Part,
        dir: &Path,
        client: usize,
        count: usize,
    ) -> Result<Self, Trouble> {
        let name = clap::ValueEnum::to_possible_value(&part).expect("every part has a name");
        let child = Command::new(std::env::current_exe()?)
            .args(["play", name.get_name(), "--client", &client.to_string()])
            .args(["--count", &count.to_string()])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self { part, child })
    }

    /// Ends it; what it did, in words.
    pub(crate) fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        let ended = poll_until(PATIENCE, || self.child.try_wait().ok().flatten());
        let mut said = String::new();
        if ended.is_some()
            && let Some(mut out) = self.child.stdout.take()
        {
            let _ = out.read_to_string(&mut said);
        }
        match said.trim() {
            "" => format!("{:?}: ended without a word", self.part),
            count => format!("{:?}: {count}", self.part),
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // Harmless when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
