//! Runs commands of a store over a client: one and wait, or many at once.

use super::{Command, Done, Progress, StoreClient, StoreError};
use crate::client::{Client, ClientError, Draft};
use crate::clock;
use crate::engine::WINDOW;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The store says so.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// What the caller called it.
    pub tag: u64,
    /// When it began.
    pub began_ns: u64,
    /// How it ended.
    pub result: Result<Done<'a>, StoreError>,
}

#[derive(Debug, Default)]
struct Running<T> {
    task: T,
    tag: u64,
    began_ns: u64,
    /// To be sent then.
    paused_until: Option<u64>,
    draft: Draft,
}

/// Commands of one store over one client.
#[derive(Debug)]
pub struct Driver<S: StoreClient> {
    store: S,
    client: Client,
    /// By the request's number modulo the window; `None` also for requests nobody waits for.
    running: Vec<Option<Box<Running<S::Task>>>>,
    paused: Vec<Box<Running<S::Task>>>,
    spare: Vec<Box<Running<S::Task>>>,
    background: Draft,
}

impl<S: StoreClient> Driver<S> {
    /// Drives a store's commands over a client.
    #[must_use]
    pub fn new(store: S, client: Client) -> Self {
        let running = (0..WINDOW).map(|_| None).collect();
        let (paused, spare) = (Vec::new(), Vec::new());
        Self { store, client, running, paused, spare, background: Draft::default() }
    }

    /// The store's client.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The client beneath; what was not reported yet is forgotten.
    #[must_use]
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Whether another command can begin now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.client.has_room() && self.paused.is_empty()
    }

    /// Begins a command; its end will be told with the tag.
    ///
    /// # Errors
    /// When the command makes no sense or the link fails.
    ///
    /// # Panics
    /// When there is no room.
    pub fn begin(
        &mut self,
        tag: u64,
        command: Command<'_>,
        now_ns: u64,
    ) -> Result<(), DriverError> {
        let mut running = self.spare.pop().unwrap_or_default();
        (running.tag, running.began_ns, running.paused_until) = (tag, now_ns, None);
        running.draft.clear();
        match self.store.begin(&mut running.task, command, &mut running.draft) {
            Progress::Ended(result) => {
                self.spare.push(running);
                result?;
                unreachable!("a command needs a request at least");
            }
            Progress::Send | Progress::SendAfter(_) => Ok(self.send(running, now_ns)?),
        }
    }

    fn send(&mut self, running: Box<Running<S::Task>>, now_ns: u64) -> Result<(), ClientError> {
        let number = self.client.submit(&running.draft, now_ns)?;
        self.running[(number % WINDOW as u64) as usize] = Some(running);
        Ok(())
    }

    /// Sends what has begun.
    ///
    /// # Errors
    /// When the link fails.
    pub fn flush(&mut self) -> Result<(), DriverError> {
        Ok(self.client.flush()?)
    }

    /// Looks once for an answer and goes on with its command; hands commands that ended to `ended`.
    /// What it drafts leaves with the next [`Driver::flush`]. False when nothing had arrived.
    ///
    /// # Errors
    /// When the link fails.
    pub fn poll(&mut self, mut ended: impl FnMut(Ended<'_>)) -> Result<bool, DriverError> {
        let (running, store) = (&mut self.running, &mut self.store);
        let next = self.client.poll(|answer| {
            let slot = (answer.number % WINDOW as u64) as usize;
            let mut running = running[slot].take()?;
            let pause_ns = match store.proceed(&mut running.task, answer, &mut running.draft) {
                Progress::Send => Some(0),
                Progress::SendAfter(pause_ns) => Some(pause_ns),
                Progress::Ended(result) => {
                    ended(Ended { tag: running.tag, began_ns: running.began_ns, result });
                    None
                }
            };
            Some((running, pause_ns))
        })?;
        let arrived = next.is_some();
        if let Some(Some((mut running, pause_ns))) = next {
            match pause_ns {
                None => {
                    self.spare.push(running);
                    self.send_background(false)?;
                }
                Some(0) => {
                    let now_ns = if self.client.is_reliable() { 0 } else { clock::now_ns() };
                    self.send(running, now_ns)?;
                }
                Some(pause_ns) => {
                    running.paused_until = Some(clock::now_ns() + pause_ns);
                    self.paused.push(running);
                }
            }
        }
        if !self.paused.is_empty() {
            let now = clock::now_ns();
            while self.client.has_room()
                && let Some(at) =
                    self.paused.iter().position(|r| r.paused_until.is_some_and(|t| t <= now))
            {
                let running = self.paused.swap_remove(at);
                self.send(running, now)?;
                self.client.flush()?;
            }
        }
        Ok(arrived)
    }

    fn send_background(&mut self, all: bool) -> Result<(), DriverError> {
        while self.client.has_room() && self.store.background(&mut self.background, all) {
            self.client.submit(&self.background, clock::now_ns())?;
        }
        Ok(())
    }

    /// Runs one command and waits for its end; hands how it ended well to `read`.
    ///
    /// # Errors
    /// When it did not end well.
    pub fn run<R>(
        &mut self,
        command: Command<'_>,
        read: impl FnOnce(Done<'_>) -> R,
    ) -> Result<R, DriverError> {
        self.begin(0, command, clock::now_ns())?;
        let (mut read, mut outcome) = (Some(read), None);
        while outcome.is_none() {
            self.flush()?;
            self.poll(|ended| {
                let read = &mut read;
                outcome = Some(ended.result.map(|done| read.take().expect("it ends once")(done)));
            })?;
        }
        self.flush()?;
        Ok(outcome.expect("the loop ends with one")?)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When it could not be read.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, DriverError> {
        self.run(Command::Get(key), |done| match done {
            Done::Found(value) => Some(value.to_vec()),
            _ => None,
        })
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When it could not be set.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), DriverError> {
        self.run(Command::Put(key, value), |_| ())
    }

    /// Removes a key; tells whether it was there to be removed.
    ///
    /// # Errors
    /// When it could not be removed.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, DriverError> {
        self.run(Command::Delete(key), |done| done == Done::Stored)
    }

    /// Reports what is left to report and waits until nothing is in flight.
    ///
    /// # Errors
    /// When the link fails.
    pub fn finish(&mut self) -> Result<(), DriverError> {
        self.send_background(true)?;
        self.flush()?;
        while self.client.under_way() > 0 {
            self.poll(|_| ())?;
        }
        Ok(())
    }
}
