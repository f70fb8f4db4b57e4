//! The client as futures, without any async runtime.

use crate::common;

use common::running::{Running, given_time, network, settings};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;
use tercio_client::{AsyncClient, Call, CallError, Client, SubmitError};

fn client(outstanding: usize) -> (AsyncClient, Vec<Running>) {
    let (membership, sockets) = network();
    let replicas = (sockets.into_iter().enumerate())
        .map(|(i, socket)| Running::start(i, socket, &membership))
        .collect();
    let mut settings = settings(&membership);
    settings.core.max_outstanding = outstanding;
    (Client::connect(settings).unwrap().into_async().unwrap(), replicas)
}

/// The smallest executor: it counts how often it was woken.
fn block_on<T>(future: impl Future<Output = T>) -> (T, usize) {
    struct Woken(Thread, AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.unpark();
        }
    }
    let woken = Arc::new(Woken(std::thread::current(), AtomicUsize::new(0)));
    let waker = woken.clone().into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return (value, woken.1.load(Ordering::Relaxed)),
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Many futures polled as one: ready when all are.
struct Join<T>(VecDeque<Call<T>>, Vec<Result<T, CallError>>);

impl<T: Unpin> Future for Join<T> {
    type Output = Vec<Result<T, CallError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for _ in 0..self.0.len() {
            let mut call = self.0.pop_front().unwrap();
            match Pin::new(&mut call).poll(context) {
                Poll::Ready(result) => self.1.push(result),
                Poll::Pending => self.0.push_back(call),
            }
        }
        match self.0.is_empty() {
            true => Poll::Ready(std::mem::take(&mut self.1)),
            false => Poll::Pending,
        }
    }
}

#[test]
fn futures_end_with_results_on_any_executor() {
    let (client, _replicas) = client(4);
    let (results, woken) = block_on(async {
        let one = client.call("one".into()).await.unwrap();
        let all = client.call_all(vec!["a".into(), "b".into()]).await.unwrap();
        let seen = client.query("what".into()).await.unwrap();
        (one, all, seen)
    });
    assert_eq!(results.0, "did one");
    assert_eq!(results.1, ["did a", "did b"]);
    assert_eq!(results.2, "seen what");
    assert!(woken <= 3, "woken only by results, not {woken} times");

    // Far more than may be in flight at once.
    let calls = (0..300).map(|i| client.call(format!("{i}").into())).collect();
    let (mut results, _) = block_on(Join(calls, vec![]));
    let results: Vec<_> = results.drain(..).map(|result| result.unwrap()).collect();
    assert_eq!(results.len(), 300);
    assert!((0..300).all(|i| results.iter().any(|r| *r == format!("did {i}"))));
}

#[test]
fn threads_share_a_client_and_wait_each_for_its_own() {
    let (client, _replicas) = client(16);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let client = client.clone();
            scope.spawn(move || {
                for i in 0..25 {
                    let op = format!("{thread} {i}");
                    assert_eq!(client.call(op.clone().into()).wait().unwrap(), format!("did {op}"));
                }
            });
        }
    });
}

#[test]
fn dropping_a_future_or_the_client_takes_nothing_back() {
    let (client, _replicas) = client(1);
    let first = client.call("first".into());
    drop(client.call("nobody waits".into()));
    let last = client.call("last".into());
    drop(client);
    // One package at a time: the last came after the one that was dropped.
    assert_eq!(last.wait().unwrap(), "did last");
    assert_eq!(first.wait().unwrap(), "did first");
}

#[test]
fn a_call_ends_at_its_own_deadline() {
    let (client, mut replicas) = client(1);
    assert_eq!(client.call("fine".into()).wait().unwrap(), "did fine");
    replicas.drain(2..);
    assert_eq!(client.call("with two".into()).wait().unwrap(), "did with two");
    replicas.drain(1..);
    let hurried = client.within(Duration::from_millis(400));
    // One at a time: the second waits for the first, and no longer than it was told to.
    let patient = client.within(Duration::from_secs(600)).call("a".into());
    let error = hurried.call("b".into()).wait().unwrap_err();
    assert!(matches!(error, CallError::Submit(SubmitError::TooMany { outstanding: 1 })), "{error}");
    given_time(|within| {
        let error = client.within(within).query("c".into()).wait().unwrap_err().to_string();
        let expected = "1 of 4 replicas answered: 0; no answer from 1, 2 and 3";
        if error.starts_with(expected) { Ok(()) } else { Err(error) }
    });
    drop((patient, client, hurried));
}
