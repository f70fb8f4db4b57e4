//! What `--version` says.

use std::sync::LazyLock;
use tercio_ledger::DISK_VERSION;
use tercio_transport::PROTOCOL_VERSION;
use tercio_wire::WIRE_VERSION;

/// The program's version, its commit where the build knew it, and the versions of what it exchanges
/// with others.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let program = env!("CARGO_PKG_VERSION");
    let commit = option_env!("TERCIO_COMMIT").unwrap_or("unknown");
    format!(
        "{program}\ncommit {commit}\nwire {WIRE_VERSION}\nprotocol {PROTOCOL_VERSION}\n\
         disk {DISK_VERSION}"
    )
});
