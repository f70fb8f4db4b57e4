//! Who takes part: the keys of all replicas and clients of a simulated network. They depend on
//! nothing but `n`, so a cast is made once and shared by all runs of that size.

use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{ProtocolFacts, ProtocolKind};
use tercio_crypto::{Instance, Keyring, SecretKey, hash};
use tercio_types::{
    ChainId, ClientId, ClientInfo, Epoch, Member, Membership, Principal, ReplicaId, Suite,
};

/// How many clients the genesis of every simulated network admits. Their ids start at 1.
pub const CLIENTS: u64 = 6;

/// How many more may be added to it while it runs, under the ids that follow.
const NEWCOMERS: u64 = 2;

/// The keys of a network of `n` replicas.
#[derive(Debug)]
pub struct Cast {
    membership: Arc<Membership>,
    replicas: BTreeMap<ReplicaId, SecretKey>,
    /// Those of the genesis, and those who may be added.
    clients: BTreeMap<ClientId, SecretKey>,
}

fn secret(suite: Suite, role: &[u8], id: u64) -> SecretKey {
    let seed = hash(suite, &[b"tercio-sim", role, &id.to_le_bytes()]).0;
    SecretKey::derived_from(suite, &seed)
}

impl Cast {
    /// The cast of `n` replicas, of the default suite.
    ///
    /// # Panics
    /// When a network cannot have `n` replicas.
    #[must_use]
    pub fn new(n: usize) -> Arc<Self> {
        Self::of_suite(n, Suite::default())
    }

    /// The cast of `n` replicas of a suite.
    ///
    /// # Panics
    /// When a network cannot have `n` replicas.
    #[must_use]
    pub fn of_suite(n: usize, suite: Suite) -> Arc<Self> {
        Self::with(&(0..n as u16).collect::<Vec<_>>(), suite, ProtocolFacts::of::<Pbft>())
    }

    /// The cast of `n` replicas that order with `P`.
    ///
    /// # Panics
    /// When a network cannot have `n` replicas.
    #[must_use]
    pub fn of<P: ProtocolKind>(n: usize) -> Arc<Self> {
        let ids: Vec<_> = (0..n as u16).collect();
        Self::with(&ids, Suite::default(), ProtocolFacts::of::<P>())
    }

    /// The cast of replicas of these numbers.
    ///
    /// # Panics
    /// When a network cannot have such replicas.
    #[must_use]
    pub fn numbered(ids: &[u16]) -> Arc<Self> {
        Self::with(ids, Suite::default(), ProtocolFacts::of::<Pbft>())
    }

    fn with(ids: &[u16], suite: Suite, protocol: ProtocolFacts) -> Arc<Self> {
        let n = ids.len();
        let key = |id: &u16| (ReplicaId(*id), secret(suite, b"replica", u64::from(*id)));
        let replicas: BTreeMap<_, _> = ids.iter().map(key).collect();
        let ids = 1..=CLIENTS + NEWCOMERS;
        let clients: BTreeMap<_, _> =
            ids.map(|i| (ClientId(i), secret(suite, b"client", i))).collect();
        let genesis = clients.range(..=ClientId(CLIENTS));
        let member = |(id, key): (&ReplicaId, &SecretKey)| {
            (*id, Member { key: key.public(), address: format!("replica-{id}.sim:1") })
        };
        let membership = Membership::numbered(
            ChainId(hash(suite, &[b"tercio-sim chain", &(n as u64).to_le_bytes()]).0),
            Epoch(0),
            suite,
            protocol.model(),
            replicas.iter().map(member).collect(),
            genesis.map(|(id, key)| (*id, ClientInfo::new(key.public()))).collect(),
        );
        let membership = membership.expect("from 1 to 128 replicas with keys of their own");
        let membership = Arc::new(membership.with_protocol(protocol.name()));
        Arc::new(Self { membership, replicas, clients })
    }

    /// The membership.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The hash and signature scheme.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.membership.suite()
    }

    /// A participant's secret key.
    ///
    /// # Panics
    /// When there is no such participant.
    #[must_use]
    pub fn secret(&self, of: Principal) -> &SecretKey {
        match of {
            Principal::Replica(id) => &self.replicas[&id],
            Principal::Client(id) => &self.clients[&id],
        }
    }

    /// The secret key of one who may be added.
    #[must_use]
    pub fn newcomer(&self, id: ClientId) -> Option<&SecretKey> {
        self.clients.get(&id).filter(|_| id.0 > CLIENTS)
    }

    /// A participant's keys towards all others.
    #[must_use]
    pub fn keyring(&self, of: Principal) -> Keyring {
        let (secret, membership) = (self.secret(of).clone(), self.membership.clone());
        Keyring::new(of, secret, membership, Instance::default())
    }

    /// All replicas in order.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.membership.replicas()
    }
}
