//! Executes a made-up flow on one core and says how long it took:
//! `cargo run --profile dist -p tercio-exchange --example throughput [COMMANDS]`.
#![allow(clippy::print_stdout, reason = "the program's result")]

use bytes::Bytes;
use std::error::Error;
use tercio_exchange::flow::Flow;
use tercio_exchange::{Exchange, Settings};
use tercio_execution::{Application, Context, Operation, Replies};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::Encode;

const CLIENTS: u64 = 16;
const BATCH: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(4_000_000), |arg| arg.parse())?;
    let settings = Settings::default();
    let symbols = settings.symbols.len() as u16;
    let mut flows: Vec<_> = (0..CLIENTS).map(|c| Flow::new(1, c, symbols)).collect();
    let operations: Vec<_> = (0..count)
        .map(|i| {
            let client = i as u64 % CLIENTS;
            let op: Bytes = flows[client as usize].command().to_bytes();
            let seq = RequestSeq(i as u64 / CLIENTS + 1);
            Operation { client: ClientId(client), seq, op }
        })
        .collect();
    let mut exchange = Exchange::new(settings, Suite::default())?;
    let context = Context { height: Height(1), time: Timestamp(0), seed: Digest::NULL };
    let mut replies = Replies::default();
    #[expect(clippy::disallowed_methods, reason = "this program measures time")]
    let start = std::time::Instant::now();
    for batch in operations.chunks(BATCH) {
        replies.clear();
        exchange.execute(&context, batch, &mut replies);
    }
    let executed = start.elapsed();
    let digest = exchange.state_digest();
    let hashed = start.elapsed() - executed;
    let rate = count as f64 / executed.as_secs_f64();
    println!(
        "{count} commands in {executed:?}: {rate:.0} commands/s; digest {digest} in {hashed:?}"
    );
    Ok(())
}
