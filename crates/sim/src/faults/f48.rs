//! f48, absurd numbers in an offer (ours: a certificate does not cover how long the chain is).

use super::{Falsehood, R3, demand, named, refill, settle};
use crate::{Crash, Violation};

/// A replica fetches a state, and one source says of its snapshot numbers that cannot be.
///
/// What cannot be by the certified height names the source; whatever it says, the state is fetched,
/// and the replica goes on after it and over a restart.
pub(super) fn run() -> Result<(), Violation> {
    for number in [u64::MAX, 1 << 60, 0] {
        let mut world = refill(Falsehood::Numbers(number), true)?;
        if number == 0 {
            let status = world.status(R3)?.transfer;
            demand(status.as_ref().is_some_and(|status| status.phase == "done"), "f48", || {
                format!("R3 fetched no state: {status:?}")
            })?;
        } else {
            named(&world, "f48", &["offer_absurd"])?;
        }
        world.crash(R3, Crash::Kill);
        world.restart(R3)?;
        world.submit(1, &["once more"]);
        settle(&mut world)?;
    }
    Ok(())
}
