//! A program with a second ordering protocol: `toy testnet --protocol sequencer -o DIR` makes a network of
//! it, and every other command works with that as with any.

use std::process::ExitCode;
use tercio::{Pbft, Runner};
use tercio_sequencer::Sequencer;

fn main() -> ExitCode {
    let protocols = [Runner::of::<Pbft>(), Runner::of::<Sequencer>()];
    tercio::main_with(&tercio_registry::KINDS, &protocols)
}
