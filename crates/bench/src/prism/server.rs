//! The server that measurements run against: PRISM-KV, Pilaf and plain memory, filled with the same
//! objects.

use super::floor::Floor;
use super::ops::ECHO;
use super::{Served, Transport};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tercio_prism::engine::{Engine, Service};
use tercio_prism::kv::Hash;
use tercio_prism::kv::pilaf::PilafServer;
use tercio_prism::kv::server::{Config, KvServer};
use tercio_prism::memory::{Memory, MemoryView, Rights};
use tercio_prism::op::{Capability, Reject};
use tercio_prism::rng::mix;
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::{Endpoint, Port, udp::UdpPort};

/// Buffers beyond one an object: what clients may have in hand before they report it.
const SPARE_BUFFERS: u32 = 8192;

/// The value of an object: its number in every word.
pub fn fill(value: &mut [u8], key: u64) {
    for chunk in value.chunks_mut(8) {
        let bytes = mix(key).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Gives back what it is called with.
#[derive(Debug)]
struct Echo;

impl Service for Echo {
    fn call(&mut self, _: &MemoryView<'_>, body: &[u64], out: &mut Vec<u64>) -> Result<(), Reject> {
        let [ECHO, arguments @ ..] = body else { return Err(Reject::UnknownMethod) };
        out.extend_from_slice(arguments);
        Ok(())
    }

    fn maintain(&mut self, _: &Memory, _: u64) {}

    fn client_lost(&mut self) {}
}

/// Makes and fills the server. It listens on loopback only.
///
/// # Errors
/// When there is not so much memory, or the path cannot be used.
pub fn make(
    objects: u32,
    value: usize,
    (transport, shm): (Transport, &Path),
    options: Options,
) -> io::Result<(Server, Served)> {
    let memory = Arc::new(match transport {
        Transport::ShmDirect => Memory::published()?,
        _ => Memory::new(),
    });
    let random = || getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
    let capability = || -> io::Result<Capability> {
        Ok(Capability(u128::from(random()?) << 64 | u128::from(random()?)))
    };
    let (prism, pilaf, plain) = (capability()?, capability()?, capability()?);
    let echo = capability()?;
    // Without memory nobody is let in.
    memory.register(echo, Rights::READ, 64)?;
    let failed = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);

    let mut config = Config::fixed(objects, value, SPARE_BUFFERS);
    config.hash = Hash::Collisionless;
    let slots = config.slots;
    let mut kv = KvServer::new(&memory, prism, 0, &config)?;
    let baseline_size = (8, value);
    let baseline_hash = (Hash::Collisionless, 0);
    let count = u64::from(objects);
    let mut baseline =
        PilafServer::new(&memory, pilaf, baseline_hash, slots, count, baseline_size)?;
    let stride = value.next_multiple_of(64) as u64;
    let region = memory.register(plain, Rights::ALL, (stride * count) as usize)?;
    let table = memory.register(plain, Rights::ALL, objects as usize * 16)?;
    let pool = memory.register_pool(plain, Rights::ALL, value, SPARE_BUFFERS, SPARE_BUFFERS)?;
    let view = memory.view(0);
    let mut bytes = vec![0; value];
    for key in 0..count {
        fill(&mut bytes, key);
        let name = key.to_le_bytes();
        kv.load(&view, &name, &bytes).map_err(|why| failed(why.to_string()))?;
        baseline.put(&view, &name, &bytes).map_err(|why| failed(why.to_string()))?;
        let at = region.plus(key * stride);
        let words = view.words(at).expect("registered just now");
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Relaxed);
        }
        let slot = view.words(table.plus(key * 16)).expect("registered just now");
        slot[0].store(at.0, Relaxed);
        slot[1].store(value as u64, Relaxed);
    }
    drop(view);

    let (port, endpoint): (Box<dyn Port>, Endpoint) = match transport.endpoint(shm) {
        Endpoint::Udp(loopback) if transport == Transport::Udp => {
            let port = UdpPort::bind(loopback, false)?;
            let address = port.local_addr()?;
            (Box::new(port), Endpoint::Udp(address))
        }
        endpoint => endpoint.port()?,
    };

    let mut engine = Engine::new(Arc::clone(&memory), 0, random()? as u32);
    engine.serve(prism, Box::new(kv));
    engine.serve(pilaf, Box::new(baseline));
    engine.serve(echo, Box::new(Echo));
    let mut rings = None;
    if transport == Transport::Shm {
        let path = shm.with_extension("floor");
        let floor = Floor::new(&path, table, region, stride)?;
        engine.serve(plain, Box::new(floor));
        rings = Some(path);
    }
    let hex = |capability: Capability| format!("{:032x}", capability.0);
    let (prism, pilaf, plain, echo) = (hex(prism), hex(pilaf), hex(plain), hex(echo));
    let served = Served {
        transport,
        endpoint: endpoint.to_string(),
        prism,
        pilaf,
        plain,
        echo,
        region: region.0,
        table: table.0,
        pool,
        objects: count,
        value,
        stride,
        floor: rings,
    };
    Ok((Server::new(engine, vec![port], options), served))
}
