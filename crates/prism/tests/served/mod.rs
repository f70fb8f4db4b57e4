//! A server on a thread of its own, of memory that is published, in shared memory.
#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tercio_prism::client::{Client, ClientError, Draft};
use tercio_prism::clock::now_ns;
use tercio_prism::engine::{Engine, Service};
use tercio_prism::memory::{Memory, Rights};
use tercio_prism::op::{Action, Addr, Capability, Deref, Op, Payload, Source, Status};
use tercio_prism::server::{Options, Server};
use tercio_prism::transport::Endpoint;
use tercio_prism::wire::Answer;

pub(crate) const OURS: Capability = Capability(0xd1_2ec7);

/// Ends another thread whether or not this one's work ends well.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves while `work` runs.
pub(crate) fn serving(
    memory: &Arc<Memory>,
    service: Option<Box<dyn Service>>,
    work: impl FnOnce(&Endpoint),
) {
    let folder = tempfile::tempdir().unwrap();
    let (port, endpoint) = Endpoint::Shm(folder.path().join("socket")).port().unwrap();
    let mut engine = Engine::new(Arc::clone(memory), 0, 1);
    if let Some(service) = service {
        engine.serve(OURS, service);
    }
    let mut server = Server::new(engine, vec![port], Options::default());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // The server is the thread's: should it fail, its clients notice.
        let stop = &stop;
        let serving = scope.spawn(move || server.run(stop, &AtomicU64::new(0)));
        {
            let _stop = Stop(stop);
            work(&endpoint);
        }
        serving.join().unwrap().unwrap();
    });
}

pub(crate) fn client(endpoint: &Endpoint) -> Client {
    Client::connect(endpoint.link().unwrap(), OURS).unwrap()
}

/// One that reads without the server.
pub(crate) fn reader(endpoint: &Endpoint) -> Client {
    let mut client = client(endpoint);
    client.read_directly().unwrap();
    client
}

pub(crate) fn read(addr: Addr, len: u32, deref: Deref) -> Op<'static> {
    Action::Read { addr, len, deref, redirect: None }.into()
}

pub(crate) fn write(addr: Addr, words: &[u64]) -> Op<'_> {
    let source = Source::Inline(Payload::of_words(words));
    Action::Write { addr, deref: Deref::Direct, source }.into()
}

/// How each operation ended, and what it gave.
pub(crate) type Outcomes = Vec<(Status, Vec<u64>)>;

fn outcomes(answer: &Answer<'_>) -> Outcomes {
    answer.outcomes().map(|o| (o.status, o.data.words().to_vec())).collect()
}

/// Runs a request.
pub(crate) fn run(client: &mut Client, ops: &[Op<'_>]) -> Result<Outcomes, ClientError> {
    client.run(ops, outcomes)
}

/// Runs requests that are submitted together.
pub(crate) fn burst(
    client: &mut Client,
    requests: &[Vec<Op<'_>>],
) -> Result<Vec<Outcomes>, ClientError> {
    let mut draft = Draft::default();
    for ops in requests {
        draft.clear();
        ops.iter().for_each(|op| draft.op(*op));
        client.submit(&draft, now_ns())?;
    }
    client.flush()?;
    let mut answers = Vec::new();
    while answers.len() < requests.len() {
        answers.extend(client.poll(outcomes)?);
    }
    Ok(answers)
}

/// One client writes an object of many lines again and again, each time another number to all of it;
/// the other reads it without the server, until `enough` says so of how many reads were without it and
/// how many numbers were seen. Says what it read that never was.
pub(crate) fn read_while_it_is_written(
    mut enough: impl FnMut(u64, u64) -> bool,
) -> Result<(), String> {
    const WORDS: usize = 512;
    let memory = Arc::new(Memory::published().unwrap());
    let object = memory.register(OURS, Rights::ALL, WORDS * 8).unwrap();
    let mut result = Ok(());
    serving(&memory, None, |endpoint| {
        let (mut writer, mut reader) = (client(endpoint), reader(endpoint));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _done = Stop(&done);
            scope.spawn(|| {
                for number in 1.. {
                    let outcomes = run(&mut writer, &[write(object, &[number; WORDS])]).unwrap();
                    assert_eq!(outcomes[0].0, Status::Ok);
                    // Now and then it leaves the memory alone for a while.
                    for _ in 0..number % 64 * 64 {
                        std::hint::spin_loop();
                    }
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let (mut changes, mut last) = (0, 0);
            while result.is_ok() && !enough(reader.answered_directly(), changes) {
                let read = [read(object, WORDS as u32 * 8, Deref::Direct)];
                let outcomes = run(&mut reader, &read).unwrap();
                let words = &outcomes[0].1;
                if words.iter().any(|word| *word != words[0]) {
                    result = Err(format!("half of {} and half of {}", words[0], words[WORDS - 1]));
                } else if words[0] < last {
                    result = Err(format!("{} after {last}", words[0]));
                }
                (changes, last) = (changes + u64::from(words[0] != last), words[0]);
            }
        });
    });
    result
}
