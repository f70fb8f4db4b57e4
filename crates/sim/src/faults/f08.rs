//! f08, a NEW-VIEW without a quorum of distinct VIEW-CHANGEs (raijin#7).

use super::{R0, R1, R2, R3, demand, four, millis, settle};
use crate::Violation;
use crate::customer::Workload;
use tercio_consensus::pbft::ViewChange;
use tercio_types::{Principal, View};

/// The primary of the next view begins it on its own: with its VIEW-CHANGE alone, and with the same
/// one three times over, properly signed. In it nothing is prepared, so that the view would begin
/// from nothing.
///
/// Nobody follows; the first view goes on.
pub(super) fn run() -> Result<(), Violation> {
    let mut world = four(&[Workload::NONE])?;
    let usurper = world.puppet(R1);
    world.submit(1, &["before"]);
    settle(&mut world)?;
    let content = ViewChange {
        view: View(1),
        stable: None,
        prepared: vec![],
        preprepared: vec![],
        blamed: vec![],
    };
    let own = usurper.signed_view_change(content);
    for copies in 1..=4 {
        let frame = usurper.new_view(View(1), vec![own.clone(); copies]);
        for to in [R0, R2, R3] {
            world.inject(Principal::Replica(R1), Principal::Replica(to), frame.clone());
        }
        world.run_for(millis(20))?;
        for id in [R0, R2, R3] {
            let view = world.status(id)?.protocol.view;
            demand(view == View(0), "f08", || {
                format!(
                    "{id:?} followed a NEW-VIEW on {copies} copies of one VIEW-CHANGE to {view}"
                )
            })?;
        }
    }
    world.submit(1, &["after"]);
    settle(&mut world)
}
