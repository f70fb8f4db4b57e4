//! A guest book, replicated: an application of your own, with every command of `tercio`.
//!
//! ```sh
//! cargo run --release -- testnet -o net       # keys, genesis and homes of four replicas
//! cargo run --release -- up net               # the replicas; in another terminal:
//! cargo run --release -- submit net Ada       # visit 1
//! cargo run --release -- query net Ada        # 1 visits
//! ```
use std::process::ExitCode;
use tercio::{
    AppError, AppKind, Application, Bytes, Context, Keyed, Kind, NoRules, Operation, Outcome,
    StateView, Store, Suite, Transaction,
};

/// An operation is a guest's name; its result is how often the guest was here.
struct GuestBook;

fn visits(stored: Option<&Bytes>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

impl Transaction for GuestBook {
    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        let count = visits(view.get(&tx.op).as_ref()) + 1;
        view.put(&tx.op, &count.to_le_bytes());
        result.extend_from_slice(format!("visit {count}").as_bytes());
        Outcome::Commit
    }

    fn query(&self, name: &[u8], store: &Store) -> Result<Bytes, AppError> {
        Ok(format!("{} visits", visits(store.get(name))).into())
    }

    fn check(&self, name: &[u8]) -> Result<(), AppError> {
        let fits = (1..=64).contains(&name.len());
        fits.then_some(()).ok_or_else(|| AppError("a name has 1 to 64 bytes".into()))
    }
}

impl AppKind for GuestBook {
    const NAME: &'static str = "guest-book";
    const OPERATION: &'static str = "Ada";
    const QUESTION: &'static str = "Ada";
    type Rules = NoRules;

    fn build(_: &NoRules, suite: Suite) -> Box<dyn Application> {
        Box::new(Keyed::new(GuestBook, suite))
    }
}

fn main() -> ExitCode {
    tercio::main(&[Kind::of::<GuestBook>()])
}
