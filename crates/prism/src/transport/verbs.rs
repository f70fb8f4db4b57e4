//! RDMA verbs: whether this machine could carry frames over them.
//!
//! Software PRISM over verbs is SENDs of the same frames to the server's queue pair. That part needs
//! the vendor's user-space driver (`libibverbs`), and is worth having only where it can be tested:
//! with the feature `verbs` this module looks for the cards and says clearly what is missing, and
//! carries nothing yet. Without the feature it says that.

use std::io;

/// Opens a device: `any`, or one by its name.
///
/// # Errors
/// Always, for now: whether the feature is missing, the device, or the transport over it.
pub(super) fn open(device: &str) -> io::Error {
    let what = match find(device) {
        Ok(name) => {
            format!(
                "found the RDMA device {name}, but no frames go over verbs in this version; use udp or shm"
            )
        }
        Err(why) => why,
    };
    io::Error::new(io::ErrorKind::Unsupported, what)
}

#[cfg(not(feature = "verbs"))]
fn find(_: &str) -> Result<String, String> {
    Err("this build has no RDMA verbs (the feature 'verbs'); use udp or shm".into())
}

#[cfg(feature = "verbs")]
fn find(device: &str) -> Result<String, String> {
    find_in(std::path::Path::new("/sys/class/infiniband"), device)
}

/// Looks where the kernel lists its RDMA devices.
#[cfg(any(feature = "verbs", test))]
fn find_in(devices: &std::path::Path, device: &str) -> Result<String, String> {
    let there = devices.display();
    let entries = match std::fs::read_dir(devices) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("this machine has no RDMA device: there is no {there}"));
        }
        Err(error) => return Err(format!("cannot look for RDMA devices in {there}: {error}")),
    };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let found = names.iter().find(|name| device == "any" || *name == device);
    found.cloned().ok_or_else(|| match names.is_empty() {
        true => format!("this machine has no RDMA device: {there} is empty"),
        false => format!("there is no RDMA device '{device}', but {}", names.join(", ")),
    })
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "the lane `verbs` reports what was found")]
mod tests {
    use super::*;

    /// Of this machine, whatever it has.
    #[cfg(feature = "verbs")]
    #[test]
    fn this_machine_is_probed() {
        let said = open("any").to_string();
        assert!(said.contains("RDMA device"), "{said}");
        println!("verbs: not run here: {said}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("infiniband");
        assert!(find_in(&missing, "any").unwrap_err().contains("there is no"));
        std::fs::create_dir(&missing).unwrap();
        assert!(find_in(&missing, "any").unwrap_err().contains("is empty"));
        std::fs::create_dir(missing.join("card0")).unwrap();
        assert!(find_in(&missing, "card1").unwrap_err().contains("card0"));
        assert_eq!(find_in(&missing, "any").unwrap(), "card0");
        assert_eq!(open("any").kind(), io::ErrorKind::Unsupported);
    }
}
