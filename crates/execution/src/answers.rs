//! What the packages of a block are answered.

use crate::chain::Admission;
use crate::client_table::ClientTable;
use crate::system::Decision;
use crate::{Aborted, Replies};
use bytes::Bytes;
use std::ops::Range;
use tercio_crypto::merkle_root;
use tercio_types::{ClientId, Digest, OpKind, Package, ReplicaId, RequestSeq, Suite};
use tercio_wire::{ResultStatus, list, result_leaf};

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
    /// The results, as [`tercio_wire::encode_results`] writes them.
    pub body: Bytes,
    /// What names the results: see [`tercio_wire::results_digest`].
    pub digest: Digest,
    /// Whether a number of it was used by another package, as far as this replica knows. The results
    /// of such numbers are the other's, so that the client is to be told that, and nothing else.
    pub reuses: bool,
}

/// Writes the replies of a block, package by package, and keeps fresh results.
pub(crate) struct Answers<'a> {
    pub(crate) suite: Suite,
    pub(crate) clients: &'a mut ClientTable,
    pub(crate) results: &'a Replies,
    /// The next of `results`.
    pub(crate) next: usize,
    /// What fresh system operations do.
    pub(crate) decisions: std::slice::Iter<'a, Decision>,
    pub(crate) leaves: &'a mut Vec<Digest>,
    pub(crate) bodies: &'a mut Vec<u8>,
}

impl Answers<'_> {
    /// Appends the results of a package; gives where they stand, and their digest.
    pub(crate) fn answer(
        &mut self,
        package: &Package,
        admissions: &[Admission],
    ) -> (Range<usize>, Digest) {
        let (client, from) = (package.client, self.bodies.len());
        self.leaves.clear();
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
            let result = &out[start..];
            self.leaves.push(result_leaf(self.suite, client, seq, result));
            if admissions[i] == Admission::Fresh {
                self.clients.keep(client, seq, result);
            }
        });
        (from..self.bodies.len(), merkle_root(self.suite, self.leaves))
    }
}
