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

/// Sends a signal to a process of ours.
pub(crate) fn kill(signal: &str, pid: u32) -> bool {
    Command::new("kill").args([signal, &pid.to_string()]).status().is_ok_and(|s| s.success())
}

/// `tercio up` while it runs.
pub(crate) struct Up {
    dir: std::path::PathBuf,
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
    said: Vec<String>,
}

impl Up {
    /// Starts it and waits until all replicas run.
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[]).0
    }

    /// As [`Self::start`], with more arguments; gives the line too that says that they run.
    pub(crate) fn start_with(dir: &Path, arguments: &[&str]) -> (Self, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tercio"))
            .args(["up", "--stop-with-stdin", text(dir)])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(out) {
                let Ok(line) = line else { break };
                let _ = sender.send(line);
            }
        });
        let mut up = Self { dir: dir.to_owned(), child, lines, said: vec![] };
        let line = up.wait_line("stop with Ctrl-C");
        (up, line)
    }

    /// Waits until it prints a line with these words, or has printed one since the last wait.
    #[track_caller]
    pub(crate) fn wait_line(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(std::time::Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("no line has '{words}': {:#?}", self.said));
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Whether it printed a line with these words until the last that was waited for.
    pub(crate) fn said(&self, words: &str) -> bool {
        self.said.iter().any(|line| line.contains(words))
    }

    /// What each of `n` replicas says of itself.
    pub(crate) fn reports(&self, n: u16) -> Vec<tercio_replica::report::ReplicaReport> {
        let home = |i| tercio_network::home(&self.dir, i);
        (0..n).map(|i| tercio_replica::report::ReplicaReport::read(&home(i)).unwrap()).collect()
    }

    /// Stops it in an orderly way.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        self.said.extend(self.lines.iter());
        assert!(status.success(), "{status}: {:#?}", self.said);
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Harmless when it has ended. Replicas end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
