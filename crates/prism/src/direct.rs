//! Reads without the server. A client on the server's machine maps the memory that its capability
//! opens and runs requests that only read by itself, with the executor that the server has. What
//! remains of an indirect READ then are its two dependent misses: nothing goes to another processor
//! and back, and the server is not kept from others.
//!
//! **What is true of such a read.** A sequence lock: the server has a *version*, which is odd from
//! before to after each request that may change something, each call and each upkeep. What was read
//! counts only if the version was even before the first access and the same after the last one. Then nothing was
//! changed in between, and the whole request, however long its chain, saw the memory of one moment
//! while it was in flight: as if the server had run it then. What is submitted together is fetched
//! together, as by the server, but each request has its own moment. (Boehm, "Can
//! seqlocks get along with programming language memory models?", MSPC'12, has the fences.)
//!
//! **What is left to the server**: whatever else. Requests that may change something; those behind one
//! that is in flight, so that requests are run in order; those that found a change each time they
//! tried; and those that failed here, for the server alone says why something fails. A client that
//! reads while others write much so becomes an ordinary one.
//!
//! **Whom it trusts.** The client reads what it could read anyway, region by region as its capability
//! opens them: it is handed the descriptors of those (`SCM_RIGHTS`) and of nothing else, and can write
//! nothing. With each read it looks whether regions have come or gone; one
//! that is taken away is not read any more, though who keeps it mapped could look at what it was, as if
//! he had copied it before. The server takes nothing from the client.

use crate::exec;
use crate::memory::{Control, Memory, MemoryView};
use crate::op::Capability;
use crate::wire::{AnswerWriter, Kind, Request};
use crate::zoo::{Defence, stands};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// How often a request is tried here before the server is asked.
const TRIES: u32 = 3;

/// A client's hold of the server's memory, the requests that it will run there, and the answers that it
/// gave itself.
#[derive(Debug)]
pub(crate) struct Direct {
    memory: Memory,
    control: Control,
    /// Requests that were not run yet.
    waiting: VecDeque<Vec<u64>>,
    /// Answers that were not taken yet.
    ready: VecDeque<Vec<u64>>,
    /// Frames that are no longer needed, to be filled again.
    used: Vec<Vec<u64>>,
    /// What redirected READs are read to.
    spare: Vec<u64>,
    pointers: Vec<exec::Pointer>,
}

impl Direct {
    /// Of what the server described to the holder of `by`, and the files that it handed over; of the
    /// same server's memory, some may be `known` already.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(crate) fn open(
        described: &[u64],
        files: &[OwnedFd],
        by: Capability,
        known: Option<&Self>,
    ) -> io::Result<Self> {
        let known = known.map(|direct| &direct.memory);
        let (memory, control) = Memory::described(described, files, by, known)?;
        let (waiting, ready, used) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let (spare, pointers) = (Vec::new(), Vec::new());
        Ok(Self { memory, control, waiting, ready, used, spare, pointers })
    }

    /// Whether regions have come or gone since.
    pub(crate) fn is_outdated(&self) -> bool {
        self.control.is_outdated()
    }

    /// How many requests the server has not seen: they wait to be run, or their answers to be taken.
    pub(crate) fn under_way(&self) -> usize {
        self.waiting.len() + self.ready.len()
    }

    /// Takes a request, to be run with the next [`Direct::run`].
    pub(crate) fn push(&mut self, frame: &[u64]) {
        let mut request = self.used.pop().unwrap_or_default();
        request.clear();
        request.extend_from_slice(frame);
        self.waiting.push_back(request);
    }

    /// Runs what was taken, in order, groups of requests like the server. The first one that the server
    /// has to be asked for is handed to `ask`, and so are all those behind it.
    ///
    /// # Errors
    /// What `ask` says.
    pub(crate) fn run<E>(&mut self, mut ask: impl FnMut(&[u64]) -> Result<(), E>) -> Result<(), E> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let Self { memory, control, waiting, ready, used, spare, pointers } = self;
        let view = memory.view(0);
        while !waiting.is_empty() {
            let group = waiting.len().min(exec::GROUP);
            if group > 1 {
                let requests = waiting.iter().take(group).map(Vec::as_slice);
                exec::ask(&view, requests, pointers);
                exec::follow(&view, pointers);
            }
            for _ in 0..group {
                let request = waiting.front().expect("a group is of those that wait");
                let mut answer = used.pop().unwrap_or_default();
                if !read(&view, control, request, &mut answer, spare, group == 1) {
                    used.push(answer);
                    return waiting.drain(..).try_for_each(|request| {
                        let asked = ask(&request);
                        used.push(request);
                        asked
                    });
                }
                ready.push_back(answer);
                used.extend(waiting.pop_front());
            }
        }
        Ok(())
    }

    /// Takes the next answer, in place of `frame`. False when there is none.
    pub(crate) fn take(&mut self, frame: &mut Vec<u64>) -> bool {
        let Some(answer) = self.ready.pop_front() else { return false };
        self.used.push(std::mem::replace(frame, answer));
        true
    }
}

/// Runs the request in `frame`, if it only reads. False when the server has to be asked. `alone`: no
/// pointer was followed to prefetch.
fn read(
    view: &MemoryView<'_>,
    control: &Control,
    frame: &[u64],
    out: &mut Vec<u64>,
    spare: &mut Vec<u64>,
    alone: bool,
) -> bool {
    let Ok(request) = &Request::decode(frame) else { return false };
    if request.header.kind != Kind::Ops || request.mutates() {
        return false;
    }
    (0..TRIES).any(|_| {
        let Some(version) = control.begin() else {
            std::hint::spin_loop();
            return false;
        };
        out.clear();
        let header = &request.header;
        let (kind, connection, number) = (header.kind, header.connection, header.number);
        let mut answer = AnswerWriter::begin(out, kind, connection, number);
        let succeeded = exec::run(view, request, &mut answer, spare, alone);
        answer.finish();
        let whole = control.is_unchanged(version) || !stands(Defence::Unchanged);
        succeeded && whole && !control.is_outdated()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Draft, Session};
    use crate::engine::{Batch, Engine, FREE, Peer, Service};
    use crate::memory::Rights;
    use crate::op::{Action, Addr, Deref, Reject};
    use crate::wire::Answer;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    const OURS: Capability = Capability(6);
    const WORDS: usize = 512;

    /// Fills an object with another number each time.
    struct Filler {
        object: Addr,
        number: u64,
    }

    impl Filler {
        fn fill(&mut self, view: &MemoryView<'_>) {
            self.number += 1;
            let words = view.words(self.object).expect("it is registered");
            words.iter().for_each(|word| word.store(self.number, Relaxed));
        }
    }

    impl Service for Filler {
        fn call(
            &mut self,
            view: &MemoryView<'_>,
            _: &[u64],
            _: &mut Vec<u64>,
        ) -> Result<(), Reject> {
            self.fill(view);
            Ok(())
        }

        fn maintain(&mut self, memory: &Memory, _: u64) {
            self.fill(&memory.view(0));
        }

        fn client_lost(&mut self) {}
    }

    /// Reads what `change` changes all the time on another thread.
    fn read_while(change: impl Fn(&mut Engine, &Memory) + Sync) {
        let memory = Arc::new(Memory::published().unwrap());
        let object = memory.register(OURS, Rights::ALL, WORDS * 8).unwrap();
        let mut engine = Engine::new(Arc::clone(&memory), 0, 0);
        engine.serve(OURS, Box::new(Filler { object, number: 0 }));
        let mut described = Vec::new();
        let files = memory.view(0).describe(OURS, &mut described).unwrap();
        let files: Vec<_> = files.iter().map(|file| file.try_clone().unwrap()).collect();
        let mut direct = Direct::open(&described, &files, OURS, None).unwrap();
        let len = WORDS as u32 * 8;
        let frame = frame(1, |draft| {
            draft.op(Action::Read { addr: object, len, deref: Deref::Direct, redirect: None });
        });
        let done = AtomicBool::new(false);
        /// Also when the test fails, the other thread must end.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        std::thread::scope(|scope| {
            let _done = Done(&done);
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    change(&mut engine, &memory);
                    (0..100).for_each(|_| std::hint::spin_loop());
                }
            });
            let (mut whole, mut changes, mut last, mut answer) = (0, 0, 0, Vec::new());
            while whole < 20_000 || changes < 500 {
                direct.push(&frame);
                direct.run(|_| Ok::<_, Infallible>(())).unwrap();
                if !direct.take(&mut answer) {
                    continue;
                }
                let [outcome] = Answer::decode(&answer).unwrap().take().unwrap();
                let words = outcome.data.words();
                assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                (whole, changes) = (whole + 1, changes + u64::from(words[0] != last));
                last = words[0];
            }
        });
    }

    fn frame(connection: u32, fill: impl FnOnce(&mut Draft)) -> Vec<u64> {
        let (mut draft, mut frame) = (Draft::default(), Vec::new());
        fill(&mut draft);
        let mut session = Session::new(connection, OURS, true);
        session.send(&draft, 0, |words| frame.extend_from_slice(words)).unwrap();
        frame
    }

    fn run(engine: &mut Engine, memory: &Memory, frame: &[u64]) -> u32 {
        let (mut batch, mut connection) = (Batch::default(), 0);
        batch.push(Peer::Link(1), frame);
        engine.run(&memory.view(0), &batch, true, 0, |_, answer| {
            let answer = Answer::decode(answer).unwrap();
            assert_eq!(answer.rejected, None);
            connection = answer.connection;
        });
        connection
    }

    #[test]
    fn what_upkeep_changes_is_not_read_half() {
        read_while(|engine, _| engine.maintain(0));
    }

    #[test]
    fn what_a_call_changes_is_not_read_half() {
        read_while(|engine, memory| {
            let connection = run(engine, memory, &Session::greeting(OURS, 1));
            run(engine, memory, &frame(connection, |draft| draft.call(FREE + 1, &[])));
        });
    }
}
