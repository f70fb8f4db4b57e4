//! Who takes part, and how many of them must agree.

use crate::{ChainId, ClientId, Epoch, MAX_REPLICAS, PublicKey, ReplicaId, View};
use std::collections::BTreeMap;
use std::fmt;

/// What the replicas may do when they fail, which fixes n against f.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultModel {
    /// Arbitrary behaviour: n >= 3f+1, quorums of ceil((n+f+1)/2).
    Byzantine,
    /// Arbitrary behaviour beside a trusted counter that only crashes: n >= 2f+1, quorums of
    /// floor(n/2)+1.
    TrustedCounter,
}

/// The hash and the signature scheme of a network: genesis parameters, named by number in every
/// block header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Suite {
    /// SHA-256 and Ed25519 under the rules of ZIP-215.
    #[default]
    Sha256Ed25519,
}

impl Suite {
    /// The number that stands in headers and files.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Sha256Ed25519 => 1,
        }
    }

    /// The suite of a number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (number == 1).then_some(Self::Sha256Ed25519)
    }
}

/// A replica of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key that its identity and its signatures are checked with.
    pub key: PublicKey,
    /// Where it listens, `host:port`. Only the transport reads it.
    pub address: String,
}

/// A client that the genesis admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The key that its requests are checked with.
    pub key: PublicKey,
}

/// Why a list of replicas makes no membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipError {
    /// No replica, or more than [`MAX_REPLICAS`].
    Size(usize),
    /// Two members with one key: one party would have two votes.
    DuplicateKey(ReplicaId, ReplicaId),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "a network has 1 to {MAX_REPLICAS} replicas, not {n}"),
            Self::DuplicateKey(a, b) => write!(f, "replicas {a} and {b} have the same public key"),
        }
    }
}

impl std::error::Error for MembershipError {}

/// The replicas and clients of one epoch, and the quorum arithmetic over them. Everything that
/// counts asks here, so that another fault model or a later epoch changes no counting code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    chain: ChainId,
    epoch: Epoch,
    suite: Suite,
    model: FaultModel,
    members: Vec<Member>,
    clients: BTreeMap<ClientId, ClientInfo>,
}

impl Membership {
    /// Builds the membership of an epoch.
    ///
    /// # Errors
    /// When there are no replicas, too many, or two with one key.
    pub fn new(
        chain: ChainId,
        epoch: Epoch,
        suite: Suite,
        model: FaultModel,
        members: Vec<Member>,
        clients: BTreeMap<ClientId, ClientInfo>,
    ) -> Result<Self, MembershipError> {
        if members.is_empty() || members.len() > MAX_REPLICAS {
            return Err(MembershipError::Size(members.len()));
        }
        for (i, a) in members.iter().enumerate() {
            if let Some(j) = members[..i].iter().position(|b| a.key == b.key) {
                return Err(MembershipError::DuplicateKey(
                    ReplicaId(j as u16),
                    ReplicaId(i as u16),
                ));
            }
        }
        Ok(Self { chain, epoch, suite, model, members, clients })
    }

    /// The network.
    #[must_use]
    pub fn chain(&self) -> ChainId {
        self.chain
    }

    /// The generation of this membership.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The hash and signature scheme.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// How many replicas there are.
    #[must_use]
    pub fn n(&self) -> usize {
        self.members.len()
    }

    /// How many of them may fail.
    #[must_use]
    pub fn f(&self) -> usize {
        match self.model {
            FaultModel::Byzantine => (self.n() - 1) / 3,
            FaultModel::TrustedCounter => (self.n() - 1) / 2,
        }
    }

    /// How many make a quorum: any two quorums share a replica that is not faulty (2f+1 when
    /// n = 3f+1).
    #[must_use]
    pub fn quorum(&self) -> usize {
        match self.model {
            FaultModel::Byzantine => (self.n() + self.f() + 1).div_ceil(2),
            FaultModel::TrustedCounter => self.n() / 2 + 1,
        }
    }

    /// How many hold at least one that is not faulty: f+1.
    #[must_use]
    pub fn weak_quorum(&self) -> usize {
        self.f() + 1
    }

    /// How many equal replies a client needs.
    #[must_use]
    pub fn reply_threshold(&self) -> usize {
        self.weak_quorum()
    }

    /// The replica that leads `view`.
    #[must_use]
    pub fn primary(&self, view: View) -> ReplicaId {
        ReplicaId((view.0 % self.n() as u64) as u16)
    }

    /// Whether `replica` is a member.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        replica.index() < self.n()
    }

    /// All replicas in order.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.n() as u16).map(ReplicaId)
    }

    /// A replica's entry.
    #[must_use]
    pub fn member(&self, replica: ReplicaId) -> Option<&Member> {
        self.members.get(replica.index())
    }

    /// A client's entry.
    #[must_use]
    pub fn client(&self, client: ClientId) -> Option<&ClientInfo> {
        self.clients.get(&client)
    }

    /// All clients in order.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &ClientInfo)> {
        self.clients.iter().map(|(id, info)| (*id, info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: usize, model: FaultModel) -> Membership {
        let members = (0..n)
            .map(|i| Member {
                key: PublicKey::new(&[i as u8; 32]).unwrap(),
                address: String::new(),
            })
            .collect();
        let (chain, epoch) = (ChainId::default(), Epoch(0));
        Membership::new(chain, epoch, Suite::default(), model, members, BTreeMap::new()).unwrap()
    }

    /// Castro and Liskov, OSDI'99 section 3: quorums intersect in a correct replica, and a quorum
    /// of correct replicas is always there.
    #[test]
    fn any_two_quorums_share_a_correct_replica() {
        for n in 1..=MAX_REPLICAS {
            let m = network(n, FaultModel::Byzantine);
            assert!(2 * m.quorum() - n > m.f(), "n = {n}: overlap of at least f+1");
            assert!(m.quorum() <= n - m.f(), "n = {n}: the correct ones alone are a quorum");
            let h = network(n, FaultModel::TrustedCounter);
            assert!(2 * h.quorum() > n, "n = {n}: overlap of at least one");
            assert!(h.quorum() <= n - h.f(), "n = {n}: the correct ones alone are a quorum");
        }
        let sizes = [(4, 1, 3), (7, 2, 5), (10, 3, 7)];
        for (n, f, quorum) in sizes {
            let m = network(n, FaultModel::Byzantine);
            assert_eq!((m.f(), m.quorum(), m.weak_quorum()), (f, quorum, f + 1));
        }
    }

    #[test]
    fn one_key_cannot_vote_twice() {
        let same = Member { key: PublicKey::new(&[1; 32]).unwrap(), address: String::new() };
        let result = Membership::new(
            ChainId::default(),
            Epoch(0),
            Suite::default(),
            FaultModel::Byzantine,
            vec![same.clone(), same],
            BTreeMap::new(),
        );
        assert_eq!(result, Err(MembershipError::DuplicateKey(ReplicaId(0), ReplicaId(1))));
    }
}
