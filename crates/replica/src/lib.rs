//! A replica: the stages of the pipeline joined.
//!
//! The two that matter: [`Node`], all stages of one replica without sockets, threads or clocks,
//! which the simulator runs as it is; and [`start`], the same stages on threads and sockets, as a
//! [`Layout`] says.
//!
//! ```text
//!  frames ──► OrderStage ──ToLog──────► LogStage      write-ahead log, blocks, certificates,
//!             nic, consensus  ◄─ToOrder─              snapshots, blocks for others
//!             catch-up    ──ToExecute─► ExecuteStage  engine, application, replies
//!                         ◄─ToOrder───      └──ToLog──► LogStage
//! ```
//!
//! What goes between stages is plain data ([`stages`]). A stage never calls another and owns no
//! thread; whoever drives them moves what they put into their [`stages::Outbox`].

mod app_text;
pub mod client_home;
mod commits;
pub mod config;
mod divergence;
mod error;
pub mod genesis;
mod home;
mod layout;
mod node;
mod recover;
pub mod repair;
pub mod report;
mod serving;
pub mod stages;
pub mod sync;
mod threads;
mod toml_error;
pub mod transfer;

pub use app_text::Shown;
pub use client_home::ClientHome;
pub use commits::DiskPace;
pub use config::{ConfigError, Data, ReplicaConfig};
pub use divergence::Divergence;
pub use error::{NodeError, StartError};
pub use genesis::{App, Genesis};
pub use home::{Home, Part};
pub use layout::{Durability, Layout};
pub use node::{
    LedgerSettings, NoLog, Node, NodeSettings, NodeStatus, Output, PeerStatus, VerifySettings,
};
pub use recover::Stages;
pub use threads::{ReplicaHandle, start};
