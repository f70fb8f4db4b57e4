//! Frames made by hand, with the real keys of one participant: what a Byzantine replica or client
//! can say.

use crate::Cast;
use bytes::Bytes;
use std::sync::Arc;
use tercio_consensus::pbft::{PbftMessage, SignedNewView, SignedViewChange, ViewChange};
use tercio_crypto::{Instance, Keyring, SecretKey};
use tercio_types::{
    Authenticator, Checkpoint, ClientId, ClientInfo, Membership, OpKind, Package, Principal,
    ReplicaId, RequestSeq, SignatureBytes, SystemOp, Tag, View,
};
use tercio_wire::{
    Encode, Frame, Key, Message, approval_key, checkpoint_key, encode_package_content,
    package_content, package_from_content, request_key,
};

/// Speaks for one replica.
pub struct Forger {
    me: ReplicaId,
    keys: Keyring,
}

impl Forger {
    /// Speaks for `me`.
    #[must_use]
    pub fn new(cast: &Cast, me: ReplicaId) -> Self {
        Self { me, keys: cast.keyring(Principal::Replica(me)) }
    }

    /// For whom.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.me
    }

    /// Among whom.
    #[must_use]
    pub fn membership(&self) -> &Arc<Membership> {
        self.keys.membership()
    }

    /// A frame under a MAC vector.
    #[must_use]
    pub fn maced(&self, key: Key, body: Bytes) -> Bytes {
        let auth = self.keys.mac_vector(&key.to_array());
        Frame { key, auth, body }.to_bytes()
    }

    /// The frame of another body under a message's key, for one receiver.
    #[must_use]
    pub fn plain(&mut self, to: Principal, mut key: Key, body: Bytes) -> Bytes {
        key.digest = tercio_crypto::hash(self.membership().suite(), &[&body]);
        let tag = self.keys.tag(to, &key.to_array()).unwrap_or_default();
        Frame { key, auth: Authenticator::Mac(tag), body }.to_bytes()
    }

    /// The frame of a message, as a correct replica would make it.
    #[must_use]
    pub fn message<M: Message>(&self, message: &M) -> Bytes {
        let suite = self.membership().suite();
        message.to_frame(self.me, suite, |said| self.keys.mac_vector(said)).to_bytes()
    }

    /// The frame of a signed state, whoever has it.
    #[must_use]
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> Bytes {
        let signature = self.sign_checkpoint(&checkpoint).into();
        self.message(&PbftMessage::Checkpoint { checkpoint: checkpoint.into(), signature })
    }

    /// A signature on a state, whoever has it.
    #[must_use]
    pub fn sign_checkpoint(&self, checkpoint: &Checkpoint) -> SignatureBytes {
        let said = checkpoint_key(self.membership().suite(), self.me, checkpoint);
        self.keys.signer().sign(&said.to_array())
    }

    /// The operator's signature on a new client's keys.
    #[must_use]
    pub fn approval(&self, info: &ClientInfo) -> SignatureBytes {
        let said = approval_key(self.membership().suite(), self.me, info);
        self.keys.signer().sign(&said.to_array())
    }

    /// A signed VIEW-CHANGE.
    #[must_use]
    pub fn signed_view_change(&self, content: ViewChange) -> Arc<SignedViewChange> {
        let suite = self.membership().suite();
        Arc::new(SignedViewChange::new(self.me, content, &self.keys.signer(), suite))
    }

    /// The frame of a VIEW-CHANGE.
    #[must_use]
    pub fn view_change(&self, content: ViewChange) -> Bytes {
        self.message(&PbftMessage::ViewChange(self.signed_view_change(content)))
    }

    /// The frame of a NEW-VIEW on these VIEW-CHANGEs, whether they make sense or not.
    #[must_use]
    pub fn new_view(&self, view: View, on: Vec<Arc<SignedViewChange>>) -> Bytes {
        let (signer, suite) = (self.keys.signer(), self.membership().suite());
        let new_view = SignedNewView::new(self.me, view, on, &signer, suite);
        self.message(&PbftMessage::NewView(Arc::new(new_view)))
    }
}

/// Makes the MACs for some replicas wrong. A signature is left as it is.
pub(crate) fn spoil(
    auth: Authenticator,
    membership: &Membership,
    wrong: impl Fn(ReplicaId) -> bool,
) -> Authenticator {
    match auth {
        Authenticator::MacVector(tags) => {
            let mut tags: Vec<Tag> = tags.iter().collect();
            for (id, tag) in membership.replicas().zip(&mut tags) {
                if wrong(id) {
                    tag.0[0] ^= 1;
                }
            }
            tags.into()
        }
        other => other,
    }
}

/// Speaks for one client.
pub struct FalseClient {
    me: ClientId,
    keys: Keyring,
}

impl FalseClient {
    /// Speaks for `me`.
    #[must_use]
    pub fn new(cast: &Cast, me: ClientId) -> Self {
        Self { me, keys: cast.keyring(Principal::Client(me)) }
    }

    /// Speaks for somebody whom the cast does not know.
    #[must_use]
    pub fn stranger(cast: &Cast, me: ClientId, secret: SecretKey) -> Self {
        let (id, membership) = (Principal::Client(me), cast.membership().clone());
        Self { me, keys: Keyring::new(id, secret, membership, Instance::default()) }
    }

    fn content(&self, kind: OpKind, first: u64, ops: &[Bytes]) -> Bytes {
        let (first, replier) = (RequestSeq(first), ReplicaId(0));
        let mut out = Vec::new();
        encode_package_content(self.me, first, kind, replier, ops, &mut out);
        out.into()
    }

    fn package(
        &self,
        kind: OpKind,
        first: u64,
        ops: &[Bytes],
        authenticate: impl FnOnce(&[u8; 52]) -> Authenticator,
    ) -> Package {
        let suite = self.keys.membership().suite();
        let unproven = Authenticator::Mac(Tag::default());
        let package = package_from_content(&self.content(kind, first, ops), unproven, suite);
        let mut package = package.expect("our own content is canonical");
        package.auth = authenticate(&request_key(&package).to_array());
        package
    }

    /// A package whose MACs are good for the replicas in `good` and wrong for all others.
    #[must_use]
    pub fn maced(&self, first: u64, ops: &[Bytes], good: &[ReplicaId]) -> Package {
        self.package(OpKind::User, first, ops, |said| {
            let vector = self.keys.mac_vector(said);
            spoil(vector, self.keys.membership(), |replica| !good.contains(&replica))
        })
    }

    /// Another package under the same numbers: as authentic as the first.
    #[must_use]
    pub fn other_face(&self, package: &Package) -> Package {
        let ops: Vec<Bytes> =
            package.ops.iter().map(|op| Bytes::from([op, b" or not"].concat())).collect();
        match package.auth {
            Authenticator::Signature(_) => self.signed(package.first.0, &ops),
            _ => {
                let first = package.first.0;
                self.package(OpKind::User, first, &ops, |said| self.keys.mac_vector(said))
            }
        }
    }

    /// A package with a good signature.
    #[must_use]
    pub fn signed(&self, first: u64, ops: &[Bytes]) -> Package {
        self.package(OpKind::User, first, ops, |said| self.keys.sign(said).into())
    }

    /// A package with a good signature that asks the engine itself for something.
    #[must_use]
    pub fn system(&self, first: u64, op: &SystemOp) -> Package {
        let sign = |said: &[u8; 52]| self.keys.sign(said).into();
        self.package(OpKind::System, first, &[op.to_bytes()], sign)
    }

    /// The frame of a package.
    #[must_use]
    pub fn request(&self, package: &Package) -> Bytes {
        let body = package_content(package);
        Frame { key: request_key(package), auth: package.auth.clone(), body }.to_bytes()
    }
}
