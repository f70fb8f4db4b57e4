//! Verified by type: [`Received`](Claimed) bytes become [`Pending`] when their MACs hold, and
//! [`Verified`] when their signatures do, which are best checked many at a time.

use crate::Reject;
use tercio_types::{
    Attested, Authenticator, ClientId, Principal, Scheme, SignatureBytes, SigningKey, Tag, Tags,
};

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
    Attested(&'a Attested),
}

impl<'a> From<&'a Authenticator> for Proof<'a> {
    fn from(authenticator: &'a Authenticator) -> Self {
        match authenticator {
            Authenticator::Mac(tag) => Self::Mac(tag),
            Authenticator::MacVector(tags) => Self::MacVector(tags),
            Authenticator::Signature(signature) => Self::Signature(signature),
            Authenticator::Attested(attested) => Self::Attested(attested),
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

/// What stands under a signature: context and 52 bytes.
pub(crate) type Text = [u8; 112];

/// Somebody's signature in a message.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) by: Principal,
    pub(crate) key: SigningKey,
    pub(crate) text: Text,
    pub(crate) signature: SignatureBytes,
}

/// The signatures in a message, and once they are checked, whether they hold.
#[derive(Clone, Debug)]
pub struct Signatures {
    list: Vec<Signed>,
    verdict: Option<Result<(), Reject>>,
    /// How many were not known yet when they were decided.
    computed: usize,
}

impl Signatures {
    /// How many there are, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Their schemes, in order.
    pub fn schemes(&self) -> impl Iterator<Item = Scheme> {
        self.list.iter().map(|signed| signed.key.scheme)
    }

    /// How many of them had to be computed with when they were checked: the others had been found good
    /// before.
    #[must_use]
    pub fn computed(&self) -> usize {
        self.computed
    }

    pub(crate) fn list(&self) -> &[Signed] {
        &self.list
    }

    /// Takes one verdict for each, which are the next of `verdicts`, and whether it was computed.
    pub(crate) fn decide(&mut self, verdicts: &mut impl Iterator<Item = (bool, bool)>) {
        let mut verdict = Ok(());
        self.computed = 0;
        for Signed { by, .. } in &self.list {
            let (good, computed) = verdicts.next().expect("one verdict a signature");
            self.computed += usize::from(computed);
            verdict = verdict.and(if good { Ok(()) } else { Err(Reject::BadSignature(*by)) });
        }
        self.verdict = Some(verdict);
    }
}

/// What a message is once its MACs hold.
#[derive(Clone, Debug)]
pub enum Admitted<M> {
    /// It has no signatures.
    Verified(Verified<M>),
    /// It has, and they are still to be checked ([`crate::Keyring::decide`]).
    Pending(Box<Pending<M>>),
}

impl<M> Admitted<M> {
    pub(crate) fn new(message: M, doubts: Vec<ClientId>, list: Vec<Signed>) -> Self {
        if list.is_empty() {
            return Self::Verified(Verified { message, doubts });
        }
        let signatures = Signatures { list, verdict: None, computed: 0 };
        Self::Pending(Box::new(Pending { message, doubts, signatures }))
    }
}

/// A message whose MACs hold, and whose signatures are still to be checked. Only a
/// [`crate::Keyring`] makes one.
#[derive(Clone, Debug)]
pub struct Pending<M> {
    message: M,
    doubts: Vec<ClientId>,
    signatures: Signatures,
}

impl<M> Pending<M> {
    /// Its signatures, to be checked.
    pub fn signatures(&mut self) -> &mut Signatures {
        &mut self.signatures
    }

    /// The message, once its signatures are checked.
    ///
    /// # Errors
    /// When a signature is bad.
    ///
    /// # Panics
    /// When they were not checked.
    pub fn into_verified(self) -> Result<Verified<M>, Reject> {
        let Self { message, doubts, signatures } = self;
        signatures.verdict.expect("signatures are checked before they are believed")?;
        Ok(Verified { message, doubts })
    }
}

/// A message whose every claim has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<M> {
    message: M,
    doubts: Vec<ClientId>,
}

impl<M> Verified<M> {
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
