//! The same store over each real transport, with clients that speak nonsense or go away beside it.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tercio_prism::client::{Client, ClientError};
use tercio_prism::clock::now_ns;
use tercio_prism::engine::Engine;
use tercio_prism::kv::driver::{Driver, DriverError};
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::kv::server::{Config, KvServer, Shared};
use tercio_prism::kv::{Command, StoreError};
use tercio_prism::memory::Memory;
use tercio_prism::op::{Capability, Reject};
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::{Endpoint, Link};

const OURS: Capability = Capability(0x5eed);
const PATIENCE_NS: u64 = 60_000_000_000;

type Store = Driver<PrismClient>;

/// Serves a store on all transports while `work` runs; gives the server back.
fn serving(work: impl FnOnce(&[Endpoint], &Memory, &Mutex<KvServer>)) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let memory = Arc::new(Memory::new());
    let server = KvServer::new(&memory, OURS, 1, &Config::general(2000)).unwrap();
    let store = Arc::new(Mutex::new(server));
    let mut engine = Engine::new(Arc::clone(&memory), 0, 1);
    engine.serve(OURS, Box::new(Shared(Arc::clone(&store))));
    let wanted = [
        Endpoint::Shm(folder.path().join("socket")),
        "udp:127.0.0.1:0".parse().unwrap(),
        "tcp:127.0.0.1:0".parse().unwrap(),
    ];
    let (ports, endpoints): (Vec<_>, Vec<_>) =
        wanted.iter().map(|endpoint| endpoint.port().unwrap()).unzip();
    let mut server = Server::new(engine, ports, Options::default());
    let (stop, delay) = (AtomicBool::new(false), AtomicU64::new(0));
    /// Ends the server whether or not the work ended well.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&stop, &delay));
        {
            let _stop = Stop(&stop);
            work(&endpoints, &memory, &store);
        }
        serving.join().unwrap().unwrap();
    });
    server
}

fn open(endpoint: &Endpoint) -> Store {
    Driver::new(PrismClient::new(), Client::connect(endpoint.link().unwrap(), OURS).unwrap())
}

fn until(mut condition: impl FnMut() -> bool) {
    let end = now_ns() + PATIENCE_NS;
    while !condition() {
        assert!(now_ns() < end, "it did not come to pass");
        thread::yield_now();
    }
}

#[test]
fn a_store_is_the_same_over_each_transport() {
    serving(|endpoints, _, _| {
        for (i, endpoint) in endpoints.iter().enumerate() {
            let mut store = open(endpoint);
            let key = format!("key {i}");
            assert_eq!(store.get(key.as_bytes()).unwrap(), None);
            for size in [0, 1, 8, 100, 512, 5000, 12_000] {
                let value = vec![i as u8; size];
                store.put(key.as_bytes(), &value).unwrap();
                assert_eq!(store.get(key.as_bytes()).unwrap().as_ref(), Some(&value));
            }
            assert!(store.delete(key.as_bytes()).unwrap());
            assert!(!store.delete(key.as_bytes()).unwrap(), "it is gone already");
            let long = store.put(b"key", &vec![0; 20_000]).unwrap_err();
            assert!(matches!(long, DriverError::Store(StoreError::BadValue)), "{long}");
            let empty = store.put(b"", b"value").unwrap_err();
            assert!(matches!(empty, DriverError::Store(StoreError::BadKey)), "{empty}");
            store.put(b"shared", endpoint.to_string().as_bytes()).unwrap();
            store.finish().unwrap();
        }
        let last = open(&endpoints[0]).get(b"shared").unwrap().unwrap();
        assert_eq!(last, endpoints[2].to_string().as_bytes());
        for endpoint in endpoints {
            let refused = Client::connect(endpoint.link().unwrap(), Capability(1)).unwrap_err();
            assert!(matches!(refused, ClientError::Rejected(Reject::BadCapability)), "{refused}");
        }
    });
}

#[test]
fn many_commands_at_once_while_the_table_grows() {
    serving(|endpoints, memory, server| {
        for (i, endpoint) in endpoints.iter().enumerate() {
            let mut store = open(endpoint);
            let (mut next, mut ended) = (0u64, 0);
            while ended < 500 {
                while next < 500 && store.has_room() {
                    let key = format!("{i}/{next}");
                    let value = next.to_le_bytes();
                    store.begin(next, Command::Put(key.as_bytes(), &value), now_ns()).unwrap();
                    next += 1;
                }
                store.flush().unwrap();
                store
                    .poll(|end| {
                        end.result.unwrap();
                        ended += 1;
                    })
                    .unwrap();
            }
            for n in 0..500u64 {
                let found = store.get(format!("{i}/{n}").as_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&n.to_le_bytes()[..]), "{endpoint} {n}");
            }
        }
        let view = memory.view(0);
        let count = server.lock().unwrap().count(memory, &view);
        assert_eq!((count.items, count.growths > 0), (1500, true), "{count:?}");
    });
}

/// Ports of several kinds share an engine: who leaves one is nobody of the other.
#[test]
fn a_client_that_leaves_takes_no_other_along() {
    serving(|endpoints, _, _| {
        let (leaves, mut stays) = (open(&endpoints[0]), open(&endpoints[2]));
        stays.put(b"key", b"value").unwrap();
        drop(leaves);
        // The server looks for those who left every few thousand polls.
        for _ in 0..5000 {
            assert_eq!(stays.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    });
}

#[test]
fn nonsense_on_one_connection_is_nobody_elses_affair() {
    let server = serving(|endpoints, _, _| {
        let mut store = open(&endpoints[1]);
        store.put(b"key", b"value").unwrap();
        let Endpoint::Udp(udp) = endpoints[1] else { unreachable!() };
        let Endpoint::Tcp(tcp) = endpoints[2] else { unreachable!() };
        let Endpoint::Shm(shm) = &endpoints[0] else { unreachable!() };
        let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
        for length in [0, 1, 7, 8, 40, 4096, 60_000] {
            noise.send_to(&vec![0x50; length], udp).unwrap();
        }
        for _ in 0..3 {
            // It may be cut off before it has said everything.
            let _ = TcpStream::connect(tcp).unwrap().write_all(&[0xff; 5000]);
            // One that goes away during the handshake, and one right after.
            drop(UnixStream::connect(shm).unwrap());
            drop(endpoints[0].link().unwrap());
        }
        // Frames that are none, through the ring and the stream.
        for endpoint in [&endpoints[0], &endpoints[2]] {
            let mut link = endpoint.link().unwrap();
            let mut frame = [7; 100];
            frame[0] = 0x5250;
            let _ = link.send(&frame).and_then(|()| link.flush());
            let _ = link.send(&[]).and_then(|()| link.flush());
        }
        for endpoint in endpoints {
            assert_eq!(open(endpoint).get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        let mut link: Box<dyn Link> = endpoints[0].link().unwrap();
        // Longer than any frame can be: the server releases the client.
        assert!(link.send(&vec![0x5250; 5000]).is_ok());
        let mut frame = Vec::new();
        until(|| link.receive(&mut frame).is_err());
    });
    assert!(server.engine().counters().rejected > 0);
}

#[test]
fn what_a_dead_client_held_is_swept() {
    serving(|endpoints, memory, server| {
        // Over shared memory the server sees at once that a client is gone.
        let mut store = open(&endpoints[0]);
        for i in 0..20u8 {
            store.put(b"key", &[i]).unwrap();
        }
        let unreported = store.store().unreported() as u64;
        assert!(unreported > 0, "it replaced buffers and has not told yet");
        let count = || server.lock().unwrap().count(memory, &memory.view(0));
        assert_eq!(count().taken, 1 + unreported);
        // A crash: no farewell, the kernel closes its socket.
        store.into_client().abandon();
        until(|| count().taken == 1);
        assert_eq!(count().swept, unreported);
    });
}
