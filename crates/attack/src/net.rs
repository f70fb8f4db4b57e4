//! The network that is attacked: processes of `tercio`, with homes in a temporary directory.

use crate::Trouble;
use crate::relay::Relay;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tercio_client::{Client, ClientAuth, CoreSettings};
use tercio_genesis::{GENESIS_FILE, write_genesis};
use tercio_network::process::ReplicaProcess;
use tercio_network::{Network, Spec, home};
use tercio_replica::Durability;
use tercio_replica::report::ReplicaReport;
use tercio_types::ReplicaId;

/// How many replicas there are: f = 1.
pub(crate) const REPLICAS: u16 = 4;
/// How many of them are enough.
pub(crate) const QUORUM: usize = 3;
/// The replica that suffers, or lies, where one does. It is not the first primary.
pub(crate) const VICTIM: u16 = 3;
/// Clients that put on load, by their place in the genesis; the next one asks questions.
pub(crate) const LOADERS: usize = 4;
pub(crate) const ASKER: usize = LOADERS;
/// The first of the clients that attack.
pub(crate) const FIRST_HOSTILE: usize = ASKER + 1;
/// How many of these there are, unless an attack needs more.
pub(crate) const HOSTILE: usize = 8;

/// What network an attack needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Descriptors that a replica may have open, by the hard limit, too.
    pub(crate) nofile: Option<u64>,
    /// Clients beyond the others, who open links and say nothing.
    pub(crate) idle_clients: usize,
    /// Whether replicas dial each other through relays.
    pub(crate) relayed: bool,
    /// A replica that is not started: its key is the attacker's.
    pub(crate) down: Option<u16>,
    /// The replica whose home is a small file system of its own, of so many MiB, and whether what
    /// it must write (`data/`) is elsewhere.
    pub(crate) small_home: Option<SmallHome>,
    /// The replica whose clock is ten years ahead at first.
    pub(crate) ahead: Option<u16>,
    /// When a promise counts as durable.
    pub(crate) durability: Durability,
}

/// A home on a small file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallHome {
    /// Its size.
    pub(crate) mib: u64,
    /// Whether `data/` is on another one.
    pub(crate) data_elsewhere: bool,
}

/// A network that runs.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) dir: PathBuf,
    pub(crate) network: Network,
    spec: Spec,
    /// What runs a replica: the product, perhaps behind a script that limits it first.
    runner: PathBuf,
    /// The product itself.
    program: PathBuf,
    pub(crate) replicas: BTreeMap<u16, ReplicaProcess>,
    /// By who dials and who is dialled.
    pub(crate) relays: BTreeMap<(u16, u16), Relay>,
    mounted: Option<PathBuf>,
}

impl Net {
    /// Lays a network out in `dir` and starts it.
    pub(crate) fn start(dir: &Path, program: &Path, plan: &Plan) -> Result<Self, Trouble> {
        let clients = FIRST_HOSTILE + HOSTILE + plan.idle_clients;
        let spec = Spec {
            replicas: REPLICAS,
            clients,
            auth: ClientAuth::Signature,
            durability: plan.durability,
            ..Spec::new(tercio_registry::apps().first())
        };
        let network = Network::lay_out(dir, &spec)?;
        let runner = match plan.nofile {
            Some(limit) => wrap(dir, program, "limited", &format!("ulimit -n {limit}"))?,
            None => program.to_owned(),
        };
        let program = program.to_owned();
        let (replicas, relays) = (BTreeMap::new(), BTreeMap::new());
        let (dir, mounted) = (dir.to_owned(), None);
        let mut net = Self { dir, network, spec, runner, program, replicas, relays, mounted };
        if plan.relayed {
            net.relay()?;
        }
        if let Some(small) = plan.small_home {
            net.make_small(small)?;
        }
        let ahead = match plan.ahead {
            Some(_) => Some(net.wrapped("ahead", &ahead()?)?),
            None => None,
        };
        for id in (0..REPLICAS).filter(|id| plan.down != Some(*id)) {
            let runner = ahead.as_deref().filter(|_| plan.ahead == Some(id));
            net.spawn(id, runner)?;
        }
        for replica in net.replicas.values_mut() {
            replica.wait_ready()?;
        }
        Ok(net)
    }

    pub(crate) fn home(&self, id: u16) -> PathBuf {
        home(&self.dir, id)
    }

    /// Puts a relay on every link between replicas: each home's genesis names relays where it dials.
    fn relay(&mut self) -> Result<(), Trouble> {
        let genesis = self.network.genesis();
        for from in 1..REPLICAS {
            let mut own = genesis.clone();
            for to in 0..from {
                let member = own.replicas.get_mut(&ReplicaId(to)).expect("replicas from 0 on");
                let address: SocketAddr = member.address.parse().expect("it was laid out so");
                let relay = Relay::start(address)?;
                member.address = relay.address().to_string();
                self.relays.insert((from, to), relay);
            }
            let file = self.home(from).join(GENESIS_FILE);
            fs::remove_file(&file)?;
            write_genesis(&file, &own).map_err(tercio_network::NetworkError::from)?;
        }
        Ok(())
    }

    /// The relays of all links of a replica.
    pub(crate) fn relays_of(&self, id: u16) -> impl Iterator<Item = &Relay> {
        let of = move |(from, to): &(u16, u16)| *from == id || *to == id;
        self.relays.iter().filter(move |(link, _)| of(link)).map(|(_, relay)| relay)
    }

    /// Moves the victim's home to a file system of its own.
    fn make_small(&mut self, small: SmallHome) -> Result<(), Trouble> {
        let (home, aside) = (self.home(VICTIM), self.dir.join("aside"));
        fs::rename(&home, &aside)?;
        fs::create_dir(&home)?;
        run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={}m,mode=700", small.mib), "tmpfs"],
            &home,
        )?;
        self.mounted = Some(home.clone());
        run("cp", &["-a", "-T", &aside.display().to_string()], &home)?;
        if small.data_elsewhere {
            fs::remove_dir_all(home.join("data"))?;
            std::os::unix::fs::symlink(aside.join("data"), home.join("data"))?;
        }
        Ok(())
    }

    /// Starts a replica, through `runner` when one is given, and does not wait for it.
    pub(crate) fn spawn(&mut self, id: u16, runner: Option<&Path>) -> Result<(), Trouble> {
        let runner = runner.unwrap_or(&self.runner);
        let process = ReplicaProcess::spawn(runner, id, &self.home(id))?;
        self.replicas.insert(id, process);
        Ok(())
    }

    /// As [`Self::spawn`], and waits until it runs.
    pub(crate) fn restart(&mut self, id: u16, runner: Option<&Path>) -> Result<(), Trouble> {
        self.spawn(id, runner)?;
        self.replicas.get_mut(&id).expect("just started").wait_ready()?;
        Ok(())
    }

    /// Ends a replica as a crash does. One that has ended by itself is gone, too.
    pub(crate) fn kill(&mut self, id: u16) -> Result<(), Trouble> {
        if let Some(mut process) = self.replicas.remove(&id) {
            process.kill()?;
        }
        Ok(())
    }

    /// A script that does something before it becomes the product.
    pub(crate) fn wrapped(&self, name: &str, before: &str) -> Result<PathBuf, Trouble> {
        wrap(&self.dir, &self.program, name, before)
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// What each replica that should run says of itself; none of one that has ended.
    pub(crate) fn reports(&self) -> BTreeMap<u16, ReplicaReport> {
        self.replicas.iter().filter_map(|(id, r)| Some((*id, r.report()?))).collect()
    }

    /// The replicas that have ended by themselves, and what they said.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let ended = self.replicas.values_mut().filter_map(|replica| replica.check().err());
        ended.map(|error| error.to_string()).collect()
    }

    /// A client of this network.
    pub(crate) fn client(&self, i: usize) -> Result<Client, Trouble> {
        let core = CoreSettings { max_outstanding: 64, ..self.spec.core_settings() };
        Ok(self.network.client(i, core)?)
    }

    /// Stops all replicas that run, in an orderly way where that goes.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        let mut all: Vec<_> = std::mem::take(&mut self.replicas).into_values().collect();
        all.iter_mut().for_each(ReplicaProcess::ask_to_stop);
        all.into_iter().filter_map(|r| r.stop().err()).map(|error| error.to_string()).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.replicas.clear();
        if let Some(home) = &self.mounted {
            // The directory goes with it; when that fails, so does whoever removes the directory.
            let _ = run("umount", &["-l"], home);
        }
    }
}

/// A script that does something and then becomes `program`.
fn wrap(dir: &Path, program: &Path, name: &str, before: &str) -> Result<PathBuf, Trouble> {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{before}\nexec '{}' \"$@\"\n", program.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// The library that shows a process another time, where Debian and others have it.
pub(crate) fn fake_time() -> Option<PathBuf> {
    let triples = fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let places = triples.map(|dir| dir.join("faketime")).chain(["/usr/lib/faketime".into()]);
    places.map(|dir| dir.join("libfaketimeMT.so.1")).find(|file| file.exists())
}

/// What shows a process a wall clock that is ten years ahead.
fn ahead() -> Result<String, Trouble> {
    let library = fake_time().ok_or_else(|| Trouble::Means("libfaketime is missing".into()))?;
    let library = library.display();
    Ok(format!("export LD_PRELOAD='{library}' FAKETIME='+3650d' FAKETIME_DONT_FAKE_MONOTONIC=1"))
}

/// Runs a command on a path, which must succeed.
fn run(command: &str, words: &[&str], path: &Path) -> Result<(), Trouble> {
    let output = std::process::Command::new(command).args(words).arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Trouble::Means(format!("{command}: {said}")))
}

/// Whether this process may mount a file system.
pub(crate) fn may_mount(dir: &Path) -> bool {
    let place = dir.join("mount-probe");
    let mounted = fs::create_dir(&place).is_ok()
        && run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &place).is_ok();
    if mounted {
        let _ = run("umount", &[], &place);
    }
    let _ = fs::remove_dir(&place);
    mounted
}
