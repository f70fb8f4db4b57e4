//! File descriptors: how many of them links may take.
//!
//! A replica whose files cannot be opened stops, since a disk error is fail-stop. So links must never
//! take what its files need. At the start the soft limit of the process is raised to the hard one
//! (`RLIMIT_NOFILE`), and the limit is divided:
//!
//! | share | descriptors |
//! |---|---|
//! | what is open already | counted: standard streams, signals, the lock of the data directory |
//! | the event loop | [`LOOP`] |
//! | files: logs, snapshots, pieces of state, reports, the look-up of names | [`FILES`] |
//! | metrics, when they have an address | [`METRICS`] |
//! | links to the other replicas | [`PEER`] each: the link, and another attempt to open it |
//! | handshakes of whoever connects | a quarter of the rest, at most `max_half_open` |
//! | links of clients | what is left, at most `max_clients` |
//!
//! A limit below what all of these need, with [`STRANGERS`] and [`CLIENTS`] for the last two, is
//! refused at the start. Replicas in one process share its limit, and each divides what is left when
//! it starts: that is right for one replica a process, and wants a limit far above the bounds of the
//! links for several.

use crate::StartError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tercio_transport::Limits;
use tercio_types::zoo::{Defence, stands};

/// An event queue, a counter that wakes it, the socket that listens, and a connection that takes the
/// place of another.
const LOOP: usize = 4;
/// Four directories with a few files open for writing and one for reading each, files that are
/// handed from thread to thread, and what is opened for a moment.
const FILES: usize = 24;
/// The same, with the connections.
const METRICS: usize = 20;
/// The link, and another attempt to open it.
const PEER: usize = 2;
/// The least that is left to those who connect.
const STRANGERS: usize = 4;
/// The least that is left to clients.
const CLIENTS: usize = 4;
/// What is taken to be open where the system does not say it.
const USUALLY_OPEN: usize = 16;

/// Raises this process's soft limit to the hard one, and gives it; `None` where there is none.
fn raise() -> Option<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    // Refused where the system's own bound is below the hard limit; then the soft one stands.
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { current };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// How many descriptors are open. One is that of the look itself.
fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(USUALLY_OPEN, |all| all.count().saturating_sub(1))
}

/// Bounds the links by what the process may open; `peers` is how many other replicas there are.
///
/// # Errors
/// [`StartError::TooFewDescriptors`] when not even those would have descriptors.
pub(crate) fn bound_links(
    limits: &mut Limits,
    peers: usize,
    metrics: bool,
) -> Result<(), StartError> {
    let Some(limit) = raise() else { return Ok(()) };
    if !stands(Defence::F57KeepDescriptors) {
        return Ok(());
    }
    let kept = open() + LOOP + FILES + PEER * peers + if metrics { METRICS } else { 0 };
    divide(limits, limit, kept)
}

/// Gives links what is left of `limit` behind what is `kept` for others.
fn divide(limits: &mut Limits, limit: usize, kept: usize) -> Result<(), StartError> {
    let needed = kept + STRANGERS + CLIENTS;
    if limit < needed {
        return Err(StartError::TooFewDescriptors { limit, needed });
    }
    let left = limit - kept;
    limits.max_half_open = limits.max_half_open.min((left / 4).max(STRANGERS));
    let for_clients = left - limits.max_half_open;
    if for_clients < limits.max_clients {
        tracing::warn!(
            "at most {for_clients} clients can be linked, since this process may open {limit} \
             files; raise `ulimit -n` for {} (`max_clients` of [links] in tercio.toml)",
            limits.max_clients
        );
        limits.max_clients = for_clients;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_get_what_is_left_and_never_more() {
        for limit in 58..6000 {
            let mut limits = Limits::default();
            divide(&mut limits, limit, 50).unwrap();
            let Limits { max_half_open, max_clients, .. } = limits;
            assert!(50 + max_half_open + max_clients <= limit, "{limit}");
            assert!(max_half_open >= STRANGERS && max_clients >= CLIENTS, "{limit}");
        }
        let mut limits = Limits { max_clients: 10, max_half_open: 5, ..Limits::default() };
        divide(&mut limits, 1 << 20, 50).unwrap();
        assert_eq!((limits.max_clients, limits.max_half_open), (10, 5), "no more than asked for");
    }

    #[test]
    fn too_low_a_limit_names_the_one_that_is_needed() {
        let error = divide(&mut Limits::default(), 57, 50).unwrap_err().to_string();
        assert!(error.contains("57") && error.contains("ulimit -n 58"), "{error}");
    }

    #[test]
    fn the_soft_limit_is_raised_and_what_is_open_is_counted() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        assert_eq!(raise(), maximum.map(|limit| limit as usize));
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
        assert!(open() >= 3);
    }
}
