//! Tables of keys that are met often.
//!
//! Brokers sign again and again with few keys, so the verifier keeps a table for a key that it has
//! met a number of times. Memory is bounded: a fixed number of places, four to choose from for a
//! key, of which the one unused for longest makes room. Which keys have tables changes the time
//! that a verification takes and never its verdict.

use super::comb::{Comb, Form};
use super::key::PublicKey;
use std::sync::Arc;

/// How many places a key may stand in.
const WAYS: usize = 4;
/// Keys counted that have no table yet.
const COUNTERS: usize = 4096;
/// A table costs as much as some tens of verifications; it is made for a key met this often.
pub(super) const MEETINGS_FOR_A_TABLE: u32 = 32;

/// A key with its table.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: PublicKey,
    pub(super) z: [u8; 32],
    pub(super) comb: Arc<Comb>,
}

#[derive(Clone, Debug)]
pub(super) struct Cache {
    form: Form,
    /// Places in sets of [`WAYS`], each with when it was last used.
    places: Vec<Option<(Known, u64)>>,
    /// A fingerprint, and how often it was met.
    counters: Vec<(u64, u32)>,
    /// Makes fingerprints unpredictable, so that nobody can choose keys that share a place.
    secret: u64,
    clock: u64,
}

impl Cache {
    /// Room for at least `tables` tables; none at all for zero.
    pub(super) fn new(tables: usize, form: Form) -> Self {
        let sets = tables.div_ceil(WAYS);
        let sets = if sets == 0 { 0 } else { sets.next_power_of_two() };
        Self {
            form,
            places: vec![None; sets * WAYS],
            counters: vec![(0, 0); COUNTERS],
            // Without randomness the cache is no less correct.
            secret: getrandom::u64().unwrap_or(0x9e37_79b9_7f4a_7c15) | 1,
            clock: 0,
        }
    }

    fn fingerprint(&self, key: &[u8; PublicKey::BYTES]) -> u64 {
        let word = |at: usize| u64::from_le_bytes(*key[at..].first_chunk().expect("65 bytes"));
        let mixed = (word(1) ^ self.secret).wrapping_mul(self.secret);
        (mixed ^ (mixed >> 32) ^ word(17)).wrapping_mul(self.secret)
    }

    fn set(&mut self, fingerprint: u64) -> &mut [Option<(Known, u64)>] {
        let sets = self.places.len() / WAYS;
        let set = (fingerprint >> 40) as usize & sets.wrapping_sub(1);
        &mut self.places[set * WAYS..][..WAYS]
    }

    /// The key's table, when there is one.
    pub(super) fn get(&mut self, key: &[u8; PublicKey::BYTES]) -> Option<&Known> {
        if self.places.is_empty() {
            return None;
        }
        self.clock += 1;
        let now = self.clock;
        let place = self.set(self.fingerprint(key)).iter_mut().flatten();
        let (known, used) = place.into_iter().find(|(known, _)| known.key.as_bytes() == key)?;
        *used = now;
        Some(known)
    }

    /// Counts a meeting with a key that has no table; true when it has earned one.
    pub(super) fn meet(&mut self, key: &PublicKey) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let fingerprint = self.fingerprint(key.as_bytes());
        let counter = &mut self.counters[(fingerprint >> 20) as usize % COUNTERS];
        if counter.0 == fingerprint {
            counter.1 += 1;
        } else {
            *counter = (fingerprint, 1);
        }
        let earned = counter.1 >= MEETINGS_FOR_A_TABLE;
        if earned {
            // A table that loses its place is earned again: keys that are too many for a set would
            // else make one at every meeting.
            counter.1 = 0;
        }
        earned
    }

    /// Makes the key's table.
    pub(super) fn learn(&mut self, key: &PublicKey, z: [u8; 32]) -> Option<&Known> {
        if self.places.is_empty() {
            return None;
        }
        self.clock += 1;
        let known = Known { key: *key, z, comb: Arc::new(Comb::of_key(&key.point, self.form)) };
        let fingerprint = self.fingerprint(key.as_bytes());
        let now = self.clock;
        let set = self.set(fingerprint);
        // The key's own place, else the one unused for longest; an empty one was never used.
        let place = set
            .iter_mut()
            .min_by_key(|place| match place {
                Some((known, _)) if known.key == *key => 0,
                Some((_, used)) => used + 1,
                None => 1,
            })
            .expect("a set has places");
        Some(&place.insert((known, now)).0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SecretKey;
    use super::*;

    fn key(i: u8) -> PublicKey {
        *SecretKey::from_bytes(&[i; 32]).unwrap().public()
    }

    #[test]
    fn keys_earn_tables_and_places_are_bounded() {
        let mut cache = Cache::new(8, Form::Scalar);
        let first = key(1);
        for _ in 1..MEETINGS_FOR_A_TABLE {
            assert!(!cache.meet(&first));
        }
        assert!(cache.meet(&first));
        assert!(!cache.meet(&first), "the next table is earned again");
        assert!(cache.get(first.as_bytes()).is_none());
        cache.learn(&first, [1; 32]);
        assert_eq!(cache.get(first.as_bytes()).unwrap().z, [1; 32]);
        for i in 2..40 {
            cache.learn(&key(i), [i; 32]);
            assert_eq!(cache.get(key(i).as_bytes()).unwrap().z, [i; 32]);
        }
        let kept = (1..40).filter(|i| cache.get(key(*i).as_bytes()).is_some()).count();
        assert!((WAYS..=8).contains(&kept), "{kept}");
        // Learning again takes no second place.
        cache.learn(&key(39), [0; 32]);
        cache.learn(&key(39), [0; 32]);
        assert!((1..40).filter(|i| cache.get(key(*i).as_bytes()).is_some()).count() >= kept - 1);
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let mut cache = Cache::new(0, Form::Scalar);
        assert!((0..100).all(|_| !cache.meet(&key(1))));
        assert!(cache.learn(&key(1), [0; 32]).is_none() && cache.get(key(1).as_bytes()).is_none());
    }
}
