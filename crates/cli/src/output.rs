//! The only functions that print. A reader that went away (a closed pipe) is no error.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, Write};

/// Prints a line of the result.
pub(crate) fn line(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints text that brings its own line ends.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line for whoever watches; it is no part of the result.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints the report as one JSON object on a line, or hands it to `human`.
pub(crate) fn report<T: Serialize>(
    json: bool,
    report: &T,
    human: impl FnOnce(&T),
) -> Result<(), Failure> {
    if json {
        line(&serde_json::to_string(report).map_err(Failure::new)?);
    } else {
        human(report);
    }
    Ok(())
}
