//! Plots: f Byzantine replicas that share one mind, and a network that delays what they like, aim at
//! one rule of the protocol each. A random run that meets such a history by chance takes thousands
//! of seeds; a plot makes it, and leaves to its seed who plays which part, how many views it takes,
//! how much the liars say, and where the power fails.
//!
//! Safety holds under any schedule (Castro and Liskov, TOCS 2002, section 4.5.2), so an adversary
//! that decides about every frame between correct replicas is a fair one: with the rules as they
//! are the checkers find nothing, and once the network is left alone everything comes to its end.
//! To give the same replica's words to several minds is the idea of Twins (Bano et al., OPODIS 2020).
//!
//! Each module says which rule it attacks, and how; `scheme` has the hand that all of them use.

mod back_and_forth;
mod first_view;
mod forgotten;
mod half_heard;
mod hidden_commit;
mod lost_disk;
mod null_at_the_end;
mod one_against;
mod out_of_thin_air;
mod scheme;
mod skipped;
mod two_sides;

use crate::checks::Violation;
use crate::{Rng, World};

/// A plot.
#[derive(Clone, Copy)]
pub struct Plot {
    /// What it is called.
    pub name: &'static str,
    /// Plays it, and leaves the network alone in the end.
    run: fn(&mut World, Rng) -> Result<(), Violation>,
}

/// All of them.
pub const ALL: &[Plot] = &[
    Plot { name: "back and forth", run: back_and_forth::run },
    Plot { name: "first view", run: first_view::run },
    Plot { name: "forgotten", run: forgotten::run },
    Plot { name: "half heard", run: half_heard::run },
    Plot { name: "hidden commit", run: hidden_commit::run },
    Plot { name: "lost disk", run: lost_disk::run },
    Plot { name: "null at the end", run: null_at_the_end::run },
    Plot { name: "one against", run: one_against::run },
    Plot { name: "out of thin air", run: out_of_thin_air::run },
    Plot { name: "skipped", run: skipped::run },
    Plot { name: "two sides", run: two_sides::run },
];

/// How many of a thousand random runs are a plot.
const SHARE: u64 = 400;

/// One of them, or none: then a random run is what it is.
#[must_use]
pub fn any(rng: &mut Rng) -> Option<&'static Plot> {
    rng.chance(SHARE).then(|| rng.pick(ALL))
}

impl Plot {
    /// Plays it in a world that has just begun.
    ///
    /// # Errors
    /// When a property is broken.
    pub fn play(&self, world: &mut World, rng: &mut Rng) -> Result<(), Violation> {
        world.note(format_args!("plot: {}", self.name));
        let played = (self.run)(world, rng.fork());
        world.lift_gate();
        played
    }
}
