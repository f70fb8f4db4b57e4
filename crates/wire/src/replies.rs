//! The body of a REPLY: what a replica answers to any number of one client's packages, under one
//! tag.
//!
//! ```text
//! list of: first number of the package: u64 | digest of its results: 32 B | the results, or nothing
//! ```
//! The frame's digest is the Merkle root over the entries' digests, in their order, and its
//! sequence the first entry's number. An entry's digest covers the client and the numbers, so that
//! the root binds the entry's number, too.

use crate::{DecodeError, Reader, list};
use bytes::Bytes;
use tercio_crypto::merkle_root;
use tercio_types::{Digest, RequestSeq, Suite};

/// The most entries of a REPLY.
const MAX_REPLIES: usize = 1 << 16;
/// The bytes of an entry before the results.
const HEAD: usize = 8 + 32;

/// What a replica answers to a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the package's first operation.
    pub first: RequestSeq,
    /// The digest of its results.
    pub digest: Digest,
    /// The results; empty when others send them.
    pub results: Bytes,
}

impl Reply {
    /// How long it is in a REPLY, the end in the list's index included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        4 + HEAD + self.results.len()
    }
}

/// Appends the body of a REPLY, and gives its digest. `digests` is room for those of the entries.
pub fn encode_replies(
    replies: &[Reply],
    suite: Suite,
    digests: &mut Vec<Digest>,
    out: &mut Vec<u8>,
) -> Digest {
    list::encode(out, replies.len(), |i, out| {
        let Reply { first, digest, results } = &replies[i];
        out.extend_from_slice(&first.0.to_le_bytes());
        out.extend_from_slice(&digest.0);
        out.extend_from_slice(results);
    });
    digests.clear();
    digests.extend(replies.iter().map(|reply| reply.digest));
    merkle_root(suite, digests)
}

/// Reads the body of a REPLY; results are slices of it. That the digest of all is the frame's is
/// for [`replies_digest`] to show.
///
/// # Errors
/// When the bytes are no such body.
pub fn decode_replies(body: &Bytes, suite: Suite) -> Result<Vec<Reply>, DecodeError> {
    const WHAT: &str = "reply";
    let mut input = Reader::new(body.clone(), suite);
    let entries = list::List::decode(&mut input, MAX_REPLIES, WHAT)?;
    input.finish()?;
    let mut replies = Vec::with_capacity(entries.len());
    for entry in entries.iter() {
        let mut input = Reader::new(entry, suite);
        let (first, digest) = (RequestSeq(input.u64(WHAT)?), input.digest(WHAT)?);
        replies.push(Reply { first, digest, results: input.take_rest() });
    }
    Ok(replies)
}

/// The digest of a REPLY with these entries.
#[must_use]
pub fn replies_digest(replies: &[Reply], suite: Suite) -> Digest {
    let digests: Vec<Digest> = replies.iter().map(|reply| reply.digest).collect();
    merkle_root(suite, &digests)
}
