//! Attacks W3, the window of a laggard, and the checkpoint of V3: all but one leave before a checkpoint
//! is stable, so that a view begins without a word of it; the laggard has its certificate from a liar,
//! moves its window, and votes at the upper end. Then its power fails. In other runs the laggard's
//! VIEW-CHANGE is among those that a view begins with, and its low watermark is the lowest.

use super::scheme::{Hearing, MOMENT, Scheme, set};
use crate::checks::Violation;
use crate::{Rng, World};
use std::sync::Arc;
use tercio_consensus::pbft::PbftMessage;
use tercio_types::{CertifiedCheckpoint, ReplicaId, SeqNum};

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let (n, f) = (world.cast().membership().n() as u64, world.cast().membership().f());
    let mut plot = Scheme::new(world, rng, &[0], f);
    let all = plot.correct.clone();
    // The first view that a liar leads again.
    let to = (1..=n).find(|view| plot.lies(plot.leader(*view))).unwrap_or(n);
    let laggard = plot.choose(1, &[], &[])[0];
    let others: Vec<_> = all.iter().copied().filter(|id| *id != laggard).collect();
    plot.rules.borrow_mut().deaf = set(&[laggard]);
    plot.hear(0, Hearing::of(&others));
    let batch = plot.batch(true);
    plot.offer(0, 1, &batch, &others);
    plot.vote((0, 1, batch.digest), &others, &others);
    plot.wait(MOMENT)?;
    let before = plot.rng.chance(600);
    let certificate = certificate(&mut plot);
    if let Some(certificate) = certificate.clone().filter(|_| !before) {
        plot.say(plot.liars[0], &PbftMessage::Stable(certificate), &others);
        plot.wait(MOMENT)?;
    }
    plot.hush(0);
    plot.rules.borrow_mut().deaf = set(&[]);
    let lags = [laggard];
    let (first, but) = if before { (&[][..], &lags[..]) } else { (&lags[..], &[][..]) };
    let heard = plot.choose(f + 1, first, but);
    let hearing = Hearing { begin: set(&all), leave: set(&heard), ..Hearing::of(&all) };
    plot.hear(to, Hearing::default());
    if !plot.drive_out(to, |_| Scheme::words(to, &[], &[]))? {
        return Ok(());
    }
    if let Some(certificate) = certificate.filter(|_| before) {
        plot.say(plot.liars[0], &PbftMessage::Stable(certificate), &[laggard]);
        plot.wait(MOMENT)?;
    }
    if !plot.change_view(to, &hearing, |_| Scheme::words(to, &[], &[]))? {
        return Ok(());
    }
    // The last number of the window above the certificate.
    let window = plot.world.host(laggard).window();
    let last = plot.batch(false);
    plot.offer(to, 1 + window, &last, &all);
    plot.wait(MOMENT)?;
    plot.fail_power(&[laggard])
}

/// What the liars make of the signed states that they heard, and of their own.
fn certificate(plot: &mut Scheme<'_>) -> Option<Arc<CertifiedCheckpoint>> {
    let rules = plot.rules.borrow();
    let heard = rules.heard.checkpoints.range((SeqNum(1), ReplicaId(0))..);
    let mut signatures: Vec<_> =
        heard.clone().map(|((_, by), (_, signature))| (*by, *signature)).collect();
    let checkpoint = heard.map(|(_, (checkpoint, _))| checkpoint.clone()).next()?;
    drop(rules);
    for liar in &plot.liars {
        signatures.push((*liar, plot.sign(*liar, &checkpoint)));
    }
    signatures.sort_by_key(|(by, _)| *by);
    (signatures.len() >= plot.quorum)
        .then(|| Arc::new(CertifiedCheckpoint { checkpoint, signatures }))
}
