//! A client of a network from its home: linked, and with its numbers resumed.

use crate::failure::Failure;
use crate::{folder, output};
use std::path::{Path, PathBuf};
use tercio_client::{CallError, Numbers, OpResult, Read};
use tercio_genesis::App;
use tercio_network::{Client, OpenError};
use tercio_types::{ClientId, ClientInfo, ReplicaId, RequestSeq, SignatureBytes};

/// Which network, and as whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Who {
    /// The network's directory, or the home of one client
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Whose home in DIR/clients to use [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
}

/// A client's home, for this process alone.
pub(crate) struct Session {
    pub(crate) id: ClientId,
    pub(crate) app: App,
    client: Client,
    /// The arguments that name this client again.
    named: String,
}

impl Session {
    /// Opens the home and links to a quorum. When another command uses the same client, says so
    /// and waits for it to end. The client's numbers are taken up by [`Self::resume`].
    pub(crate) fn open(who: &Who) -> Result<Self, Failure> {
        let home = folder::client(&who.dir, who.client.as_deref())?;
        let opened = Client::open_to_ask(&home, crate::apps(), || waits(&home));
        let client = opened.map_err(|error| match error {
            OpenError::Connect(error) => Failure::new(format!(
                "{error}; is the network running? `tercio up {0}` starts it, `tercio status {0}` \
                 says how it is",
                who.dir.display()
            )),
            error => Failure::new(error),
        })?;
        let name = who.client.as_ref().map(|name| format!(" --client {name}")).unwrap_or_default();
        let named = format!("{}{name}", who.dir.display());
        Ok(Self { id: client.id(), app: client.app().clone(), client, named })
    }

    /// Takes up the client's numbers, before the first operation or ordered read.
    pub(crate) fn resume(&mut self) -> Result<(), Failure> {
        self.client.resume(RequestSeq(1)).map(drop).map_err(Failure::new)
    }

    /// Submits an operation and waits for its result; gives its number too.
    ///
    /// # Errors
    /// [`Failure::Unknown`] when it may have been executed all the same.
    pub(crate) fn call(&mut self, op: bytes::Bytes) -> (RequestSeq, Result<bytes::Bytes, Failure>) {
        let number = self.client.core().next_number().unwrap_or_default();
        let result = self.client.call(op).map_err(|error| match error.is_unknown() {
            true => Failure::Unknown(format!(
                "{}; `tercio submit {} --ask {number}` asks",
                self.failed(&error),
                self.named
            )),
            false => self.failed(&error),
        });
        (number, result)
    }

    /// Asks what became of one of this client's numbers: its result, when it is executed.
    pub(crate) fn ask_number(&mut self, number: RequestSeq) -> Result<Option<OpResult>, Failure> {
        self.client.ask_number(number).map_err(|error| self.failed(&error))
    }

    /// The lowest number that this client's file does not know as used.
    pub(crate) fn unused(&self) -> RequestSeq {
        self.client.numbers().map(Numbers::next).unwrap_or_default()
    }

    /// Asks a question that is ordered with the operations.
    pub(crate) fn read(&mut self, question: bytes::Bytes) -> Result<Read, Failure> {
        self.client.read(question).map_err(|error| self.failed(&error))
    }

    /// Asks a question that is not.
    pub(crate) fn stale_read(&mut self, question: bytes::Bytes) -> Result<Read, Failure> {
        self.client.query_at(question).map_err(|error| match &error {
            CallError::Failed { failure, .. }
                if matches!(**failure, tercio_client::Failure::TimedOut { .. }) =>
            {
                Failure::new(format!(
                    "{}; a question that makes no sense to the application is not answered either: \
                     ask without --stale for its reason",
                    self.failed(&error)
                ))
            }
            _ => self.failed(&error),
        })
    }

    /// Has a client added, and gives its number.
    pub(crate) fn add_client(
        &mut self,
        info: ClientInfo,
        approvals: Vec<(ReplicaId, SignatureBytes)>,
    ) -> Result<ClientId, Failure> {
        self.client.add_client(info, approvals).map_err(|error| self.failed(&error))
    }

    /// The view that the replicas are in.
    pub(crate) fn view(&self) -> u64 {
        self.client.core().view().0
    }

    fn failed(&self, error: &CallError) -> Failure {
        Failure::new(format!("client {}: {error}", self.id))
    }
}

fn waits(home: &Path) {
    output::error(&format!(
        "{}: another command uses {}; waiting for it to end (--client names another client)",
        output::program(),
        home.display()
    ));
}
