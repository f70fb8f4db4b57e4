//! The loop: the links, ordering, and the stages that have no thread of their own.

use super::peers::Peers;
use super::{AT_ONCE, Clock, Ending, join};
use crate::stages::{ExecuteStage, LogStage, OrderStage, Outbox, ToExecute, ToLog};
use crate::{Home, NodeError, NodeStatus};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_consensus::pbft::Pbft;
use tercio_execution::Application;
use tercio_transport::{Transport, TransportEvent};
use tercio_types::Principal;

/// How long the loop waits at a time while a queue is full.
const STALL: Duration = Duration::from_millis(10);

/// Where a stage sits: with the loop, or behind a queue.
pub(super) enum Seat<T, C> {
    Here(T),
    Apart(Sender<C>),
}

impl<T, C> Seat<T, C> {
    pub(super) fn sender(&self) -> Option<Sender<C>> {
        match self {
            Self::Here(_) => None,
            Self::Apart(sender) => Some(sender.clone()),
        }
    }

    /// Whether the queue before it is more than half full.
    fn is_behind(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Apart(sender) => {
                sender.len() > sender.capacity().expect("queues are bounded") / 2
            }
        }
    }
}

/// Moves what fits into a queue; false when its thread has ended.
fn hand_on<C>(commands: &mut VecDeque<C>, queue: &Sender<C>) -> bool {
    while let Some(command) = commands.pop_front() {
        match queue.try_send(command) {
            Ok(()) => {}
            Err(TrySendError::Full(command)) => {
                commands.push_front(command);
                return true;
            }
            Err(TrySendError::Disconnected(_)) => return false,
        }
    }
    true
}

pub(super) struct LoopThread {
    pub(super) transport: Transport,
    pub(super) order: OrderStage<Pbft>,
    pub(super) log: Seat<LogStage, ToLog>,
    pub(super) execute: Seat<ExecuteStage, ToExecute>,
    /// Looks at operations when execution is elsewhere.
    pub(super) checker: Option<Box<dyn Application>>,
    pub(super) outbox: Outbox,
    /// What came of commands elsewhere.
    pub(super) done: Receiver<Outbox>,
    pub(super) asked: Receiver<Sender<NodeStatus>>,
    pub(super) clock: Clock,
    pub(super) peers: Peers,
    pub(super) ending: Arc<Ending>,
    pub(super) last: Arc<Mutex<NodeStatus>>,
    /// The other threads, in the order in which they end.
    pub(super) others: Vec<JoinHandle<Result<(), NodeError>>>,
    /// Held, and its lock with it, until all threads have ended.
    pub(super) home: Box<dyn Home>,
}

impl LoopThread {
    pub(super) fn run(mut self) -> Result<(), NodeError> {
        let result = self.turn_until_ended();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.status();
        let Self { log, execute, done, others, ending, home, outbox, .. } = self;
        if result.is_err() {
            ending.set(AT_ONCE);
        }
        let log = finish(log, execute, outbox, &done, &ending);
        // Nobody waits for room in this queue any more.
        drop(done);
        let mut ends: Vec<_> = others.into_iter().map(join).collect();
        ends.insert(0, result);
        ends.push(log);
        drop(home);
        ends.into_iter().collect()
    }

    fn status(&self) -> NodeStatus {
        let peers = self.peers.status(&self.transport);
        NodeStatus { links: self.transport.counters().clone(), peers, ..self.order.status() }
    }

    fn turn_until_ended(&mut self) -> Result<(), NodeError> {
        let mut events = Vec::new();
        // What recovery left to do.
        self.work()?;
        while self.ending.is_running() {
            let deadline = self.order.deadline();
            let wait = match &self.log {
                // What can wait goes on between two looks at the links.
                Seat::Here(log) if log.has_work() => Some(Duration::ZERO),
                _ => deadline.map(|at| at.since(self.clock.now())),
            };
            self.transport.poll(wait, &mut events);
            self.answer_questions();
            self.take_done()?;
            let now = self.clock.now();
            let behind = self.execute.is_behind() || self.log.is_behind();
            self.order.set_busy(behind);
            for event in events.drain(..) {
                match event {
                    TransportEvent::Frame { from, bytes } => self.take_frame(from, &bytes, now)?,
                    other => self.peers.note(&other),
                }
            }
            if self.order.deadline().is_some_and(|at| at <= now) {
                self.order.handle_timeout(now, &mut self.outbox)?;
            }
            if let Seat::Here(log) = &mut self.log {
                log.work(&mut self.outbox)?;
            }
            self.work()?;
            while !self.has_room() && self.ending.is_running() {
                self.stall()?;
            }
        }
        Ok(())
    }

    fn answer_questions(&self) {
        while let Ok(answer) = self.asked.try_recv() {
            // Whoever asked may have given up.
            let _ = answer.send(self.status());
        }
    }

    fn take_frame(
        &mut self,
        from: Principal,
        bytes: &Bytes,
        now: Instant,
    ) -> Result<(), NodeError> {
        let Self { order, execute, checker, outbox, .. } = self;
        let check = |op: &[u8]| match (&*execute, &*checker) {
            (Seat::Here(execute), _) => execute.check(op),
            (_, Some(checker)) => checker.check(op),
            (Seat::Apart(_), None) => unreachable!("execution apart comes with a checker"),
        };
        order.handle_frame(from, bytes, &check, now, outbox)
    }

    /// Takes over what came of commands elsewhere.
    fn take_done(&mut self) -> Result<(), NodeError> {
        while let Ok(work) = self.done.try_recv() {
            self.take_work(work)?;
        }
        Ok(())
    }

    fn take_work(&mut self, work: Outbox) -> Result<(), NodeError> {
        let now = self.clock.now();
        self.outbox.log.extend(work.log);
        self.outbox.send.extend(work.send);
        for message in work.order {
            self.order.handle(message, now, &mut self.outbox)?;
        }
        Ok(())
    }

    /// Runs the stages that sit here, hands commands to those that do not, and frames to the
    /// links.
    fn work(&mut self) -> Result<(), NodeError> {
        let now = self.clock.now();
        let out = &mut self.outbox;
        loop {
            let mut idle = true;
            match &mut self.execute {
                Seat::Here(execute) => {
                    while let Some(command) = out.execute.pop_front() {
                        execute.handle(command, out)?;
                    }
                }
                Seat::Apart(queue) => {
                    if !hand_on(&mut out.execute, queue) {
                        return Ok(());
                    }
                }
            }
            while let Some(message) = out.order.pop_front() {
                idle = false;
                self.order.handle(message, now, out)?;
            }
            if !idle {
                continue;
            }
            match &mut self.log {
                Seat::Here(log) => {
                    while let Some(command) = out.log.pop_front() {
                        log.handle(command, out)?;
                    }
                    log.commit(false, out)?;
                }
                Seat::Apart(queue) => {
                    if !hand_on(&mut out.log, queue) {
                        return Ok(());
                    }
                }
            }
            if out.order.is_empty() {
                break;
            }
        }
        while let Some((to, bytes)) = out.send.pop_front() {
            // Loss is counted by the transport, and normal.
            let _ = self.transport.send(to, bytes);
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.outbox.execute.is_empty() && self.outbox.log.is_empty()
    }

    /// A queue is full: waits until its thread has done something, and reads nothing meanwhile.
    fn stall(&mut self) -> Result<(), NodeError> {
        self.transport.flush();
        self.answer_questions();
        if let Ok(work) = self.done.recv_timeout(STALL) {
            self.take_work(work)?;
        }
        self.work()
    }
}

/// Ends the stages that sit with the loop, and closes the queues of the others.
fn finish(
    log: Seat<LogStage, ToLog>,
    execute: Seat<ExecuteStage, ToExecute>,
    mut outbox: Outbox,
    done: &Receiver<Outbox>,
    ending: &Ending,
) -> Result<(), NodeError> {
    // Closes its queue when it is apart; it does what is in there, and ends.
    drop(execute);
    let Seat::Here(mut log) = log else { return Ok(()) };
    if ending.is_at_once() {
        return Ok(());
    }
    for work in done {
        outbox.log.extend(work.log);
    }
    while let Some(command) = outbox.log.pop_front() {
        log.handle(command, &mut outbox)?;
    }
    log.close()
}
