//! Who takes part: the keys of all replicas and clients of a simulated network. They depend on
//! nothing but `n`, so a cast is made once and shared by all runs of that size.

use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_crypto::{Instance, Keyring, SecretKey, hash};
use tercio_types::{
    ChainId, ClientId, ClientInfo, Epoch, FaultModel, Member, Membership, Principal, ReplicaId,
    Suite,
};

/// How many clients the genesis of every simulated network admits. Their ids start at 1.
pub const CLIENTS: u64 = 6;

/// How many more may be added to it while it runs, under the ids that follow.
const NEWCOMERS: u64 = 2;

/// The keys of a network of `n` replicas.
#[derive(Debug)]
pub struct Cast {
    membership: Arc<Membership>,
    replicas: Vec<SecretKey>,
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
        let replicas: Vec<_> = (0..n as u64).map(|i| secret(suite, b"replica", i)).collect();
        let ids = 1..=CLIENTS + NEWCOMERS;
        let clients: BTreeMap<_, _> =
            ids.map(|i| (ClientId(i), secret(suite, b"client", i))).collect();
        let genesis = clients.range(..=ClientId(CLIENTS));
        let member = |(i, key): (usize, &SecretKey)| Member {
            key: key.public(),
            address: format!("replica-{i}.sim:1"),
        };
        let membership = Membership::new(
            ChainId(hash(suite, &[b"tercio-sim chain", &(n as u64).to_le_bytes()]).0),
            Epoch(0),
            suite,
            FaultModel::Byzantine,
            replicas.iter().enumerate().map(member).collect(),
            genesis.map(|(id, key)| (*id, ClientInfo::new(key.public()))).collect(),
        );
        let membership =
            Arc::new(membership.expect("from 1 to 128 replicas with keys of their own"));
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
            Principal::Replica(id) => &self.replicas[id.index()],
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
