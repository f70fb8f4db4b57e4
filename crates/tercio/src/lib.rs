//! Byzantine-fault-tolerant replication: your service, executed by 3f+1 replicas of which f may do
//! anything at all, with a log that anybody with the public keys can check.
//!
//! # An application
//!
//! What is replicated is an [`Application`]: a deterministic state machine over operations. Most are
//! written as a [`Transaction`], a function over a keyed [`Store`] that the engine owns, so that
//! digests, snapshots and state transfer come for free; [`Keyed`] makes an application of it. An
//! [`AppKind`] gives it a name that a genesis can say, its rules, and its words for people.
//!
//! ```
//! use tercio::{
//!     AppError, AppKind, Application, Bytes, Context, Keyed, LocalNetwork, NoRules, Operation,
//!     Outcome, Spec, Store, Suite, Transaction, StateView,
//! };
//!
//! /// An operation is a name; it counts how often that was said.
//! struct Roll;
//!
//! fn count(stored: Option<&Bytes>) -> u64 {
//!     stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
//! }
//!
//! impl Transaction for Roll {
//!     fn execute(&self, tx: &Operation, _: &Context, view: &mut StateView<'_>, result: &mut Vec<u8>)
//!         -> Outcome
//!     {
//!         let count = count(view.get(&tx.op).as_ref()) + 1;
//!         view.put(&tx.op, &count.to_le_bytes());
//!         result.extend_from_slice(count.to_string().as_bytes());
//!         Outcome::Commit
//!     }
//!
//!     fn query(&self, name: &[u8], store: &Store) -> Result<Bytes, AppError> {
//!         Ok(count(store.get(name)).to_string().into())
//!     }
//! }
//!
//! impl AppKind for Roll {
//!     const NAME: &'static str = "roll";
//!     const OPERATION: &'static str = "Ada";
//!     const QUESTION: &'static str = "Ada";
//!     type Rules = NoRules;
//!
//!     fn build(_: &NoRules, suite: Suite) -> Box<dyn Application> {
//!         Box::new(Keyed::new(Roll, suite))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Four replicas in this process; one of them may fail.
//! let network = LocalNetwork::start(Spec::of::<Roll>(NoRules {}))?;
//! let mut client = network.client(0)?;
//! assert_eq!(client.call("Ada".into())?, "1");
//! assert_eq!(client.call("Ada".into())?, "2");
//! network.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! # A program
//!
//! [`main`] makes a program of it that has every command: `testnet`, `up`, `start`, `submit`, `query`,
//! `status`, `audit`, `dev`, `bench bft` and more. The binary `tercio` is exactly that with the
//! applications that come along.
//!
//! ```no_run
//! # use tercio::{AppKind, Kind};
//! # fn program<Roll: AppKind>() -> std::process::ExitCode {
//! tercio::main(&[Kind::of::<Roll>()])
//! # }
//! ```
//!
//! Replicas order with PBFT. [`main_with`] lists other protocols beside it ([`Runner`]), which a genesis
//! names like an application.
//!
//! # A client
//!
//! [`Client::open`] takes a client's home, as `testnet` makes it, links to the replicas, and goes on
//! above the numbers that this client used before. A result is believed when f+1 replicas agree on
//! it.
//!
//! # What may fail
//!
//! Up to f of 3f+1 replicas may crash, lie, or be taken over; any number of clients may. What is
//! promised then, and what is not, is in `SECURITY.md`; the protocol is in `docs/protocol/pbft.md`.

pub use tercio_cli::{main, main_with};
pub use tercio_client::{
    AsyncClient, Call, CallError, ConnectError, CoreSettings, Failure, Read, SubmitError,
};
pub use tercio_consensus::pbft::Pbft;
pub use tercio_execution::{
    Aborted, AppError, Application, Context, Footprint, KeyRange, Keyed, MerkleMap, Operation,
    Outcome, Proposal, Replies, Snapshot, StateView, Store, Transaction, TreeTop,
};
pub use tercio_genesis::{
    App, AppKind, Apps, ConfigError, Genesis, GenesisError, Kind, NoRules, SharedSettings, Shown,
};
pub use tercio_network::{Client, LocalNetwork, Network, NetworkError, OpenError, Replicas, Spec};
pub use tercio_replica::{Durability, Layout, Runner};
pub use tercio_types::{ClientId, Digest, Height, ReplicaId, RequestSeq, Suite, Timestamp};

pub use tercio_wire::{Decode, Encode};

/// What an application's [`AppKind::Rules`] are written and read with: with
/// `#[serde(crate = "tercio::serde")]` a program needs no dependency of its own for them.
pub use serde;
/// Results and answers for programs: [`AppKind::result`].
pub use serde_json as json;

#[doc(no_inline)]
pub use bytes::Bytes;
