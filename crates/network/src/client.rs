//! A client from its home: its keys, its network, and the numbers that it has used.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use tercio_client::{ClientAuth, ConnectError, Numbers, NumbersError, Settings};
use tercio_genesis::{App, Apps, ClientHome, ConfigError, GenesisError};
use tercio_types::ClientId;
use thiserror::Error;

/// The file of the numbers that a client has used, in its home.
const NUMBERS_FILE: &str = "numbers";

/// Why a client's home cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is no client's home, or a file in it is wrong.
    #[error(transparent)]
    Home(#[from] ConfigError),
    /// Its genesis makes no network.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// Its numbers cannot be used: another process has them, say.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// Too few replicas can be reached, or they do not say which numbers are used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// A client of a network, opened from its home (`testnet` makes some, `init` others), and linked to
/// a quorum of the replicas. The home is this client's alone while it is open.
///
/// Everything that [`tercio_client::Client`] does it does, too: `call`, `call_all`, `read`, `query`.
///
/// ```no_run
/// # fn example(apps: &tercio_genesis::Apps) -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = tercio_network::Client::open("net/clients/1", apps)?;
/// let app = client.app().clone();
/// let result = client.call(app.operation("put city Lima")?)?; // f+1 replicas say so
/// println!("{}", app.result(&result).text);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    app: App,
    inner: tercio_client::Client,
}

impl Client {
    /// Opens the home of a client of a network that runs one of `apps`, and goes on above every
    /// number that this client ever used, whatever became of the process that used it last.
    ///
    /// # Errors
    /// When this is no client's home, another process uses it, or too few replicas can be reached.
    pub fn open(home: impl AsRef<Path>, apps: &Apps) -> Result<Self, OpenError> {
        let home = home.as_ref();
        // First, so that nothing is made in a directory that is no client's.
        let opened = ClientHome::load(home, apps)?;
        Self::link(opened, Numbers::open(&home.join(NUMBERS_FILE))?, true)
    }

    /// As [`Self::open`], for questions first: nothing can be submitted before
    /// [`tercio_client::Client::resume`], so that it links to a network that orders nothing, too.
    /// When another process uses the home, tells `waits` and waits for that to end.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_ask(home: &Path, apps: &Apps, waits: impl FnOnce()) -> Result<Self, OpenError> {
        let opened = ClientHome::load(home, apps)?;
        let numbers = Numbers::wait(&home.join(NUMBERS_FILE), waits);
        Self::link(opened, numbers?, false)
    }

    fn link(home: ClientHome, numbers: Numbers, resume: bool) -> Result<Self, OpenError> {
        let membership = home.membership()?;
        let ClientHome { client: id, secret, signing, signs, timeout, deadline, connect, .. } =
            home;
        let mut settings = Settings::new(id, secret, membership);
        settings.numbers = Some(numbers);
        settings.resume = resume;
        settings.connect_timeout = connect.unwrap_or(settings.connect_timeout);
        let core = &mut settings.core;
        core.auth = if signs { ClientAuth::Signature } else { ClientAuth::Mac };
        core.signing = signing;
        core.timeout = timeout.unwrap_or(core.timeout);
        core.deadline = deadline.unwrap_or(core.deadline);
        let inner = tercio_client::Client::connect(settings)?;
        Ok(Self { id, app: home.genesis.app, inner })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// What the network runs: words for its operations and questions.
    #[must_use]
    pub fn app(&self) -> &App {
        &self.app
    }

    /// The same without blocking: calls are futures.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn into_async(self) -> std::io::Result<tercio_client::AsyncClient> {
        self.inner.into_async()
    }
}

impl Deref for Client {
    type Target = tercio_client::Client;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_in_a_directory_that_is_no_home() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Client::open(folder.path(), &tercio_registry::apps());
        assert!(matches!(opened, Err(OpenError::Home(_))), "{opened:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
