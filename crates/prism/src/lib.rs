//! PRISM: remote memory with indirection, allocation, enhanced compare-and-swap and chaining, in
//! software, and stores on it: keys and values, replicated blocks, transactions. After Burke et al.,
//! "PRISM: Rethinking the RDMA Interface for Distributed Systems", SOSP'21. `docs/prism.md` is the
//! guide, with the limits; this crate does not need the rest of Tercio.
//!
//! A server registers regions of memory; a client sends a *request*, a short chain of operations on
//! them, and gets one answer: one round trip, whatever the chain. Begin with [`op`], the words of
//! the interface, and [`mod@reference`], which defines what each operation does. Then:
//!
//! - [`memory`] and `exec` are the server's memory and the fast executor; [`engine`] puts
//!   connections and at-most-once execution before them. None of the three does I/O.
//! - [`wire`] has the bytes. [`transport`] carries them: shared memory between processes, UDP, TCP,
//!   and a simulated network.
//! - [`client`] sends requests and retries them; on the server's machine it can read without the
//!   server (`direct`).
//! - [`kv`] is PRISM-KV, with what the paper leaves open closed, and Pilaf to compare it with.
//! - [`cluster`] drives many servers from one thread; on it stand [`rs`], replicated blocks (PRISM-RS),
//!   and [`tx`], transactions (PRISM-TX), each with its baseline.
//! - [`check`] decides whether histories are linearizable; [`ycsb`] makes loads.

pub mod check;
pub mod client;
pub mod clock;
pub mod cluster;
mod direct;
pub mod engine;
pub mod epoch;
mod exec;
pub mod kv;
pub mod memory;
pub mod op;
pub mod reference;
pub mod rng;
pub mod rs;
pub mod server;
mod sweep;
pub mod transport;
pub mod tx;
pub mod wire;
pub mod ycsb;
pub mod zoo;
