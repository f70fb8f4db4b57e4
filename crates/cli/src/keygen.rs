//! `tercio keygen`.

use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tercio_crypto::SecretKey;
use tercio_types::PublicKey;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write the secret key to; it must not exist
    #[arg(short, long, value_name = "FILE", default_value = "tercio.key")]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    public_key: String,
    file: &'a Path,
}

/// Writes a fresh secret key and prints its public key.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let key = SecretKey::generate().map_err(Failure::new)?;
    write_secret(&args.output, &key)?;
    let report = Report { public_key: hex(&key.public()), file: &args.output };
    output::report(args.json, &report, |report| output::line(&report.public_key))
}

/// Writes a key to a new file that only its owner can read.
fn write_secret(path: &Path, key: &SecretKey) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::at(
            path,
            "exists already; a secret key is never overwritten, name another file with -o",
        ),
        ErrorKind::NotFound => Failure::at(path, "its directory does not exist; make it first"),
        _ => Failure::at(path, error),
    })?;
    file.write_all(key.to_file_text().as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| Failure::at(path, error))
}

/// A public key in hexadecimal digits.
pub(crate) fn hex(key: &PublicKey) -> String {
    key.as_slice().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
