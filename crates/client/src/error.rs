//! Why there is no client, and why a call gave no result.

use crate::{Failure, NumbersError, SubmitError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_transport::BindError;
use tercio_types::{ChainId, ReplicaId, RequestSeq};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The links could not be set up at all.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Fewer replicas than results need.
    #[error("the settings name {named} replicas; a result needs the word of {needed}")]
    TooFew {
        /// How many the settings name.
        named: usize,
        /// How many must agree on a result.
        needed: usize,
    },
    /// Too few replicas could be reached.
    #[error(
        "reached {reached} of {n} replicas within {within:?}, and need {needed}: {}",
        problems.join("; ")
    )]
    Unreachable {
        /// How many could be.
        reached: usize,
        /// How many there are.
        n: usize,
        /// How many are needed: a quorum, or all that the settings name.
        needed: usize,
        /// How long we tried.
        within: Duration,
        /// One sentence for each replica that could not be reached.
        problems: Vec<String>,
    },
    /// f+1 replicas say that they belong to another network. One of them is correct.
    #[error(
        "this client's home is of chain {ours}, and replicas {} at the addresses in its genesis.toml \
         are of chain {theirs}: use a client's home of that network, or correct the addresses",
        by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    OtherChain {
        /// The client's.
        ours: ChainId,
        /// The replicas'.
        theirs: ChainId,
        /// Which of them say so.
        by: Vec<ReplicaId>,
    },
    /// The replicas were reached, and the client's numbers cannot be taken up.
    #[error("the client's numbers cannot be taken up: {0}")]
    Resume(#[source] Box<CallError>),
}

/// Why a call gave no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The file of the client's numbers cannot be written.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// The number that was kept is farther above those that the network executed than the window
    /// allows. Nothing was sent.
    #[error("{}", ahead(.file.as_deref(), *.found, *.expected))]
    NumbersAhead {
        /// The file of the numbers, if there is one.
        file: Option<PathBuf>,
        /// The next number that it says.
        found: RequestSeq,
        /// The next number as a quorum of replicas knows it.
        expected: RequestSeq,
    },
    /// There is no result; `links` says what is wrong with links to replicas, if anything.
    #[error("{failure}{}{}", if links.is_empty() { "" } else { " (" }, links_text(links))]
    Failed {
        /// Why.
        failure: Box<Failure>,
        /// One sentence for each replica without a link.
        links: Vec<String>,
    },
    /// The operation was ordered, but not executed, or its result is gone.
    #[error("the operation has no result: {0}")]
    NoResult(&'static str),
    /// The thread of an [`crate::AsyncClient`] has ended.
    #[error("the client has ended")]
    Closed,
    /// The application finds no sense in a question: its own words.
    #[error("{0}")]
    Declined(String),
}

impl CallError {
    /// Whether the operation may have been executed, or may be yet, for all that is known:
    /// [`crate::Client::ask_number`] asks.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        let Self::Failed { failure, .. } = self else { return false };
        matches!(**failure, Failure::TimedOut { numbers: Some(_), .. })
    }
}

fn ahead(file: Option<&Path>, found: RequestSeq, expected: RequestSeq) -> String {
    let (file, mend) = match file {
        Some(file) => (file.display().to_string(), format!("write {expected} into it")),
        None => ("the number that was kept".into(), format!("go on with {expected}")),
    };
    format!(
        "{file}: says that this client's next number is {found}, and the network expects {expected}: \
         it was written by hand, is of another network, or the network began anew; {mend} when \
         nothing of this client is under way, or try again when the replicas were behind"
    )
}

fn links_text(links: &[String]) -> String {
    if links.is_empty() { String::new() } else { format!("{})", links.join("; ")) }
}
