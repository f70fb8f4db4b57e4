//! Who takes part, and how many of them must agree.

use crate::{ChainId, ClientId, Epoch, MAX_REPLICAS, PublicKey, ReplicaId, ReplicaSet, View};
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
    /// None fails: f = 0, quorums of floor(n/2)+1. For protocols that are there to be read, and to
    /// try others' seams with.
    Faultless,
}

impl FaultModel {
    /// The number that stands in encodings.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Byzantine => 1,
            Self::TrustedCounter => 2,
            Self::Faultless => 3,
        }
    }

    /// What its replicas may do when they fail, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Byzantine => "byzantine",
            Self::TrustedCounter => "trusted-counter",
            Self::Faultless => "faultless",
        }
    }
}

/// The longest name of an ordering protocol, in bytes.
pub const MAX_PROTOCOL_NAME: usize = 24;

/// The protocol of a network that names none.
pub const DEFAULT_PROTOCOL: &str = "pbft";

/// A signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Scheme {
    /// Ed25519 under the rules of ZIP-215.
    #[default]
    Ed25519,
    /// SM2 with SM3 (GB/T 32918.2).
    Sm2,
    /// ECDSA over P-256 with SHA-256 (FIPS 186-5).
    EcdsaP256,
    /// ECDSA over secp256k1 with SHA-256 (SEC 2).
    Secp256k1,
    /// RSA-2048, PKCS#1 v1.5 with SHA-256 (RFC 8017).
    Rsa2048,
}

impl Scheme {
    /// All schemes, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Ed25519, Self::Sm2, Self::EcdsaP256, Self::Secp256k1, Self::Rsa2048];

    /// The number that stands in encodings.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Ed25519 => 1,
            Self::Sm2 => 2,
            Self::EcdsaP256 => 3,
            Self::Secp256k1 => 4,
            Self::Rsa2048 => 5,
        }
    }

    /// The scheme of a number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.number() == number)
    }

    /// The word for it in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Sm2 => "sm2",
            Self::EcdsaP256 => "p256",
            Self::Secp256k1 => "secp256k1",
            Self::Rsa2048 => "rsa",
        }
    }

    /// The scheme of a word, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// The cryptography of a network: genesis parameters, named by number in every block header. The
/// suite fixes the hash, the MACs, the links' key agreement and the scheme of identities; a client
/// may sign its packages with another scheme ([`ClientInfo::signing`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Suite {
    /// SHA-256 and Ed25519 under the rules of ZIP-215.
    #[default]
    Sha256Ed25519,
    /// SM3 and SM2 (GB/T 32905, GB/T 32918).
    Sm3Sm2,
}

impl Suite {
    /// All suites, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Sha256Ed25519, Self::Sm3Sm2];

    /// The number that stands in headers and files.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Sha256Ed25519 => 1,
            Self::Sm3Sm2 => 2,
        }
    }

    /// The suite of a number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    /// The word for it in the genesis.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256Ed25519 => "sha256-ed25519",
            Self::Sm3Sm2 => "sm3-sm2",
        }
    }

    /// The suite of a word, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.name() == name)
    }

    /// The scheme of identities.
    #[must_use]
    pub fn scheme(self) -> Scheme {
        match self {
            Self::Sha256Ed25519 => Scheme::Ed25519,
            Self::Sm3Sm2 => Scheme::Sm2,
        }
    }
}

/// The key that a signature is checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningKey {
    /// The scheme.
    pub scheme: Scheme,
    /// The public key, as the scheme writes it.
    pub key: PublicKey,
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
    /// Its identity, under the suite's scheme: its links and MACs come from it.
    pub key: PublicKey,
    /// The key that its signed packages are checked with, when that is not its identity.
    pub signing: Option<SigningKey>,
}

impl ClientInfo {
    /// A client that signs with its identity.
    #[must_use]
    pub fn new(key: PublicKey) -> Self {
        Self { key, signing: None }
    }

    /// What its signed packages are checked with.
    #[must_use]
    pub fn signing_key(&self, suite: Suite) -> SigningKey {
        self.signing.unwrap_or(SigningKey { scheme: suite.scheme(), key: self.key })
    }
}

/// Why a list of replicas makes no membership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipError {
    /// No replica, or more than [`MAX_REPLICAS`].
    Size(usize),
    /// Two members with one key: one party would have two votes.
    DuplicateKey(ReplicaId, ReplicaId),
    /// A number above the greatest that there is.
    Number(ReplicaId),
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "a network has 1 to {MAX_REPLICAS} replicas, not {n}"),
            Self::DuplicateKey(a, b) => write!(f, "replicas {a} and {b} have the same public key"),
            Self::Number(id) => {
                write!(f, "a replica's number is at most {}, not {id}", MAX_REPLICAS - 1)
            }
        }
    }
}

impl std::error::Error for MembershipError {}

/// The most clients that can be added to those of the genesis.
pub const MAX_ADDED_CLIENTS: u64 = 4096;

/// The replicas and clients of one epoch, and the quorum arithmetic over them. Everything that
/// counts asks here, so that another fault model or a later epoch changes no counting code.
///
/// Clients are added within an epoch, by an ordered operation: that makes another value of this
/// type, which has the clients of the genesis and those that were added up to some height. Added
/// clients have the numbers after the genesis' last, without a gap.
///
/// A replica's number is its own for ever: who leaves takes it along, and nobody else gets it. So
/// the numbers of an epoch's members may have holes. Whatever goes by places (MAC vectors, the turns
/// of primaries) goes by [`Self::place_of`], where members stand in the order of their numbers
/// (decision 0039).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    chain: ChainId,
    epoch: Epoch,
    suite: Suite,
    protocol: &'static str,
    model: FaultModel,
    /// Their numbers, and they themselves in that order.
    ids: ReplicaSet,
    members: Vec<(ReplicaId, Member)>,
    clients: BTreeMap<ClientId, ClientInfo>,
    /// How many of the clients were added.
    added: u64,
}

impl Membership {
    /// Builds the membership of an epoch whose replicas have the numbers from 0 on, and whose
    /// protocol is [`DEFAULT_PROTOCOL`].
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
        if members.len() > MAX_REPLICAS {
            return Err(MembershipError::Size(members.len()));
        }
        let members = (0..).map(ReplicaId).zip(members).collect();
        Self::numbered(chain, epoch, suite, model, members, clients)
    }

    /// As [`Self::new`], with replicas of any numbers.
    ///
    /// # Errors
    /// When there are no replicas, one with a number above 127, or two with one key.
    pub fn numbered(
        chain: ChainId,
        epoch: Epoch,
        suite: Suite,
        model: FaultModel,
        members: BTreeMap<ReplicaId, Member>,
        clients: BTreeMap<ClientId, ClientInfo>,
    ) -> Result<Self, MembershipError> {
        let Some(last) = members.keys().last() else { return Err(MembershipError::Size(0)) };
        if last.index() >= MAX_REPLICAS {
            return Err(MembershipError::Number(*last));
        }
        let ids = members.keys().copied().collect();
        let members: Vec<_> = members.into_iter().collect();
        for (i, (id, member)) in members.iter().enumerate() {
            if let Some((first, _)) = members[..i].iter().find(|(_, other)| other.key == member.key)
            {
                return Err(MembershipError::DuplicateKey(*first, *id));
            }
        }
        let protocol = DEFAULT_PROTOCOL;
        Ok(Self { chain, epoch, suite, protocol, model, ids, members, clients, added: 0 })
    }

    /// The same under another ordering protocol.
    #[must_use]
    pub fn with_protocol(self, protocol: &'static str) -> Self {
        Self { protocol, ..self }
    }

    /// The same with one more client, under [`Self::next_client`].
    ///
    /// # Panics
    /// When there is no room for another.
    #[must_use]
    pub fn with_client(&self, info: ClientInfo) -> Self {
        let id = self.next_client().expect("the caller asked for the number");
        let mut more = self.clone();
        more.clients.insert(id, info);
        more.added += 1;
        more
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

    /// The ordering protocol's name.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// What replicas may do when they fail.
    #[must_use]
    pub fn model(&self) -> FaultModel {
        self.model
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
            FaultModel::Faultless => 0,
        }
    }

    /// How many make a quorum: any two quorums share a replica that is not faulty (2f+1 when
    /// n = 3f+1).
    #[must_use]
    pub fn quorum(&self) -> usize {
        match self.model {
            FaultModel::Byzantine => (self.n() + self.f() + 1).div_ceil(2),
            FaultModel::TrustedCounter | FaultModel::Faultless => self.n() / 2 + 1,
        }
    }

    /// How many must take part so that operations are ordered: a quorum, or all where none may
    /// fail.
    #[must_use]
    pub fn needed(&self) -> usize {
        match self.model {
            FaultModel::Faultless => self.n(),
            FaultModel::Byzantine | FaultModel::TrustedCounter => self.quorum(),
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

    /// The replica that leads `view`: members take turns in the order of their numbers.
    #[must_use]
    pub fn primary(&self, view: View) -> ReplicaId {
        self.members[(view.0 % self.n() as u64) as usize].0
    }

    /// Whether `replica` is a member.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.ids.contains(replica)
    }

    /// The replicas' numbers.
    #[must_use]
    pub fn ids(&self) -> ReplicaSet {
        self.ids
    }

    /// All replicas in order.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.ids.iter()
    }

    /// How many members stand before a replica in the order of numbers: where its tag is in a MAC
    /// vector.
    #[must_use]
    pub fn place_of(&self, replica: ReplicaId) -> Option<usize> {
        self.contains(replica).then(|| self.ids.below(replica).len())
    }

    /// Whether the numbers are those from 0 on, without a hole.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.ids.0.trailing_ones() as usize == self.n()
    }

    /// A replica's entry.
    #[must_use]
    pub fn member(&self, replica: ReplicaId) -> Option<&Member> {
        self.place_of(replica).map(|place| &self.members[place].1)
    }

    /// A client's entry.
    #[must_use]
    pub fn client(&self, client: ClientId) -> Option<&ClientInfo> {
        self.clients.get(&client)
    }

    /// The number of the next client that is added; `None` when there are
    /// [`MAX_ADDED_CLIENTS`] of them, or numbers have run out.
    #[must_use]
    pub fn next_client(&self) -> Option<ClientId> {
        let last = self.clients.keys().last().map_or(0, |last| last.0);
        let next = last.checked_add(1).map(ClientId);
        next.filter(|_| self.added < MAX_ADDED_CLIENTS)
    }

    /// Whether this is a client, or the number of one that may be added yet.
    #[must_use]
    pub fn may_have(&self, client: ClientId) -> bool {
        let last = self.clients.keys().last().map_or(0, |last| last.0);
        let room = MAX_ADDED_CLIENTS - self.added;
        self.clients.contains_key(&client) || (client.0 > last && client.0 - last <= room)
    }

    /// The clients that were added, in order.
    pub fn added_clients(&self) -> impl Iterator<Item = (ClientId, &ClientInfo)> {
        self.clients().skip(self.clients.len() - self.added as usize)
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
            let t = network(n, FaultModel::Faultless);
            assert!(2 * t.quorum() > n && t.weak_quorum() == 1, "n = {n}");
        }
        let sizes = [(4, 1, 3), (7, 2, 5), (10, 3, 7)];
        for (n, f, quorum) in sizes {
            let m = network(n, FaultModel::Byzantine);
            assert_eq!((m.f(), m.quorum(), m.weak_quorum()), (f, quorum, f + 1));
        }
    }

    #[test]
    fn clients_are_added_behind_those_of_the_genesis_and_bounded() {
        let info = |i: u64| ClientInfo::new(PublicKey::new(&i.to_le_bytes()).unwrap());
        let mut m = network(4, FaultModel::Byzantine);
        m.clients = BTreeMap::from([(ClientId(3), info(3)), (ClientId(7), info(7))]);
        assert!(m.may_have(ClientId(3)) && !m.may_have(ClientId(4)));
        assert!(m.may_have(ClientId(7 + MAX_ADDED_CLIENTS)));
        assert!(!m.may_have(ClientId(8 + MAX_ADDED_CLIENTS)));
        for i in 1..=MAX_ADDED_CLIENTS {
            assert_eq!(m.next_client(), Some(ClientId(7 + i)));
            // In place: a copy of the list for each would take this test long.
            m.clients.insert(ClientId(7 + i), info(7 + i));
            m.added += 1;
        }
        assert_eq!(m.next_client(), None);
        assert!(!m.may_have(ClientId(8 + MAX_ADDED_CLIENTS)));
        assert_eq!(m.added_clients().next().map(|(id, _)| id), Some(ClientId(8)));
        assert_eq!(m.added_clients().count() as u64, MAX_ADDED_CLIENTS);

        let mut m = network(4, FaultModel::Byzantine);
        assert_eq!(m.with_client(info(1)).client(ClientId(1)), Some(&info(1)));
        m.clients.insert(ClientId(u64::MAX), info(0));
        assert_eq!(m.next_client(), None, "numbers have run out");
        assert!(!m.may_have(ClientId(0)));
    }

    #[test]
    fn members_keep_their_numbers_and_take_turns_by_place() {
        let member = |i: u16| Member {
            key: PublicKey::new(&i.to_le_bytes()).unwrap(),
            address: String::new(),
        };
        let holes = [0, 2, 5, 7].map(ReplicaId);
        let numbered = |ids: &[ReplicaId]| {
            let (chain, epoch, model) = (ChainId::default(), Epoch(0), FaultModel::Byzantine);
            let members = ids.iter().map(|id| (*id, member(id.0))).collect();
            let (suite, clients) = (Suite::default(), BTreeMap::new());
            Membership::numbered(chain, epoch, suite, model, members, clients)
        };
        let m = numbered(&holes).unwrap();
        assert_eq!((m.n(), m.f(), m.quorum(), m.is_dense()), (4, 1, 3, false));
        assert_eq!(m.replicas().collect::<Vec<_>>(), holes);
        for (place, id) in holes.into_iter().enumerate() {
            assert_eq!(m.place_of(id), Some(place));
            assert_eq!(m.member(id), Some(&member(id.0)));
            assert_eq!(m.primary(View(place as u64 + 4)), id);
        }
        for id in [1, 3, 4, 6, 8, 127, 128, 700].map(ReplicaId) {
            assert!(!m.contains(id) && m.place_of(id).is_none() && m.member(id).is_none());
        }
        assert!(network(128, FaultModel::Byzantine).is_dense());
        assert!(!numbered(&[ReplicaId(1)]).unwrap().is_dense());
        assert!(numbered(&[ReplicaId(127)]).unwrap().contains(ReplicaId(127)));
        assert_eq!(numbered(&[ReplicaId(128)]), Err(MembershipError::Number(ReplicaId(128))));
        assert_eq!(numbered(&[]), Err(MembershipError::Size(0)));
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
