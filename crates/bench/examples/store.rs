//! What a write costs the key-value store alone, without a network: `STATE_MIB` MiB of values of
//! 1 KiB, writes of 74 bytes each beside one of them, and a digest after every so many writes, as
//! checkpoints take them. With `lazy` behind it the store puts off what it can until then, as where a
//! replica catches up.
//!
//! ```sh
//! cargo run --release -p tercio-bench --example store -- STATE_MIB WRITES WRITES_A_DIGEST [lazy]
//! ```

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::time::Duration;
use tercio_bench::now;
use tercio_execution::{Application, Context, Keyed, Operation, Replies};
use tercio_kv::{Command, Kv, Settings};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::Encode;

/// Operations of a block.
const BLOCK: u64 = 100;

fn main() {
    let argument = |i: usize, default: u64| -> u64 {
        std::env::args().nth(i).map_or(default, |text| text.parse().expect("a number"))
    };
    let (mib, writes, a_digest) = (argument(1, 256), argument(2, 200_000), argument(3, 2000));
    let settings = Settings { fill_keys: mib * 1024, ..Settings::default() };
    let mut app = Keyed::new(Kv::new(settings).expect("settings"), Suite::default());
    app.state_digest();
    app.set_catching_up(std::env::args().nth(4).is_some_and(|word| word == "lazy"));
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let mut replies = Replies::default();
    let (mut execute, mut digest, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for first in (0..writes).step_by(BLOCK as usize) {
        let operation = |number: u64| {
            let mut key = settings.fill_key(number.wrapping_mul(0x9e37_79b1) % (mib * 1024));
            key.push(b'+');
            let value = vec![number as u8; 74].into();
            let op = Command::Put { key: key.into(), value }.to_bytes();
            Operation { client: ClientId(1), seq: RequestSeq(number), op }
        };
        let operations: Vec<_> = (first..first + BLOCK).map(operation).collect();
        replies.clear();
        let begin = now();
        app.execute(&context, &operations, &mut replies);
        execute += now() - begin;
        if (first + BLOCK).is_multiple_of(a_digest) {
            let begin = now();
            app.state_digest();
            let took = now() - begin;
            digest += took;
            longest = longest.max(took);
        }
    }
    let each = |all: Duration| all.as_secs_f64() * 1e6 / writes as f64;
    println!(
        "{{\"state_mb\": {mib}, \"writes\": {writes}, \"execute_us\": {:.2}, \"digest_us\": {:.2}, \
         \"longest_digest_ms\": {:.1}}}",
        each(execute),
        each(digest),
        longest.as_secs_f64() * 1e3,
    );
}
