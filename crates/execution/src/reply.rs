//! The results of a package as bytes: what replicas answer and clients compare.
//!
//! ```text
//! list (tercio_wire::list) of one item an operation: status: u8 | result
//! status  0 executed  1 beyond window  2 no longer kept  3 unsupported  4 declined
//! ```
//! Only an executed operation's result has bytes, and a declined one's, which say why. The bytes
//! of an ordered read's are the height (u64) at which it was answered, and the answer; of a system
//! operation's the number (u64) of the client that was added. There is no view and no block in it,
//! so that correct replicas give equal bytes whenever they answer.

use bytes::Bytes;
use tercio_crypto::{merkle_leaf, merkle_root};
use tercio_types::{ClientId, Digest, ReplicaId, RequestSeq, Suite};
use tercio_wire::{DecodeError, Reader, list};

/// The most results in a package's reply: as many as a package can have operations.
const MAX_RESULTS: usize = 1 << 16;

/// What became of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// It was executed, once; the application's result.
    Executed(Bytes),
    /// Its number is further than [`tercio_types::WINDOW`] above the lowest one that was not executed. It
    /// was not executed and may be sent again.
    BeyondWindow,
    /// It was executed, but so long ago that the result is gone.
    NoLongerKept,
    /// It was a system request that this version does not know. Its number is used up.
    Unsupported,
    /// It was a read, and the application finds no sense in the question, or a system operation
    /// that may not be: why, as text. Its number is used up.
    Declined(Bytes),
}

/// The status byte before a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Executed = 0,
    BeyondWindow = 1,
    NoLongerKept = 2,
    Unsupported = 3,
    Declined = 4,
}

/// The answer to a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageReply {
    /// Who asked.
    pub client: ClientId,
    /// The number of the first operation.
    pub first: RequestSeq,
    /// The replica that answers with `body`; the others answer with `digest`. `None` when the
    /// package was sent again: then everybody answers with `body`.
    pub replier: Option<ReplicaId>,
    /// The results, as [`encode_results`] writes them.
    pub body: Bytes,
    /// What names the results: see [`results_digest`].
    pub digest: Digest,
    /// Whether a number of it was used by another package, as far as this replica knows. The results
    /// of such numbers are the other's, so that the client is to be told that, and nothing else.
    pub reuses: bool,
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
pub(crate) fn result_leaf(
    suite: Suite,
    client: ClientId,
    seq: RequestSeq,
    result: &[u8],
) -> Digest {
    merkle_leaf(suite, &[&client.0.to_le_bytes(), &seq.0.to_le_bytes(), result])
}

/// Writes the results of a package.
#[must_use]
pub fn encode_results(results: &[OpResult]) -> Bytes {
    let mut out = Vec::new();
    list::encode(&mut out, results.len(), |i, out| match &results[i] {
        OpResult::Executed(result) => {
            out.push(Status::Executed as u8);
            out.extend_from_slice(result);
        }
        OpResult::BeyondWindow => out.push(Status::BeyondWindow as u8),
        OpResult::NoLongerKept => out.push(Status::NoLongerKept as u8),
        OpResult::Unsupported => out.push(Status::Unsupported as u8),
        OpResult::Declined(why) => {
            out.push(Status::Declined as u8);
            out.extend_from_slice(why);
        }
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

pub(crate) fn decode_result(item: Bytes) -> Result<OpResult, DecodeError> {
    let (&status, result) = item.split_first().ok_or(DecodeError::Truncated("result"))?;
    match status {
        0 => Ok(OpResult::Executed(item.slice(1..))),
        1..=3 if !result.is_empty() => Err(DecodeError::NotCanonical("result")),
        1 => Ok(OpResult::BeyondWindow),
        2 => Ok(OpResult::NoLongerKept),
        3 => Ok(OpResult::Unsupported),
        4 => Ok(OpResult::Declined(item.slice(1..))),
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
        assert_eq!(one(b"\x05"), Err(DecodeError::Unknown { what: "result status", found: 5 }));
        let mut trailing = encode_results(&[OpResult::Unsupported]).to_vec();
        trailing.push(0);
        assert_eq!(
            decode_results(&trailing.into(), Suite::default()),
            Err(DecodeError::Trailing(1))
        );
    }
}
