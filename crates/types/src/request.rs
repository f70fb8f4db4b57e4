//! What clients ask for.

use crate::{Authenticator, ClientId, Digest, ReplicaId, RequestSeq};
use bytes::Bytes;
use std::fmt;

/// One operation, opaque to everything but the application.
pub type Op = Bytes;

/// Whom an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// The application.
    User,
    /// The engine itself: membership, keys, parameters.
    System,
    /// The application, which answers it as a question at its place in the order and changes
    /// nothing: an ordered read.
    Read,
}

/// The operations of a package in one buffer, so that a package of one costs no more than its
/// bytes: `count: u32 | end of each: u32 | the operations`, little-endian, ends counted from the
/// first operation's first byte. A received package's operations stay where they came in.
#[derive(Clone, PartialEq, Eq)]
pub struct Ops(Bytes);

/// The bytes of a count and of an end.
const WORD: usize = 4;

impl Ops {
    /// Copies operations into one buffer.
    ///
    /// # Panics
    /// When they are 4 GiB or more.
    #[must_use]
    pub fn new<T: AsRef<[u8]>>(ops: &[T]) -> Self {
        let total: usize = ops.iter().map(|op| op.as_ref().len()).sum();
        let mut out = Vec::with_capacity(WORD + WORD * ops.len() + total);
        out.extend_from_slice(&(ops.len() as u32).to_le_bytes());
        let mut end = 0usize;
        for op in ops {
            end += op.as_ref().len();
            let end = u32::try_from(end).expect("operations are below 4 GiB");
            out.extend_from_slice(&end.to_le_bytes());
        }
        ops.iter().for_each(|op| out.extend_from_slice(op.as_ref()));
        Self(out.into())
    }

    /// Takes over a buffer of the form above; `None` when it has another.
    #[must_use]
    pub fn from_buffer(buffer: Bytes) -> Option<Self> {
        let count = u32::from_le_bytes(*buffer.first_chunk()?) as usize;
        let (ends, items) = buffer[WORD..].split_at_checked(count.checked_mul(WORD)?)?;
        let mut last = 0;
        for end in ends.as_chunks::<WORD>().0 {
            let end = u32::from_le_bytes(*end);
            if end < last {
                return None;
            }
            last = end;
        }
        (last as usize == items.len()).then_some(Self(buffer))
    }

    /// The buffer: all operations with their count and ends.
    #[must_use]
    pub fn buffer(&self) -> &Bytes {
        &self.0
    }

    fn word(&self, i: usize) -> usize {
        let bytes = self.0[WORD * i..].first_chunk().expect("the form was checked");
        u32::from_le_bytes(*bytes) as usize
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.word(0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the i-th stands in the buffer.
    fn range(&self, i: usize) -> std::ops::Range<usize> {
        let items = WORD + WORD * self.len();
        let start = if i == 0 { 0 } else { self.word(i) };
        items + start..items + self.word(i + 1)
    }

    /// The i-th operation.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn get(&self, i: usize) -> &[u8] {
        assert!(i < self.len(), "an operation of the package");
        &self.0[self.range(i)]
    }

    /// The i-th operation as a handle that keeps the whole buffer alive.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn share(&self, i: usize) -> Op {
        assert!(i < self.len(), "an operation of the package");
        self.0.slice(self.range(i))
    }

    /// All of them in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// How many bytes the operations have together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.0.len() - WORD - WORD * self.len()
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|i| self.share(i))).finish()
    }
}

impl<T: AsRef<[u8]>> PartialEq<[T]> for Ops {
    fn eq(&self, other: &[T]) -> bool {
        self.iter().eq(other.iter().map(AsRef::as_ref))
    }
}

/// Consecutive requests of one client under one authenticator. A single request is a package of
/// one. The package is what is verified, pooled, ordered and answered; the operation is what is
/// executed at most once, under `(client, first + i)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Who asks.
    pub client: ClientId,
    /// The number of the first operation; the others follow without a gap.
    pub first: RequestSeq,
    /// Whom the operations are for.
    pub kind: OpKind,
    /// The replica that answers with the results; the others answer with their digest.
    pub replier: ReplicaId,
    /// The operations, at least one.
    pub ops: Ops,
    /// The digest of the fields above; what the authenticator covers.
    pub digest: Digest,
    /// Shows that the client sent it.
    pub auth: Authenticator,
}

impl Package {
    /// The number after the last operation's.
    #[must_use]
    pub fn end(&self) -> RequestSeq {
        RequestSeq(self.first.0 + self.ops.len() as u64)
    }

    /// The numbers of the operations.
    pub fn numbers(&self) -> impl Iterator<Item = RequestSeq> + use<> {
        (self.first.0..self.end().0).map(RequestSeq)
    }

    /// The operations with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (RequestSeq, Op)> {
        self.numbers().enumerate().map(|(i, seq)| (seq, self.ops.share(i)))
    }

    /// Whether it carries a signature, which convinces anybody, rather than MACs.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        matches!(self.auth, Authenticator::Signature(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_places_in_one_buffer() {
        let all: [&[u8]; 4] = [b"one", b"", b"three", b"4"];
        for n in 0..=all.len() {
            let ops = Ops::new(&all[..n]);
            assert_eq!((ops.len(), ops.is_empty()), (n, n == 0));
            assert_eq!(ops, all[..n]);
            assert!((0..n).all(|i| ops.get(i) == all[i] && ops.share(i) == all[i]));
            assert_eq!(ops.total_bytes(), all[..n].concat().len());
            assert_eq!(Ops::from_buffer(ops.buffer().clone()), Some(ops.clone()));
            for cut in 0..ops.buffer().len() {
                assert_eq!(Ops::from_buffer(ops.buffer().slice(..cut)), None);
            }
        }
        let mut backwards = Ops::new(&all).buffer().to_vec();
        backwards[WORD] = 4;
        assert_eq!(Ops::from_buffer(backwards.into()), None);
        assert_eq!(Ops::from_buffer(Bytes::from_static(&[0xff; 12])), None);
    }
}
