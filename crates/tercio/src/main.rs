//! `tercio`: the command line with the applications that come along.

use std::process::ExitCode;

fn main() -> ExitCode {
    tercio::main(&tercio_registry::KINDS)
}
