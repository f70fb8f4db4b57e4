//! A bank on two shards: transfers that are whole or not at all.
//! `cargo run -p tercio-prism --example transactions`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tercio_prism::tx::server::{Config, TxServer};
use tercio_prism::tx::{Options, Tx, TxError, TxSession};
use tercio_prism::{
    cluster::Cluster, engine::Engine, memory::Memory, op::Capability, server, server::Server,
    transport::Endpoint,
};

const KEY: Capability = Capability(0x5eed); // a secret, in earnest
const SHARDS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut servers, mut endpoints) = (Vec::new(), Vec::new());
    for shard in 0..SHARDS {
        let memory = Arc::new(Memory::new());
        let config = Config {
            keys: 100,
            value_bytes: 8,
            spare: 100,
            shard,
            shards: SHARDS,
            instance: 1,
            poison: false,
        };
        let store = TxServer::new(&memory, KEY, &config)?;
        let mut engine = Engine::new(memory, 0, 1);
        engine.serve(KEY, Box::new(store));
        let (port, endpoint) = "udp:127.0.0.1:0".parse::<Endpoint>()?.port()?;
        servers.push(Server::new(engine, vec![port], server::Options::default()));
        endpoints.push((endpoint, KEY));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server::run_together(&mut servers, &stop));
        let result = talk(&endpoints);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn it_runs() {
    main().unwrap();
}

async fn balance(tx: &mut Tx<'_>, account: u64) -> Result<u64, TxError> {
    let value = tx.read(account).await?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes"))))
}

async fn transfer(tx: &mut Tx<'_>, from: u64, to: u64, amount: u64) -> Result<bool, TxError> {
    let (has, gets) = (balance(tx, from).await?, balance(tx, to).await?);
    if has < amount || from == to {
        return Ok(false);
    }
    tx.write(from, &(has - amount).to_le_bytes()).await?;
    tx.write(to, &(gets + amount).to_le_bytes()).await?;
    Ok(true)
}

fn talk(shards: &[(Endpoint, Capability)]) -> Result<(), Box<dyn Error>> {
    let mut cluster = Cluster::open(shards)?;
    let net = cluster.net().clone();
    let balances = cluster.block_on(async move {
        let mut session = TxSession::open(net, vec![0, 1], Options::default()).await?;
        session.run(async |tx| tx.write(1, &100u64.to_le_bytes()).await).await?;
        // Account 1 is on shard 1, account 2 on shard 0.
        let (moved, _) = session.run(async |tx| transfer(tx, 1, 2, 30).await).await?;
        assert!(moved);
        let both = async |tx: &mut Tx<'_>| Ok((balance(tx, 1).await?, balance(tx, 2).await?));
        let (balances, _) = session.run(both).await?;
        session.finish().await?;
        Ok::<_, TxError>(balances)
    })?;
    assert_eq!(balances, (70, 30));
    cluster.close();
    Ok(())
}
