//! A deterministic simulator of a Tercio network. The replicas are real ([`tercio_replica::Node`]:
//! verification, consensus, log, execution), and so are the clients and all cryptography; the
//! clock, the links and the disks are simulated, and the seed decides about them.
//!
//! The two that matter: [`World`], a network that a script or a plan does things to, and
//! [`run::run`], a random run: loss, duplication, reordering, partitions, crashes with torn writes,
//! Byzantine replicas; then everything heals, and everything must come to its end.
//!
//! - [`checks`]: what must hold, looked at after every event.
//! - [`actors`]: Byzantine replicas by name.
//! - [`plots`]: Byzantine replicas that work together, against one rule each.
//! - [`faults`]: the named faults of `docs/protocol/faults.md`, each a scenario of its own.
//!
//! Architecture invariant: nothing here knows real time, threads or sockets; the same seed gives
//! the same trace, byte for byte.

pub mod actors;
mod cast;
pub mod checks;
mod customer;
mod disk;
pub mod faults;
mod forger;
mod halting;
mod host;
mod liar;
mod network;
mod pace;
pub mod plots;
mod rng;
pub mod run;
mod trace;
pub mod witness;
mod world;

pub use cast::{CLIENTS, Cast};
pub use checks::{Simulated, Violation};
pub use customer::{Customer, Habits, Workload};
pub use disk::{Disk, Tear};
pub use forger::{FalseClient, Forger};
pub use halting::Halt;
pub use host::{Crash, Host};
pub use network::{Hush, Network, Quality};
pub use pace::Pace;
pub use rng::Rng;
pub use trace::{Names, Trace, kind_name, peek_key};
pub use world::{Act, Fate, Gate, Passing, Tally, Target, World, WorldSettings, small_settings};
