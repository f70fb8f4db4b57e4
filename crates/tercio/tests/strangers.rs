//! A flood of handshakes on real replicas.

use crate::common;

use bytes::Bytes;
use common::text;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tercio_network::process::ReplicaProcess;
use tercio_network::{Network, Spec, home, now, poll_until};
use tercio_transport::PROTOCOL_VERSION;
use tercio_wire::WIRE_VERSION;

const PATIENCE: Duration = Duration::from_secs(60);
const FLOODERS: usize = 4;

/// What client 1 says to replica 0 first, as whoever listens on the wire knows it.
fn hello(network: &Network) -> Vec<u8> {
    let mut out = b"TRCO".to_vec();
    out.extend([WIRE_VERSION, PROTOCOL_VERSION, 1, 0]);
    [0u64, 1, 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend(network.genesis().membership().unwrap().chain().0);
    out.extend(b"pbft");
    out.resize(88, 0);
    out.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// Answers a challenge with noise.
fn handshake(address: SocketAddr, hello: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(hello)?;
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&[0x42; 64])?;
    // The refusal, and the end.
    stream.read_to_end(&mut vec![]).map(drop)
}

/// While four threads do nothing but shake hands with replica 0, the primary, a client is served,
/// and a replica that starts again, and dials the primary, finds it and comes level.
#[test]
#[expect(clippy::print_stdout, reason = "what the flood came to")]
fn replicas_find_each_other_under_a_flood_of_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { clients: 2, ..Spec::new(tercio_registry::apps().first()) };
    let network = Network::lay_out(folder.path(), &spec).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tercio"));
    let mut replicas = tercio_network::spawn_all(program, folder.path(), &spec.ids()).unwrap();
    let mut user = network.client(1, spec.core_settings()).unwrap();
    user.call(Bytes::new()).unwrap();
    let hello = hello(&network);
    let first = network.genesis().replicas.values().next().unwrap();
    let address: SocketAddr = first.address.parse().unwrap();
    let (stop, shaken) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        for _ in 0..FLOODERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let done = handshake(address, &hello).is_ok();
                    shaken.fetch_add(u64::from(done), Ordering::Relaxed);
                }
            });
        }
        // They must end before the scope can, also when an assertion fails.
        let _stops = Stops(&stop);
        let mut serve = |times: usize| {
            for _ in 0..times {
                let begin = now();
                user.call(Bytes::new()).expect("it is served");
                longest = longest.max(begin.elapsed());
            }
        };
        serve(500);
        replicas[3].kill().unwrap();
        serve(100);
        replicas[3] = ReplicaProcess::spawn(program, 3, &home(folder.path(), 3)).unwrap();
        replicas[3].wait_ready().unwrap();
        let level = poll_until(PATIENCE, || {
            let report = replicas[3].report()?;
            let linked = report.peers.iter().all(|peer| peer.linked);
            (linked && report.height >= 601).then_some(())
        });
        assert!(level.is_some(), "it did not come level: {:?}", replicas[3].report());
        serve(500);
    });
    let shaken = shaken.into_inner();
    println!("{shaken} handshakes, the longest wait of a client {} ms", longest.as_millis());
    assert!(shaken > 100);
    for replica in replicas {
        replica.stop().unwrap();
    }
    common::tercio(["audit", text(&home(folder.path(), 0))]).good();
}

/// Ends the flood.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
