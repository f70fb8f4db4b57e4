//! f25, blocks forged by f replicas (snarkOS#3226).

use super::{Falsehood, R3, demand, refill};
use crate::Violation;

/// A source makes up a chain of its own, whole in itself, with a certificate that no quorum signed.
///
/// It is not executed; the source is passed over.
pub(super) fn run() -> Result<(), Violation> {
    let world = refill(Falsehood::Forgery, false)?;
    let dropped = world.status(R3)?.dropped;
    let seen = ["blocks_wrong_certificate", "blocks_wrong_chain"];
    demand(seen.iter().any(|reason| dropped.contains_key(reason)), "f25", || {
        format!("R3 was offered no forged blocks: {dropped:?}")
    })
}
