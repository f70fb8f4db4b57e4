//! The offset-indexed list of FISCO BCOS: a count, the end of every item, then the items without a
//! gap. Any item is found without reading those before it, so a list can be decoded in parallel;
//! since only ends are stored, gaps and overlaps cannot be written down at all.
//!
//! ```text
//! count: u32 | end[0]: u32 .. end[count-1]: u32 | items, end[count-1] bytes
//! ```

use crate::{DecodeError, Reader};
use bytes::Bytes;

/// The bytes of a count and of an end.
const WORD: usize = 4;

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

/// Checks the index of the list that `bytes` begins with; gives how many items it has, and how many
/// bytes it takes.
pub(crate) fn check(
    bytes: &[u8],
    limit: usize,
    what: &'static str,
) -> Result<(usize, usize), DecodeError> {
    let Some((count, rest)) = bytes.split_first_chunk::<WORD>() else {
        return Err(DecodeError::Truncated(what));
    };
    let count = u32::from_le_bytes(*count) as usize;
    if count > limit {
        return Err(DecodeError::TooLong { what, found: count as u64, limit: limit as u64 });
    }
    let ends = WORD.checked_mul(count).and_then(|len| rest.split_at_checked(len));
    let (ends, items) = ends.ok_or(DecodeError::Truncated(what))?;
    let mut last = 0;
    for end in ends.as_chunks::<WORD>().0 {
        let end = u32::from_le_bytes(*end);
        if end < last {
            return Err(DecodeError::NotCanonical(what));
        }
        last = end;
    }
    if last as usize > items.len() {
        return Err(DecodeError::Truncated(what));
    }
    Ok((count, WORD + WORD * count + last as usize))
}

/// A list whose index has been checked; items are slices of the received bytes.
#[derive(Clone, Debug)]
pub struct List {
    bytes: Bytes,
    count: usize,
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
        let (count, len) = check(input.rest(), limit, what)?;
        Ok(Self { bytes: input.take(len, what)?, count })
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn end(&self, i: usize) -> usize {
        let end = self.bytes[WORD + WORD * i..].first_chunk().expect("the index was checked");
        u32::from_le_bytes(*end) as usize
    }

    /// The i-th item, found in constant time; `None` past the end.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<Bytes> {
        if i >= self.count {
            return None;
        }
        let items = WORD + WORD * self.count;
        let start = if i == 0 { 0 } else { self.end(i - 1) };
        Some(self.bytes.slice(items + start..items + self.end(i)))
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.count).map_while(|i| self.get(i))
    }
}
