//! A store and a client in one program. `cargo run -p tercio-prism --example hello`

use std::error::Error;
use std::sync::{Arc, atomic::AtomicBool, atomic::AtomicU64, atomic::Ordering};
use tercio_prism::kv::{driver::Driver, prism::PrismClient, server::Config, server::KvServer};
use tercio_prism::{
    client::Client, engine::Engine, memory::Memory, op::Capability, server::Options,
    server::Server, transport::Endpoint,
};

fn main() -> Result<(), Box<dyn Error>> {
    let key = Capability(0x5eed); // a secret, in earnest
    let memory = Arc::new(Memory::new());
    let mut engine = Engine::new(Arc::clone(&memory), 0, 1);
    let store = KvServer::new(&memory, key, 42, &Config::general(1000))?;
    engine.serve(key, Box::new(store));
    let (port, endpoint) = "udp:127.0.0.1:0".parse::<Endpoint>()?.port()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut server = Server::new(engine, vec![port], Options::default());
        let stop = &stop;
        scope.spawn(move || server.run(stop, &AtomicU64::new(0)));
        let result = talk(&endpoint, key);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn it_runs() {
    main().unwrap();
}

/// What a user of a store that runs somewhere writes: ten lines.
fn talk(endpoint: &Endpoint, key: Capability) -> Result<(), Box<dyn Error>> {
    let client = Client::open(endpoint, key)?;
    let mut store = Driver::new(PrismClient::new(), client);
    store.put(b"greeting", b"hello")?;
    let value = store.get(b"greeting")?;
    assert_eq!(value.as_deref(), Some(&b"hello"[..]));
    assert!(store.delete(b"greeting")?);
    assert_eq!(store.get(b"greeting")?, None);
    Ok(store.finish()?)
}
