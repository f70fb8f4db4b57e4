//! Wide and broken links on one machine: a relay for each link between two replicas.
//!
//! A replica dials another through the relay's address, which its own genesis names (the chain id
//! does not cover addresses). What comes is given on after a delay that the link's rule names, in
//! order, each way by itself.
//!
//! A link that is cut gives nothing on. TCP loses nothing by that: it sends again after 0.2 s, then
//! after twice as long each time, and that schedule goes on when the link is healed. So the relay
//! holds what came meanwhile until the first such moment after the healing; of a connection that was
//! opened meanwhile the schedule begins with it, at one second (RFC 6298, and Linux's first time-outs).
//! After a cut of 14 s a link that nobody gave up is silent for 11 s more.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tercio_network::{now, pause};

/// How often a thread looks whether something has changed.
const LOOK: Duration = Duration::from_millis(2);
/// The most pieces of 16 KiB that are on their way: a long fat link has room for some megabytes.
const ON_THE_WAY: usize = 1024;
const PIECE: usize = 16 << 10;
/// When TCP sends again at first: on a connection, and for one that is not open yet.
const RESEND: Duration = Duration::from_millis(200);
const REDIAL: Duration = Duration::from_secs(1);

/// What a link does to what it carries, from now on.
#[derive(Debug, Default)]
struct Rule {
    /// One way, in microseconds: at least, and up to how much more.
    delay: AtomicU64,
    jitter: AtomicU64,
    cut: AtomicBool,
    /// When it was healed last.
    healed: Mutex<Option<Instant>>,
    over: AtomicBool,
    /// How many connections were accepted.
    accepted: AtomicU64,
    /// For delays that differ: a counter that is hashed.
    turn: AtomicU64,
}

impl Rule {
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn delay(&self) -> Duration {
        let jitter = self.jitter.load(Ordering::Relaxed);
        // Weyl's sequence: evenly spread, and the same each time.
        let turn = self.turn.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let more = (u128::from(turn) * u128::from(jitter)) >> 64;
        Duration::from_micros(self.delay.load(Ordering::Relaxed) + more as u64)
    }

    /// Waits until the link is whole; since when it is, if it had to wait. `None` when all is over.
    fn whole(&self) -> Option<Option<Instant>> {
        let mut waited = false;
        while self.is_cut() {
            if self.is_over() {
                return None;
            }
            waited = true;
            pause(LOOK);
        }
        let healed = self.healed.lock().unwrap_or_else(PoisonError::into_inner);
        Some(healed.filter(|_| waited))
    }
}

/// The first moment after `healed` at which TCP sends again what it sent at `sent`.
fn sends_again(sent: Instant, first: Duration, healed: Instant) -> Instant {
    let (mut at, mut wait) = (sent + first, first);
    while at < healed {
        wait *= 2;
        at += wait;
    }
    at
}

/// One link through which a replica dials another. Ends with this value.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    rule: Arc<Rule>,
}

impl Relay {
    /// Listens on a free port, and carries what comes to `to`.
    pub(crate) fn start(to: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let rule = Arc::new(Rule::default());
        let of_thread = rule.clone();
        thread::spawn(move || accept(&listener, to, &of_thread));
        Ok(Self { address, rule })
    }

    /// Where to dial.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on each way takes at least this long, and up to `jitter` longer.
    pub(crate) fn delay(&self, least: Duration, jitter: Duration) {
        self.rule.delay.store(least.as_micros() as u64, Ordering::Relaxed);
        self.rule.jitter.store(jitter.as_micros() as u64, Ordering::Relaxed);
    }

    /// Gives nothing on from now on, either way.
    pub(crate) fn cut(&self) {
        self.rule.cut.store(true, Ordering::SeqCst);
    }

    /// Heals a cut.
    pub(crate) fn heal(&self) {
        *self.rule.healed.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
        self.rule.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.rule.over.store(true, Ordering::SeqCst);
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, rule: &Arc<Rule>) {
    while !rule.is_over() {
        match listener.accept() {
            Ok((near, _)) => {
                let rule = rule.clone();
                thread::spawn(move || carry(near, to, &rule));
            }
            Err(_) => pause(LOOK),
        }
    }
}

/// Carries one connection, both ways, until both sides have closed it.
fn carry(near: TcpStream, to: SocketAddr, rule: &Arc<Rule>) {
    let opened = now();
    rule.accepted.fetch_add(1, Ordering::SeqCst);
    let Some(waited) = rule.whole() else { return };
    let mut said = vec![];
    if let Some(healed) = waited {
        // Nobody there heard of it before, nor ever will if it was given up meanwhile.
        wait_until(sends_again(opened, REDIAL, healed), rule);
        match so_far(&near) {
            Some(bytes) => said = bytes,
            None => return,
        }
    }
    let Ok(mut far) = TcpStream::connect(to) else { return };
    if far.write_all(&said).is_err() {
        return;
    }
    let ways = [(&near, &far), (&far, &near)];
    let threads: Vec<_> = ways
        .into_iter()
        .filter_map(|(from, to)| Some((from.try_clone().ok()?, to.try_clone().ok()?)))
        .map(|(from, to)| {
            let (sender, receiver) = sync_channel(ON_THE_WAY);
            let (reads, writes) = (rule.clone(), rule.clone());
            let reader = thread::spawn(move || read(from, &sender, &reads));
            (reader, thread::spawn(move || write(to, &receiver, &writes)))
        })
        .collect();
    for (reader, writer) in threads {
        let _ = (reader.join(), writer.join());
    }
}

/// What was said on a connection until now; `None` when it was closed.
fn so_far(mut near: &TcpStream) -> Option<Vec<u8>> {
    let mut said = vec![];
    near.set_nonblocking(true).ok()?;
    let closed = match near.read_to_end(&mut said) {
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => true,
    };
    near.set_nonblocking(false).ok()?;
    (!closed).then_some(said)
}

/// Bytes and when they came.
type Piece = (Instant, Vec<u8>);

fn read(mut from: TcpStream, on: &SyncSender<Piece>, rule: &Rule) {
    // So that it sees the end of all.
    let _ = from.set_nodelay(true);
    let _ = from.set_read_timeout(Some(Duration::from_millis(100)));
    let mut buffer = vec![0; PIECE];
    while !rule.is_over() {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                if on.send((now(), buffer[..count].to_vec())).is_err() {
                    break;
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
}

/// Gives on what comes, then closes: the other side learns of an end no sooner than of bytes.
fn write(mut to: TcpStream, from: &Receiver<Piece>, rule: &Rule) {
    let _ = to.set_nodelay(true);
    let mut due = now();
    let mut given = true;
    while given {
        let piece = from.recv().ok();
        let came = piece.as_ref().map_or_else(now, |(came, _)| *came);
        // In order, however the delays differ.
        due = due.max(came + rule.delay());
        wait_until(due, rule);
        let Some(waited) = rule.whole() else { break };
        if let Some(healed) = waited {
            wait_until(sends_again(due, RESEND, healed), rule);
        }
        given = piece.is_some_and(|(_, bytes)| to.write_all(&bytes).is_ok());
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn wait_until(at: Instant, rule: &Rule) {
    loop {
        let left = at.saturating_duration_since(now());
        if left.is_zero() || rule.is_over() {
            return;
        }
        pause(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay before a peer that sends back what it gets.
    fn echo() -> (Relay, TcpStream) {
        let peer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(peer.local_addr().unwrap()).unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = peer.accept() {
                thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        stream.write_all(&bytes[..count]).unwrap();
                    }
                });
            }
        });
        let stream = TcpStream::connect(relay.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        (relay, stream)
    }

    fn round_trip(stream: &mut TcpStream, word: &[u8]) -> Duration {
        let start = now();
        stream.write_all(word).unwrap();
        let mut back = vec![0; word.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, word, "in order, and whole");
        start.elapsed()
    }

    #[test]
    fn each_way_takes_as_long_as_was_said() {
        let (relay, mut stream) = echo();
        round_trip(&mut stream, b"without delay");
        let least = Duration::from_millis(30);
        relay.delay(least, Duration::from_millis(20));
        for word in [&b"one"[..], b"two", b"three"] {
            let took = round_trip(&mut stream, word);
            assert!(took >= 2 * least, "{took:?}");
        }
    }

    #[test]
    fn what_was_sent_over_a_cut_link_comes_once_it_is_healed() {
        let (relay, mut stream) = echo();
        round_trip(&mut stream, b"whole");
        relay.cut();
        stream.write_all(b"cut").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut back = [0; 3];
        assert!(stream.read_exact(&mut back).is_err(), "nothing comes");
        relay.heal();
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"cut");
    }

    /// What is still wanted comes with what it said, what was given up never does.
    #[test]
    fn a_connection_that_was_given_up_on_a_cut_link_never_arrives() {
        let peer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(peer.local_addr().unwrap()).unwrap();
        relay.cut();
        let dial = |word: &[u8]| {
            let mut stream = TcpStream::connect(relay.address()).unwrap();
            stream.write_all(word).unwrap();
            stream
        };
        drop(dial(b"given up"));
        let wanted = dial(b"wanted");
        let both = || (relay.rule.accepted.load(Ordering::SeqCst) == 2).then_some(());
        tercio_network::poll_until(Duration::from_secs(30), both).expect("both are held");
        relay.heal();
        let mut said = [0; 6];
        let (mut stream, _) = peer.accept().unwrap();
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"wanted");
        drop(wanted);
        assert_eq!(stream.read(&mut said).unwrap(), 0);
        peer.set_nonblocking(true).unwrap();
        assert!(peer.accept().is_err(), "nobody else");
    }

    /// The schedule of TCP: 0.2, 0.6, 1.4, 3, 6.2, 12.6, 25.4 s after a segment was sent.
    #[test]
    fn tcp_sends_again_on_its_own_schedule() {
        let sent = now();
        let ms = Duration::from_millis;
        let again = |first, healed| sends_again(sent, first, sent + ms(healed)) - sent;
        assert_eq!(again(RESEND, 100), ms(200));
        assert_eq!(again(RESEND, 601), ms(1_400));
        assert_eq!(again(RESEND, 14_000), ms(25_400));
        assert_eq!(again(REDIAL, 500), ms(1_000));
        assert_eq!(again(REDIAL, 2_900), ms(3_000));
    }

    #[test]
    fn an_end_is_given_on() {
        let (_relay, mut stream) = echo();
        round_trip(&mut stream, b"word");
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "the peer closed, and so did the relay");
    }
}
