//! `tercio keygen`.

use crate::failure::Failure;
use crate::output;
use crate::testnet::{scheme, suite};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tercio_crypto::{SecretKey, SigningSecret, key_text, signing_key_text};
use tercio_types::{Scheme, Suite};
use zeroize::Zeroizing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write the secret key to; it must not exist
    #[arg(short, long, value_name = "FILE", default_value = "tercio.key")]
    output: PathBuf,
    /// The cryptography that it is an identity of: sha256-ed25519, or sm (sm3-sm2)
    #[arg(long, value_name = "SUITE", default_value = "sha256-ed25519", value_parser = suite)]
    crypto: Suite,
    /// Make a client's signing key of this scheme instead, in PEM: ed25519, sm2, p256, secp256k1, rsa
    #[arg(long, value_name = "SCHEME", value_parser = scheme, conflicts_with = "crypto")]
    signing: Option<Scheme>,
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
    let (public_key, text) = match args.signing {
        None => {
            let key = SecretKey::generate_for(args.crypto).map_err(Failure::new)?;
            (key_text(&key.public()), key.to_file_text())
        }
        Some(scheme) => {
            let key = SigningSecret::generate(scheme).map_err(Failure::new)?;
            (signing_key_text(&key.public()), key.to_pem().map_err(Failure::new)?)
        }
    };
    write_secret(&args.output, &text)?;
    let report = Report { public_key, file: &args.output };
    output::report(args.json, &report, |report| output::line(&report.public_key))
}

/// Writes a key to a new file that only its owner can read.
fn write_secret(path: &Path, text: &Zeroizing<String>) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::at(
            path,
            "exists already; a secret key is never overwritten, name another file with -o",
        ),
        ErrorKind::NotFound => Failure::at(path, "its directory does not exist; make it first"),
        _ => Failure::at(path, error),
    })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| Failure::at(path, error))
}
