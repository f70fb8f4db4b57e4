//! A client of a network of processes, from its home.
//!
//! ```sh
//! tercio testnet -o NET && tercio up NET &
//! cargo run -p tercio-examples --bin connect NET/clients/1
//! ```
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use tercio::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = std::env::args_os().nth(1).ok_or("usage: connect HOME")?;
    // Each number of a client is for one operation. Its home says which were used, so that this
    // client goes on where the last one ended, however that ended. While another process has the
    // home, this is an error.
    let mut client = Client::open(home, &tercio_registry::apps())?;
    let app = client.app().clone();
    let result = client.call(app.operation(app.example())?)?;
    println!("{}: {}", app.example(), app.result(&result).text);
    // Ordered with the operations: it reflects every result that anybody has seen.
    let read = client.read(app.question(app.example_question())?)?;
    println!("{}: {}", app.example_question(), app.answer(&read.answer).text);
    Ok(())
}
