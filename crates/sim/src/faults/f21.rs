//! f21, the leader named by one replica while another catches up (bft-smart#62).

use super::{R0, R1, R2, R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Violation};
use tercio_consensus::pbft::{PbftMessage, Standing, ViewChange};
use tercio_types::{Principal, SeqNum, View};

/// A backup that was cut off catches up. Meanwhile a faulty replica names later views to it, of which
/// it would lead one itself: in its STATUS, by a VIEW-CHANGE that is well-formed and signed, and by a
/// NEW-VIEW upon that.
///
/// The backup catches up, and stays in the view of the others: f+1 must have left for a later one.
pub(super) fn run() -> Result<(), Violation> {
    let work = Workload { packages: 60, ops: 1, under_way: 2, pause: millis(4) };
    let mut world = four(&[work])?;
    let liar = world.puppet(R2);
    world.run_for(millis(50))?;
    world.crash(R3, Crash::Power);
    world.run_for(millis(50))?;
    // The others cannot go on without it, so one of them is no source of blocks alone.
    world.restart(R3)?;
    for view in [1, 6, 10].map(View) {
        let content = ViewChange {
            view,
            stable: None,
            prepared: vec![],
            preprepared: vec![],
            blamed: vec![],
        };
        let signed = liar.signed_view_change(content.clone());
        let (delivered, stable) = (SeqNum(9), SeqNum(8));
        let standing = Standing { view, delivered, stable, ..Standing::default() };
        let frames = [
            liar.message(&PbftMessage::Status(standing)),
            liar.view_change(content),
            liar.new_view(view, vec![signed]),
        ];
        for frame in frames {
            world.inject(Principal::Replica(R2), Principal::Replica(R3), frame);
            world.run_for(millis(20))?;
        }
        for id in [R0, R1, R3] {
            let seen = world.status(id)?.protocol;
            demand(seen.view == View(0) && !seen.changing, "f21", || {
                format!("{id:?} went to view {} on the word of one", seen.view)
            })?;
        }
    }
    settle(&mut world)
}
