//! PBFT as a kind of protocol: its name, what it promises, and how its frames read.

use super::message::{
    BODY, COMMIT, FETCH_BODY, LEARN, NEW_VIEW, PRE_PREPARE, PREPARE, REPORT, STABLE, STATUS,
    VIEW_CHANGE,
};
use super::{Kind, Pbft, RecoverError};
use crate::{ProtocolKind, Reading, Setup};
use tercio_types::FaultModel;

impl ProtocolKind for Pbft {
    const NAME: &'static str = "pbft";
    const MODEL: FaultModel = FaultModel::Byzantine;

    fn open(setup: Setup) -> Result<Self, RecoverError> {
        let Setup { me, membership, signer, settings, recovery, now } = setup;
        Self::new(me, membership, signer, settings, recovery, now)
    }

    fn message_name(kind: Kind) -> Option<&'static str> {
        Some(match kind {
            PRE_PREPARE => "PRE-PREPARE",
            PREPARE => "PREPARE",
            COMMIT => "COMMIT",
            VIEW_CHANGE => "VIEW-CHANGE",
            NEW_VIEW => "NEW-VIEW",
            STATUS => "STATUS",
            FETCH_BODY => "FETCH-BODY",
            BODY => "BODY",
            STABLE => "STABLE",
            LEARN => "LEARN",
            REPORT => "REPORT",
            _ => return None,
        })
    }

    /// Whoever sends COMMIT knows that a quorum accepted the digest, and no other at that view and
    /// number.
    fn reading(kind: Kind) -> Reading {
        match kind {
            PRE_PREPARE => Reading::Proposal,
            PREPARE => Reading::Vote,
            COMMIT => Reading::Decision,
            _ => Reading::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProtocolFacts;

    #[test]
    fn facts_are_those_of_the_kind() {
        const FACTS: ProtocolFacts = ProtocolFacts::of::<Pbft>();
        assert_eq!((FACTS.name(), FACTS.model()), ("pbft", FaultModel::Byzantine));
        assert_eq!(format!("{FACTS:?}"), "ProtocolFacts(\"pbft\")");
        assert_eq!(FACTS.name(), tercio_types::DEFAULT_PROTOCOL);
    }

    /// Every message that there is has a name, and its frames read as it is meant.
    #[test]
    fn every_message_has_a_name() {
        let named = (Kind::PROTOCOL..48).filter(|kind| Pbft::message_name(Kind(*kind)).is_some());
        assert_eq!(named.collect::<Vec<_>>(), (16..=26).collect::<Vec<_>>());
        assert_eq!(Pbft::reading(COMMIT), Reading::Decision);
        assert_eq!(Pbft::reading(VIEW_CHANGE), Reading::Other);
    }
}
