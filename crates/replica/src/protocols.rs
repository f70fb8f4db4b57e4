//! The protocols that a program can run.

use crate::threads::start_with;
use crate::{ReplicaConfig, ReplicaHandle, StartError};
use std::fmt;
use std::sync::Arc;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{ProtocolFacts, ProtocolKind};
use tercio_execution::Executor;

/// A protocol that a program can run, as a value: what a binary's `main` lists.
#[derive(Clone, Copy)]
pub struct Runner {
    facts: ProtocolFacts,
    start: fn(ReplicaConfig, Box<dyn Executor>) -> Result<ReplicaHandle, StartError>,
}

impl Runner {
    /// Runs `P`.
    #[must_use]
    pub const fn of<P: ProtocolKind>() -> Self {
        Self { facts: ProtocolFacts::of::<P>(), start: start_with::<P> }
    }

    /// What there is to know of the protocol.
    #[must_use]
    pub fn facts(&self) -> ProtocolFacts {
        self.facts
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runner").field(&self.facts.name()).finish()
    }
}

/// The protocols that a program can run; the first one is the default of a new network.
#[derive(Clone, Debug)]
pub struct Protocols(Arc<[Runner]>);

impl Default for Protocols {
    /// PBFT alone.
    fn default() -> Self {
        Self::new(&[Runner::of::<Pbft>()])
    }
}

impl Protocols {
    /// These.
    ///
    /// # Panics
    /// When there is none, or two have one name: a genesis could not tell them apart.
    #[must_use]
    pub fn new(runners: &[Runner]) -> Self {
        assert!(!runners.is_empty(), "a program has one protocol at least");
        for (i, runner) in runners.iter().enumerate() {
            let name = runner.facts.name();
            let twice = runners[..i].iter().any(|other| other.facts.name() == name);
            assert!(!twice, "two protocols have the name '{name}'");
        }
        Self(runners.into())
    }

    /// What there is to know of each, for whoever reads a genesis.
    #[must_use]
    pub fn facts(&self) -> Vec<ProtocolFacts> {
        self.0.iter().map(Runner::facts).collect()
    }

    /// The one of that name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Runner> {
        self.0.iter().find(|runner| runner.facts.name() == name).copied()
    }

    /// The first one.
    #[must_use]
    pub fn first(&self) -> Runner {
        self.0[0]
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|runner| runner.facts.name()).collect()
    }

    /// Starts a replica whose membership names its protocol, as [`crate::start`] does.
    ///
    /// # Errors
    /// As [`crate::start`], and when the protocol is none of these.
    pub fn start(
        &self,
        config: ReplicaConfig,
        app: impl Into<Box<dyn Executor>>,
    ) -> Result<ReplicaHandle, StartError> {
        let name = config.node.membership.protocol();
        let unknown = || StartError::UnknownProtocol { name, known: self.names().join(", ") };
        let runner = self.named(name).ok_or_else(unknown)?;
        (runner.start)(config, app.into())
    }
}
