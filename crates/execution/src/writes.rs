//! What one transaction wrote, in order of keys.
//!
//! Most transactions write few keys: those stand in a sorted vector, whose memory the next
//! transaction uses again. Beyond [`FEW`] keys they go to a map, so that a transaction of many
//! thousands does not move all of them for each.

use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// How many keys are looked for in a vector.
const FEW: usize = 16;

/// What a transaction wrote: values, and `None` for keys that it took away.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    few: Vec<(Bytes, Option<Bytes>)>,
    /// All of them once they are more than [`FEW`]; then nothing is in `few`.
    many: BTreeMap<Bytes, Option<Bytes>>,
}

impl PartialEq for Writes {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Writes {}

impl Writes {
    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// What the key was given last: `Some(None)` when it was taken away, nothing when it was not
    /// written.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        if !self.many.is_empty() {
            return self.many.get(key).map(Option::as_ref);
        }
        self.find(key).ok().map(|i| self.few[i].1.as_ref())
    }

    /// All keys with what they were given last, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        let few = self.few.iter().map(|(key, value)| (key, value));
        few.chain(&self.many).map(|(key, value)| (key, value.as_ref()))
    }

    /// The same of the keys from `from` on that are below `to`, which is above `from`.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let many = self.many.range::<[u8], _>((Bound::Included(from), end));
        let place = |key| self.find(key).unwrap_or_else(|i| i);
        let few = &self.few[place(from)..to.map_or(self.few.len(), place)];
        few.iter().map(|(key, value)| (key, value)).chain(many)
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.few.binary_search_by(|(k, _)| k.as_ref().cmp(key))
    }

    pub(crate) fn insert(&mut self, key: &[u8], value: Option<&[u8]>) {
        let (key, value) = copy(key, value);
        if !self.many.is_empty() {
            self.many.insert(key, value);
            return;
        }
        match self.find(&key) {
            Ok(i) => self.few[i] = (key, value),
            Err(i) if self.few.len() < FEW => self.few.insert(i, (key, value)),
            Err(_) => {
                self.many.extend(self.few.drain(..));
                self.many.insert(key, value);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    /// Takes all out, in ascending order of keys.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        let many: btree_map::IntoIter<_, _> = std::mem::take(&mut self.many).into_iter();
        self.few.drain(..).chain(many)
    }
}

/// One allocation for key and value, which come and go together; to clone a part allocates nothing.
fn copy(key: &[u8], value: Option<&[u8]>) -> (Bytes, Option<Bytes>) {
    let Some(value) = value else { return (Bytes::copy_from_slice(key), None) };
    let mut both = BytesMut::with_capacity(key.len() + value.len());
    both.extend_from_slice(key);
    both.extend_from_slice(value);
    let key = both.split_to(key.len()).freeze();
    (key, Some(both.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Naive = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn content<'a>(all: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>) -> Naive {
        let content: Vec<_> =
            all.map(|(key, value)| (key.to_vec(), value.map(|v| v.to_vec()))).collect();
        assert!(content.is_sorted_by(|(a, _), (b, _)| a < b));
        content.into_iter().collect()
    }

    /// Few and many keys, in any order and again, equal a map; memory of many is not in the way of
    /// the next few.
    #[test]
    fn few_and_many_equal_a_map() {
        let mut writes = Writes::default();
        for keys in [3, FEW, FEW + 1, 5 * FEW, 2] {
            let mut naive = Naive::new();
            for i in 0..4 * keys {
                let key = vec![(i * 37 % keys) as u8, 1];
                let value = (i % 3 > 0).then(|| vec![i as u8; i % 5]);
                writes.insert(&key, value.as_deref());
                naive.insert(key, value);
                assert_eq!(content(writes.iter()), naive);
                for (from, to) in [(0, Some(2)), (1, None), (2, Some(keys as u8)), (9, Some(40))] {
                    let (first, end) = ([from], to.map(|to| [to]));
                    let range = writes.range(&first, end.as_ref().map(|end| &end[..]));
                    let range = content(range.map(|(key, value)| (key, value.as_ref())));
                    let within = |key: &[u8]| key[0] >= from && to.is_none_or(|to| key[0] < to);
                    let expected: Naive =
                        naive.clone().into_iter().filter(|(key, _)| within(key)).collect();
                    assert_eq!(range, expected);
                }
            }
            for key in 0..=keys as u8 {
                let got = writes.get(&[key, 1]).map(|value| value.map(|v| v.to_vec()));
                assert_eq!(got, naive.get(&vec![key, 1]).cloned());
            }
            assert_eq!(writes.drain().count(), naive.len());
            assert!(writes.is_empty());
        }
    }
}
