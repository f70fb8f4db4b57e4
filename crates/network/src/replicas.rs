//! The replicas of a network that run, as processes or as threads of this one.

use crate::network::{NetworkError, Spec, home, start};
use crate::process::{self, ProcessError, ReplicaProcess};
use crate::usage::{self, Usage};
use std::io;
use std::path::Path;
use tercio_replica::report::ReplicaReport;
use tercio_replica::{Protocols, ReplicaConfig, ReplicaHandle};
use tercio_types::ReplicaId;

/// The replicas of a network that run.
#[derive(Debug)]
pub enum Replicas {
    /// Each a process of its own.
    Processes(Vec<ReplicaProcess>),
    /// All in this process.
    Threads(Vec<ReplicaHandle>),
}

impl Replicas {
    /// Starts the replicas of `spec`'s network, whose homes are in `dir`, with `program` as processes
    /// of their own or without as threads, and waits until all run.
    ///
    /// # Errors
    /// When one does not.
    pub fn start(dir: &Path, spec: &Spec, program: Option<&Path>) -> Result<Self, NetworkError> {
        let ids = spec.ids();
        let Some(program) = program else {
            let (apps, protocols) = (spec.apps(), Protocols::new(&[spec.protocol]));
            let start = |id: &ReplicaId| {
                let (config, genesis) = ReplicaConfig::load(&home(dir, id.0), &apps)?;
                start(config, &genesis, &protocols)
            };
            return Ok(Self::Threads(ids.iter().map(start).collect::<Result<_, _>>()?));
        };
        Ok(Self::Processes(spawn_all(program, dir, &ids)?))
    }

    /// Looks whether any has ended by itself.
    ///
    /// # Errors
    /// Names the first that has, and why.
    pub fn check(&mut self) -> Result<(), NetworkError> {
        match self {
            Self::Processes(all) => Ok(process::check_all(all)?),
            Self::Threads(all) => match all.iter().position(|replica| !replica.is_running()) {
                Some(i) => {
                    let (id, stopped) = (all[i].id().0, all.remove(i).wait());
                    stopped.map_err(|error| NetworkError::Stopped { id, error })
                }
                None => Ok(()),
            },
        }
    }

    /// What each has used until now. Threads share the memory of the process, which is given for
    /// each.
    ///
    /// # Errors
    /// When a process is gone.
    pub fn usage(&self) -> Result<Vec<Usage>, ProcessError> {
        match self {
            Self::Processes(all) => all.iter().map(ReplicaProcess::usage).collect(),
            Self::Threads(all) => (all.iter().map(|replica| replica.id().0))
                .map(|id| {
                    // As the replica names its threads.
                    usage::of_own_threads(&format!("tercio-{id}-"))
                        .map_err(|error| ProcessError::Usage { id, error })
                })
                .collect(),
        }
    }

    /// The process of replica `id`; none with threads.
    fn process(&mut self, id: u16) -> Option<&mut ReplicaProcess> {
        match self {
            Self::Processes(all) => all.iter_mut().find(|process| process.id() == id),
            Self::Threads(_) => None,
        }
    }

    /// Ends a replica process at once, as a crash does.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self, id: u16) -> io::Result<()> {
        if let Some(process) = self.process(id) {
            process.kill()?;
        }
        if let Self::Processes(all) = self {
            all.retain(|process| process.id() != id);
        }
        Ok(())
    }

    /// Stops a replica process from running (SIGSTOP); its links stay open and it says nothing.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn halt(&mut self, id: u16) -> io::Result<()> {
        self.process(id).map_or(Ok(()), |process| process.halt())
    }

    /// Starts a replica process again that was killed, without waiting for it.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn restart(&mut self, program: &Path, dir: &Path, id: u16) -> Result<(), ProcessError> {
        if let Self::Processes(all) = self {
            all.push(ReplicaProcess::spawn(program, id, &home(dir, id))?);
        }
        Ok(())
    }

    /// What the replica processes say of themselves; empty with threads.
    #[must_use]
    pub fn reports(&self) -> Vec<ReplicaReport> {
        match self {
            Self::Processes(all) => all.iter().filter_map(ReplicaProcess::report).collect(),
            Self::Threads(_) => vec![],
        }
    }

    /// Stops all in an orderly way.
    ///
    /// # Errors
    /// When one had stopped by itself.
    pub fn stop(self) -> Result<(), NetworkError> {
        match self {
            Self::Processes(all) => {
                all.into_iter().try_for_each(ReplicaProcess::stop).map_err(NetworkError::from)
            }
            Self::Threads(all) => all.into_iter().try_for_each(|handle| {
                let id = handle.id().0;
                handle.stop().map_err(|error| NetworkError::Stopped { id, error })
            }),
        }
    }
}

/// Starts a process for each of these replicas, whose homes are in `dir`, and waits until all run.
///
/// # Errors
/// When one does not.
pub fn spawn_all(
    program: &Path,
    dir: &Path,
    ids: &[ReplicaId],
) -> Result<Vec<ReplicaProcess>, ProcessError> {
    let mut all = (ids.iter())
        .map(|id| ReplicaProcess::spawn(program, id.0, &home(dir, id.0)))
        .collect::<Result<Vec<_>, _>>()?;
    for replica in &mut all {
        replica.wait_ready()?;
    }
    Ok(all)
}
