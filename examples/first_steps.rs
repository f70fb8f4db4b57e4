//! A network of four replicas in this process, a key-value store on it, and a client.
//!
//! ```sh
//! cargo run -p tercio-examples --bin first_steps
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use tercio::{Encode, LocalNetwork, Spec};
use tercio_kv::{Command, Query, Reply, Settings};
use tercio_registry::KvKind;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Four replicas tolerate one that crashes or lies. Keys and ports are made up.
    let network = LocalNetwork::start(Spec::new(KvKind::app(Settings::default())))?;
    let mut client = network.client(0)?;

    // An operation is bytes; what they mean is the application's business. The result comes when
    // two replicas (f+1) say the same, so one of them at least is honest.
    let put = Command::Put { key: "city".into(), value: "New York".into() };
    let result = client.call(put.to_bytes())?;
    println!("put: {}", Reply::parse(&result)?);

    // A package: several operations under one signature, executed one after the other.
    let swap = |expected: &'static str, new: &'static str| {
        let (expected, new) = (Some(expected.into()), Some(new.into()));
        Command::Swap { key: "city".into(), expected, new }.to_bytes()
    };
    for result in client.call_all(vec![swap("New York", "Lima"), swap("New York", "Oslo")])? {
        println!("swap: {}", Reply::parse(&result)?);
    }

    // A query is not ordered with operations: replicas answer from the state that they have.
    let answer = client.query(Query::Get { key: "city".into() }.to_bytes())?;
    println!("city: {}", Reply::parse(&answer)?);

    network.stop()?;
    Ok(())
}
