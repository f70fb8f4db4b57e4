//! One principal's keys towards everybody else of an epoch.
//!
//! `link` derives them, `context` says what is signed, `check` believes others or does not; here
//! they are kept, and authenticate what the principal sends.

mod check;
mod context;
mod link;
mod reject;
#[cfg(test)]
mod tests;

pub use context::{Instance, Signer, verify_signed};
pub use reject::Reject;

use crate::known::KnownGood;
use crate::{BatchVerifier, SecretKey, SigningSecret};
use context::{Context, context, signed};
use link::Link;
use std::collections::BTreeMap;
use std::sync::Arc;
use tercio_types::{
    Authenticator, ClientId, Membership, Principal, PublicKey, ReplicaId, SignatureBytes, Tag,
};

/// One principal's keys towards everybody else of an epoch and instance. Cheap to ask; a client's
/// keys are derived at first use. Clones share the cache of verified signatures (decision 0023).
#[derive(Clone, Debug)]
pub struct Keyring {
    me: Principal,
    secret: SecretKey,
    instance: Instance,
    context: Context,
    membership: Arc<Membership>,
    replicas: Vec<Option<Link>>,
    clients: BTreeMap<ClientId, Option<Link>>,
    /// What we sign with, when that is not our identity.
    signing: Option<Arc<SigningSecret>>,
    verifier: BatchVerifier,
    known: KnownGood,
    /// How many signatures were not checked since they were known.
    spared: u64,
}

impl Keyring {
    /// The keys of `me`, who holds `secret`.
    #[must_use]
    pub fn new(
        me: Principal,
        secret: SecretKey,
        membership: Arc<Membership>,
        instance: Instance,
    ) -> Self {
        let context = context(&membership, instance);
        let mut ring = Self {
            me,
            secret,
            instance,
            context,
            membership,
            replicas: vec![],
            clients: BTreeMap::new(),
            signing: None,
            verifier: BatchVerifier::default(),
            known: KnownGood::default(),
            spared: 0,
        };
        ring.replicas = ring.replica_links();
        ring
    }

    /// Our keys towards each replica, in the order of the membership.
    fn replica_links(&self) -> Vec<Option<Link>> {
        let link = |id| self.link(Principal::Replica(id), &self.membership.member(id)?.key);
        self.membership.replicas().map(link).collect()
    }

    /// Signs with a key other than the identity: a client's, whose public half the membership has
    /// beside the client's identity.
    #[must_use]
    pub fn signing_with(mut self, secret: Arc<SigningSecret>) -> Self {
        self.signing = Some(secret);
        self
    }

    /// Who we are.
    #[must_use]
    pub fn me(&self) -> Principal {
        self.me
    }

    /// The membership whose keys these are.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Goes over to another membership. With more clients all keys stay; those of other replicas, or
    /// of another epoch, are derived anew.
    pub fn set_membership(&mut self, membership: Arc<Membership>) {
        let before = std::mem::replace(&mut self.membership, membership);
        let after = &self.membership;
        let key = |of: &Membership, id| of.member(id).map(|member| member.key);
        let same = (after.chain(), after.epoch(), after.ids())
            == (before.chain(), before.epoch(), before.ids())
            && after.replicas().all(|id| key(after, id) == key(&before, id));
        if !same {
            self.context = context(after, self.instance);
            self.clients.clear();
            self.replicas = self.replica_links();
        }
    }

    /// Our signing half, for whoever signs in our name.
    #[must_use]
    pub fn signer(&self) -> Signer {
        Signer { secret: self.secret.clone(), context: self.context }
    }

    fn link(&self, peer: Principal, key: &PublicKey) -> Option<Link> {
        Link::derive((self.me, &self.secret), (peer, key), &self.membership, self.instance)
    }

    fn client_link(&mut self, client: ClientId) -> Result<Option<&Link>, Reject> {
        if !self.clients.contains_key(&client) {
            let info = self.membership.client(client).ok_or(Reject::UnknownClient(client))?;
            let link = self.link(Principal::Client(client), &info.key);
            self.clients.insert(client, link);
        }
        Ok(self.clients[&client].as_ref())
    }

    /// The tag on the 52 bytes for one replica or client.
    ///
    /// # Errors
    /// When the receiver is unknown.
    pub fn tag(&mut self, to: Principal, said: &[u8; 52]) -> Result<Tag, Reject> {
        let link = match to {
            Principal::Replica(id) => {
                let place = self.membership.place_of(id).ok_or(Reject::UnknownReplica(id))?;
                self.replicas[place].as_ref()
            }
            Principal::Client(id) => self.client_link(id)?,
        };
        // A member without a usable key gets a tag that it could not check anyway.
        Ok(link.map_or(Tag::default(), |link| link.send.tag(said)))
    }

    /// One tag for each replica, in order. Our own slot stays zero: nobody checks it.
    #[must_use]
    pub fn mac_vector(&self, said: &[u8; 52]) -> Authenticator {
        let tag = |(id, link): (ReplicaId, &Option<Link>)| match link {
            Some(link) if self.me != Principal::Replica(id) => link.send.tag(said),
            _ => Tag::default(),
        };
        let links = self.membership.replicas().zip(&self.replicas);
        Authenticator::MacVector(links.map(tag).collect())
    }

    /// Our signature on the 52 bytes.
    #[must_use]
    pub fn sign(&self, said: &[u8; 52]) -> SignatureBytes {
        let text = signed(&self.context, said);
        match &self.signing {
            Some(secret) => secret.sign(&text),
            None => self.secret.sign(&text),
        }
    }

    /// Checks signatures with this from now on.
    #[must_use]
    pub fn checking_with(mut self, verifier: BatchVerifier) -> Self {
        self.verifier = verifier;
        self
    }
}
