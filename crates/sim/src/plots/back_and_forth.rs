//! Attacks V2, V5 and V6: a lying primary's view begins, and the next; then replicas are shown the
//! beginning of the old view once more, and proposals in it, and all liars demand a view far ahead,
//! with which they alone move nobody.

use super::scheme::{Hearing, MOMENT, Scheme, set};
use crate::checks::Violation;
use crate::{Rng, World};
use tercio_consensus::pbft::PbftMessage;

pub(super) fn run(world: &mut World, rng: Rng) -> Result<(), Violation> {
    let f = world.cast().membership().f();
    let mut plot = Scheme::new(world, rng, &[1], f);
    let all = plot.correct.clone();
    let nothing = |view| move |_| Scheme::words(view, &[], &[]);
    for view in [1, 2] {
        let heard = plot.choose(f + 1, &[plot.leader(view)], &[]);
        let hearing = Hearing { begin: set(&all), leave: set(&heard), ..Hearing::default() };
        if !plot.change_view(view, &hearing, nothing(view))? {
            return Ok(());
        }
        if view == 1 {
            let some = plot.choose(plot.rng.clone().below(3) as usize, &[], &[]);
            let some = Hearing { propose: set(&some), ..Hearing::default() };
            plot.order(1, 1, &some)?;
        }
    }
    let heard = plot.choose(f + 1, &[], &[]);
    let lies: Vec<_> =
        plot.liars.iter().map(|id| plot.signed(*id, Scheme::words(1, &[], &[]))).collect();
    plot.begin(1, &lies, set(&heard), set(&all))?;
    plot.wait(MOMENT)?;
    let batch = plot.batch(false);
    plot.offer(1, 1, &batch, &all);
    plot.wait(MOMENT)?;
    let far = 2 + plot.rng.between(2, 9);
    for liar in plot.liars.clone() {
        let word = plot.signed(liar, Scheme::words(far, &[], &[]));
        plot.say(liar, &PbftMessage::ViewChange(word), &all);
    }
    plot.wait(MOMENT)
}
