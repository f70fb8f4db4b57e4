//! A cache of verified signatures, so that no signature is verified twice (decision 0023).
//!
//! A signed package reaches a replica several times: in its proposal, from its client when that
//! waits too long, from each replica that forwards it, and in the proposals of later views. The
//! verdict on it is a function of key, text and signature alone, so the first one is the last one.
//! Without the cache, retransmissions make everybody verify again, and so cause more of them.
//!
//! Only good signatures are cached: a bad one costs its sender's standing alone, and anybody can make
//! as many as there are numbers. A good one costs its signer a signature and us a verification, so a
//! flood of them evicts others, and these are verified again, which is what happened anyway.
//!
//! Clones share the cache, so that threads which verify for one principal know of each other's
//! work. Two that meet a new signature at the same moment both verify it.

use crate::hash;
use crate::verified::Signed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tercio_types::{Digest, Suite};

/// Sets (rows) of the cache, and the ways of each: a megabyte in all.
const ROWS: usize = 4096;
const WAYS: usize = 8;
/// Each lock has every so-many-th row.
const STRIPES: usize = 64;

/// What stands for key, text and signature: their SHA-256, whatever hash the suite has, since
/// nobody else ever sees it. Two that have the same would be a collision of SHA-256.
pub(crate) type Name = Digest;

impl Signed {
    pub(crate) fn name(&self) -> Name {
        let key = self.key.key.as_slice();
        // The text has a fixed length, so nothing can pass for a part of its neighbour.
        let head = [self.key.scheme.number(), key.len() as u8, (key.len() >> 8) as u8];
        hash(Suite::Sha256Ed25519, &[&head, key, &self.text, self.signature.as_slice()])
    }
}

/// The names of signatures that were found good. A name's first bytes tell its row, and a row
/// evicts its oldest: of the last 8,192 that came, two on the average share a row, and all but one
/// or two in a thousand are there.
#[derive(Clone, Debug)]
pub(crate) struct KnownGood {
    stripes: Arc<[Mutex<Rows>; STRIPES]>,
}

/// Each row's names, the youngest first; where there is none yet, [`Digest::NULL`], which is
/// nobody's name. Made when the first comes.
type Rows = Vec<[Name; WAYS]>;

impl Default for KnownGood {
    fn default() -> Self {
        Self { stripes: Arc::new(std::array::from_fn(|_| Mutex::default())) }
    }
}

impl KnownGood {
    /// The stripe of a name, and its row in there.
    fn place(&self, name: &Name) -> (MutexGuard<'_, Rows>, usize) {
        let row = usize::from(u16::from_le_bytes([name.0[0], name.0[1]])) % ROWS;
        // A row is good at any moment, so a thread that panicked spoilt none.
        let stripe = self.stripes[row % STRIPES].lock().unwrap_or_else(PoisonError::into_inner);
        (stripe, row / STRIPES)
    }

    /// Whether it is among them.
    pub(crate) fn contains(&self, name: &Name) -> bool {
        let (rows, at) = self.place(name);
        rows.get(at).is_some_and(|row| row.contains(name))
    }

    /// Takes one that was found good.
    pub(crate) fn insert(&self, name: Name) {
        let (mut rows, at) = self.place(&name);
        if rows.is_empty() {
            *rows = vec![[Digest::NULL; WAYS]; ROWS / STRIPES];
        }
        let row = &mut rows[at];
        // Another thread may have found it good meanwhile.
        if !row.contains(&name) {
            row.rotate_right(1);
            row[0] = name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(i: usize) -> Name {
        hash(Suite::Sha256Ed25519, &[&i.to_le_bytes()])
    }

    #[test]
    fn the_last_are_remembered_and_memory_is_bounded() {
        let known = KnownGood::default();
        assert!(!known.contains(&name(0)) && !known.contains(&Digest::NULL));
        let all = 10 * ROWS * WAYS;
        (0..all).for_each(|i| known.insert(name(i)));
        let last = |count: usize| (all - count..all).filter(|i| known.contains(&name(*i))).count();
        assert_eq!(last(100), 100);
        assert!(last(8192) > 8192 * 995 / 1000, "{}", last(8192));
        assert_eq!(last(all), ROWS * WAYS, "no more than there are places");
        let capacity = |rows: &Mutex<Rows>| rows.lock().unwrap().capacity();
        assert_eq!(known.stripes.iter().map(capacity).sum::<usize>(), ROWS);
        assert!(known.clone().contains(&name(all - 1)), "clones share it");
    }
}
