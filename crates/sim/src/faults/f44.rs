//! f44, views that a laggard cannot follow (found by random runs; OSDI'99 section 4.4 has the rule).

use super::{R3, SOON, demand, four_with, millis, settle};
use crate::checks::kinds;
use crate::customer::Workload;
use crate::world::small_settings;
use crate::{Fate, Violation};
use std::cell::Cell;
use std::rc::Rc;
use tercio_consensus::Settings;
use tercio_types::{Principal, SeqNum};

/// How many views the laggard enters.
const VIEWS: u64 = 6;

/// A replica gets nothing but what begins views, and the batches that they begin with. Each of them
/// begins further up: the others go on meanwhile, and then a batch of theirs prepares that commits
/// in the next view only.
///
/// It keeps what its window holds, however many views it enters, and comes to the state of the
/// others when it hears them again.
pub(super) fn run() -> Result<(), Violation> {
    let settings = Settings { pipeline: 16, batch_ops: 1, ..small_settings() };
    let mut world = four_with(&[Workload::NONE], settings)?;
    let commits = Rc::new(Cell::new(true));
    let may_commit = commits.clone();
    world.set_gate(move |passing| {
        let kind = passing.key.kind;
        let deaf = passing.to == Principal::Replica(R3);
        let begins = kind == kinds::NEW_VIEW || kind == kinds::BODY;
        let lost = (kind == kinds::COMMIT && !may_commit.get()) || (deaf && !begins);
        if lost { Fate::Lose } else { Fate::Pass }
    });
    for view in 1..=VIEWS {
        for _ in 0..32 {
            world.submit(1, &["done at once"]);
            world.run_for(millis(5))?;
        }
        world.expect_within(SOON, "the work of a view", |world| world.customer(1).is_done())?;
        commits.set(false);
        (0..12).for_each(|_| world.submit(1, &["done in the next view"]));
        world.expect_within(SOON, "the next view", |world| {
            world.status(R3).is_ok_and(|status| status.protocol.view_changes >= view)
        })?;
        commits.set(true);
        world.expect_within(SOON, "the work of a view", |world| world.customer(1).is_done())?;
    }
    let status = world.status(R3)?.protocol;
    demand(status.delivered == SeqNum(0) && status.slots > 0, "f44", || {
        format!("R3 delivered {} and has {} slots", status.delivered, status.slots)
    })?;
    world.lift_gate();
    settle(&mut world)
}
