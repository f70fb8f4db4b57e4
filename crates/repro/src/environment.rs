//! The machine and the program: what a figure needs of the one, and which build of the other made it.

use crate::figure::Needs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use thiserror::Error;

/// What this machine has.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory, in GB.
    pub memory_gb: u64,
    /// Whether this process has the rights of root.
    pub root: bool,
    /// Whether there is a GPU of Nvidia.
    pub gpu: bool,
    /// Where programs are looked for.
    pub path: Vec<PathBuf>,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kb = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            // A machine sold with 8 GB shows a little less.
            memory_gb: kb.unwrap_or(0).div_ceil(1_000_000),
            root: rustix::process::geteuid().is_root(),
            gpu: Path::new("/dev/nvidia0").exists(),
            path: std::env::var_os("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
        }
    }

    /// What it lacks of what is needed.
    #[must_use]
    pub fn lacks(&self, needs: &Needs) -> Option<String> {
        let mut lacks = vec![];
        if self.cores < needs.cores {
            lacks.push(format!("{} cores (there are {})", needs.cores, self.cores));
        }
        if self.memory_gb < needs.memory_gb {
            lacks.push(format!("{} GB of memory (there are {})", needs.memory_gb, self.memory_gb));
        }
        if needs.root && !self.root {
            lacks.push("the rights of root".into());
        }
        if needs.gpu && !self.gpu {
            lacks.push("a GPU".into());
        }
        let missing =
            needs.tools.iter().filter(|tool| !self.path.iter().any(|dir| dir.join(tool).is_file()));
        lacks.extend(missing.map(|tool| format!("the program '{tool}'")));
        (!lacks.is_empty()).then(|| format!("this machine lacks {}", lacks.join(", ")))
    }
}

/// What the runs of a folder were made with: `env.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// What the program says of its version, commit and formats.
    pub program: Vec<String>,
    /// The size of its file, in bytes.
    pub program_bytes: u64,
    /// When its file was written, in seconds since 1970.
    pub program_written_s: u64,
    /// Whether runs are quick ones.
    pub quick: bool,
    /// The machine.
    pub machine: Value,
    /// What `bench calibrate` measured before the first run.
    pub calibration: Value,
}

/// Why a folder's runs cannot be continued.
#[derive(Debug, Error)]
pub enum EnvironmentError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {error}; remove the folder, or name another one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The runs there are of another kind.
    #[error("{}: the runs there were made {what}; remove the folder, or name another one", path.display())]
    Other {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
}

impl Environment {
    /// That of a program, before the calibration.
    ///
    /// # Errors
    /// When its file cannot be looked at.
    pub fn of(
        program: &Path,
        version: &str,
        quick: bool,
        machine: Value,
    ) -> Result<Self, EnvironmentError> {
        let error = |error| EnvironmentError::File { path: program.to_owned(), error };
        let file = fs::metadata(program).map_err(error)?;
        let written = file.modified().map_err(error)?.duration_since(UNIX_EPOCH);
        Ok(Self {
            program: version.lines().map(|line| line.trim().to_owned()).collect(),
            program_bytes: file.len(),
            program_written_s: written.map_or(0, |since| since.as_secs()),
            quick,
            machine,
            calibration: Value::Null,
        })
    }

    /// That of the runs in a folder, if there are any.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Self>, EnvironmentError> {
        let path = dir.join("env.json");
        match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(environment) => Ok(Some(environment)),
                Err(error) => Err(EnvironmentError::Damaged { path, error }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EnvironmentError::File { path, error }),
        }
    }

    /// Writes it into a folder.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn write(&self, dir: &Path) -> Result<(), EnvironmentError> {
        let path = dir.join("env.json");
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        fs::write(&path, text).map_err(|error| EnvironmentError::File { path, error })
    }

    /// Refuses to go on in a folder whose runs were made with something else: their medians would be
    /// of two things.
    ///
    /// # Errors
    /// When they were.
    pub fn continues(&self, before: &Self, dir: &Path) -> Result<(), EnvironmentError> {
        let of = |machine: &Value| ["cores", "cpu_model", "kernel"].map(|key| machine[key].clone());
        let what = if self.quick != before.quick {
            "with the other effort (--quick or not)"
        } else if of(&self.machine) != of(&before.machine) {
            "on another machine"
        } else if (&self.program, self.program_bytes, self.program_written_s)
            != (&before.program, before.program_bytes, before.program_written_s)
        {
            "by another build"
        } else {
            return Ok(());
        };
        Err(EnvironmentError::Other { path: dir.to_owned(), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_machine_lacks_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("java"), "").unwrap();
        let path = vec![dir.path().to_owned()];
        let host = Host { cores: 2, memory_gb: 8, path, ..Host::default() };
        let tools = vec!["java".to_owned()];
        assert_eq!(host.lacks(&Needs { cores: 2, memory_gb: 8, tools, ..Needs::default() }), None);
        let tools = vec!["java".to_owned(), "go".to_owned()];
        let needs = Needs { cores: 4, memory_gb: 9, root: true, gpu: true, tools };
        assert_eq!(
            host.lacks(&needs).unwrap(),
            "this machine lacks 4 cores (there are 2), 9 GB of memory (there are 8), the rights of \
             root, a GPU, the program 'go'"
        );
        let here = Host::here();
        assert!(here.cores > 0 && here.memory_gb > 0 && !here.path.is_empty());
    }

    #[test]
    fn runs_of_something_else_are_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "1").unwrap();
        let of = |quick, cores: usize| {
            let machine = json!({ "cores": cores, "load_1min": cores });
            Environment::of(&program, "1.0\ncommit abc\n", quick, machine).unwrap()
        };
        assert_eq!(Environment::read(dir.path()).unwrap(), None);
        let first = of(false, 2);
        first.write(dir.path()).unwrap();
        let before = Environment::read(dir.path()).unwrap().unwrap();
        assert_eq!(before, first);
        assert!(of(false, 2).continues(&before, dir.path()).is_ok());
        let error = |now: Environment| now.continues(&before, dir.path()).unwrap_err().to_string();
        assert!(error(of(true, 2)).contains("--quick"));
        assert!(error(of(false, 4)).contains("another machine"));
        fs::write(&program, "22").unwrap();
        assert!(error(of(false, 2)).contains("another build"));
        fs::write(dir.path().join("env.json"), "{").unwrap();
        let damaged = Environment::read(dir.path()).unwrap_err().to_string();
        assert!(damaged.contains("env.json") && damaged.contains("name another one"), "{damaged}");
    }
}
