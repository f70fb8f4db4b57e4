//! Verified by type.

use tercio_types::{Authenticator, ClientId, Principal, SignatureBytes, Tag, Tags};

/// An authenticator, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// A tag for us alone.
    Mac(&'a Tag),
    /// One tag a replica.
    MacVector(&'a Tags),
    /// A signature.
    Signature(&'a SignatureBytes),
    /// A certificate of a trusted counter.
    Attested(u64, &'a SignatureBytes),
}

impl<'a> From<&'a Authenticator> for Proof<'a> {
    fn from(authenticator: &'a Authenticator) -> Self {
        match authenticator {
            Authenticator::Mac(tag) => Self::Mac(tag),
            Authenticator::MacVector(tags) => Self::MacVector(tags),
            Authenticator::Signature(signature) => Self::Signature(signature),
            Authenticator::Attested { counter, certificate } => {
                Self::Attested(*counter, certificate)
            }
        }
    }
}

/// Something that a message says somebody said: the 52 bytes and the proof.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Who is said to have said it.
    pub by: Principal,
    /// What: the authenticated bytes of a message.
    pub said: [u8; 52],
    /// The proof.
    pub proof: Proof<'a>,
}

/// A message that can list all that must be checked before it may be believed.
pub trait Claimed {
    /// Calls `claim` for everything in the message that somebody said, its sender's own claim
    /// first. A claim that is left out is never checked, so a message lists them all.
    fn claims(&self, claim: &mut dyn FnMut(Claim<'_>));
}

/// A message whose every claim has been checked. Only a [`crate::Keyring`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<M> {
    message: M,
    doubts: Vec<ClientId>,
}

impl<M> Verified<M> {
    pub(crate) fn new(message: M, doubts: Vec<ClientId>) -> Self {
        Self { message, doubts }
    }

    /// The clients whose MACs inside fail for us though the message's sender vouches for them;
    /// mostly none. A client can make tags that are good for some replicas only (Aardvark,
    /// NSDI'09); what to do then is the protocol's to say.
    #[must_use]
    pub fn doubts(&self) -> &[ClientId] {
        &self.doubts
    }

    /// The message.
    #[must_use]
    pub fn into_inner(self) -> M {
        self.message
    }
}

impl<M> std::ops::Deref for Verified<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}
