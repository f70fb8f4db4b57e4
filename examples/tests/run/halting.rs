//! A program for a test: an application that counts what it is given, whose execution halts while another
//! process holds the file `hold` in the replica's home locked.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use tercio::{
    AppError, AppKind, Application, Bytes, Context, Keyed, Kind, NoRules, Operation, Outcome,
    StateView, Store, Suite, Transaction,
};

/// The key of the count.
const COUNT: &[u8] = b"count";

/// Any operation adds one; its result and the answer to any question are the count in eight bytes.
pub(crate) struct Halting;

fn count(stored: Option<&Bytes>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

/// The file of the replica that this process is: `start --dir HOME`.
fn hold() -> Option<&'static File> {
    static HOLD: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let mut words = std::env::args_os().skip_while(|word| word != "--dir");
        File::open(Path::new(&words.nth(1)?).join("hold")).ok()
    };
    HOLD.get_or_init(open).as_ref()
}

impl Transaction for Halting {
    fn execute(
        &self,
        _: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        if let Some(hold) = hold() {
            hold.lock_shared().expect("a file can be locked");
            hold.unlock().expect("a file can be unlocked");
        }
        let count = count(view.get(COUNT).as_ref()) + 1;
        view.put(COUNT, &count.to_le_bytes());
        result.extend_from_slice(&count.to_le_bytes());
        Outcome::Commit
    }

    fn query(&self, _: &[u8], store: &Store) -> Result<Bytes, AppError> {
        Ok(Bytes::copy_from_slice(&count(store.get(COUNT)).to_le_bytes()))
    }
}

impl AppKind for Halting {
    const NAME: &'static str = "halting";
    const OPERATION: &'static str = "one";
    const QUESTION: &'static str = "count";
    type Rules = NoRules;

    fn build(_: &NoRules, suite: Suite) -> Box<dyn Application> {
        Box::new(Keyed::new(Halting, suite))
    }
}

#[allow(dead_code, reason = "a test uses the application, and has no main")]
fn main() -> ExitCode {
    tercio::main(&[Kind::of::<Halting>()])
}
