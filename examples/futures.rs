//! A client that does not block: calls are futures for any executor, or for threads that wait.
//!
//! ```sh
//! cargo run -p tercio-examples --bin futures
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::Duration;
use tercio::{LocalNetwork, Spec};
use tercio_registry::CounterKind;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The counter adds one an operation; its result is the total in eight bytes.
    let network = LocalNetwork::start(Spec::of::<CounterKind>(Default::default()))?;
    let client = network.client(0)?.into_async()?;

    // All of them are in flight at once: a call needs nobody to poll it.
    let calls: Vec<_> = (0..100).map(|_| client.call("".into())).collect();
    let mut highest = 0;
    for call in calls {
        // Inside an async function this would be `call.await?`.
        let total = call.wait()?;
        highest = highest.max(u64::from_le_bytes(total[..].try_into()?));
    }
    println!("100 calls, a total of {highest}");

    // Clones share the links; each may have its own patience.
    let hurried = client.within(Duration::from_secs(2));
    let answer = hurried.query("".into()).wait()?;
    println!("the replicas say {}", u64::from_le_bytes(answer[..].try_into()?));

    // Whoever drops a call loses its result and nothing else.
    drop(hurried.call("".into()));
    network.stop()?;
    Ok(())
}
