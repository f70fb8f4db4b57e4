//! The results of a package as bytes: what replicas answer and clients compare.
//!
//! ```text
//! list ([`list`]) of one item an operation: status: u8 | result
//! status  0 executed  1 beyond window  2 no longer kept  3 unsupported  4 declined
//!         5 outside footprint  6 panicked
//! ```
//! Only an executed operation's result has bytes, and a declined one's, which say why. The bytes
//! of an ordered read's are the height (u64) at which it was answered, and the answer; of a system
//! operation's the number (u64) of the client that was added. There is no view and no block in it,
//! so that correct replicas give equal bytes whenever they answer.

use crate::{DecodeError, Reader, list};
use bytes::Bytes;
use tercio_crypto::{merkle_leaf, merkle_root};
use tercio_types::{ClientId, Digest, RequestSeq, Suite};

/// The most results in a package's reply: as many as a package can have operations.
const MAX_RESULTS: usize = 1 << 16;

/// What became of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// It was executed, once; the application's result.
    Executed(Bytes),
    /// Its number is further than [`tercio_types::WINDOW`] above the lowest one that was not executed. It
    /// was not executed and may be retransmitted.
    BeyondWindow,
    /// It was executed, but so long ago that the result is gone.
    NoLongerKept,
    /// It was a system request that this version does not know. Its number is used up.
    Unsupported,
    /// It was a read, and the application finds no sense in the question, or a system operation
    /// that may not be: why, as text. Its number is used up.
    Declined(Bytes),
    /// It was aborted: it touched what the application had not declared for it. It changed nothing,
    /// and its number is used up.
    OutsideFootprint,
    /// It was aborted: the application's code panicked over it. It changed nothing, and its number
    /// is used up.
    Panicked,
}

impl OpResult {
    /// What stands behind its status.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Executed(bytes) | Self::Declined(bytes) => bytes,
            _ => &[],
        }
    }

    /// The byte before it.
    #[must_use]
    pub fn status(&self) -> ResultStatus {
        match self {
            Self::Executed(_) => ResultStatus::Executed,
            Self::BeyondWindow => ResultStatus::BeyondWindow,
            Self::NoLongerKept => ResultStatus::NoLongerKept,
            Self::Unsupported => ResultStatus::Unsupported,
            Self::Declined(_) => ResultStatus::Declined,
            Self::OutsideFootprint => ResultStatus::OutsideFootprint,
            Self::Panicked => ResultStatus::Panicked,
        }
    }
}

/// The status byte before a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultStatus {
    /// [`OpResult::Executed`].
    Executed = 0,
    /// [`OpResult::BeyondWindow`].
    BeyondWindow = 1,
    /// [`OpResult::NoLongerKept`].
    NoLongerKept = 2,
    /// [`OpResult::Unsupported`].
    Unsupported = 3,
    /// [`OpResult::Declined`].
    Declined = 4,
    /// [`OpResult::OutsideFootprint`].
    OutsideFootprint = 5,
    /// [`OpResult::Panicked`].
    Panicked = 6,
}

/// The digest of a package's results: the Merkle root over one leaf an operation, with the client,
/// the number and the result as they stand in `body`. It is a part of the block's results root.
///
/// # Errors
/// When `body` is no canonical list of results.
pub fn results_digest(
    suite: Suite,
    client: ClientId,
    first: RequestSeq,
    body: &Bytes,
) -> Result<Digest, DecodeError> {
    let mut input = Reader::new(body.clone(), suite);
    let items = list::List::decode(&mut input, MAX_RESULTS, "results")?;
    input.finish()?;
    let leaf = |(i, item): (usize, Bytes)| {
        result_leaf(suite, client, RequestSeq(first.0.wrapping_add(i as u64)), &item)
    };
    if items.len() == 1 {
        return Ok(items.get(0).map_or(Digest::NULL, |item| leaf((0, item))));
    }
    let leaves: Vec<Digest> = items.iter().enumerate().map(leaf).collect();
    Ok(merkle_root(suite, &leaves))
}

/// The leaf of an operation in its package's results tree. `result` starts with the status byte.
fn result_leaf(suite: Suite, client: ClientId, seq: RequestSeq, result: &[u8]) -> Digest {
    merkle_leaf(suite, &result_head(client, seq), result)
}

/// What a leaf begins with, before the result.
#[must_use]
pub fn result_head(client: ClientId, seq: RequestSeq) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&client.0.to_le_bytes());
    head[8..].copy_from_slice(&seq.0.to_le_bytes());
    head
}

/// Writes the results of a package.
#[must_use]
pub fn encode_results(results: &[OpResult]) -> Bytes {
    let mut out = Vec::new();
    list::encode(&mut out, results.len(), |i, out| {
        out.push(results[i].status() as u8);
        out.extend_from_slice(results[i].bytes());
    });
    out.into()
}

/// Reads the results of a package; executed ones are slices of `body`.
///
/// # Errors
/// When the bytes are no canonical list of results.
pub fn decode_results(body: &Bytes, suite: Suite) -> Result<Vec<OpResult>, DecodeError> {
    let mut input = Reader::new(body.clone(), suite);
    let items = list::List::decode(&mut input, MAX_RESULTS, "results")?;
    input.finish()?;
    items.iter().map(decode_result).collect()
}

/// Reads the result of one operation.
///
/// # Errors
/// When the bytes are no canonical result.
pub fn decode_result(item: Bytes) -> Result<OpResult, DecodeError> {
    let (&status, result) = item.split_first().ok_or(DecodeError::Truncated("result"))?;
    match status {
        0 => Ok(OpResult::Executed(item.slice(1..))),
        1..=3 | 5 | 6 if !result.is_empty() => Err(DecodeError::NotCanonical("result")),
        1 => Ok(OpResult::BeyondWindow),
        2 => Ok(OpResult::NoLongerKept),
        3 => Ok(OpResult::Unsupported),
        4 => Ok(OpResult::Declined(item.slice(1..))),
        5 => Ok(OpResult::OutsideFootprint),
        6 => Ok(OpResult::Panicked),
        other => Err(DecodeError::Unknown { what: "result status", found: other.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip() {
        let all = [
            OpResult::Executed(Bytes::from_static(b"done")),
            OpResult::Executed(Bytes::new()),
            OpResult::BeyondWindow,
            OpResult::NoLongerKept,
            OpResult::Unsupported,
            OpResult::Declined(Bytes::from_static(b"no such thing")),
            OpResult::OutsideFootprint,
            OpResult::Panicked,
        ];
        assert_eq!(decode_results(&encode_results(&all), Suite::default()).unwrap(), all);
    }

    #[test]
    fn other_bytes_are_refused() {
        let one = |item: &[u8]| {
            let mut out = Vec::new();
            list::encode(&mut out, 1, |_, out| out.extend_from_slice(item));
            decode_results(&out.into(), Suite::default())
        };
        assert_eq!(one(b""), Err(DecodeError::Truncated("result")));
        assert_eq!(one(b"\x01x"), Err(DecodeError::NotCanonical("result")));
        assert_eq!(one(b"\x05x"), Err(DecodeError::NotCanonical("result")));
        assert_eq!(one(b"\x06x"), Err(DecodeError::NotCanonical("result")));
        assert_eq!(one(b"\x07"), Err(DecodeError::Unknown { what: "result status", found: 7 }));
        let mut trailing = encode_results(&[OpResult::Unsupported]).to_vec();
        trailing.push(0);
        assert_eq!(
            decode_results(&trailing.into(), Suite::default()),
            Err(DecodeError::Trailing(1))
        );
    }
}
