//! The bare exchange: what an operation would take if it were nothing but the cache lines that it
//! moves. The same rings between the same two processors, a request and an answer as long as the
//! operation's, the same memory at random behind them; but no session, no batch, no check: each side
//! knows beforehand what the other will send.
//!
//! What of that is the memory's own time, without rings, is measured beside it.
//!
//! It is the server's own thread that answers, inside a call of its service [`Floor`], so that an
//! operation and its floor have the same processors, memory and pages, and neither disturbs the
//! other.

use super::{BenchError, Latencies, Served};
use std::hint::spin_loop;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tercio_prism::client::{Client, ClientError, Draft};
use tercio_prism::clock;
use tercio_prism::engine::{FREE, Service};
use tercio_prism::memory::{Memory, MemoryView};
use tercio_prism::op::{Addr, Capability, Reject};
use tercio_prism::rng::Rng;
use tercio_prism::transport::LinkError;
use tercio_prism::transport::ring::{self, Reader, Writer};
use tercio_prism::transport::shm;
use tercio_prism::wire::{
    AnswerWriter, Header, Kind, REQUEST_HEADER, begin_request, finish_request,
};
use tercio_unsafe_sys::{Words, load_words, store_words};

/// A call of [`Floor`], to answer until the client has had enough; its arguments are a shape's words.
const ANSWER: u64 = FREE + 1;
/// Another one, to do alone what an exchange does in the memory; its arguments are a shape's words and
/// for how many nanoseconds, [`MAX_TOUCH_NS`] at most. Answers with how many nanoseconds half of them
/// took.
const TOUCH: u64 = FREE + 2;
/// For so long at most, since nobody else is served meanwhile.
const MAX_TOUCH_NS: u64 = 100_000_000;
/// In place of an object's number: no more requests will come.
const END: u64 = u64::MAX;
/// Where a request has the object's number.
const NUMBER: usize = REQUEST_HEADER;
/// What is stored.
const FILLER: u64 = 7;
/// How often either side looks for a frame before it gives the other one up: some seconds.
const LOOKS: u32 = 1 << 27;

/// What an exchange does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The object's place is read from the table of pointers, and waited for.
    pub(super) pointer: bool,
    /// Words of the object that are read and sent back.
    pub(super) read: usize,
    /// Words that come with the request and are stored to the object.
    pub(super) write: usize,
}

impl Shape {
    fn words(self) -> [u64; 3] {
        [u64::from(self.pointer), self.read as u64, self.write as u64]
    }
}

/// The server's side.
#[derive(Debug)]
pub(super) struct Floor {
    requests: Reader,
    answers: Writer,
    /// Where the client is handed the rings.
    waiting: UnixListener,
    file: OwnedFd,
    table: Addr,
    region: Addr,
    /// The words of an object.
    stride: usize,
}

impl Floor {
    /// For these objects; hands the rings over at this path, where one client shall ask for them.
    pub(super) fn new(path: &Path, table: Addr, region: Addr, stride: u64) -> io::Result<Self> {
        let (words, file) = Words::shared("tercio-prism-floor", ring::WORDS)?;
        let words = Arc::new(words);
        let waiting = UnixListener::bind(path)?;
        waiting.set_nonblocking(true)?;
        let (requests, answers) = (Reader::of_requests(&words), Writer::of_answers(&words));
        let stride = stride as usize / 8;
        Ok(Self { requests, answers, waiting, file, table, region, stride })
    }

    /// Answers until the client has had enough; gives how often.
    fn answer(&mut self, view: &MemoryView<'_>, shape: Shape) -> Option<u64> {
        let objects = Objects::new(self, view)?;
        let (mut request, mut out) = (Vec::new(), answer_of(shape));
        let header = out.len() - shape.read;
        let mut answered = 0;
        loop {
            receive(&mut self.requests, &mut request).ok()?;
            let [_, _, _, _, _, number, _, _, data @ ..] = &request[..] else { return None };
            if *number == END {
                return Some(answered);
            }
            out.truncate(header);
            objects.touch(shape, *number as usize, data, &mut out)?;
            if !self.answers.push(&out, true) {
                return None;
            }
            answered += 1;
        }
    }

    /// What the memory alone takes, of objects at random.
    fn alone(&self, view: &MemoryView<'_>, shape: Shape, for_ns: u64) -> Option<u64> {
        let objects = Objects::new(self, view)?;
        let count = (objects.words.len() / self.stride) as u64;
        let (data, mut out, mut rng) = (vec![FILLER; shape.write], Vec::new(), Rng::new(19));
        let mut latencies = Latencies::default();
        let until_ns = clock::now_ns() + for_ns.min(MAX_TOUCH_NS);
        let mut start = 0;
        while start < until_ns {
            let number = rng.below(count) as usize;
            out.clear();
            start = clock::now_ns();
            objects.touch(shape, number, &data, &mut out)?;
            latencies.record(clock::now_ns() - start);
        }
        Some((latencies.summary().p50_us * 1e3) as u64)
    }
}

/// The memory of a view.
struct Objects<'a> {
    table: &'a [AtomicU64],
    words: &'a [AtomicU64],
    stride: usize,
}

impl<'a> Objects<'a> {
    fn new(floor: &Floor, view: &'a MemoryView<'_>) -> Option<Self> {
        let (table, words) = (view.words(floor.table)?, view.words(floor.region)?);
        Some(Self { table, words, stride: floor.stride })
    }

    /// Stores `data` to an object and appends what it has.
    #[inline(always)]
    fn touch(&self, shape: Shape, number: usize, data: &[u64], out: &mut Vec<u64>) -> Option<()> {
        let at = if shape.pointer {
            let [to, _] = self.table.as_chunks::<2>().0.get(number)?;
            Addr(to.load(Relaxed)).offset() as usize / 8
        } else {
            number.checked_mul(self.stride)?
        };
        let object = self.words.get(at..)?.get(..self.stride)?;
        store_words(data, object.get(..data.len())?);
        load_words(&object[..shape.read], out);
        Some(())
    }
}

impl Service for Floor {
    fn call(
        &mut self,
        view: &MemoryView<'_>,
        body: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Reject> {
        let &[method, pointer, read, write, ref rest @ ..] = body else {
            return Err(Reject::UnknownMethod);
        };
        let shape = Shape { pointer: pointer != 0, read: read as usize, write: write as usize };
        if shape.read.max(shape.write) > self.stride {
            return Err(Reject::TooLong);
        }
        let answer = match (method, rest) {
            (ANSWER, []) => self.answer(view, shape),
            (TOUCH, [for_ns]) => self.alone(view, shape, *for_ns),
            _ => return Err(Reject::UnknownMethod),
        };
        out.push(answer.ok_or(Reject::Malformed)?);
        Ok(())
    }

    fn maintain(&mut self, _memory: &Memory, _now_ns: u64) {
        if let Ok((stream, _)) = self.waiting.accept() {
            // One that is gone again will ask again.
            let _ = shm::send_rings(&stream, self.file.as_fd());
        }
    }

    fn client_lost(&mut self) {}
}

/// The client's side.
#[derive(Debug)]
pub(super) struct Bare {
    client: Client,
    requests: Writer,
    answers: Reader,
    objects: u64,
    rng: Rng,
    request: Vec<u64>,
    answer: Vec<u64>,
}

impl Bare {
    /// `None` where the transport has no rings.
    pub(super) fn new(served: &Served) -> Result<Option<Self>, BenchError> {
        let Some(path) = &served.floor else { return Ok(None) };
        let file = shm::receive_rings(&UnixStream::connect(path)?)?;
        let words = Arc::new(Words::of_shared(&file, ring::WORDS)?);
        Ok(Some(Self {
            client: served.client(&served.plain)?,
            requests: Writer::of_requests(&words),
            answers: Reader::of_answers(&words),
            objects: served.objects,
            rng: Rng::new(17),
            request: Vec::new(),
            answer: Vec::new(),
        }))
    }

    /// The latencies of exchanges, one after another, for so long; of one at least.
    pub(super) fn latency(&mut self, shape: Shape, for_ns: u64) -> Result<Latencies, BenchError> {
        self.begin(shape)?;
        let mut latencies = Latencies::default();
        let until_ns = clock::now_ns() + for_ns;
        let mut start = 0;
        while start < until_ns {
            self.request[NUMBER] = self.rng.below(self.objects);
            start = clock::now_ns();
            self.exchange()?;
            latencies.record(clock::now_ns() - start);
        }
        self.end(latencies.0.len() as u64)?;
        Ok(latencies)
    }

    /// What half of the exchanges take at least for what they do in the memory, in microseconds: the
    /// server's thread does nothing else for so long.
    pub(super) fn memory_us(&mut self, shape: Shape, for_ns: u64) -> Result<f64, BenchError> {
        let [pointer, read, write] = shape.words();
        match self.client.call(TOUCH, &[pointer, read, write, for_ns])?[..] {
            [nanos] => Ok(nanos as f64 / 1e3),
            _ => Err(BenchError::Wrong("the server did not measure".into())),
        }
    }

    fn begin(&mut self, shape: Shape) -> Result<(), BenchError> {
        let mut call = Draft::default();
        call.call(ANSWER, &shape.words());
        self.request = request_of(shape);
        self.client.submit(&call, clock::now_ns())?;
        Ok(self.client.flush()?)
    }

    fn exchange(&mut self) -> Result<(), ClientError> {
        if !self.requests.push(&self.request, true) {
            return Err(LinkError::Full.into());
        }
        receive(&mut self.answers, &mut self.answer)
    }

    /// This many requests were answered.
    fn end(&mut self, answered: u64) -> Result<(), BenchError> {
        self.request[NUMBER] = END;
        if !self.requests.push(&self.request, true) {
            return Err(ClientError::from(LinkError::Full).into());
        }
        loop {
            let counted = self.client.poll(|answer| match answer.rejected {
                Some(why) => Err(ClientError::Rejected(why)),
                None => Ok(answer.body() == [answered]),
            })?;
            match counted.transpose()? {
                Some(true) => return Ok(()),
                Some(false) => return Err(BenchError::Wrong("not all was answered".into())),
                None => spin_loop(),
            }
        }
    }
}

/// As long as one operation's request: three words and its data.
fn request_of(shape: Shape) -> Vec<u64> {
    let mut frame = Vec::new();
    let (kind, capability) = (Kind::Call, Capability(0));
    begin_request(&mut frame, &Header { kind, connection: 0, number: 0, capability });
    frame.resize(NUMBER + 3, 0);
    frame.resize(NUMBER + 3 + shape.write, FILLER);
    finish_request(&mut frame, 0, 0).expect("an object fits in a request");
    frame
}

/// As long as one operation's answer: a word and its data.
fn answer_of(shape: Shape) -> Vec<u64> {
    let mut frame = Vec::new();
    let mut answer = AnswerWriter::begin(&mut frame, Kind::Call, 0, 0);
    answer.body().extend(std::iter::repeat_n(0, 1 + shape.read));
    answer.finish();
    frame
}

fn receive(reader: &mut Reader, frame: &mut Vec<u64>) -> Result<(), ClientError> {
    for _ in 0..LOOKS {
        frame.clear();
        if reader.pop(frame)? {
            reader.tell();
            return Ok(());
        }
        spin_loop();
    }
    Err(ClientError::NoAnswer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prism::{Transport, server};
    use std::sync::atomic::AtomicBool;
    use tercio_prism::rng::mix;
    use tercio_prism::server::Options;

    const OBJECTS: u32 = 1000;
    const WORDS: usize = 16;

    /// Also when a test fails, the server must end.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn objects_are_read_and_stored_in_bare_exchanges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shm");
        let made = server::make(OBJECTS, WORDS * 8, (Transport::Shm, &path), Options::default());
        let (mut server, served) = made.unwrap();
        // The table in reverse, so that who does not look there finds another object.
        let reverse = |number: u64| u64::from(OBJECTS) - 1 - number;
        {
            let view = server.engine().memory().view(0);
            let table = view.words(Addr(served.table)).unwrap();
            for number in 0..u64::from(OBJECTS) {
                let to = Addr(served.region).plus(reverse(number) * served.stride);
                table[number as usize * 2].store(to.0, Relaxed);
            }
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| server.run(&stop, &AtomicU64::new(0)).unwrap());
            let mut bare = Bare::new(&served).unwrap().unwrap();
            let mut run =
                |pointer: bool, read: usize, write: usize, expected: &dyn Fn(u64) -> u64| {
                    bare.begin(Shape { pointer, read, write }).unwrap();
                    for number in 0..u64::from(OBJECTS) {
                        bare.request[NUMBER] = number;
                        bare.exchange().unwrap();
                        let data = bare.answer.split_at(bare.answer.len() - read).1;
                        assert_eq!(data, vec![expected(number); read], "object {number}");
                    }
                    bare.end(u64::from(OBJECTS)).unwrap();
                };
            run(false, WORDS, 0, &mix);
            run(true, WORDS, 0, &|number| mix(reverse(number)));
            run(true, 0, WORDS, &mix);
            run(false, WORDS, 0, &|_| FILLER);
            assert!(
                !bare.latency(Shape { pointer: true, read: 4, write: 4 }, 0).unwrap().0.is_empty()
            );

            let mut call =
                |method, arguments: &[u64]| bare.client.call(method, arguments).unwrap_err();
            assert!(matches!(call(ANSWER, &[0, 17, 0]), ClientError::Rejected(Reject::TooLong)));
            assert!(matches!(call(ANSWER, &[0, 0, 17]), ClientError::Rejected(Reject::TooLong)));
            let unknown =
                [call(ANSWER, &[0]), call(TOUCH, &[0, 0, 0]), call(TOUCH + 1, &[0, 0, 0])];
            for error in unknown {
                assert!(matches!(error, ClientError::Rejected(Reject::UnknownMethod)), "{error}");
            }
            let shape = Shape { pointer: true, read: WORDS, write: WORDS };
            for for_ns in [1_000_000, u64::MAX] {
                assert!(bare.memory_us(shape, for_ns).unwrap() > 0.0);
            }
            bare.begin(Shape { pointer: false, read: 1, write: 0 }).unwrap();
            bare.request[NUMBER] = u64::MAX / 2;
            assert!(bare.requests.push(&bare.request, true), "there is room");
            let error = bare.end(0).unwrap_err().to_string();
            assert!(error.contains(&Reject::Malformed.to_string()), "{error}");
        });
    }
}
