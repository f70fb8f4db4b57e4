//! How long the messages of the protocol take by themselves: a client sends to a primary, the
//! primary to three backups, all four to each other twice, and all answer the client, with nothing
//! done to the messages. What a replica adds to this is protocol, authentication and application.

use super::REPLICAS;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tercio_network::now;

/// The rounds of one measurement.
pub(super) const ROUNDS: usize = 4_000;
/// How long a message may take before the exchange is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bytes of every message: about those of a request with 100 bytes.
const LEN: usize = 150;
/// The client's place in the table of ends.
const CLIENT: usize = REPLICAS;
/// How many of the other replicas' PREPAREs and COMMITs a replica needs: 2f, its own makes a quorum.
const OTHERS: u32 = 2;
/// How many answers a client needs: f+1.
const ANSWERS: u32 = 2;
/// After this many rounds the client waits for all answers. A replica that does not get to run is
/// then behind by fewer datagrams than a socket keeps; one lost would never be retransmitted.
const IN_STEP: u64 = 16;

/// The latency of the exchange on one transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExchangeLatency {
    /// `tcp`, `udp` or `unix` (datagrams).
    pub transport: &'static str,
    /// How many exchanges were timed, one after the other.
    pub rounds: usize,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// All but a hundredth took at most this.
    pub p99_us: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    PrePrepare,
    Prepare,
    Commit,
    Reply,
    Stop,
}

#[derive(Clone, Copy)]
struct Message {
    kind: Kind,
    round: u64,
}

impl Message {
    fn to_bytes(self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0] = self.kind as u8;
        out[1..9].copy_from_slice(&self.round.to_le_bytes());
        out
    }

    fn from_bytes(bytes: &[u8; LEN]) -> Self {
        use Kind::{Commit, PrePrepare, Prepare, Reply, Request, Stop};
        let kind = [Request, PrePrepare, Prepare, Commit, Reply, Stop][usize::from(bytes[0])];
        Self { kind, round: u64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes")) }
    }
}

/// One party's way to all others.
trait Port: Send {
    fn send(&mut self, to: usize, message: Message) -> io::Result<()>;
    fn receive(&mut self) -> io::Result<Message>;
}

struct Udp {
    socket: UdpSocket,
    addresses: Vec<SocketAddr>,
}

impl Udp {
    fn ports() -> io::Result<Vec<Box<dyn Port>>> {
        let sockets: Vec<_> = (0..=REPLICAS)
            .map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<io::Result<_>>()?;
        let addresses: Vec<_> =
            sockets.iter().map(UdpSocket::local_addr).collect::<io::Result<_>>()?;
        let port = |socket: UdpSocket| {
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(Self { socket, addresses: addresses.clone() }) as Box<dyn Port>)
        };
        sockets.into_iter().map(port).collect()
    }
}

impl Port for Udp {
    fn send(&mut self, to: usize, message: Message) -> io::Result<()> {
        self.socket.send_to(&message.to_bytes(), self.addresses[to]).map(drop)
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut bytes = [0; LEN];
        self.socket.recv(&mut bytes)?;
        Ok(Message::from_bytes(&bytes))
    }
}

struct Unix {
    socket: UnixDatagram,
    paths: Vec<PathBuf>,
}

impl Unix {
    fn ports(folder: &std::path::Path) -> io::Result<Vec<Box<dyn Port>>> {
        let paths: Vec<_> = (0..=REPLICAS).map(|i| folder.join(i.to_string())).collect();
        let port = |path: &PathBuf| {
            let socket = UnixDatagram::bind(path)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(Self { socket, paths: paths.clone() }) as Box<dyn Port>)
        };
        paths.iter().map(port).collect()
    }
}

impl Port for Unix {
    fn send(&mut self, to: usize, message: Message) -> io::Result<()> {
        self.socket.send_to(&message.to_bytes(), &self.paths[to]).map(drop)
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut bytes = [0; LEN];
        self.socket.recv(&mut bytes)?;
        Ok(Message::from_bytes(&bytes))
    }
}

/// A connection to each other party, behind one epoll.
struct Tcp {
    poll: Poll,
    events: Events,
    streams: Vec<Option<mio::net::TcpStream>>,
    /// Connections that may have something to read.
    ready: Vec<usize>,
    /// What has arrived of each connection's next message.
    partial: Vec<(usize, [u8; LEN])>,
}

impl Tcp {
    fn ports() -> io::Result<Vec<Box<dyn Port>>> {
        let mut ends: Vec<Vec<Option<mio::net::TcpStream>>> =
            (0..=REPLICAS).map(|_| (0..=REPLICAS).map(|_| None).collect()).collect();
        for a in 0..=REPLICAS {
            for b in 0..a {
                let (one, other) = super::stream::pair()?;
                for (from, to, stream) in [(a, b, one), (b, a, other)] {
                    stream.set_nonblocking(true)?;
                    ends[from][to] = Some(mio::net::TcpStream::from_std(stream));
                }
            }
        }
        let port = |mut streams: Vec<Option<mio::net::TcpStream>>| {
            let poll = Poll::new()?;
            for (i, stream) in streams.iter_mut().enumerate() {
                if let Some(stream) = stream {
                    poll.registry().register(stream, Token(i), Interest::READABLE)?;
                }
            }
            let events = Events::with_capacity(16);
            let partial = vec![(0, [0; LEN]); streams.len()];
            Ok(Box::new(Self { poll, events, streams, ready: vec![], partial }) as Box<dyn Port>)
        };
        ends.into_iter().map(port).collect()
    }

    /// The next whole message of a connection that is ready.
    fn take(&mut self) -> io::Result<Option<Message>> {
        while let Some(&i) = self.ready.last() {
            let stream = self.streams[i].as_mut().expect("only connections become ready");
            let (filled, bytes) = &mut self.partial[i];
            match stream.read(&mut bytes[*filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => *filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready.pop();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if *filled == LEN {
                *filled = 0;
                return Ok(Some(Message::from_bytes(bytes)));
            }
        }
        Ok(None)
    }
}

impl Port for Tcp {
    fn send(&mut self, to: usize, message: Message) -> io::Result<()> {
        // A few hundred bytes at a time always fit the socket's buffer.
        self.streams[to].as_mut().expect("nobody sends to itself").write_all(&message.to_bytes())
    }

    fn receive(&mut self) -> io::Result<Message> {
        let deadline = now() + PATIENCE;
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            match self.poll.poll(&mut self.events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other?,
            }
            self.ready.extend(self.events.iter().map(|event| event.token().0));
            if self.ready.is_empty() && now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// What a replica has of one round.
#[derive(Clone, Copy, Default)]
struct Progress {
    round: u64,
    proposed: bool,
    prepares: u32,
    commits: u32,
    committing: bool,
    answered: bool,
}

fn replica(me: usize, port: &mut dyn Port) -> io::Result<()> {
    let others = || (0..REPLICAS).filter(move |&to| to != me);
    // Messages of the next round may overtake the last of this one.
    let mut rounds = [Progress::default(); 2];
    loop {
        let message = port.receive()?;
        let round = message.round;
        let slot = &mut rounds[(round % 2) as usize];
        if slot.round < round {
            *slot = Progress { round, ..Progress::default() };
        }
        if slot.round > round {
            continue;
        }
        match message.kind {
            Kind::Stop => return Ok(()),
            Kind::Request => {
                for to in others() {
                    port.send(to, Message { kind: Kind::PrePrepare, round })?;
                }
                slot.proposed = true;
            }
            Kind::PrePrepare => {
                for to in others() {
                    port.send(to, Message { kind: Kind::Prepare, round })?;
                }
                // The primary's PREPARE can come with its proposal.
                slot.prepares += 1;
                slot.proposed = true;
            }
            Kind::Prepare => slot.prepares += 1,
            Kind::Commit => slot.commits += 1,
            Kind::Reply => {}
        }
        if slot.proposed && slot.prepares >= OTHERS && !slot.committing {
            slot.committing = true;
            for to in others() {
                port.send(to, Message { kind: Kind::Commit, round })?;
            }
        }
        if slot.committing && slot.commits >= OTHERS && !slot.answered {
            slot.answered = true;
            port.send(CLIENT, Message { kind: Kind::Reply, round })?;
        }
    }
}

/// Times `rounds` exchanges, after a tenth as many that are not counted.
fn client(port: &mut dyn Port, rounds: usize) -> io::Result<Vec<f64>> {
    let warm = rounds / 10;
    let mut times = Vec::with_capacity(rounds);
    for round in 1..=(warm + rounds) as u64 {
        let start = now();
        port.send(0, Message { kind: Kind::Request, round })?;
        let mut answers = 0;
        let mut hear = |wanted: u32| -> io::Result<()> {
            while answers < wanted {
                let message = port.receive()?;
                answers += u32::from(message.kind == Kind::Reply && message.round == round);
            }
            Ok(())
        };
        hear(ANSWERS)?;
        if round > warm as u64 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        if round.is_multiple_of(IN_STEP) {
            hear(REPLICAS as u32)?;
        }
    }
    Ok(times)
}

fn run(mut ports: Vec<Box<dyn Port>>, rounds: usize) -> io::Result<Vec<f64>> {
    let mut mine = ports.pop().expect("the client's is the last");
    let replicas: Vec<_> = (ports.into_iter().enumerate())
        .map(|(me, mut port)| thread::spawn(move || (replica(me, &mut *port), port)))
        .collect();
    let times = client(&mut *mine, rounds);
    for to in 0..REPLICAS {
        mine.send(to, Message { kind: Kind::Stop, round: u64::MAX })?;
    }
    // The ports stay open until all have stopped: the slowest may still be sending.
    let ended: Vec<_> = (replicas.into_iter())
        .map(|replica| replica.join().expect("a replica of the exchange does not panic"))
        .collect();
    ended.into_iter().try_for_each(|(result, _port)| result)?;
    times
}

/// The exchange on every transport.
pub(super) fn measure_all(rounds: usize) -> io::Result<Vec<ExchangeLatency>> {
    let folder = tempfile::tempdir()?;
    let transports =
        [("tcp", Tcp::ports()?), ("udp", Udp::ports()?), ("unix", Unix::ports(folder.path())?)];
    transports.into_iter().map(|(name, ports)| measure(name, ports, rounds)).collect()
}

/// The exchange over TCP.
pub(super) fn measure_tcp(rounds: usize) -> io::Result<ExchangeLatency> {
    measure("tcp", Tcp::ports()?, rounds)
}

fn measure(
    transport: &'static str,
    ports: Vec<Box<dyn Port>>,
    rounds: usize,
) -> io::Result<ExchangeLatency> {
    let mut times = run(ports, rounds)?;
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    Ok(ExchangeLatency { transport, rounds, p50_us: at(50), p99_us: at(99) })
}
