//! Packages by the number of their first operation: a map for numbers that lie within a window, as
//! those in flight do. With a place for each number it finds, adds and removes in constant time.

use std::collections::VecDeque;
use std::ops::Index;
use tercio_types::RequestSeq;

#[derive(Debug)]
pub(crate) struct InOrder<T> {
    /// The number of the first place. The first and the last place are taken.
    base: u64,
    places: VecDeque<Option<(RequestSeq, T)>>,
    len: usize,
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> Self {
        Self { base: 0, places: VecDeque::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn place(&self, first: RequestSeq) -> Option<usize> {
        usize::try_from(first.0.checked_sub(self.base)?).ok()
    }

    pub(crate) fn get(&self, first: &RequestSeq) -> Option<&T> {
        self.places.get(self.place(*first)?)?.as_ref().map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, first: &RequestSeq) -> Option<&mut T> {
        let place = self.place(*first)?;
        self.places.get_mut(place)?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn contains_key(&self, first: &RequestSeq) -> bool {
        self.get(first).is_some()
    }

    pub(crate) fn first_key_value(&self) -> Option<(&RequestSeq, &T)> {
        self.places.front()?.as_ref().map(|(first, value)| (first, value))
    }

    pub(crate) fn insert(&mut self, first: RequestSeq, value: T) {
        if self.places.is_empty() {
            self.base = first.0;
        }
        while self.base > first.0 {
            self.places.push_front(None);
            self.base -= 1;
        }
        let place = (first.0 - self.base) as usize;
        while self.places.len() <= place {
            self.places.push_back(None);
        }
        self.len += usize::from(self.places[place].replace((first, value)).is_none());
    }

    pub(crate) fn remove(&mut self, first: &RequestSeq) -> Option<T> {
        let place = self.place(*first)?;
        let (_, value) = self.places.get_mut(place)?.take()?;
        self.len -= 1;
        while self.places.pop_front_if(|place| place.is_none()).is_some() {
            self.base += 1;
        }
        while self.places.pop_back_if(|place| place.is_none()).is_some() {}
        Some(value)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &RequestSeq> {
        self.places.iter().flatten().map(|(first, _)| first)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, value)| value)
    }
}

impl<T> Index<&RequestSeq> for InOrder<T> {
    type Output = T;

    fn index(&self, first: &RequestSeq) -> &T {
        self.get(first).expect("a number under way")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map() {
        let (mut ours, mut map) = (InOrder::new(), BTreeMap::new());
        let mut x = 1u64;
        for round in 0..20_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = RequestSeq(1000 + round / 10 + (x >> 33) % 40);
            if x >> 20 & 1 == 0 {
                ours.insert(number, round);
                map.insert(number, round);
            } else {
                assert_eq!(ours.remove(&number), map.remove(&number));
            }
            let stale = RequestSeq((1000 + round / 10).saturating_sub(20));
            assert_eq!(ours.remove(&stale), map.remove(&stale));
            assert_eq!((ours.len(), ours.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(ours.first_key_value(), map.first_key_value());
            assert_eq!(ours.get(&number), map.get(&number));
            assert_eq!(ours.get_mut(&number), map.get_mut(&number));
            assert_eq!(ours.contains_key(&stale), map.contains_key(&stale));
            assert!(ours.places.len() < 100, "no longer than the window");
        }
        assert!(ours.keys().eq(map.keys()) && ours.values().eq(map.values()));
        assert!(ours.values_mut().eq(map.values_mut()));
    }
}
