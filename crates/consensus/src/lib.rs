//! Byzantine-fault-tolerant ordering as a pure state machine.
//!
//! The types that matter: [`Protocol`], the contract of one replica's part in an ordering protocol;
//! [`ProtocolKind`], that of what belongs to all of them, and what a genesis names; and
//! [`pbft::Pbft`], the first that keeps both. A protocol is handed [`Event`]s together with the
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
mod kind;
pub mod pbft;
mod pool;
mod progress;
mod protocol;
mod standing;
mod votes;

pub use kind::{ProtocolFacts, ProtocolKind, Reading, RecoverError, Recovery, Setup};
pub use pool::{Admitted, PoolLimits, RequestPool, Share};
pub use progress::{BatchStep, LeaveCause, ViewStep};
pub use protocol::{
    Awaited, ClockDifference, Delivery, Effect, Event, Evidence, Floor, Horizon, Instant, Learning,
    MAX_BATCH, MAX_PACKAGE, PersistId, Protocol, Settings, SettingsError, Status,
};
pub use standing::{QUEUE_TARGET, StandingQueue};
pub use votes::{HostVotes, Phase, Recorded, Vote, VoteTable};
