//! A client of a network of processes, from its home.
//!
//! ```sh
//! tercio testnet -o NET && tercio up NET &
//! cargo run -p tercio-examples --bin connect NET/clients/1
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::path::PathBuf;
use tercio_client::{Client, ClientAuth, Numbers, Settings};
use tercio_replica::ClientHome;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("usage: connect HOME")?.into();
    let home = ClientHome::load(&dir)?;
    let (app, membership) = (home.genesis.app.clone(), home.membership()?);
    let mut settings = Settings::new(home.client, home.secret, membership);
    settings.core.signing = home.signing;
    settings.core.auth = if home.signs { ClientAuth::Signature } else { ClientAuth::Mac };
    // Each number of a client is for one operation. Its home says which were used, so that this
    // client goes on where the last one ended, however that ended; nobody else uses the home
    // meanwhile: this is an error when another process has it.
    settings.numbers = Some(Numbers::open(&dir.join("numbers"))?);

    let mut client = Client::connect(settings)?;
    let result = client.call(app.operation(app.example())?)?;
    println!("{}: {}", app.example(), app.result(&result));
    // Ordered with the operations: it reflects every result that anybody has seen.
    let read = client.read(app.question(app.example_question())?)?;
    println!("{}: {}", app.example_question(), app.answer(&read.answer));
    Ok(())
}
