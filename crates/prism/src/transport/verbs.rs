//! RDMA verbs: whether this machine could carry frames over them.
//!
//! Software PRISM over verbs is SENDs of the same frames to the server's queue pair. That part needs
//! the vendor's user-space driver (`libibverbs`), and is worth having only where it can be tested:
//! this module finds the cards and says clearly what is missing, and carries nothing yet.

use std::fs;
use std::io;

/// Why frames cannot go over verbs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// No card, or no driver for it.
    #[error("this machine has no RDMA device: there is nothing in {DEVICES}")]
    NoDevice,
    /// There are cards, but no transport over them in this version.
    #[error("found {0}, but this version carries no frames over verbs; use udp or shm")]
    NotCarried(String),
    /// The system does not say.
    #[error("cannot look for RDMA devices: {0}")]
    Io(#[from] io::Error),
}

const DEVICES: &str = "/sys/class/infiniband";

/// The RDMA devices that the kernel knows.
///
/// # Errors
/// [`VerbsError::NoDevice`] when there is none.
pub fn devices() -> Result<Vec<String>, VerbsError> {
    let entries = match fs::read_dir(DEVICES) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(VerbsError::NoDevice),
        Err(error) => return Err(error.into()),
    };
    let names: io::Result<Vec<_>> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    let names = names?;
    if names.is_empty() { Err(VerbsError::NoDevice) } else { Ok(names) }
}

/// Opens a link over the first device.
///
/// # Errors
/// Always, for now: the error says whether a card is missing or the transport is.
pub fn open() -> Result<std::convert::Infallible, VerbsError> {
    Err(VerbsError::NotCarried(devices()?.join(", ")))
}
