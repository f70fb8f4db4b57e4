//! What a client, and its core, is told at its start.

use crate::Numbers;
use std::sync::Arc;
use std::time::Duration;
use tercio_crypto::{SecretKey, SigningSecret};
use tercio_transport::Limits;
use tercio_types::{ClientId, Membership, ReplicaSet, RequestSeq};

/// How a client authenticates its packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// One tag a replica: fast, and convinces nobody but the replicas.
    Mac,
    /// A signature, of the identity or of [`CoreSettings::signing`].
    #[default]
    Signature,
}

/// How a client core behaves.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// How packages are authenticated.
    pub auth: ClientAuth,
    /// What packages are signed with, when that is not the identity: the genesis names the key.
    pub signing: Option<Arc<SigningSecret>>,
    /// The number of the first operation, of a client whose numbers its caller knows: 1 of an id
    /// that was never used ([`Self::unused_id`]). `None` when the id may have been used: nothing
    /// can be submitted then before the numbers are taken up ([`crate::Client::resume`]), since
    /// replicas execute a number once and answer it with its old result from then on.
    pub first: Option<RequestSeq>,
    /// The number of the first query; never one that was used before, since an answer names its
    /// query by number alone.
    pub first_query: u64,
    /// The most packages, and the most queries, in flight.
    pub max_outstanding: usize,
    /// The longest package as a frame, in bytes; replicas close the link on a longer one.
    pub max_package: usize,
    /// How long the primary has before all replicas are asked. Doubles with each time.
    pub timeout: Duration,
    /// The longest pause between two times that all are asked.
    pub max_timeout: Duration,
    /// Whether to take packages while the primary says that it is busy, and to hold them back
    /// until it is not; otherwise [`crate::SubmitError::Busy`] says when to try again.
    pub wait_when_busy: bool,
    /// How long the designated replier may stay silent once f+1 replicas agree.
    pub replier_patience: Duration,
    /// When the caller is told that there is no result.
    pub deadline: Duration,
    /// The most bytes of results kept of one replica while others have yet to agree.
    pub max_held: usize,
}

impl CoreSettings {
    /// The defaults, for an id that was never used on this network: its numbers begin with 1.
    #[must_use]
    pub fn unused_id() -> Self {
        Self { first: Some(RequestSeq(1)), ..Self::default() }
    }
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            auth: ClientAuth::default(),
            signing: None,
            first: None,
            first_query: 1,
            max_outstanding: 256,
            max_package: 1 << 20,
            timeout: Duration::from_millis(200),
            max_timeout: Duration::from_secs(2),
            wait_when_busy: true,
            replier_patience: Duration::from_millis(20),
            deadline: Duration::from_secs(10),
            max_held: 64 << 20,
        }
    }
}

/// Who we are, whom we talk to, and how.
#[derive(Debug)]
pub struct Settings {
    /// Our id in the genesis.
    pub client: ClientId,
    /// The secret of our identity.
    pub secret: SecretKey,
    /// The replicas, with keys and addresses.
    pub membership: Arc<Membership>,
    /// How the protocol behaves. `first_query` is replaced by a number from the clock, so that no
    /// answer to an earlier life fits.
    pub core: CoreSettings,
    /// Limits of the links.
    pub limits: Limits,
    /// The replicas to link to, f+1 of them at least; `None` for all. Results need f+1 replicas and
    /// requests go round by those that are linked, so fewer links save connections and cost delay
    /// when one of these fails.
    pub replicas: Option<ReplicaSet>,
    /// How long [`crate::Client::connect`] waits for a quorum of replicas.
    pub connect_timeout: Duration,
    /// The file of the numbers that this client has used; each is noted there before it is sent.
    /// Without it, and without [`CoreSettings::first`], nothing can be submitted before
    /// [`crate::Client::resume`].
    pub numbers: Option<Numbers>,
    /// Whether [`crate::Client::connect`] takes up the numbers of that file. A client that only asks
    /// questions needs none, and links to a network that orders nothing, too.
    pub resume: bool,
}

impl Settings {
    /// Settings with defaults: signed packages, ten seconds to connect.
    #[must_use]
    pub fn new(client: ClientId, secret: SecretKey, membership: Arc<Membership>) -> Self {
        Self {
            client,
            secret,
            membership,
            core: CoreSettings::default(),
            limits: Limits::default(),
            replicas: None,
            connect_timeout: Duration::from_secs(10),
            numbers: None,
            resume: true,
        }
    }
}
