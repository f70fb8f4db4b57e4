//! What lies where in a store's memory. `docs/format-prism.md` has the same for readers.

use crate::rng::mix;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 1024;
/// The longest value, in bytes: with its key and header it fits the inline data of one request.
pub const MAX_VALUE: usize = 12 << 10;

/// A slot of the table: a pointer and a bound, in bytes.
pub(crate) const SLOT: u64 = 16;
const TOMBSTONE: u64 = 1 << 16;

/// How keys find their slots. Probing is linear in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// A hash of all bytes.
    Mixed,
    /// The first eight bytes as a number: for keys that are small numbers this is free of
    /// collisions, as the paper's experiments are.
    Collisionless,
}

impl Hash {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Mixed => 0,
            Self::Collisionless => 1,
        }
    }

    pub(crate) const fn of_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Mixed),
            1 => Some(Self::Collisionless),
            _ => None,
        }
    }

    /// The slot at which the search for a key begins, of a table of `slots`, a power of two.
    pub(crate) fn slot(self, seed: u64, key: &[u8], slots: u64) -> u64 {
        let hash = match self {
            Self::Collisionless => first_word(key),
            Self::Mixed => {
                let mut hash = seed ^ key.len() as u64;
                for chunk in key.chunks(8) {
                    hash = mix(hash ^ first_word(chunk)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                }
                mix(hash)
            }
        };
        hash & (slots - 1)
    }
}

/// Up to eight bytes as a number, the first one least significant.
pub(crate) fn first_word(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Appends bytes as words, filled up with zeros.
pub(crate) fn put_bytes(out: &mut Vec<u64>, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    out.extend(whole.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    if !rest.is_empty() {
        out.push(first_word(rest));
    }
}

/// An item: a header word (the key's length in bits 0 to 15, whether it is a tombstone in bit 16, the
/// value's length from bit 32), the key and the value, each filled up to whole words.
pub(crate) fn put_item(out: &mut Vec<u64>, key: &[u8], value: Option<&[u8]>) {
    let header = match value {
        Some(value) => key.len() as u64 | (value.len() as u64) << 32,
        None => key.len() as u64 | TOMBSTONE,
    };
    out.push(header);
    put_bytes(out, key);
    put_bytes(out, value.unwrap_or_default());
}

/// How many bytes an item takes.
pub(crate) const fn item_bytes(key: usize, value: usize) -> usize {
    8 + key.next_multiple_of(8) + value.next_multiple_of(8)
}

/// How many words the item with this header takes.
pub(crate) const fn item_words(header: u64) -> usize {
    item_bytes(header as u16 as usize, (header >> 32) as usize) / 8
}

/// An item's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    /// `None`: the key was removed.
    pub(crate) value: Option<&'a [u8]>,
}

/// Whether the words begin with an item of this key, of which the value need not be there.
pub(crate) fn has_key(words: &[u64], key: &[u8]) -> bool {
    let Some((header, rest)) = words.split_first() else { return false };
    let bytes = zerocopy::IntoBytes::as_bytes(rest);
    (*header as u16) as usize == key.len() && bytes.get(..key.len()) == Some(key)
}

/// Whether a store's memory begins with an item of this key.
pub(crate) fn has_key_at(words: &[AtomicU64], key: &[u8]) -> bool {
    let Some((header, rest)) = words.split_first() else { return false };
    header.load(Relaxed) as u16 as usize == key.len()
        && key.chunks(8).zip(rest).all(|(chunk, word)| first_word(chunk) == word.load(Relaxed))
}

/// Whether the item that begins the words says that its key has no value.
pub(crate) fn is_tombstone(words: &[u64]) -> bool {
    words.first().is_some_and(|header| header & TOMBSTONE != 0)
}

/// The item that the words hold. `None` when they hold none.
pub(crate) fn item(words: &[u64]) -> Option<Item<'_>> {
    let (header, rest) = words.split_first()?;
    let (key, value) = ((*header as u16) as usize, (*header >> 32) as usize);
    let bytes = zerocopy::IntoBytes::as_bytes(rest);
    let (key, rest) =
        bytes.split_at_checked(key.next_multiple_of(8)).map(|(k, r)| (&k[..key], r))?;
    let value = if header & TOMBSTONE != 0 { None } else { Some(rest.get(..value)?) };
    Some(Item { key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_as_it_was_written() {
        for (key, value) in [(1, 0), (7, 9), (8, 512), (24, 1), (1024, 12 << 10)] {
            let (key, value) = (vec![7; key], vec![9; value]);
            let mut words = Vec::new();
            put_item(&mut words, &key, Some(&value));
            assert_eq!(words.len() * 8, item_bytes(key.len(), value.len()));
            assert_eq!(item(&words), Some(Item { key: &key, value: Some(&value) }));
            assert!(has_key(&words, &key) && !has_key(&words, &value));
            words.clear();
            put_item(&mut words, &key, None);
            assert_eq!(item(&words), Some(Item { key: &key, value: None }));
            assert_eq!(item(&words[..words.len() - 1]), None);
        }
        assert_eq!(item(&[]), None);
    }
}
