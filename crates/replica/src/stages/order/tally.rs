//! What was dropped and declined before the protocol, and how others broke it, by reason.

use std::collections::BTreeMap;
use tercio_consensus::Evidence;
use tercio_types::ReplicaId;
use tercio_wire::reject::Reason;

/// Counts by reason.
#[derive(Debug, Default)]
pub(super) struct Tally {
    dropped: BTreeMap<&'static str, u64>,
    evidence: BTreeMap<&'static str, u64>,
    accused: BTreeMap<ReplicaId, &'static str>,
}

impl Tally {
    pub(super) fn drop(&mut self, reason: &'static str) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    pub(super) fn decline(&mut self, reason: Reason) {
        self.drop(match reason {
            Reason::Busy => "declined_busy",
            Reason::MustSign => "declined_must_sign",
            Reason::Malformed => "declined_malformed",
            Reason::UnknownClient => "declined_unknown_client",
            Reason::TooLarge => "declined_too_large",
            Reason::NumberUsed => "declined_number_used",
            Reason::ResultTooLong => "declined_result_too_long",
            Reason::BeyondWindow => "declined_beyond_window",
        });
    }

    pub(super) fn accuse(&mut self, evidence: &Evidence) {
        *self.evidence.entry(evidence.reason()).or_default() += 1;
        self.accused.extend(evidence.replica().map(|by| (by, evidence.reason())));
    }

    pub(super) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.dropped.iter().map(|(reason, count)| (*reason, *count))
    }

    pub(super) fn evidence(&self) -> &BTreeMap<&'static str, u64> {
        &self.evidence
    }

    pub(super) fn accused(&self) -> &BTreeMap<ReplicaId, &'static str> {
        &self.accused
    }
}
