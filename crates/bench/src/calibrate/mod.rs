//! A ceiling for this machine: how many requests per second four replicas and their clients could
//! order if they did nothing but the work that cannot be left out.
//!
//! The work of one request (100 bytes, one MAC vector, replies of 100 bytes, one of them in full
//! and three as digests) is counted in primitives; each primitive's processor time is measured here
//! and now; the cores of the machine divided by the sum is the ceiling. [`FORMULA`] is the whole of
//! it, and [`Calibration`] holds every term. Work for the disk is not counted: the ceiling is that
//! of memory durability.

mod exchange;
mod primitives;
mod stream;

pub use exchange::ExchangeLatency;
pub use primitives::Terms;

use crate::Machine;
use serde::Serialize;
use std::io;

/// How many replicas the ceiling is for.
pub const REPLICAS: usize = 4;
/// The operations of a full batch, over which the cost of its votes is spread.
pub const BATCH_OPS: usize = 1024;
/// The messages of one batch that carry votes: PREPAREs of 3 backups and COMMITs of 4 replicas,
/// each to 3 others.
const VOTES: f64 = 3.0 * 3.0 + 4.0 * 3.0;
/// The tags of one batch: each PRE-PREPARE and vote has one for each receiver, and is checked there.
const BATCH_TAGS: f64 = 2.0 * (3.0 + VOTES);

/// How the ceiling comes out of the terms; names are those of [`Terms`], without their units.
pub const FORMULA: &str = "\
ceiling_rps = cores / (client + primary + 3 backup + batch / batch_ops)
client  = alloc_copy + hash_request + 4 tag + write_request  (make, authenticate, send to the primary)
        + 4 (read_reply + tag) + hash_reply + alloc_copy     (hear all four, check one body)
primary = read_request + hash_request + tag + alloc_copy     (receive and check)
        + batch_blocks sha256_block + 3 write_request        (name the batch, send it to 3 backups)
        + alloc_copy + hash_reply + tag + write_reply        (answer)
backup  = read_request + batch_blocks sha256_block           (receive the batch, check its name)
        + hash_request + tag + alloc_copy                    (check the client)
        + alloc_copy + hash_reply + tag + write_reply        (answer)
batch   = 48 tag + 21 lone_message                           (3 PRE-PREPARE, 9 PREPARE, 12 COMMIT)";

/// The work of one request, in nanoseconds of processor time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// At the client.
    pub client_ns: f64,
    /// At the primary.
    pub primary_ns: f64,
    /// At each backup.
    pub backup_ns: f64,
    /// The votes of a full batch, all replicas together, divided by the batch's operations.
    pub batch_share_ns: f64,
}

impl Work {
    fn of(t: &Terms) -> Self {
        let answer = t.alloc_copy_ns + t.hash_reply_ns + t.tag_ns + t.write_reply_ns;
        let check = t.hash_request_ns + t.tag_ns + t.alloc_copy_ns;
        let name = t.batch_blocks * t.sha256_block_ns;
        Self {
            client_ns: 2.0 * t.alloc_copy_ns
                + t.hash_request_ns
                + 4.0 * t.tag_ns
                + t.write_request_ns
                + 4.0 * (t.read_reply_ns + t.tag_ns)
                + t.hash_reply_ns,
            primary_ns: t.read_request_ns + check + name + 3.0 * t.write_request_ns + answer,
            backup_ns: t.read_request_ns + name + check + answer,
            batch_share_ns: (BATCH_TAGS * t.tag_ns + VOTES * t.lone_message_ns) / BATCH_OPS as f64,
        }
    }

    /// All parties together.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        let backups = (REPLICAS - 1) as f64 * self.backup_ns;
        self.client_ns + self.primary_ns + backups + self.batch_share_ns
    }
}

/// What this machine can do, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// The machine.
    pub machine: Machine,
    /// [`FORMULA`].
    pub formula: &'static str,
    /// Every measured term.
    pub terms: Terms,
    /// The operations that share a batch's votes.
    pub batch_ops: usize,
    /// What the terms come to at each party.
    pub work: Work,
    /// The sum over all parties.
    pub work_us_per_request: f64,
    /// How many requests per second the machine's cores could do at most.
    pub ceiling_rps: f64,
}

/// Measures the primitives and derives the ceiling. Takes about a second.
///
/// # Errors
/// When the loopback network cannot be used.
pub fn ceiling() -> io::Result<Calibration> {
    let terms = Terms::measure()?;
    let machine = Machine::here();
    let work = Work::of(&terms);
    Ok(Calibration {
        formula: FORMULA,
        batch_ops: BATCH_OPS,
        work_us_per_request: work.total_ns() / 1e3,
        ceiling_rps: machine.cores as f64 * 1e9 / work.total_ns(),
        machine,
        terms,
        work,
    })
}

/// The latency of a bare message exchange of the protocol's shape, on each transport. Takes a few
/// seconds.
///
/// # Errors
/// When sockets cannot be made, or a message does not arrive within seconds.
pub fn exchange_latencies() -> io::Result<Vec<ExchangeLatency>> {
    exchange::measure_all(exchange::ROUNDS)
}

/// The same over TCP alone.
///
/// # Errors
/// As [`exchange_latencies`].
pub fn tcp_exchange_latency() -> io::Result<ExchangeLatency> {
    exchange::measure_tcp(exchange::ROUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With every primitive at 1 ns the sum counts the primitives themselves.
    #[test]
    fn the_formula_counts_what_it_says() {
        let terms = Terms {
            tag_ns: 1.0,
            sha256_block_ns: 1.0,
            hash_request_ns: 1.0,
            hash_reply_ns: 1.0,
            alloc_copy_ns: 1.0,
            write_request_ns: 1.0,
            read_request_ns: 1.0,
            write_reply_ns: 1.0,
            read_reply_ns: 1.0,
            lone_message_ns: 1.0,
            batch_blocks: 3.0,
            request_frame_bytes: 0,
            reply_frame_bytes: 0,
        };
        let work = Work::of(&terms);
        assert_eq!(work.client_ns, 17.0, "2 copies, 2 hashes, 8 tags, 1 write, 4 reads");
        assert_eq!(work.primary_ns, 14.0, "2 copies, 2 hashes, 3 blocks, 2 tags, 1 read, 4 writes");
        assert_eq!(work.backup_ns, 11.0, "the same without the 3 writes to backups");
        assert_eq!(work.batch_share_ns, 69.0 / 1024.0, "48 tags, 21 messages");
        assert_eq!(work.total_ns(), 17.0 + 14.0 + 33.0 + 69.0 / 1024.0);
    }

    #[test]
    fn calibration_measures_something() {
        let calibration = ceiling().unwrap();
        assert!(calibration.ceiling_rps > 1_000.0, "{calibration:?}");
        assert!(calibration.terms.tag_ns > calibration.terms.sha256_block_ns);
        assert!(calibration.terms.lone_message_ns > calibration.terms.write_request_ns);
    }

    #[test]
    fn every_transport_exchanges() {
        for latency in exchange::measure_all(50).unwrap() {
            assert!(latency.p50_us > 0.0 && latency.p99_us >= latency.p50_us, "{latency:?}");
        }
    }
}
