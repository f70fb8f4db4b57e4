//! What the end-to-end tests share: the built program, run as a user runs it.

#![allow(dead_code, reason = "each test file uses a part of it")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a run of the program came to.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The last line as JSON, which must be an object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("{e}: {last:?}\nstderr: {}", self.stderr));
        assert!(value.is_object(), "{last}");
        value
    }

    /// Demands an error of one line that holds each of `words`.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "one line: {}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
    }

    /// Demands success.
    #[track_caller]
    pub(crate) fn good(&self) -> &Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// The program with these arguments, its standard input closed.
pub(crate) fn tercio<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(args: I) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tercio"));
    finish(command.args(args).stdin(Stdio::null()).output().expect("the program runs"))
}

/// What came of a process; it must not have panicked.
pub(crate) fn finish(output: Output) -> Run {
    let run = Run {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    };
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}
