//! A process of the same user that holds no capability cannot look at what a server publishes, and one
//! that holds it can.
#![allow(clippy::print_stdout, reason = "children speak so to the test")]

use crate::processes::Process;

use rustix::process::{DumpableBehavior, getuid, set_dumpable_behavior};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;
use tercio_prism::client::Client;
use tercio_prism::engine::Engine;
use tercio_prism::memory::{Memory, Rights};
use tercio_prism::op::{Action, Addr, Capability, Deref};
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::Endpoint;

const OURS: Capability = Capability(0x001d_e45e);
/// What lies in the region, made where it is needed, so that only the region has it.
fn secret() -> u64 {
    std::hint::black_box(0x1357_9bdf_u64) << 32 | 0x0246_8ace
}
const NOBODY: u32 = 65534;

/// Serves a region with the secret. `openly`: as if nobody had shut the process.
pub(crate) fn publish(openly: bool) {
    let memory = Arc::new(Memory::published().unwrap());
    if openly {
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }
    let region = memory.register(OURS, Rights::READ, 4096).unwrap();
    memory.view(0).words(region).unwrap()[3].store(secret(), Ordering::Relaxed);
    let folder = tempfile::tempdir().unwrap();
    let (port, endpoint) = Endpoint::Shm(folder.path().join("socket")).port().unwrap();
    let mut server =
        Server::new(Engine::new(Arc::clone(&memory), 0, 1), vec![port], Options::default());
    println!("child: {} {endpoint} {}", std::process::id(), region.0);
    server.run(&AtomicBool::new(false), &AtomicU64::new(0)).unwrap();
}

/// Reads the secret as the holder of the capability does, without the server.
pub(crate) fn read(endpoint: &str, region: u64) {
    let mut client = Client::open(&endpoint.parse().unwrap(), OURS).unwrap();
    let read = Action::Read { addr: Addr(region), len: 32, deref: Deref::Direct, redirect: None };
    while client.answered_directly() == 0 {
        let word = client.run(&[read.into()], |answer| {
            answer.outcomes().next().expect("one outcome").data.words()[3]
        });
        assert_eq!(word.unwrap(), secret());
    }
    println!("child: read");
}

/// Looks for the secret in all that the system lets one process see of another.
pub(crate) fn intrude(process: u32) {
    let mut ways = Vec::new();
    for folder in ["fd", "map_files"] {
        let Ok(entries) = fs::read_dir(format!("/proc/{process}/{folder}")) else { continue };
        // What is no file of bytes may wait for somebody when it is opened.
        let files = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        if files.into_iter().any(|path| fs::read(path).is_ok_and(|bytes| has_secret(&bytes))) {
            ways.push(folder);
        }
    }
    if memory_has_secret(process) == Some(true) {
        ways.push("mem");
    }
    println!("child: found in {ways:?}");
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.chunks_exact(8).any(|word| word == secret().to_le_bytes())
}

/// Whether the mapped files of a process have it; nothing where the system refuses.
fn memory_has_secret(process: u32) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let found = maps.lines().filter(|line| line.contains("memfd:")).any(|line| {
        let (range, _) = line.split_once(' ').expect("a range of addresses comes first");
        let (start, end) = range.split_once('-').expect("from and to");
        let at = |hex| u64::from_str_radix(hex, 16).expect("hexadecimal");
        let mut bytes = vec![0; (at(end) - at(start)).min(1 << 20) as usize];
        memory.read_exact_at(&mut bytes, at(start)).is_ok() && has_secret(&bytes)
    });
    Some(found)
}

/// This program as a user without privileges, who may look into any process otherwise.
struct Unprivileged(TempDir);

impl Unprivileged {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        // Where it was built may be out of that user's reach.
        fs::copy(std::env::current_exe().unwrap(), Self::program(folder.path())).unwrap();
        Self(folder)
    }

    fn program(folder: &Path) -> std::path::PathBuf {
        folder.join("program")
    }

    fn start(&self, role: &str) -> Process {
        let mut program = Command::new(Self::program(self.0.path()));
        if getuid().is_root() {
            program.uid(NOBODY).gid(NOBODY);
        }
        Process::spawn(program.current_dir("/"), role)
    }
}

/// Where a server publishes the secret: what an intruder finds, while a client that holds the capability
/// reads it.
fn intrusion(how: &str) -> String {
    let us = Unprivileged::new();
    let mut server = us.start(&format!("publishes {how}"));
    let line = server.line();
    let [process, endpoint, region] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert_eq!(us.start(&format!("reads {endpoint} {region}")).line(), "read");
    us.start(&format!("intrudes {process}")).line()
}

#[test]
fn without_a_capability_nothing_is_seen() {
    assert_eq!(intrusion("shut"), "found in []");
}

/// The intruder knows where to look: otherwise the above would show nothing.
#[test]
fn an_open_process_would_be_seen_into() {
    let found = intrusion("openly");
    assert!(found.contains("\"fd\""), "{found}");
}
