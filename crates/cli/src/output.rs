//! The only functions that print. A reader that went away (a closed pipe) is no error.

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What this program is called: its file's name.
pub(crate) fn program() -> String {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
    name.unwrap_or("tercio").to_owned()
}

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

/// A progress bar on standard error, over `count` things or over `time` in milliseconds. Draws
/// nothing when standard error is no terminal. What changes often is its prefix.
pub(crate) fn bar(count: Option<u64>, time: Duration) -> ProgressBar {
    let (length, numbers) = match count {
        Some(count) => (count, "{human_pos}/{human_len} "),
        None => (time.as_millis() as u64, ""),
    };
    let template = format!("{{bar:40}} {numbers}{{prefix}}{{msg}}");
    let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
    ProgressBar::new(length).with_style(style)
}

/// A line on standard error that says what is going on. Nothing when that is no terminal.
pub(crate) fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
