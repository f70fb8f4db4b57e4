//! Three replicas of blocks and a client in one program; one replica loses its memory and joins again.
//! `cargo run -p tercio-prism --example blocks`

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tercio_prism::rs::server::{Config, RsServer};
use tercio_prism::rs::{Options, RsClient, join};
use tercio_prism::{
    cluster::Cluster, engine::Engine, memory::Memory, op::Capability, server, server::Server,
    transport::Endpoint,
};

const KEY: Capability = Capability(0x5eed); // a secret, in earnest
const MEMBERS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let stops: Vec<_> = (0..MEMBERS + 1).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        let result = talk(scope, &stops);
        stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
        result
    })
}

#[test]
fn it_runs() {
    main().unwrap();
}

/// A replica on a thread of its own.
fn replica<'s>(
    scope: &'s Scope<'s, '_>,
    member: usize,
    new_group: bool,
    stop: &'s AtomicBool,
) -> Result<Endpoint, Box<dyn Error>> {
    let memory = Arc::new(Memory::new());
    let config = Config {
        blocks: 100,
        block_bytes: 512,
        spare: 100,
        member,
        members: MEMBERS,
        new_group,
        poison: false,
    };
    let store = RsServer::new(&memory, KEY, &config)?;
    let mut engine = Engine::new(memory, 0, member as u32);
    engine.serve(KEY, Box::new(store));
    let (port, endpoint) = "tcp:127.0.0.1:0".parse::<Endpoint>()?.port()?;
    let mut server = Server::new(engine, vec![port], server::Options::default());
    scope.spawn(move || server.run(stop, &AtomicU64::new(0)));
    Ok(endpoint)
}

/// Connections to where the replicas are now.
fn connect(endpoints: &Arc<Mutex<Vec<Endpoint>>>) -> Cluster {
    let endpoints = Arc::clone(endpoints);
    let link = move |server: usize| endpoints.lock().expect("nobody panics")[server].link();
    Cluster::new(vec![KEY; MEMBERS], Box::new(link), tercio_prism::clock::now_ns())
}

fn talk<'s>(scope: &'s Scope<'s, '_>, stops: &'s [AtomicBool]) -> Result<(), Box<dyn Error>> {
    let mut endpoints = Vec::new();
    for (member, stop) in stops[..MEMBERS].iter().enumerate() {
        endpoints.push(replica(scope, member, true, stop)?);
    }
    let endpoints = Arc::new(Mutex::new(endpoints));
    let mut cluster = connect(&endpoints);
    let writer = cluster.draw();
    let blocks = RsClient::new(cluster.net(), vec![0, 1, 2], writer, Options::default());
    let client = blocks.clone();
    cluster.block_on(async move { client.put(7, b"hello").await })?;

    // One of three may be down; it comes back with nothing, and copies what it has missed.
    stops[0].store(true, Ordering::Relaxed);
    let client = blocks.clone();
    cluster.block_on(async move { client.put(8, b"still there").await })?;
    endpoints.lock().expect("nobody panics")[0] = replica(scope, 0, false, &stops[MEMBERS])?;
    let mut other = connect(&endpoints);
    let net = other.net().clone();
    let joined = other.block_on(join(net, vec![0, 1, 2], 0, 10_000_000_000))?;
    assert_eq!((joined.life, joined.copied), (1, 2));
    other.close();

    stops[1].store(true, Ordering::Relaxed);
    let value = cluster.block_on(async move { blocks.get(7).await })?;
    assert_eq!(value, b"hello");
    cluster.close();
    Ok(())
}
