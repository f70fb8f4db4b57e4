//! A replica: the stages of the pipeline joined.
//!
//! The two that matter: [`Node`], all stages of one replica without sockets, threads or clocks,
//! which the simulator runs as it is; and [`start`], the same stages on threads and sockets, as a
//! [`Layout`] says.
//!
//! ```text
//!  frames ──► OrderStage ──ToLog──────► LogStage      write-ahead log, blocks, certificates,
//!             verify, consensus ◄─ToOrder─              snapshots, blocks for others
//!             sync        ──ToExecute─► ExecuteStage  engine, application, replies
//!                         ◄─ToOrder───      └──ToLog──► LogStage
//! ```
//!
//! What goes between stages is plain data ([`stages`]). A stage never calls another and owns no
//! thread; their driver moves what they put into their [`stages::Outbox`].

mod commits;
pub mod config;
mod descriptors;
mod entry;
mod error;
mod home;
mod layout;
pub mod metrics;
mod node;
pub mod probe;
mod progress;
mod protocols;
mod recover;
pub mod report;
pub mod stages;
mod threads;

pub use commits::DiskPace;
pub use config::{Data, ReplicaConfig};
pub use error::{NodeError, StartError};
pub use home::{Home, Part};
pub use layout::{Durability, Layout};
pub use node::{
    LedgerSettings, NoLog, Node, NodeSettings, NodeStatus, Output, PeerStatus, VerifySettings,
};
pub use progress::StartProgress;
pub use protocols::{Protocols, Runner};
pub use recover::Stages;
pub use threads::{ReplicaHandle, start, start_with};
