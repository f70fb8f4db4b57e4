//! A data plane thread: polls its ports, runs what arrives, sends the answers, and looks after the
//! rest now and then. It has its processor to itself, as a network card's would be; an idle one
//! rests, unless it is told not to.
//!
//! The **delay line** lets a machine stand for a distance: each answer leaves no earlier than so
//! many nanoseconds after its request came. It holds answers in the order of their times and neither
//! blocks the thread nor serialises requests, so that a real distance's pipelining stays possible.

use crate::clock;
use crate::engine::{Batch, Engine, Peer};
use crate::transport::Port;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often services look after themselves, in nanoseconds.
const MAINTAIN_NS: u64 = 1_000_000;
/// Freed buffers are posted after so many batches.
const COLLECT_EVERY: u32 = 16;
/// The clock is looked at after so many polls.
const LOOK_EVERY: u32 = 256;
/// After so many polls without a request a server rests between polls.
const RESTS_AFTER: u32 = 20_000;
const REST: Duration = Duration::from_micros(50);
/// A port without a request in so many polls is looked at only now and then: looking at a socket
/// takes longer than answering a request in shared memory.
const COLD_AFTER: u32 = 4096;
const COLD_EVERY: u32 = 512;

/// How a server runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What is added to each round trip, in nanoseconds.
    pub delay_ns: u64,
    /// Never rest: for measurements.
    pub busy: bool,
}

/// An engine with its ports.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    ports: Vec<Box<dyn Port>>,
    options: Options,
}

#[derive(Debug)]
struct Held {
    due_ns: u64,
    port: usize,
    to: Peer,
    frame: Vec<u64>,
}

impl Server {
    /// A server of an engine at these ports.
    #[must_use]
    pub fn new(engine: Engine, ports: Vec<Box<dyn Port>>, options: Options) -> Self {
        Self { engine, ports, options }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `stop`. `delay_ns` may be changed while it runs; it begins as the options say.
    ///
    /// # Errors
    /// When a port fails.
    pub fn run(&mut self, stop: &AtomicBool, delay_ns: &AtomicU64) -> io::Result<()> {
        let (mut batch, mut lost) = (Batch::default(), Vec::new());
        let mut held: VecDeque<Held> = VecDeque::new();
        let (mut batches, mut polls, mut idle) = (0u32, 0u32, 0u32);
        let mut now_ns = clock::now_ns();
        let mut maintained_ns = now_ns;
        let (mut empty, single) = (vec![0u32; self.ports.len()], self.ports.len() == 1);
        delay_ns.fetch_max(self.options.delay_ns, Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) {
            let delay = delay_ns.load(Ordering::Relaxed);
            idle += 1;
            // Where all rest, all are looked at.
            let cold_every = if idle > RESTS_AFTER || single { 1 } else { COLD_EVERY };
            for (index, (port, empty)) in self.ports.iter_mut().zip(&mut empty).enumerate() {
                *empty = empty.saturating_add(1);
                if *empty > COLD_AFTER && !(polls + index as u32 * 64).is_multiple_of(cold_every) {
                    continue;
                }
                batch.clear();
                port.poll(&mut batch, &mut lost)?;
                lost.drain(..).for_each(|peer| self.engine.peer_lost(peer));
                if batch.is_empty() {
                    continue;
                }
                (idle, *empty) = (0, 0);
                batches = batches.wrapping_add(1);
                if delay > 0 {
                    now_ns = clock::now_ns();
                    let due_ns = now_ns + delay;
                    self.engine.run(&batch, port.is_reliable(), now_ns, |to, frame| {
                        held.push_back(Held { due_ns, port: index, to, frame: frame.to_vec() });
                    });
                } else {
                    self.engine.run(&batch, port.is_reliable(), now_ns, |to, frame| {
                        port.send(to, frame);
                    });
                    port.flush();
                }
                if batches.is_multiple_of(COLLECT_EVERY) {
                    self.engine.memory().collect();
                }
            }
            if !held.is_empty() {
                idle = 0;
                self.release(&mut held, clock::now_ns());
            }
            polls = polls.wrapping_add(1);
            if idle > RESTS_AFTER && !self.options.busy {
                clock::rest(REST);
            } else if !polls.is_multiple_of(LOOK_EVERY) {
                continue;
            }
            now_ns = clock::now_ns();
            if now_ns - maintained_ns >= MAINTAIN_NS {
                maintained_ns = now_ns;
                self.engine.memory().collect();
                self.engine.maintain(now_ns);
            }
        }
        Ok(())
    }

    fn release(&mut self, held: &mut VecDeque<Held>, now_ns: u64) {
        let mut touched = 0u64;
        while let Some(Held { port, to, frame, .. }) = held.pop_front_if(|h| h.due_ns <= now_ns) {
            self.ports[port].send(to, &frame);
            touched |= 1 << (port % 64);
        }
        for (index, port) in self.ports.iter_mut().enumerate() {
            if touched >> (index % 64) & 1 == 1 {
                port.flush();
            }
        }
    }
}
