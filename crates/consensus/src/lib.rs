//! Byzantine-fault-tolerant ordering as a pure state machine.
//!
//! The two types that matter: [`Protocol`], the contract of every ordering protocol, and
//! [`pbft::Pbft`], the first that keeps it. A protocol is handed [`Event`]s together with the
//! time, and asked for [`Effect`]s until there are none left:
//!
//! ```text
//!        handle(event, now)                    poll_effect()
//!   ──────────────────────────►  Protocol  ──────────────────────────►  Send, Persist, Deliver ..
//!                                   │ deadline(): when to hand it Event::Timeout
//! ```
//!
//! The same object runs in a replica, in the simulator and under a debugger. It has no clock, no
//! randomness and no hash-map order, so the same events give the same effects.
//!
//! Architecture invariant: nothing here knows sockets, files, clocks, threads or the application.

mod admission;
pub mod pbft;
mod pool;
mod progress;
mod protocol;
mod votes;

pub use pool::{PoolLimits, RequestPool};
pub use progress::{BatchStep, LeaveCause, ViewStep};
pub use protocol::{
    Awaited, Delivery, Effect, Event, Evidence, Floor, Instant, Learning, MAX_BATCH, MAX_PACKAGE,
    PersistId, Protocol, Settings, SettingsError, Status,
};
pub use votes::{HostVotes, Phase, Recorded, Vote, VoteTable};
