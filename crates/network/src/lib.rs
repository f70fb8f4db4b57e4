//! Networks on this machine: their keys, genesis and homes, and their replicas as processes or as
//! threads of this one.
//!
//! - [`Spec`] says what network to make, [`Network`] is one with everybody's secrets, [`Replicas`] those
//!   that run.
//! - [`LocalNetwork`]: one in this process and in memory, to try applications and clients with.
//! - [`Client`]: a client from its home.
//! - [`process`]: a replica as a process; [`supervise`]: several, watched and started again;
//!   [`reports`]: what they say together; [`usage`]: what a process has used.
//!
//! Architecture invariant: nothing here measures, and nothing prints.

mod client;
mod clock;
mod local;
mod network;
pub mod process;
mod replicas;
pub mod reports;
pub mod supervise;
pub mod usage;

pub use client::{Client, OpenError};
pub use clock::{now, pause, poll_until, thread_cpu};
pub use local::LocalNetwork;
pub use network::{
    Auth, CLIENTS, Network, NetworkError, Spec, client_home, client_id, free_ports, home, start,
};
pub use replicas::{Replicas, spawn_all};
