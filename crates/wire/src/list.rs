//! The offset-indexed list of seed 001: a count, the end of every item, then the items without a
//! gap. Any item is found without reading those before it, so a list can be decoded in parallel;
//! since only ends are stored, gaps and overlaps cannot be written down at all.
//!
//! ```text
//! count: u32 | end[0]: u32 .. end[count-1]: u32 | items, end[count-1] bytes
//! ```

use crate::{DecodeError, Reader};
use bytes::Bytes;

/// Appends a list; `item` writes the i-th item.
pub fn encode(out: &mut Vec<u8>, count: usize, mut item: impl FnMut(usize, &mut Vec<u8>)) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
    let ends = out.len();
    out.resize(ends + 4 * count, 0);
    let items = out.len();
    for i in 0..count {
        item(i, out);
        let end = u32::try_from(out.len() - items).expect("a list is below 4 GiB");
        out[ends + 4 * i..][..4].copy_from_slice(&end.to_le_bytes());
    }
}

/// A list whose index has been checked; items are slices of the received bytes.
#[derive(Clone, Debug)]
pub struct List {
    ends: Bytes,
    items: Bytes,
}

impl List {
    /// Reads a list of at most `limit` items.
    ///
    /// # Errors
    /// When it is cut short, its ends go backwards, or it has too many items.
    pub fn decode(
        input: &mut Reader,
        limit: usize,
        what: &'static str,
    ) -> Result<Self, DecodeError> {
        let count = input.count(4, limit, what)?;
        let ends = input.take(4 * count, what)?;
        let mut last = 0;
        for end in ends.chunks_exact(4) {
            let end = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
            if end < last {
                return Err(DecodeError::NotCanonical(what));
            }
            last = end;
        }
        let items = input.take(last as usize, what)?;
        Ok(Self { ends, items })
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len() / 4
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn end(&self, i: usize) -> usize {
        let end = &self.ends[4 * i..][..4];
        u32::from_le_bytes([end[0], end[1], end[2], end[3]]) as usize
    }

    /// The i-th item, found in constant time; `None` past the end.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<Bytes> {
        if i >= self.len() {
            return None;
        }
        let start = if i == 0 { 0 } else { self.end(i - 1) };
        Some(self.items.slice(start..self.end(i)))
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.len()).map_while(|i| self.get(i))
    }
}
