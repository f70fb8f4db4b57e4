//! What a message costs on a TCP connection of the loopback network.

use crate::figures::median;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use tercio_network::thread_cpu;

const ROUNDS: usize = 5;
/// Messages of one measurement when they travel in batches, and alone.
const BATCHED: usize = 128 * 256;
const ALONE: usize = 4_000;
/// Against a hang only.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processor time of a message at its two ends.
pub(super) struct Cost {
    pub(super) write_ns: f64,
    pub(super) read_ns: f64,
}

/// Two ends of a fresh connection.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let other = listener.accept()?.0;
    for end in [&one, &other] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok((one, other))
}

/// One thread writes `batch` messages of `len` bytes at a time as fast as it can, another reads as
/// many at a time.
pub(super) fn batched(len: usize, batch: usize) -> io::Result<Cost> {
    let (mut writes, mut reads) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let (mut from, mut to) = pair()?;
        let reader = thread::spawn(move || -> io::Result<Duration> {
            let mut buffer = vec![0; len * batch];
            let start = thread_cpu();
            for _ in 0..BATCHED / batch {
                to.read_exact(&mut buffer)?;
            }
            Ok(thread_cpu() - start)
        });
        let buffer = vec![0; len * batch];
        let start = thread_cpu();
        for _ in 0..BATCHED / batch {
            from.write_all(&buffer)?;
        }
        writes.push((thread_cpu() - start).as_secs_f64() * 1e9 / BATCHED as f64);
        let read = reader.join().expect("the reader does not panic")?;
        reads.push(read.as_secs_f64() * 1e9 / BATCHED as f64);
    }
    Ok(Cost { write_ns: median(&writes), read_ns: median(&reads) })
}

/// The cost of one message of `len` bytes that travels alone, at both ends together, in
/// nanoseconds. One thread holds both ends: under load nobody sleeps, so a ceiling must not count
/// the waking of a thread (which costs several times as much in a virtual machine).
pub(super) fn lone(len: usize) -> io::Result<f64> {
    let (mut one, mut other) = pair()?;
    let mut buffer = vec![0; len];
    let mut rounds = vec![];
    for _ in 0..ROUNDS {
        let start = thread_cpu();
        for _ in 0..ALONE {
            one.write_all(&buffer)?;
            other.read_exact(&mut buffer)?;
        }
        rounds.push((thread_cpu() - start).as_secs_f64() * 1e9 / ALONE as f64);
    }
    Ok(median(&rounds))
}
