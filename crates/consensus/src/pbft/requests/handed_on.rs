//! Requests whose tags fail for us and that other replicas forward all the same. A client can make
//! tags that are good for all but the primary; without this rule every such request would cost a
//! view change (Aardvark, NSDI'09, on big MAC attacks).

use std::collections::{BTreeMap, VecDeque};
use tercio_types::{Authenticator, Digest, Package, ReplicaId, Suite};

/// How many such requests of each replica are kept; the oldest are evicted first.
const REMEMBERED: usize = 64;

/// Who forwarded what, as digests of content and authenticator: one good copy says nothing about
/// another with other tags.
#[derive(Clone, Debug, Default)]
pub(super) struct HandedOn {
    by: BTreeMap<ReplicaId, VecDeque<Digest>>,
}

impl HandedOn {
    /// Notes that `from` forwarded `package`; gives how many replicas have so far. Each of them
    /// says that the client's tag is good for it.
    pub(super) fn note(&mut self, from: ReplicaId, package: &Package, suite: Suite) -> usize {
        let Authenticator::MacVector(tags) = &package.auth else { return 0 };
        let name = tercio_crypto::hash(suite, &[&package.digest.0, tags.as_bytes()]);
        let own = self.by.entry(from).or_default();
        if !own.contains(&name) {
            if own.len() == REMEMBERED {
                own.pop_front();
            }
            own.push_back(name);
        }
        self.by.values().filter(|names| names.contains(&name)).count()
    }
}
