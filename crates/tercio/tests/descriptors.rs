//! Replicas that may open few files: links never take what their logs need.

use crate::common;

use bytes::Bytes;
use common::{finish, text};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tercio_network::process::ReplicaProcess;
use tercio_network::{Network, Spec, client_id, home, poll_until};
use tercio_transport::{Limits, Settings, Transport};
use tercio_types::Principal;

const PATIENCE: Duration = Duration::from_secs(60);
/// Enough for the files of a replica of four, and little more.
const FEW: u32 = 72;
const CLIENTS: usize = 60;
const STRANGERS: usize = 100;

/// The program, run with a limit of open files.
fn limited(folder: &Path, limit: u32) -> PathBuf {
    let path = folder.join("limited");
    let program = env!("CARGO_BIN_EXE_tercio");
    std::fs::write(&path, format!("#!/bin/sh\nulimit -n {limit}\nexec '{program}' \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// A client that opens its links, and says nothing.
fn idler(network: &Network, i: usize) -> Transport {
    let settings = Settings {
        me: Principal::Client(client_id(i)),
        secret: network.client_secret(i).clone(),
        membership: network.genesis().membership().unwrap(),
        listen: None,
        limits: Limits::default(),
    };
    Transport::bind(settings).unwrap()
}

/// More admitted clients than a replica has descriptors, all idle, and more strangers, who say
/// nothing.
#[test]
fn idle_links_take_no_descriptor_that_a_replica_needs() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("network");
    let spec = Spec { clients: CLIENTS + 1, ..Spec::new(tercio_registry::apps().first()) };
    let network = Network::lay_out(&directory, &spec).unwrap();
    let program = limited(folder.path(), FEW);
    let mut replicas = tercio_network::spawn_all(&program, &directory, &spec.ids()).unwrap();
    let mut user = network.client(CLIENTS, spec.core_settings()).unwrap();
    user.call(Bytes::new()).unwrap();

    let mut idle: Vec<Transport> = (0..CLIENTS).map(|i| idler(&network, i)).collect();
    let addresses: Vec<SocketAddr> = (network.genesis().replicas.values())
        .map(|member| member.address.parse().unwrap())
        .collect();
    let strangers: Vec<TcpStream> = (addresses.iter().cycle().take(4 * STRANGERS))
        .filter_map(|address| TcpStream::connect(address).ok())
        .collect();
    // The links are full when clients are refused at each.
    let full = poll_until(PATIENCE, || {
        idle.iter_mut().for_each(|client| client.poll(Some(Duration::ZERO), &mut vec![]));
        replicas.iter_mut().for_each(|replica| replica.check().expect("it runs"));
        let refuses = |replica: &ReplicaProcess| {
            replica.report().is_some_and(|report| report.dropped.contains_key("too_many_links"))
        };
        replicas.iter().all(refuses).then_some(())
    });
    assert!(full.is_some(), "the bound was not reached");
    // Blocks, checkpoints and snapshots are written meanwhile, and reports.
    for _ in 0..400 {
        user.call(Bytes::new()).expect("it is served");
        replicas.iter_mut().for_each(|replica| replica.check().expect("it runs"));
    }
    drop((idle, strangers));
    for replica in replicas {
        replica.stop().unwrap();
    }
}

#[test]
fn a_limit_too_low_for_a_replica_is_refused_with_the_one_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::new(tercio_registry::apps().first());
    Network::lay_out(&folder.path().join("network"), &spec).unwrap();
    let home = home(&folder.path().join("network"), 0);
    let start = |limit| {
        let mut command = Command::new(limited(folder.path(), limit));
        let output = command.args(["start", "--stop-with-stdin", "--dir", text(&home)]);
        finish(output.stdin(Stdio::null()).output().unwrap())
    };
    let refused = start(30);
    refused.refused(1, &["may open 30 files", "ulimit -n "]);
    let needed = refused.stderr.split("ulimit -n ").nth(1).unwrap();
    let needed: u32 = needed.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    start(needed).good();
}
