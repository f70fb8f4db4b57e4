//! Those who open connections and say nothing.

use super::Means;
use super::links::Links;
use crate::Trouble;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tercio_network::{client_id, pause};
use tercio_types::Principal;

/// Strangers at each replica.
const STRANGERS: usize = 100;
const CONNECT: Duration = Duration::from_millis(200);

/// An attacker spends descriptors, too.
fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What it may not have it does without.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Links of many clients, who prove who they are and then say nothing.
pub(super) fn clients(means: &Means) -> Result<u64, Trouble> {
    raise_limit();
    let mut open = vec![];
    for i in 0..means.count {
        if means.stopped() {
            break;
        }
        let id = client_id(means.client + i);
        let secret = means.secret_of(id)?;
        open.push(Links::dial(means, Principal::Client(id), secret)?);
        for links in open.iter_mut().rev().take(16) {
            links.turn(Duration::ZERO);
        }
    }
    let (mut most, mut told) = (0, false);
    while !means.stopped() {
        open.iter_mut().for_each(|links| links.turn(Duration::ZERO));
        let links: u64 = open.iter().map(Links::count_open).sum();
        // As many as there can be, or as many as there will be.
        if !told && (links == 4 * open.len() as u64 || links < most) {
            means.tell_ready()?;
            told = true;
        }
        most = most.max(links);
        pause(Duration::from_millis(50));
    }
    Ok(most)
}

fn connect(to: &SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(to, CONNECT).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

fn is_open(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Connections without a word, opened again when they are closed.
pub(super) fn strangers(means: &Means) -> Result<u64, Trouble> {
    raise_limit();
    let mut all: Vec<_> = (means.addresses.values())
        .flat_map(|address| std::iter::repeat_n(*address, STRANGERS))
        .map(|address| (address, None))
        .collect();
    let mut opened = 0;
    while !means.stopped() {
        for (address, stream) in &mut all {
            if !stream.as_ref().is_some_and(is_open) {
                *stream = connect(address);
                opened += u64::from(stream.is_some());
            }
            if means.stopped() {
                break;
            }
        }
        pause(Duration::from_millis(20));
    }
    Ok(opened)
}
