//! A relay between two ends of a link, which swallows bytes when told so: a cut that no socket
//! notices.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Only against a hang.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    cut: AtomicBool,
    ended: AtomicBool,
    accepted: AtomicUsize,
}

pub struct Relay {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// Passes on to `to` what comes.
    pub fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let relay = Self { address, state: state.clone() };
        std::thread::spawn(move || {
            for dialler in listener.incoming() {
                if state.ended.load(SeqCst) {
                    break;
                }
                state.accepted.fetch_add(1, SeqCst);
                let (Ok(dialler), Ok(listener)) = (dialler, TcpStream::connect(to)) else {
                    continue;
                };
                for (from, to) in [(&dialler, &listener), (&listener, &dialler)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = state.clone();
                    std::thread::spawn(move || pass(from, to, &state));
                }
            }
        });
        relay
    }

    /// From now on bytes are swallowed, or no longer. What was swallowed does not come back, and nor
    /// does anything of a connection that lost bytes: TCP would send them again, and this is not TCP.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, SeqCst);
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    to.set_write_timeout(Some(PATIENCE)).unwrap();
    let (mut bytes, mut lost) = ([0; 4096], false);
    while !state.ended.load(SeqCst) {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) if lost || state.cut.load(SeqCst) => lost = true,
            Ok(n) => {
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    // A cut swallows the end of a connection, too.
    if !lost && !state.cut.load(SeqCst) {
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}
