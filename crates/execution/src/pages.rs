//! An array in pages that copies share: to copy it costs a reference to each page (copy on write), and whoever
//! changes an item first copies the page that it is on, if another has that page too.

use std::array;
use std::ops::Index;
use std::sync::Arc;

/// Items by number, `N` to a page.
#[derive(Clone, Debug)]
pub(crate) struct Pages<T, const N: usize> {
    pages: Vec<Arc<[T; N]>>,
    len: usize,
}

impl<T: Clone + Default, const N: usize> Pages<T, N> {
    /// An array without items.
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }

    /// How many items there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item and gives its number.
    pub(crate) fn push(&mut self, item: T) -> u32 {
        let at = u32::try_from(self.len).expect("fewer than 2^32 items");
        if self.len.is_multiple_of(N) {
            self.pages.push(Arc::new(array::from_fn(|_| T::default())));
        }
        self.len += 1;
        *self.get_mut(at) = item;
        at
    }

    /// An item, to be changed here and in no copy.
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut T {
        &mut Arc::make_mut(&mut self.pages[at as usize / N])[at as usize % N]
    }

    /// Takes an item out, if no copy has the page that it is on; otherwise gives a clone of it.
    pub(crate) fn take(&mut self, at: u32) -> T {
        match Arc::get_mut(&mut self.pages[at as usize / N]) {
            Some(page) => std::mem::take(&mut page[at as usize % N]),
            None => self[at].clone(),
        }
    }
}

impl<T, const N: usize> Index<u32> for Pages<T, N> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.pages[at as usize / N][at as usize % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_and_shares_what_did_not_change() {
        let mut pages: Pages<Option<Arc<u32>>, 4> = Pages::new();
        let items: Vec<_> = (0..10).map(Arc::new).collect();
        let numbers: Vec<u32> = items.iter().map(|item| pages.push(Some(item.clone()))).collect();
        assert!(numbers.iter().copied().eq(0..10) && pages.len() == 10);
        let mut copy = pages.clone();
        *pages.get_mut(5) = None;
        pages.push(None);
        assert!(numbers.iter().all(|&at| copy[at].as_ref() == Some(&items[at as usize])));
        assert_eq!(copy.len(), 10);
        let shared = |pages: &Pages<_, 4>, copy: &Pages<_, 4>| {
            pages.pages.iter().zip(&copy.pages).map(|(a, b)| Arc::ptr_eq(a, b)).collect::<Vec<_>>()
        };
        assert_eq!(shared(&pages, &copy), [true, false, false]);
        // From a page of its own, an item is taken; from one that is shared, it is not.
        assert_eq!(copy.take(6), Some(items[6].clone()));
        assert_eq!(copy.take(6), None);
        assert_eq!((copy.take(1), copy.take(1)), (Some(items[1].clone()), Some(items[1].clone())));
    }
}
