//! A data plane thread: busy-polls its ports, runs what arrives, sends the answers, and does its
//! upkeep now and then. It has its processor to itself, as a network card's would be; an idle one
//! sleeps between polls, unless it is told not to.
//!
//! The **delay line** lets a machine stand for a distance: each answer leaves no earlier than so
//! many nanoseconds after its request came. It holds answers in the order of their times and neither
//! blocks the thread nor serialises requests, so that a real distance's pipelining stays possible.

use crate::clock;
use crate::engine::{Batch, Engine, Peer};
use crate::memory::MemoryView;
use crate::transport::Port;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often services look after themselves, in nanoseconds.
const MAINTAIN_NS: u64 = 1_000_000;
/// Freed buffers are posted after this many batches.
const COLLECT_EVERY: u32 = 16;
/// The clock is looked at after this many polls.
const LOOK_EVERY: u32 = 256;
/// The same where several servers share the thread.
const LOOKS_TOGETHER: u32 = 4;
/// After this many polls without a request a server sleeps between polls.
const RESTS_AFTER: u32 = 20_000;
const REST: Duration = Duration::from_micros(50);
/// A port without a request in this many polls is polled only now and then: polling a socket
/// takes longer than answering a request in shared memory.
const COLD_AFTER: u32 = 4096;
const COLD_EVERY: u32 = 512;

/// How a server runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What is added to each round trip, in nanoseconds.
    pub delay_ns: u64,
    /// Never sleep (busy-polling only): for measurements.
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
        let mut turn = Turn::new(self.ports.len());
        delay_ns.fetch_max(self.options.delay_ns, Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) {
            let rests = turn.idle > RESTS_AFTER && !self.options.busy;
            if rests {
                self.rest();
            }
            let looks = if rests { 1 } else { LOOK_EVERY };
            self.look(&mut turn, looks, delay_ns.load(Ordering::Relaxed))?;
        }
        Ok(())
    }

    /// Rests, after which new clients are looked for: none shall wait for thousands of rests.
    fn rest(&mut self) {
        clock::rest(REST);
        self.ports.iter_mut().for_each(|port| port.look());
    }

    /// Looks for requests, at most so many times, and does the upkeep that is due.
    fn look(&mut self, turn: &mut Turn, looks: u32, delay_ns: u64) -> io::Result<()> {
        let memory = Arc::clone(self.engine.memory());
        // Taken before a request comes, so that none waits for it, and let go of after each batch.
        let view = memory.view(self.engine.plane());
        let mut ran = false;
        for _ in 0..looks {
            ran = self.turn(&view, turn, delay_ns)?;
            if ran {
                break;
            }
        }
        drop(view);
        if ran {
            turn.batches = turn.batches.wrapping_add(1);
            if turn.batches.is_multiple_of(COLLECT_EVERY) {
                memory.collect();
            }
            if !turn.batches.is_multiple_of(LOOK_EVERY) {
                return Ok(());
            }
        }
        turn.now_ns = clock::now_ns();
        if turn.now_ns - turn.maintained_ns >= MAINTAIN_NS {
            turn.maintained_ns = turn.now_ns;
            memory.collect();
            self.engine.maintain(turn.now_ns);
        }
        Ok(())
    }

    /// Looks at each port once. Says whether requests came.
    #[inline]
    fn turn(&mut self, view: &MemoryView<'_>, turn: &mut Turn, delay_ns: u64) -> io::Result<bool> {
        let Turn { batch, lost, held, empty, polls, idle, now_ns, .. } = turn;
        let mut ran = false;
        *polls = polls.wrapping_add(1);
        *idle = idle.saturating_add(1);
        // Where all rest, all are looked at.
        let cold_every = if *idle > RESTS_AFTER || empty.len() == 1 { 1 } else { COLD_EVERY };
        for (index, (port, empty)) in self.ports.iter_mut().zip(empty).enumerate() {
            *empty = empty.saturating_add(1);
            if *empty > COLD_AFTER && cold_every > 1 {
                if !(*polls + index as u32 * 64).is_multiple_of(cold_every) {
                    continue;
                }
                port.look();
            }
            batch.clear();
            let engine = &mut self.engine;
            port.poll(batch, lost, &mut |frame| engine.expect(view, frame))?;
            lost.drain(..).for_each(|peer| self.engine.peer_lost(peer));
            if batch.is_empty() {
                continue;
            }
            (ran, *idle, *empty) = (true, 0, 0);
            let engine = &mut self.engine;
            if delay_ns > 0 {
                *now_ns = clock::now_ns();
                let due_ns = *now_ns + delay_ns;
                engine.run(view, batch, port.is_reliable(), *now_ns, |to, frame| {
                    held.push_back(Held { due_ns, port: index, to, frame: frame.to_vec() });
                });
            } else {
                engine.run(view, batch, port.is_reliable(), *now_ns, |to, frame| {
                    port.send(to, frame);
                });
                port.flush();
            }
            engine.handed_over().for_each(|(to, files)| port.hand_over(to, &files));
        }
        if !held.is_empty() {
            *idle = 0;
            release(&mut self.ports, held, clock::now_ns());
        }
        Ok(ran)
    }
}

/// What goes on from one look at the ports to the next.
#[derive(Debug)]
struct Turn {
    batch: Batch,
    lost: Vec<Peer>,
    held: VecDeque<Held>,
    /// For each port, the polls without a request.
    empty: Vec<u32>,
    polls: u32,
    /// The same for all ports together.
    idle: u32,
    /// The time as of the last look at the clock, and of the last upkeep.
    now_ns: u64,
    maintained_ns: u64,
    batches: u32,
}

impl Turn {
    fn new(ports: usize) -> Self {
        let now_ns = clock::now_ns();
        Self {
            batch: Batch::default(),
            lost: Vec::new(),
            held: VecDeque::new(),
            empty: vec![0; ports],
            polls: 0,
            idle: 0,
            now_ns,
            maintained_ns: now_ns,
            batches: 0,
        }
    }
}

/// Serves several until `stop`, on one thread: for replicas of one machine that has no processor for each.
/// The delay is the first one's.
///
/// # Errors
/// When a port fails.
pub fn run_together(servers: &mut [Server], stop: &AtomicBool) -> io::Result<()> {
    let mut turns: Vec<_> = servers.iter().map(|server| Turn::new(server.ports.len())).collect();
    let options = servers.first().map(|server| server.options).unwrap_or_default();
    while !stop.load(Ordering::Relaxed) {
        if !options.busy && turns.iter().all(|turn| turn.idle > RESTS_AFTER) {
            clock::rest(REST);
            servers.iter_mut().flat_map(|server| &mut server.ports).for_each(|port| port.look());
        }
        for (server, turn) in servers.iter_mut().zip(&mut turns) {
            server.look(turn, LOOKS_TOGETHER, options.delay_ns)?;
        }
    }
    Ok(())
}

fn release(ports: &mut [Box<dyn Port>], held: &mut VecDeque<Held>, now_ns: u64) {
    let mut touched = 0u64;
    while let Some(Held { port, to, frame, .. }) = held.pop_front_if(|h| h.due_ns <= now_ns) {
        ports[port].send(to, &frame);
        touched |= 1 << (port % 64);
    }
    for (index, port) in ports.iter_mut().enumerate() {
        if touched >> (index % 64) & 1 == 1 {
            port.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    /// Nobody comes; counts the polls in which new clients are looked for, and ends after a while.
    #[derive(Debug)]
    struct Quiet {
        told: bool,
        looks: Arc<AtomicU64>,
        polls: u64,
        stop: Arc<AtomicBool>,
    }

    impl Port for Quiet {
        fn is_reliable(&self) -> bool {
            true
        }

        fn poll(
            &mut self,
            _: &mut Batch,
            _: &mut Vec<Peer>,
            _: &mut dyn FnMut(&[u64]),
        ) -> io::Result<()> {
            self.polls += 1;
            self.looks.fetch_add(u64::from(std::mem::take(&mut self.told)), Ordering::Relaxed);
            if self.polls == u64::from(RESTS_AFTER) + u64::from(LOOK_EVERY) + 100 {
                self.stop.store(true, Ordering::Relaxed);
            }
            Ok(())
        }

        fn send(&mut self, _: Peer, _: &[u64]) {}

        fn flush(&mut self) {}

        fn look(&mut self) {
            self.told = true;
        }
    }

    #[test]
    fn a_server_that_rests_looks_for_new_clients_with_each_poll() {
        let (looks, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (Arc::clone(&looks), Arc::clone(&stop));
        let port = Quiet { told: false, looks: counted, polls: 0, stop: ended };
        let engine = Engine::new(Arc::new(Memory::new()), 0, 1);
        let mut server = Server::new(engine, vec![Box::new(port)], Options::default());
        server.run(&stop, &AtomicU64::new(0)).unwrap();
        // The others came before it rested, some of them because it looks so often at once.
        assert!(looks.load(Ordering::Relaxed) >= 100, "{looks:?}");
    }
}
