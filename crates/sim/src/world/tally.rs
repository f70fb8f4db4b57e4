//! What a run met, in numbers.

use std::ops::AddAssign;

macro_rules! tally {
    ($($(#[doc = $doc:literal])+ $field:ident $name:literal,)*) => {
        /// What happened in a world so far, or in many together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[doc = $doc])+ pub $field: u64,)*
        }

        impl Tally {
            /// Each count with its key and with what it is called.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($field), $name, self.$field)),*]
            }
        }

        impl AddAssign for Tally {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

tally! {
    /// Frames sent.
    frames "frames",
    /// Views entered above the first.
    view_changes "view changes",
    /// Times that a replica started again.
    restarts "restarts",
    /// Numbers of a view for which a primary sent two proposals to different backups.
    equivocations "equivocations",
    /// Disks of correct replicas that were lost.
    lost_disks "lost disks",
    /// Replicas that stopped since their disk failed or was full.
    disk_failures "failures of disks",
    /// Commits that fell between two commands of one step.
    split_commits "commits inside a step",
    /// Runs in which up to f replicas were gone for good in the end.
    gone_for_good "runs with some gone for good",
    /// Tails that a power failure left in pieces, so that there may be holes in them.
    holes "tails in pieces",
    /// Faults of a medium: bits that rot, writes that are lost or go elsewhere.
    media_faults "media faults",
    /// Replicas whose write-ahead log a medium damaged and that refused to start: their disks were
    /// replaced.
    replaced_disks "replaced disks",
    /// Byzantine replicas that plotted together.
    colluders "colluders",
    /// What a false source sent instead of the truth.
    false_answers "lies of false sources",
    /// Links that had a quality of their own.
    own_links "links of their own quality",
    /// Operations acknowledged to clients.
    acknowledged "operations acknowledged",
    /// Operations above a MiB acknowledged to clients.
    long_operations "operations above 1 MiB",
    /// Ordered reads answered.
    reads "ordered reads",
    /// Queries answered.
    queries "queries answered",
    /// Clients that were added and then answered.
    clients_added "clients added",
}
