//! An application of your own: a guest book, as a transaction over the keyed store.
//!
//! ```sh
//! cargo run -p tercio-examples --bin own_application
//! ```
//! The engine owns the store, so digests, snapshots and state transfer come for free. All replicas
//! run the same operations in the same order: an application must come to the same results from
//! the same store. It may use neither clock nor random numbers but those of the [`Context`].
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use bytes::Bytes;
use tercio_bench::local::LocalNetwork;
use tercio_bench::network::Spec;
use tercio_execution::{
    AppError, Context, Footprint, Keyed, Operation, Outcome, Store, Transaction, View,
};
use tercio_types::Suite;

/// An operation is a guest's name; its result is how often the guest was here.
struct GuestBook;

fn visits(stored: Option<&Bytes>) -> u64 {
    // Only this application writes to its store.
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

impl Transaction for GuestBook {
    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut View<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        // Bytes come from clients: any of them must get an answer, and none may cause a panic.
        if self.check(&tx.op).is_err() {
            result.extend_from_slice(b"no name");
            return Outcome::Abort; // undoes what was written
        }
        let count = visits(view.get(&tx.op)) + 1;
        view.put(&tx.op, &count.to_le_bytes());
        result.extend_from_slice(format!("visit {count}").as_bytes());
        Outcome::Commit
    }

    /// Which keys an operation touches, and no others: operations that touch different ones can
    /// run at the same time.
    fn footprint(&self, tx: &Operation) -> Footprint {
        Footprint::Declared { reads: vec![], writes: vec![tx.op.clone()] }
    }

    /// A question is a name, too.
    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        Ok(format!("{} visits", visits(store.get(question))).into())
    }

    /// What can never make sense need not be ordered.
    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        let fits = (1..=64).contains(&operation.len());
        fits.then_some(()).ok_or_else(|| AppError("a name has 1 to 64 bytes".into()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = || Box::new(Keyed::new(GuestBook, Suite::default())) as _;
    let network = LocalNetwork::start_with(Spec::default(), app)?;
    let mut client = network.client(0)?;
    for name in ["Ada", "Grace", "Ada"] {
        let result = client.call(name.into())?;
        println!("{name}: {}", String::from_utf8_lossy(&result));
    }
    println!("Ada: {}", String::from_utf8_lossy(&client.query("Ada".into())?));
    println!("nobody: {}", client.call(Bytes::new()).unwrap_err());
    network.stop()?;
    Ok(())
}
