//! Checking what others said: MACs at once, signatures many at a time.

use super::context::signed;
use super::{Keyring, Reject};
use crate::known::Name;
use crate::verified::Signed;
use crate::{
    Admitted, Checked, Claim, Claimed, MacItem, Proof, SignatureItem, Signatures, Verified,
};
use std::collections::BTreeMap;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ClientId, Principal, SigningKey};

/// What a message claims, as far as it is gone through.
#[derive(Default)]
struct Claims {
    /// Whether the next is the sender's own.
    outer: bool,
    /// To be checked together, and whose they are.
    macs: Vec<MacItem>,
    clients: Vec<ClientId>,
    /// Whose MACs do not hold.
    doubts: Vec<ClientId>,
    signatures: Vec<Signed>,
}

/// How many MACs are checked together: enough to fill the lanes, few enough to stay in the cache.
const TOGETHER: usize = 64;

impl Claims {
    fn check_macs(&mut self) {
        let Self { clients, macs, doubts, .. } = self;
        let good = MacItem::verify_many(macs);
        let bad = clients.iter().zip(good).filter(|(_, good)| !good);
        doubts.extend(bad.map(|(client, _)| *client));
        clients.clear();
        macs.clear();
    }
}

impl Keyring {
    /// Checks every claim of a message. The sender's own claim and every signature must hold; a
    /// client's MAC further inside that fails for us makes the message doubtful.
    ///
    /// # Errors
    /// When a claim that must hold does not.
    pub fn verify<M: Claimed>(&mut self, message: M) -> Result<Verified<M>, Reject> {
        match self.admit(message)? {
            Admitted::Verified(message) => Ok(message),
            Admitted::Pending(mut pending) => {
                self.decide([pending.signatures()]);
                pending.into_verified()
            }
        }
    }

    /// Checks all of a message but its signatures, which are left to [`Self::decide`].
    ///
    /// # Errors
    /// When a MAC that must hold does not, or somebody is not known.
    pub fn admit<M: Claimed>(&mut self, message: M) -> Result<Admitted<M>, Reject> {
        let mut verdict = Ok(());
        let mut claims = Claims { outer: true, ..Claims::default() };
        message.claims(&mut |claim| {
            if verdict.is_ok() {
                verdict = self.check(&claim, &mut claims);
                claims.outer = false;
            }
        });
        verdict?;
        claims.check_macs();
        Ok(Admitted::new(message, claims.doubts, claims.signatures))
    }

    /// Checks the signatures of many messages together, with one verdict for each signature: a
    /// bad one costs no message but its own. One that was found good before is not checked again,
    /// nor one twice that comes twice.
    pub fn decide<'a>(&mut self, waiting: impl IntoIterator<Item = &'a mut Signatures>) {
        let waiting: Vec<_> = waiting.into_iter().collect();
        let all: Vec<&Signed> = waiting.iter().flat_map(|of_one| of_one.list()).collect();
        let mut items: Vec<SignatureItem<'_>> = Vec::with_capacity(all.len());
        let mut names: Vec<Name> = Vec::with_capacity(all.len());
        let mut place_of: BTreeMap<Name, usize> = BTreeMap::new();
        // Where the verdict on each will be; nowhere when it is known.
        let places: Vec<Option<usize>> = (all.iter())
            .map(|signed| {
                let name = signed.name();
                if self.known.contains(&name) {
                    return None;
                }
                Some(*place_of.entry(name).or_insert_with(|| {
                    let Signed { key, text, signature, .. } = signed;
                    items.push(SignatureItem { key, message: text, signature });
                    names.push(name);
                    items.len() - 1
                }))
            })
            .collect();
        let verdicts = self.verifier.verify(&items);
        self.spared += (all.len() - items.len()) as u64;
        for (name, _) in names.into_iter().zip(&verdicts).filter(|(_, good)| **good) {
            self.known.insert(name);
        }
        let verdict = |place: &Option<usize>| match *place {
            Some(place) => (verdicts[place], true),
            None => (true, false),
        };
        let mut verdicts = places.iter().map(verdict);
        for of_one in waiting {
            of_one.decide(&mut verdicts);
        }
    }

    /// How many signatures were checked, and how.
    #[must_use]
    pub fn checked(&self) -> Checked {
        Checked { spared: self.spared, ..self.verifier.checked() }
    }

    /// Checks the sender's own MAC now; puts a client's, and a signature, with the others.
    fn check(&mut self, claim: &Claim<'_>, claims: &mut Claims) -> Result<(), Reject> {
        let by = claim.by;
        if matches!(by, Principal::Client(_)) && !stands(Defence::F32CheckClients) {
            return Ok(());
        }
        let tag = match claim.proof {
            Proof::Signature(signature) => {
                let key = match by {
                    Principal::Replica(id) => {
                        let member = self.membership.member(id);
                        let key = member.ok_or(Reject::UnknownReplica(id))?.key;
                        SigningKey { scheme: self.membership.suite().scheme(), key }
                    }
                    Principal::Client(id) => {
                        let client = self.membership.client(id);
                        let client = client.ok_or(Reject::UnknownClient(id))?;
                        client.signing_key(self.membership.suite())
                    }
                };
                let text = signed(&self.context, &claim.said);
                claims.signatures.push(Signed { by, key, text, signature: *signature });
                return Ok(());
            }
            Proof::Attested(_) => return Err(Reject::Unsupported(by)),
            Proof::Mac(tag) => Some(*tag),
            Proof::MacVector(tags) => match self.me {
                Principal::Replica(me) if tags.len() == self.membership.n() => {
                    self.membership.place_of(me).and_then(|place| tags.get(place))
                }
                _ => None,
            },
        };
        let link = match by {
            Principal::Replica(id) => {
                let place = self.membership.place_of(id).ok_or(Reject::UnknownReplica(id))?;
                self.replicas[place].as_ref()
            }
            Principal::Client(id) => self.client_link(id)?,
        };
        match (link, tag, by) {
            (Some(link), Some(tag), Principal::Client(client)) if !claims.outer => {
                let item = MacItem { key: link.receive.clone(), said: claim.said, tag };
                claims.macs.push(item);
                claims.clients.push(client);
                if claims.macs.len() == TOGETHER {
                    claims.check_macs();
                }
                Ok(())
            }
            (Some(link), Some(tag), _) if link.receive.verify(&claim.said, &tag) => Ok(()),
            (_, _, Principal::Client(client)) if !claims.outer => {
                claims.doubts.push(client);
                Ok(())
            }
            _ => Err(Reject::BadMac(by)),
        }
    }
}
