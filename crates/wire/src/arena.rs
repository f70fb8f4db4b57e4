//! Copies of short byte strings, many to an allocation.

use bytes::{Bytes, BytesMut};

/// Hands out copies that share chunks. A copy keeps its chunk alive, so what shares an arena should
/// live about as long, and belong to one party: then nobody pays for another's memory.
#[derive(Debug)]
pub struct Arena {
    chunk: BytesMut,
    size: usize,
}

impl Arena {
    /// An arena with chunks of `size` bytes, the first of which is made when it is needed.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { chunk: BytesMut::new(), size }
    }

    /// A copy of `bytes`. One that is longer than a quarter of a chunk has an allocation to itself.
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > self.size / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.chunk.capacity() < bytes.len() {
            self.chunk = BytesMut::with_capacity(self.size);
        }
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

impl Clone for Arena {
    /// An arena of the same kind, with chunks of its own.
    fn clone(&self) -> Self {
        Self::new(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_share_chunks() {
        let mut arena = Arena::new(1024);
        let strings: Vec<Vec<u8>> = (0..200usize).map(|i| vec![i as u8; i * 7 % 300]).collect();
        let copies: Vec<Bytes> = strings.iter().map(|string| arena.copy(string)).collect();
        assert!(strings.iter().zip(&copies).all(|(string, copy)| string == copy));
        let next_to =
            |pair: &&[Bytes]| pair[0].as_ptr().wrapping_add(pair[0].len()) == pair[1].as_ptr();
        assert!(copies.windows(2).filter(next_to).count() > 100, "most follow each other");
        assert_eq!(arena.clone().copy(b"x"), "x");
    }
}
