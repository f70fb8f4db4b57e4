//! The client of a Tercio network: it submits operations, and believes a result when f+1 replicas
//! agree on it. [`ClientCore`] is the whole protocol without I/O (it runs under a simulator as
//! well); [`Client`] joins it with a [`tercio_transport::Transport`] for programs that block, and
//! [`AsyncClient`] gives the same as futures.
//!
//! ```no_run
//! # fn example(settings: tercio_client::Settings) -> Result<(), Box<dyn std::error::Error>> {
//! use tercio_client::{CallError, Client, SubmitError};
//!
//! let mut client = Client::connect(settings)?;
//! let result = client.call("operation".into())?; // ordered and executed; f+1 replicas say so
//! let results = client.call_all(vec!["one".into(), "two".into()])?; // under one authenticator
//! let answer = client.query("question".into())?; // asked of all replicas, not ordered
//!
//! // With `settings.core.wait_when_busy = false` a busy network is the caller's to deal with.
//! match client.call("operation".into()) {
//!     Err(CallError::Submit(SubmitError::Busy { retry_after })) => { /* later */ }
//!     other => println!("{:?}", other?),
//! }
//! # Ok(())
//! # }
//! ```
//! `examples/` of the repository has whole programs.
//!
//! Architecture invariant: nothing here knows how replicas agree, only what they say to clients.
//!
//! # Rules
//! (Castro and Liskov, OSDI'99, section 4.1, extended to many requests in flight.)
//!
//! - A package has consecutive numbers of the client's own counter, which never goes back. It is
//!   authenticated by a MAC vector or a signature, and sent to the primary that replies last named;
//!   after a time-out, or when the link to the primary drops, it is retransmitted to all replicas,
//!   with exponential back-off. Replicas execute a number at most once, so that is safe.
//! - Numbers stay within [`tercio_types::WINDOW`] of the oldest one that is unanswered.
//! - A result is believed when f+1 replicas sent replies with its digest (one of them at least is
//!   correct) and one sent the bytes. A replica's latest word counts, and only one.
//! - One replica, named in the package, sends the bytes; the others the digest only. When f+1 agree
//!   and that one stays silent for a short time (a few usual round trips), says something else or is
//!   disconnected, another that agreed is asked at once (a hedged request). From then on the first one is passed over,
//!   but for a single package now and then, more seldom each time it fails, until it sends a result
//!   again. So a dead, slow or lying replica costs a client one retransmission, and no package two.
//! - The primary believed in is the leader of the greatest view that f+1 replicas have reached, so
//!   that f liars cannot name one.
//! - Back-pressure: 'busy' is believed of a replica about itself; it is asked again when it says. When the primary
//!   says so the client also sends less: nothing before that time, and then fewer packages at once
//!   ([`ClientCore::held_back`], [`ClientCore::busy_for`]). All are asked when it has said so of one
//!   package for `max_timeout`; only f+1 of them put that off.
//!   A client can also refuse packages instead ([`CoreSettings::wait_when_busy`]).
//! - 'Must sign' makes the client sign for good once f+1 replicas say so; a single one makes it ask
//!   the others at once.
//! - Any other refusal ends a package once f+1 replicas give the same one. Its numbers are then used
//!   up by a package of empty system requests, which every replica answers without effect, since a
//!   gap would hold up the window for ever. But 'number used' says that another package used them.
//! - After the deadline the caller is told who did not answer. Whether the package will be executed
//!   is unknown then; the core goes on asking, because the numbers must not stay open.
//!   [`Client::ask_number`] asks what became of it.
//! - 'Beyond the window' is asked again for a while, since a replica may be behind; when f+1 replicas
//!   stay with it the package ends.
//! - A query is asked of all replicas and needs f+1 equal answers. It is a read of some recent state,
//!   not ordered with requests; a read that must not be stale is ordered as an operation is.
//! - A client that returns under an id used before asks where its numbers stand ([`Client::resume`]),
//!   and keeps them in a file, too ([`Settings::numbers`]). Until it knows, it submits nothing. A file
//!   farther ahead than the window allows is refused ([`CallError::NumbersAhead`]), and uses nothing
//!   up.

pub mod background;
mod blocking;
mod core;
mod error;
mod in_order;
mod numbers;
mod outcome;
mod pace;
mod peers;
mod pending;
mod query;
mod replies;
mod results;
mod resume;
mod settings;
mod tally;
mod time;

pub use crate::core::{ClientCore, Ticket};
pub use background::{AsyncClient, Call};
pub use blocking::{Client, Read};
pub use error::{CallError, ConnectError};
pub use numbers::{AHEAD, Numbers, NumbersError};
pub use outcome::{Answer, Completion, Failure, SubmitError};
pub use query::QueryTicket;
pub use resume::NumbersAhead;
pub use settings::{ClientAuth, CoreSettings, Settings};
pub use tercio_wire::OpResult;
pub use time::Nanos;
