//! Who said what about one question: one word a replica, and the bytes behind the digests.

use bytes::Bytes;
use tercio_types::{Digest, ReplicaId, ReplicaSet};

#[derive(Clone, Debug)]
struct Word {
    digest: Digest,
    body: Option<Bytes>,
}

/// The latest reply of each replica.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// By the replicas' numbers.
    words: Vec<Option<Word>>,
}

/// How a word relates to the same replica's word before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is the first one, or adds the bytes to the same digest.
    News,
    /// The same again.
    Again,
    /// Another digest. A correct replica can have reason to (a result that is no longer kept), a
    /// liar counts once all the same.
    Otherwise,
}

impl Tally {
    /// Room for these replicas.
    pub(crate) fn new(of: ReplicaSet) -> Self {
        Self { words: vec![None; of.bound()] }
    }

    pub(crate) fn say(&mut self, by: ReplicaId, digest: Digest, body: Option<Bytes>) -> Said {
        let word = &mut self.words[by.index()];
        let said = match word {
            None => Said::News,
            Some(old) if old.digest != digest => Said::Otherwise,
            Some(old) if body.is_some() && old.body.is_none() => Said::News,
            Some(_) => return Said::Again,
        };
        *word = Some(Word { digest, body });
        said
    }

    /// Who said `digest`.
    pub(crate) fn who(&self, digest: Digest) -> ReplicaSet {
        let same = |(_, word): &(usize, &Option<Word>)| {
            word.as_ref().is_some_and(|word| word.digest == digest)
        };
        self.words.iter().enumerate().filter(same).map(|(i, _)| ReplicaId(i as u16)).collect()
    }

    /// The bytes of `digest`, if anybody sent them, and who did.
    pub(crate) fn body(&self, digest: Digest) -> Option<(ReplicaId, &Bytes)> {
        self.words.iter().enumerate().find_map(|(i, word)| {
            let word = word.as_ref().filter(|word| word.digest == digest)?;
            Some((ReplicaId(i as u16), word.body.as_ref()?))
        })
    }

    /// A digest that at least `threshold` replicas said.
    pub(crate) fn agreed(&self, threshold: usize) -> Option<Digest> {
        let digests = self.words.iter().flatten().map(|word| word.digest);
        digests.into_iter().find(|digest| self.who(*digest).len() >= threshold)
    }

    /// Who said anything.
    pub(crate) fn speakers(&self) -> ReplicaSet {
        let spoke = self.words.iter().enumerate().filter(|(_, word)| word.is_some());
        spoke.map(|(i, _)| ReplicaId(i as u16)).collect()
    }

    /// How many bytes are kept of each replica that sent some.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = (ReplicaId, usize)> {
        self.words.iter().enumerate().filter_map(|(i, word)| {
            Some((ReplicaId(i as u16), word.as_ref()?.body.as_ref()?.len()))
        })
    }

    /// How many bytes are kept of `replica`.
    pub(crate) fn held(&self, replica: ReplicaId) -> usize {
        let body = self.words[replica.index()].as_ref().and_then(|word| word.body.as_ref());
        body.map_or(0, Bytes::len)
    }
}
