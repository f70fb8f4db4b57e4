//! What a write costs the key-value store alone, without a network: `STATE_MIB` MiB of values of
//! 1 KiB, writes of 74 bytes each beside one of them, and a digest after a number of writes, as
//! checkpoints take them. With `lazy` behind it the store puts off what it can until then, as where a
//! replica catches up. Then what it takes to take a snapshot, what as many writes again cost while
//! that lives, and what it takes to go through its chunks.
//!
//! ```sh
//! cargo run --profile dist -p tercio-bench --example store -- STATE_MIB WRITES WRITES_A_DIGEST [lazy]
//! ```

#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::ops::Range;
use std::time::Duration;
use tercio_execution::{Application, Context, Keyed, Operation, Replies};
use tercio_kv::{Command, Kv, Settings};
use tercio_network::now;
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::Encode;

/// Operations of a block.
const BLOCK: u64 = 100;

/// What executing and digesting took.
#[derive(Default)]
struct Took {
    execute: Duration,
    digest: Duration,
    longest: Duration,
}

fn main() {
    let argument = |i: usize, default: u64| -> u64 {
        std::env::args().nth(i).map_or(default, |text| text.parse().expect("a number"))
    };
    let (mib, writes, a_digest) = (argument(1, 256), argument(2, 200_000), argument(3, 2000));
    let settings = Settings { fill_keys: mib * 1024, ..Settings::default() };
    let mut app = Keyed::new(Kv::new(settings).expect("settings"), Suite::default());
    app.state_digest();
    app.set_catching_up(std::env::args().nth(4).is_some_and(|word| word == "lazy"));
    let alone = write(&mut app, settings, 0..writes, a_digest);
    app.state_digest();
    let begin = now();
    let snapshot = app.snapshot();
    let taken = now() - begin;
    let beside = write(&mut app, settings, writes..2 * writes, a_digest);
    let begin = now();
    let bytes: usize = snapshot.into_iter().map(|(label, chunk)| label.len() + chunk.len()).sum();
    let walked = now() - begin;
    let each = |all: Duration| all.as_secs_f64() * 1e6 / writes as f64;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{{\"state_mb\": {mib}, \"writes\": {writes}, \"execute_us\": {:.2}, \"digest_us\": {:.2}, \
         \"longest_digest_ms\": {:.1}, \"snapshot_ms\": {:.2}, \"beside_execute_us\": {:.2}, \
         \"beside_digest_us\": {:.2}, \"walk_ms\": {:.1}, \"snapshot_bytes\": {bytes}}}",
        each(alone.execute),
        each(alone.digest),
        ms(alone.longest),
        ms(taken),
        each(beside.execute),
        each(beside.digest),
        ms(walked),
    );
}

/// Writes under keys that follow from `numbers`, with a digest after each `a_digest` of them.
fn write(app: &mut Keyed<Kv>, settings: Settings, numbers: Range<u64>, a_digest: u64) -> Took {
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let (mut replies, mut took) = (Replies::default(), Took::default());
    for first in numbers.step_by(BLOCK as usize) {
        let operation = |number: u64| {
            let mut key = settings.fill_key(number.wrapping_mul(0x9e37_79b1) % settings.fill_keys);
            key.push(b'+');
            let value = vec![number as u8; 74].into();
            let op = Command::Put { key: key.into(), value }.to_bytes();
            Operation { client: ClientId(1), seq: RequestSeq(number), op }
        };
        let operations: Vec<_> = (first..first + BLOCK).map(operation).collect();
        replies.clear();
        let begin = now();
        app.execute(&context, &operations, &mut replies);
        took.execute += now() - begin;
        if (first + BLOCK).is_multiple_of(a_digest) {
            let begin = now();
            app.state_digest();
            let digest = now() - begin;
            took.digest += digest;
            took.longest = took.longest.max(digest);
        }
    }
    took
}
