//! The bug zoo: switches that make a replica wrong, so that a test can show that it would notice.
//! A [`Defence`] is taken away: each named fault of the test suite has one. A [`Mutant`] is a small
//! wrong rule inside the protocol, of the kind that a slip of the pen makes. Without the feature
//! `zoo` every defence stands, there is no mutant, and the question costs nothing.
//!
//! A test switches one of them for its thread (`without`, `with_mutant`). The environment variable
//! `TERCIO_MUTANT` switches one for the whole process, by its name (`commit_quorum_less`,
//! `f14_null_requests`), so that all tests can be run under it from outside.

macro_rules! switches {
    ($(#[$about:meta])* $name:ident { $($variant:ident $($what:literal)?,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "what is wrong is said beside each name")]
        pub enum $name {
            $($(#[doc = $what])? $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// What is wrong when it is switched.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($what)?),)*
                }
            }

            /// Its name in small letters: `commit_quorum_less`.
            #[must_use]
            pub fn name(self) -> String {
                let mut name = String::new();
                for letter in format!("{self:?}").chars() {
                    if letter.is_ascii_uppercase() && !name.is_empty() {
                        name.push('_');
                    }
                    name.push(letter.to_ascii_lowercase());
                }
                name
            }
        }
    };
}

switches! {
    /// A defence, named by the fault that it answers (`docs/protocol/faults.md`).
    Defence {
        F01OneDigestPerNumber "a replica takes two proposals and two votes for one number",
        F03RememberPromises "a restarted replica knows nothing of its log",
        F04PersistBeforeSend "a promise is sent before it is durable",
        F05RepeatVotes "a restarted replica does not say its votes again",
        F06CarryPrepared "a VIEW-CHANGE says nothing of what prepared or was accepted",
        F08DistinctViewChanges "a NEW-VIEW may name one replica several times",
        F14NullRequests "gaps are not filled by null requests",
        F16VouchForClients "nobody vouches for a client whose MAC fails, and nobody is blamed",
        F18RequestTimers "no request is timed",
        F21JoinOnWeakQuorum "one replica's later view is joined",
        F22NeverLower "a source of state may lower its offer",
        F23PieceByDigest "pieces of state are taken as they come",
        F24SwitchSource "a source of state is never given up",
        F25FullCertificate "blocks are taken on a certificate without a quorum",
        F26CompareCheckpoints "signed states count together whatever they say",
        F26NameTheKeys "keys in which states differ are not named",
        F27ServeLaggards "laggards are not sent certificates",
        F28OneOwner "messages deliver while blocks are fetched",
        F29BoundedBacklog "signed states are kept without bound",
        F30Watermarks "numbers beyond the watermarks are taken",
        F31ClientQuotas "a client has no quota",
        F32CheckApprovals "approvals of clients are not checked",
        F32CheckClients "client tags are not checked",
        F33ParkEarlyVotes "votes before their proposal are dropped",
        F34FetchedIsDelivered "fetched blocks do not count as delivered",
        F35CutTornTail "a torn tail of the log is left",
        F35HoleInGroup "a hole in a group of records is not seen",
        F35MendFromOthers "a damaged block log is not mended from others",
        F36FailStop "a failed sync is passed over",
        F41LearnAfterLoss "a replica whose log is lost votes at once",
        F42ResignAfterRestart "a restarted primary goes on proposing in its view",
        F43BoundedBytes "batches are held without bound",
        F44SkipToCertificate "a laggard that enters a view keeps its window",
        F45StateFollows "the record of all promises is written apart from those that it replaces",
        F46DurableCheckpoint "a state is signed before its blocks are durable",
        F47UncertifiedIsGone "a state is not looked for when f+1 sources have no certificate in reach",
        F48BoundOffers "numbers of an offer are taken as they come",
        F49SalvageSideFiles "a hole in a side file keeps a replica from starting",
        F50UnsyncedHoleIsTail "an unsynced hole in the log is damage",
        F51AskAfterRestart "a replica whose log went back votes at once",
        F52OrderAhead "ordering waits for execution",
        F53FootprintBinds "an operation may touch what it did not declare",
        F54PanicsAbort "an operation that panics takes its replica along",
        F55ResultsByChain "copies of results are taken as they come",
        F56LearnFromWork "a view change is a measure of what can be ordered, and no limit rises",
        F57KeepDescriptors "links may take all descriptors",
        F58ProofFirst "handshakes are answered without a proof",
        F59ChargeByCost "what a link costs in vain is not charged to it",
        F60SizeOfWhatWaits "a request has the same time however long it is",
        F61MeasuredTrips "round trips are not measured",
        F62ReturnToTheView "a replica that left its view alone stays out of it",
        F63JudgeTime "a backup takes whatever time a primary proposes",
        F64MarkLog "a write-ahead log that was cut is taken for whole",
        F65FarNumbers "numbers far above all that their client used are ordered",
    }
}

switches! {
    /// A small wrong rule, named by what it does wrong. The rules' names are those of
    /// `docs/protocol/pbft.md`.
    Mutant {
        PrepareQuorumLess "N3: prepared on one PREPARE less than a quorum",
        CommitQuorumLess "N4: committed on one COMMIT less than a quorum",
        PreparedFirstView "V1: P keeps the first view in which something prepared",
        AcceptedFirstView "V1: Q keeps the first view in which a digest was accepted",
        AcceptedNotSaid "V1: VIEW-CHANGEs say no Q",
        VotesAfterLeaving "V1: a replica that has left its view still says COMMIT in it",
        BeginsByItself "V1: a replica that said VIEW-CHANGE takes the view as begun",
        JoinOnFewer "V2: joined when f others want later views",
        FewViewChanges "V3: a quorum less one of VIEW-CHANGEs is enough",
        LowestView "V3: of the candidates the one of the lowest view is tried first",
        AgainstLess "V3, A1: a quorum less one says nothing against it",
        AgainstSameView "V3, A1: another digest of the same view is not against it",
        AcceptedLess "V3, A2: f accepted it",
        AcceptedBefore "V3, A2: it was accepted in whichever view",
        NothingLess "V3, B: a quorum less one claims nothing",
        LowestCheckpoint "V3: the lowest checkpoint of the VIEW-CHANGEs",
        NullDropped "V3: a null request at the end is dropped, by condition A too",
        ViewGoesBack "V5: the NEW-VIEW of an older view is entered",
        CertificateLess "C2: a quorum less one of signed states is a certificate",
        OwnCommitEarly "P1: one's own COMMIT counts before its record is durable",
        LeaveForgotten "P2: a restarted replica forgets that it left its view",
        EnterForgotten "P2: a restarted replica forgets that it entered a view",
        AcceptedForgotten "P2: a restarted replica forgets its Q",
        StateDropsPrepared "P2: the record of all promises says no P",
        RepeatsInLaterView "P2: a restarted replica says its PREPAREs again in its latest view",
        SkipForgotten "W3: a moved window is not in the log",
        LowestReport "L3: the floor is that of the lowest report",
        VotesAtFloor "L4: a learner votes in the view of its floor",
        LeavesEarly "L5: a learner leaves its view before its floor is stable",
    }
}

#[cfg(feature = "zoo")]
mod switch {
    use super::{Defence, Mutant};
    use std::cell::Cell;

    /// What is wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Switch {
        /// A defence is away.
        Without(Defence),
        /// A mutant is at work.
        With(Mutant),
    }

    impl Switch {
        /// All that can be wrong.
        pub fn all() -> impl Iterator<Item = Self> {
            let defences = Defence::ALL.iter().map(|defence| Self::Without(*defence));
            defences.chain(Mutant::ALL.iter().map(|mutant| Self::With(*mutant)))
        }

        /// Its name.
        #[must_use]
        pub fn name(self) -> String {
            match self {
                Self::Without(defence) => defence.name(),
                Self::With(mutant) => mutant.name(),
            }
        }

        /// What is wrong with it.
        #[must_use]
        pub fn what(self) -> &'static str {
            match self {
                Self::Without(defence) => defence.what(),
                Self::With(mutant) => mutant.what(),
            }
        }

        /// The one of this name.
        #[must_use]
        pub fn by_name(name: &str) -> Option<Self> {
            Self::all().find(|switch| switch.name() == name)
        }
    }

    fn of_process() -> Option<Switch> {
        let name = std::env::var("TERCIO_MUTANT").ok().filter(|name| !name.is_empty())?;
        let switch = Switch::by_name(&name);
        assert!(switch.is_some(), "TERCIO_MUTANT: there is no {name}");
        switch
    }

    thread_local!(static ON: Cell<Option<Switch>> = Cell::new(of_process()));

    /// Whether `defence` stands on this thread.
    #[must_use]
    pub fn stands(defence: Defence) -> bool {
        ON.get() != Some(Switch::Without(defence))
    }

    /// Whether `mutant` is at work on this thread.
    #[must_use]
    pub fn mutated(mutant: Mutant) -> bool {
        ON.get() == Some(Switch::With(mutant))
    }

    /// Runs `scenario` with this switched on this thread.
    pub fn switched<R>(switch: Switch, scenario: impl FnOnce() -> R) -> R {
        struct Restore(Option<Switch>);
        impl Drop for Restore {
            fn drop(&mut self) {
                ON.set(self.0);
            }
        }
        let _restore = Restore(ON.replace(Some(switch)));
        scenario()
    }

    /// Runs `scenario` with `defence` taken away on this thread.
    pub fn without<R>(defence: Defence, scenario: impl FnOnce() -> R) -> R {
        switched(Switch::Without(defence), scenario)
    }

    /// Runs `scenario` with `mutant` at work on this thread.
    pub fn with_mutant<R>(mutant: Mutant, scenario: impl FnOnce() -> R) -> R {
        switched(Switch::With(mutant), scenario)
    }
}

#[cfg(feature = "zoo")]
pub use switch::{Switch, mutated, stands, switched, with_mutant, without};

/// Whether `defence` stands. Without the feature `zoo`, always.
#[cfg(not(feature = "zoo"))]
#[must_use]
#[inline(always)]
pub const fn stands(_defence: Defence) -> bool {
    true
}

/// Whether `mutant` is at work. Without the feature `zoo`, never.
#[cfg(not(feature = "zoo"))]
#[must_use]
#[inline(always)]
pub const fn mutated(_mutant: Mutant) -> bool {
    false
}

/// One less than `count` when `mutant` is at work.
#[must_use]
#[inline(always)]
pub fn less(mutant: Mutant, count: usize) -> usize {
    count - usize::from(mutated(mutant))
}
