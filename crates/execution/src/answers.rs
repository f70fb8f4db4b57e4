//! What the packages of a block are answered.

use crate::chain::Admission;
use crate::client_table::ClientTable;
use crate::system::Decision;
use crate::{Aborted, Replies};
use bytes::Bytes;
use std::ops::Range;
use tercio_crypto::{merkle_leaves, merkle_root};
use tercio_types::{Batch, ClientId, Digest, OpKind, Package, ReplicaId, RequestSeq, Suite};
use tercio_wire::{ResultStatus, list, result_head};

/// The answers to packages: to those of a block, or to one that was sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageReplies {
    /// One a package, in order.
    pub packages: Vec<PackageReply>,
    /// Their results, one behind the other: what goes to clients and to the log without a copy.
    pub bodies: Bytes,
}

impl PackageReplies {
    /// The results of one of its packages, as [`tercio_wire::encode_results`] writes them.
    #[must_use]
    pub fn body(&self, reply: &PackageReply) -> Bytes {
        self.bodies.slice(reply.body.clone())
    }
}

/// The answer to a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageReply {
    /// Who asked.
    pub client: ClientId,
    /// The number of the first operation.
    pub first: RequestSeq,
    /// The replica that answers with `body`; the others answer with `digest`. `None` when the
    /// package was retransmitted: then everybody answers with `body`.
    pub replier: Option<ReplicaId>,
    /// Where the results stand in [`PackageReplies::bodies`].
    pub body: Range<usize>,
    /// What names the results: see [`tercio_wire::results_digest`].
    pub digest: Digest,
    /// Whether a number of it was used by another package, as far as this replica knows. The results
    /// of such numbers are the other's, so that the client is to be told that, and nothing else.
    pub reuses: bool,
}

/// The numbers of a package that an operation's result is for, and where it stands.
pub(crate) struct OpAnswer {
    client: ClientId,
    seq: RequestSeq,
    result: Range<usize>,
}

/// Writes the results of a block, package by package, and keeps fresh ones.
pub(crate) struct Answers<'a> {
    pub(crate) clients: &'a mut ClientTable,
    pub(crate) results: &'a Replies,
    /// The next of `results`.
    pub(crate) next: usize,
    /// What fresh system operations do.
    pub(crate) decisions: std::slice::Iter<'a, Decision>,
    pub(crate) ops: &'a mut Vec<OpAnswer>,
    pub(crate) bodies: &'a mut Vec<u8>,
}

impl Answers<'_> {
    /// Appends the results of a package; gives where they stand.
    pub(crate) fn answer(&mut self, package: &Package, admissions: &[Admission]) -> Range<usize> {
        let (client, from) = (package.client, self.bodies.len());
        list::encode(self.bodies, package.ops.len(), |i, out| {
            let seq = RequestSeq(package.first.0 + i as u64);
            let start = out.len();
            match admissions[i] {
                Admission::Fresh if package.kind == OpKind::System => {
                    self.decisions.next().expect("one each").write_result(out);
                }
                Admission::Fresh => {
                    // The result of a read brings its own status.
                    if package.kind == OpKind::User {
                        let aborted = self.results.aborted(self.next);
                        let status = aborted.map_or(ResultStatus::Executed, Aborted::status);
                        out.push(status as u8);
                    }
                    out.extend_from_slice(self.results.get(self.next));
                    self.next += 1;
                }
                Admission::Duplicate => match self.clients.kept(client, seq) {
                    Some(result) => out.extend_from_slice(result),
                    None => out.push(ResultStatus::NoLongerKept as u8),
                },
                Admission::Beyond => out.push(ResultStatus::BeyondWindow as u8),
            }
            self.ops.push(OpAnswer { client, seq, result: start..out.len() });
            if admissions[i] == Admission::Fresh {
                self.clients.keep(client, seq, &out[start..]);
            }
        });
        from..self.bodies.len()
    }
}

/// Appends the digest of each package's results. All leaves of the block are hashed together.
pub(crate) fn package_digests(
    suite: Suite,
    batch: &Batch,
    ops: &[OpAnswer],
    bodies: &[u8],
    digests: &mut Vec<Digest>,
) {
    let leaf = |op: &OpAnswer| (result_head(op.client, op.seq), &bodies[op.result.clone()]);
    let contents: Vec<_> = ops.iter().map(leaf).collect();
    let mut leaves = Vec::with_capacity(contents.len());
    merkle_leaves(suite, &contents, &mut leaves);
    let mut leaves = leaves.as_slice();
    for package in &batch.packages {
        let (own, rest) = leaves.split_at(package.ops.len());
        leaves = rest;
        digests.push(merkle_root(suite, own));
    }
}
