//! What coroutines wait for.

use super::{CallState, Lost, Net, Reply};
use crate::client::Draft;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request's answer. Whoever drops it does not want to know; the request is sent all the same.
#[derive(Debug)]
pub struct Call {
    net: Net,
    call: usize,
    ended: bool,
}

impl Call {
    pub(super) const fn new(net: Net, call: usize) -> Self {
        Self { net, call, ended: false }
    }
}

impl Future for Call {
    type Output = Result<Reply, Lost>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let (net, call) = (self.net.clone(), self.call);
        let inner = &mut *net.0.borrow_mut();
        match std::mem::replace(&mut inner.calls[call], CallState::Free) {
            CallState::Waiting(_) => {
                // It may have been handed on to another coroutine.
                inner.calls[call] = CallState::Waiting(inner.current);
                Poll::Pending
            }
            CallState::Answered(result) => {
                self.ended = true;
                inner.free_calls.push(call);
                Poll::Ready(result)
            }
            CallState::Free | CallState::Abandoned => panic!("polled after it had ended"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let inner = &mut *self.net.0.borrow_mut();
        match inner.calls[self.call] {
            CallState::Answered(_) => {
                inner.calls[self.call] = CallState::Free;
                inner.free_calls.push(self.call);
            }
            _ => inner.calls[self.call] = CallState::Abandoned,
        }
    }
}

/// Ends at a time.
#[derive(Debug)]
pub struct Sleep {
    net: Net,
    until_ns: u64,
}

impl Sleep {
    pub(super) const fn new(net: Net, until_ns: u64) -> Self {
        Self { net, until_ns }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.net.0.borrow_mut();
        if inner.now_ns >= self.until_ns {
            return Poll::Ready(());
        }
        inner.timers.insert((self.until_ns, inner.current));
        Poll::Pending
    }
}

/// Requests to several servers, of which not all need to answer.
#[derive(Debug)]
pub struct Round {
    net: Net,
    calls: Vec<(usize, Call)>,
}

impl Round {
    pub(super) const fn new(net: Net) -> Self {
        Self { net, calls: Vec::new() }
    }

    /// Asks another server, or one of them again.
    pub fn also(&mut self, server: usize, fill: impl FnOnce(&mut Draft)) {
        let call = self.net.ask(server, fill);
        self.calls.push((server, call));
    }

    /// How many answers are outstanding.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.calls.len()
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(usize, Result<Reply, Lost>)> {
        for at in 0..self.calls.len() {
            if let Poll::Ready(result) = Pin::new(&mut self.calls[at].1).poll(context) {
                let (server, _) = self.calls.remove(at);
                return Poll::Ready((server, result));
            }
        }
        Poll::Pending
    }

    /// The next answer to arrive, and whose it is. `None` when none is outstanding.
    pub async fn next(&mut self) -> Option<(usize, Result<Reply, Lost>)> {
        if self.calls.is_empty() {
            return None;
        }
        Some(poll_fn(|context| self.poll_next(context)).await)
    }

    /// The same, but waits no longer than until this time.
    ///
    /// # Errors
    /// When it is that late.
    pub async fn next_before(
        &mut self,
        until_ns: u64,
    ) -> Result<Option<(usize, Result<Reply, Lost>)>, Late> {
        if self.calls.is_empty() {
            return Ok(None);
        }
        let mut sleep = Sleep::new(self.net.clone(), until_ns);
        poll_fn(|context| match self.poll_next(context) {
            Poll::Ready(next) => Poll::Ready(Ok(Some(next))),
            Poll::Pending => Pin::new(&mut sleep).poll(context).map(|()| Err(Late)),
        })
        .await
    }

    /// Leaves the answers that are outstanding to a coroutine that nobody waits for.
    pub fn leave(mut self, mut each: impl FnMut(usize, Reply) + 'static) {
        if self.calls.is_empty() {
            return;
        }
        let net = self.net.clone();
        net.spawn(async move {
            while let Some((server, result)) = self.next().await {
                if let Ok(reply) = result {
                    each(server, reply);
                }
            }
        });
    }
}

/// Nothing came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// Waits for all of these, which go on side by side.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|f| (Some(Box::pin(f)), None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, output) in &mut futures {
            if let Some(running) = future {
                match running.as_mut().poll(context) {
                    Poll::Ready(value) => (*future, *output) = (None, Some(value)),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().map(|(_, output)| output.expect("all have ended")).collect()
}
