//! Names the commit that is built, for `tercio --version`, as `TERCIO_COMMIT`.
//!
//! Only where it is known to be that of this crate: in the repository itself, and in a package made
//! of it. Builds for development do not name it, so that a commit does not build them anew.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How many digits of a commit are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        return;
    }
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    if let Some(commit) = of_package(&here).or_else(|| of_repository(&here)) {
        println!("cargo::rustc-env=TERCIO_COMMIT={commit}");
    }
}

/// What `cargo package` wrote down.
fn of_package(here: &Path) -> Option<String> {
    let info = std::fs::read_to_string(here.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    shortened(rest.split('"').nth(1)?)
}

/// What git says, when this is the repository that the crate belongs to and no other around it.
fn of_repository(here: &Path) -> Option<String> {
    if git(here, &["rev-parse", "--show-prefix"])? != "crates/cli/" {
        return None;
    }
    // Written with every commit, and when another one is checked out.
    let log = here.join(git(here, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    shortened(&git(here, &["rev-parse", "HEAD"])?)
}

fn git(here: &Path, arguments: &[&str]) -> Option<String> {
    let run = Command::new("git").arg("-C").arg(here).args(arguments).output().ok()?;
    let said = String::from_utf8(run.stdout).ok()?;
    run.status.success().then(|| said.trim().to_owned())
}

fn shortened(commit: &str) -> Option<String> {
    let whole = commit.len() >= DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| commit[..DIGITS].to_owned())
}
