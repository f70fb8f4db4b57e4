//! What becomes of packages and queries.

use crate::{QueryTicket, Ticket};
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tercio_types::{Height, ReplicaId, RequestSeq, View};
use tercio_wire::{DecodeError, OpResult, reject::Reason};
use thiserror::Error;

/// Why operations were not taken. Nothing was sent, and no number was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// It is not known which numbers of this client were used.
    #[error(
        "which numbers of this client were used is not known: take them up with `Client::resume`, \
         or give `Settings::numbers` (`CoreSettings::unused_id` is for an id that was never used)"
    )]
    NotResumed,
    /// The file of the client's numbers takes no note of one, which is not used then.
    #[error("the file of the client's numbers cannot be written: {0}")]
    NotNoted(io::ErrorKind),
    /// A package has at least one operation.
    #[error("a package needs at least one operation")]
    Empty,
    /// As much as allowed is in flight; try again after a completion.
    #[error("{outstanding} packages are under way, as many as the settings or the window allow")]
    TooMany {
        /// How many packages, or queries, are in flight.
        outstanding: usize,
    },
    /// The primary is busy, and the settings say not to wait.
    #[error("the network is busy; try again in {retry_after:?}")]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// More operations than the window, or more bytes than the settings allow.
    #[error("{found} {unit} are above the limit of {limit} for a package")]
    TooLarge {
        /// How many there are.
        found: usize,
        /// How many are allowed.
        limit: usize,
        /// Of what: 'operations' or 'bytes'.
        unit: &'static str,
    },
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// Too few replicas agreed in time. A package may have been executed, or may be yet.
    #[error("{}{}", timed_out(*.within, .silent, .refused, .split), may_be(.numbers.as_deref()))]
    TimedOut {
        /// The first and the last number of the package; none of a query.
        numbers: Option<Box<(RequestSeq, RequestSeq)>>,
        /// How long we waited.
        within: Duration,
        /// The replicas that did not answer.
        silent: Vec<ReplicaId>,
        /// The replicas that declined, and why.
        refused: Vec<(ReplicaId, Reason)>,
        /// The replicas that answered, in too small a number or each something else.
        split: Vec<ReplicaId>,
    },
    /// Enough replicas declined for the same reason. The package was not executed.
    #[error("refused by replicas {}: {reason}", list(.by))]
    Refused {
        /// Why.
        reason: Reason,
        /// Who said so.
        by: Vec<ReplicaId>,
    },
    /// Enough replicas say that a number of the package was used for another operation, before or by
    /// another process under this id; what of it has a result of its own is not known.
    #[error(
        "number {first} was used for another operation, say replicas {}: take up this client's \
         numbers (`Client::resume`, or `Settings::numbers`)", list(.by)
    )]
    NumberUsed {
        /// The number of the package's first operation.
        first: RequestSeq,
        /// Who said so.
        by: Vec<ReplicaId>,
    },
    /// Enough replicas say, and stay with it, that a number is far above those that this client has
    /// used. It was not executed.
    #[error(
        "number {first} is far above those that this client has used, say replicas {}: take up this \
         client's numbers (`Client::resume`, or `Settings::numbers`)", list(.by)
    )]
    BeyondWindow {
        /// The number of the package's first operation.
        first: RequestSeq,
        /// Who said so.
        by: Vec<ReplicaId>,
    },
    /// Enough replicas say that the package was executed, and that its results fit no frame.
    #[error(
        "the operation was executed, and its result is too long to be sent, more than 16 MiB, say \
         replicas {}: ask for less at a time", list(.by)
    )]
    ResultTooLong {
        /// Who said so.
        by: Vec<ReplicaId>,
    },
    /// Enough replicas agreed on bytes that are no results of this package: they speak another
    /// version.
    #[error("replicas agree on a result that this build cannot read: {0}")]
    BadResults(DecodeError),
}

fn list(replicas: &[ReplicaId]) -> String {
    replicas.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn may_be(numbers: Option<&(RequestSeq, RequestSeq)>) -> String {
    match numbers {
        None => String::new(),
        Some((one, last)) if one == last => {
            format!("; number {one} may have been executed, or may be yet")
        }
        Some((first, last)) => {
            format!("; numbers {first} to {last} may have been executed, or may be yet")
        }
    }
}

fn timed_out(
    within: Duration,
    silent: &[ReplicaId],
    refused: &[(ReplicaId, Reason)],
    split: &[ReplicaId],
) -> String {
    let within = Duration::from_millis(within.as_millis() as u64);
    let n = silent.len() + refused.len() + split.len();
    if silent.len() == n {
        return format!("none of {n} replicas answered for {within:?}; are they running?");
    }
    let mut parts = vec![match split.len() {
        0 => format!("none of {n} replicas answered within {within:?}"),
        answered if answered == n => {
            format!("the answers of all {n} replicas differ too much after {within:?}")
        }
        answered => format!("{answered} of {n} replicas answered: {}", list(split)),
    }];
    parts.extend(refused.iter().map(|(replica, reason)| format!("replica {replica}: {reason}")));
    match silent {
        [] => {}
        [one] => parts.push(format!("no answer from {one} for {within:?}; is it running?")),
        [some @ .., last] => {
            let some = list(some);
            parts.push(format!(
                "no answer from {some} and {last} for {within:?}; are they running?"
            ));
        }
    }
    parts.join("; ")
}

/// The end of a package. How long it took is the caller's to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What [`crate::ClientCore::submit`] gave.
    pub ticket: Ticket,
    /// The number of the first operation.
    pub first: RequestSeq,
    /// One result an operation, in order.
    pub outcome: Result<Vec<OpResult>, Failure>,
    /// The greatest view that f+1 replicas have reached.
    pub view: View,
    /// Retransmissions, on time-out of a replica or because it has no link. Zero
    /// when all is well.
    pub resent: u32,
}

/// The end of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What [`crate::ClientCore::query`] gave.
    pub ticket: QueryTicket,
    /// The bytes on which f+1 replicas agree.
    pub outcome: Result<Bytes, Failure>,
    /// A height that the state had reached which was asked; zero without an answer.
    pub height: Height,
}
