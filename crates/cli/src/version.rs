//! What `--version` says.

use crate::output;
use std::sync::LazyLock;
use tercio_ledger::DISK_VERSION;
use tercio_transport::PROTOCOL_VERSION;
use tercio_wire::WIRE_VERSION;

/// What this program is called.
pub(crate) static PROGRAM: LazyLock<String> = LazyLock::new(output::program);

/// Tercio's version, behind the program's name. A program that somebody else made of it has one of
/// its own, which is not known here.
pub(crate) static SHORT: LazyLock<String> = LazyLock::new(|| beside(&PROGRAM));

/// The same, the commit where the build knew it, and the versions of what is exchanged with others.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let version = &*SHORT;
    let commit = option_env!("TERCIO_COMMIT").unwrap_or("unknown");
    format!(
        "{version}\ncommit {commit}\nwire {WIRE_VERSION}\nprotocol {PROTOCOL_VERSION}\n\
         disk {DISK_VERSION}"
    )
});

fn beside(program: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match program {
        "tercio" => version.to_owned(),
        _ => format!("(Tercio {version})"),
    }
}
