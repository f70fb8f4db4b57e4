//! The loop: the links, ordering, and the stages that have no thread of their own.

use super::gentle::{Back, Gentle};
use super::peers::Peers;
use super::reporter::Question;
use super::rest::Rest;
use super::{AT_ONCE, Clock, EXECUTE_QUEUE, Ending, LOG_QUEUE, join};
use crate::metrics::Queues;
use crate::stages::{ExecuteStage, LogStage, OrderStage, Outbox, ToExecute, ToLog};
use crate::{Home, NodeError, NodeStatus};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tercio_consensus::pbft::Pbft;
use tercio_consensus::{Instant, Protocol};
use tercio_ledger::Removal;
use tercio_transport::{Transport, TransportEvent};
use tercio_types::Principal;

/// How old what the wall clock said may be.
const WALL_CLOCK: Duration = Duration::from_millis(1);

/// How long the loop waits at a time while a queue is full.
const STALL: Duration = Duration::from_millis(10);

/// Where a stage sits: with the loop, or behind a queue.
pub(super) enum Seat<T, C> {
    Here(T),
    /// Its place is here; another thread has it for the time of one command.
    Lent,
    Apart(Sender<C>),
}

impl<T, C> Seat<T, C> {
    pub(super) fn sender(&self) -> Option<Sender<C>> {
        match self {
            Self::Here(_) | Self::Lent => None,
            Self::Apart(sender) => Some(sender.clone()),
        }
    }

    /// How many commands wait in the queue before it.
    fn queued(&self) -> usize {
        match self {
            Self::Apart(sender) => sender.len(),
            Self::Here(_) | Self::Lent => 0,
        }
    }

    fn is_lent(&self) -> bool {
        matches!(self, Self::Lent)
    }
}

/// Moves what fits into a queue, if it is bounded; false when its thread has ended.
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

pub(super) struct LoopThread<P: Protocol = Pbft> {
    pub(super) transport: Transport,
    pub(super) order: OrderStage<P>,
    pub(super) log: Seat<LogStage, ToLog>,
    pub(super) execute: Seat<ExecuteStage, ToExecute>,
    /// Takes what is long, when execution sits here.
    pub(super) gentle: Option<Gentle>,
    /// Between two pieces of what can wait, when the log sits here.
    pub(super) rest: Rest,
    pub(super) outbox: Outbox,
    /// For the upkeep thread, which removes files.
    pub(super) removals: Sender<Removal>,
    /// What came of commands elsewhere.
    pub(super) done: Receiver<Outbox>,
    pub(super) asked: Receiver<Question>,
    pub(super) clock: Clock,
    pub(super) peers: Peers,
    /// Since when a queue is full, and nothing is read.
    pub(super) stalled_since: Option<Instant>,
    /// Where the lengths of the queues are told.
    pub(super) queues: Queues,
    pub(super) ending: Arc<Ending>,
    pub(super) last: Arc<Mutex<NodeStatus>>,
    /// The other threads, in the order in which they end.
    pub(super) others: Vec<JoinHandle<Result<(), NodeError>>>,
    /// Held, and its lock with it, until all threads have ended.
    pub(super) home: Box<dyn Home>,
}

impl<P: Protocol> LoopThread<P> {
    pub(super) fn run(mut self) -> Result<(), NodeError> {
        let result = self.turn_until_ended();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.status();
        let Self { log, mut execute, gentle, done, others, ending, home, mut outbox, .. } = self;
        drop(self.removals);
        // Verification ends with its queue.
        drop(self.order);
        if result.is_err() {
            ending.set(AT_ONCE);
        }
        if let (Seat::Lent, Some(mut gentle)) = (&execute, gentle)
            && let Some(Back { stage, out, .. }) = gentle.wait()
        {
            outbox.log.extend(out.log);
            execute = Seat::Here(stage);
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
        let Outbox { execute, log, .. } = &self.outbox;
        let execution = self.execute.queued() + execute.len();
        self.queues.note([execution, self.log.queued() + log.len(), self.done.len()]);
        let peers = self.peers.status(&self.transport);
        NodeStatus {
            at: self.clock.now(),
            stalled_since: self.stalled_since,
            links: self.transport.counters().clone(),
            peers,
            ..self.order.status()
        }
    }

    fn turn_until_ended(&mut self) -> Result<(), NodeError> {
        let mut events = Vec::new();
        // What recovery left to do.
        self.work(self.clock.now())?;
        let mut wall_clock = None;
        while self.ending.is_running() {
            let deadline = self.order.deadline();
            let until = deadline.map(|at| at.since(self.clock.now()));
            let wait = match &self.log {
                // Whether more frames are at hand, to be verified with those that wait.
                _ if self.order.gathers() => Some(Duration::ZERO),
                // What can wait goes on between two looks at the links.
                Seat::Here(log) if log.has_work() => {
                    Some(until.map_or(self.rest.left(), |until| until.min(self.rest.left())))
                }
                _ => until,
            };
            self.transport.poll(wait, &mut events);
            let drained = events.is_empty();
            self.answer_questions();
            self.take_done()?;
            let mut now = self.clock.now();
            if wall_clock.is_none_or(|read: Instant| now.since(read) >= WALL_CLOCK) {
                self.order.set_wall_clock(self.clock.wall_ahead());
                wall_clock = Some(now);
            }
            let (lent, logs) = (self.execute.is_lent(), self.log.queued() > LOG_QUEUE / 2);
            self.order.set_busy(lent || logs);
            // While execution is lent, what is for it waits here: others hand on what was executed long
            // ago, too.
            let for_execution = self.execute.queued() + self.outbox.execute.len();
            self.order.set_lags(for_execution > EXECUTE_QUEUE);
            for event in events.drain(..) {
                match event {
                    TransportEvent::Frame { from, bytes } => {
                        self.peers.hear(from, now);
                        self.order.handle_frame(from, &bytes, now, &mut self.outbox)?;
                    }
                    other => {
                        if let TransportEvent::Connected(Principal::Replica(id)) = other {
                            self.order.on_link(id, now);
                        }
                        self.peers.note(&other);
                    }
                }
                if self.order.must_verify(false, now) {
                    self.order.verify(now, &mut self.outbox)?;
                    // A batch takes milliseconds, and a look at the links may bring many: others get
                    // to work on what came of this one meanwhile.
                    now = self.clock.now();
                    self.work(now)?;
                    self.transport.flush();
                    now = self.clock.now();
                }
            }
            for (client, span) in self.order.take_silenced() {
                self.transport.pause(Principal::Client(client), span);
            }
            self.order.flush();
            let due = deadline.is_some_and(|at| at <= now);
            // What came before a deadline may be what is waited for.
            if self.order.must_verify(drained || due, now) {
                self.order.verify(now, &mut self.outbox)?;
            }
            if due {
                self.order.handle_timeout(now, &mut self.outbox)?;
            }
            if let Seat::Here(log) = &mut self.log
                && log.has_work()
                && self.rest.is_over()
            {
                let (begin, times) = (Clock::monotonic(), log.rest());
                log.work(&mut self.outbox)?;
                self.rest.after(begin, times);
            }
            self.work(now)?;
            while !self.has_room() && self.ending.is_running() {
                self.stalled_since.get_or_insert(now);
                self.stall()?;
            }
            self.stalled_since = None;
        }
        Ok(())
    }

    fn answer_questions(&self) {
        while let Ok(answer) = self.asked.try_recv() {
            // The caller may have given up.
            let _ = answer.send(self.status());
        }
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
    fn work(&mut self, now: Instant) -> Result<(), NodeError> {
        self.take_back()?;
        let out = &mut self.outbox;
        loop {
            let mut idle = true;
            match &mut self.execute {
                Seat::Here(execute) => {
                    if execute.is_under_way() {
                        execute.progress(out)?;
                    }
                    run_or_lend(&mut self.execute, self.gentle.as_mut(), out)?;
                }
                // Apart it comes behind the log, below.
                Seat::Lent | Seat::Apart(_) => {}
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
                Seat::Lent => unreachable!("the log is never lent"),
                Seat::Apart(queue) => {
                    if !hand_on(&mut out.log, queue) {
                        return Ok(());
                    }
                }
            }
            // A block goes to the log before anything that execution says of it.
            if let Seat::Apart(queue) = &mut self.execute
                && out.log.is_empty()
                && !hand_on(&mut out.execute, queue)
            {
                return Ok(());
            }
            if out.order.is_empty() {
                break;
            }
        }
        // Who removes files is there as long as this thread is, or all end.
        out.removals.drain(..).for_each(|removal| drop(self.removals.send(removal)));
        if let Some(membership) = out.membership.take() {
            self.transport.set_membership(membership);
        }
        while let Some((to, bytes)) = out.send.pop_front() {
            // Loss is counted by the transport, and normal.
            let _ = self.transport.send(to, bytes);
        }
        Ok(())
    }

    /// Takes execution back when its long command is done.
    fn take_back(&mut self) -> Result<(), NodeError> {
        if !matches!(self.execute, Seat::Lent) {
            return Ok(());
        }
        let Some(Back { stage, out, result, .. }) = self.gentle.as_mut().and_then(Gentle::take)
        else {
            return Ok(());
        };
        self.execute = Seat::Here(stage);
        self.outbox.log.extend(out.log);
        self.outbox.order.extend(out.order);
        self.outbox.send.extend(out.send);
        result
    }

    /// What waits for execution does not count: it is bounded where it comes from. While execution is
    /// away, nothing of it grows: consensus delivers nothing, and clients are refused as busy.
    fn has_room(&self) -> bool {
        self.outbox.log.is_empty() && self.order.reads() && !self.order.is_full()
    }

    /// A queue is full: waits until its thread has done something, and reads nothing meanwhile.
    fn stall(&mut self) -> Result<(), NodeError> {
        self.transport.flush();
        self.answer_questions();
        if self.order.is_full() {
            self.order.wait_for_verified(STALL);
            self.order.verify(self.clock.now(), &mut self.outbox)?;
            self.take_done()?;
        } else if let Ok(work) = self.done.recv_timeout(STALL) {
            self.take_work(work)?;
        }
        self.work(self.clock.now())
    }
}

/// Has execution do its commands here, up to one that is long: for that it is lent.
fn run_or_lend(
    seat: &mut Seat<ExecuteStage, ToExecute>,
    mut gentle: Option<&mut Gentle>,
    out: &mut Outbox,
) -> Result<(), NodeError> {
    while let Seat::Here(execute) = seat
        && let Some(command) = out.execute.pop_front()
    {
        let Some(gentle) = gentle.as_deref_mut() else {
            execute.handle(command, out)?;
            continue;
        };
        if !gentle.takes(&command) {
            execute.handle(command, out)?;
        } else if let Seat::Here(stage) = std::mem::replace(seat, Seat::Lent) {
            gentle.lend(stage, command)?;
        }
    }
    Ok(())
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
