//! Buffers that are to be given back, in batches.

use super::Net;
use crate::engine::{FREE, MAX_FREED};
use crate::op::Addr;
use std::cell::RefCell;

/// Buffers are reported when this many of one server are at hand.
const AT_ONCE: usize = 32;

/// Buffers that a client has replaced, or took in vain, by server. An address means nothing to another
/// life of its server, which may use the same one for something else.
#[derive(Debug)]
pub(crate) struct Frees {
    net: Net,
    servers: RefCell<Vec<(u64, Vec<u64>)>>,
}

impl Frees {
    pub(crate) fn new(net: &Net) -> Self {
        let servers = vec![(0, Vec::new()); net.servers()];
        Self { net: net.clone(), servers: RefCell::new(servers) }
    }

    /// A buffer of a server, by an address in an answer that has just come.
    pub(crate) fn push(&self, server: usize, addr: u64) {
        if addr == Addr::NULL.0 {
            return;
        }
        {
            let (of, frees) = &mut self.servers.borrow_mut()[server];
            let life = self.net.life(server);
            if *of != life {
                frees.clear();
                *of = life;
            }
            frees.push(addr);
        }
        self.report(server, AT_ONCE);
    }

    /// Reports a server's buffers when there are so many. Nobody waits for the answer.
    pub(crate) fn report(&self, server: usize, at_least: usize) {
        for frees in self.take(server, at_least) {
            drop(self.net.ask(server, |draft| draft.call(FREE, &frees)));
        }
    }

    fn take(&self, server: usize, at_least: usize) -> Vec<Vec<u64>> {
        let (of, frees) = &mut self.servers.borrow_mut()[server];
        let frees = if frees.len() < at_least { Vec::new() } else { std::mem::take(frees) };
        // Those of an earlier life went with it.
        let live = *of != 0 && *of == self.net.life(server);
        frees.chunks(MAX_FREED).filter(|_| live).map(<[u64]>::to_vec).collect()
    }

    /// Reports all of them and waits until that is done.
    pub(crate) async fn finish(&self) {
        let mut round = self.net.round([], |_, _| ());
        for server in 0..self.net.servers() {
            for frees in self.take(server, 1) {
                round.also(server, |draft| draft.call(FREE, &frees));
            }
        }
        while round.next().await.is_some() {}
    }
}

/// Stragglers of a client that has gone bring more; whoever comes last reports them.
impl Drop for Frees {
    fn drop(&mut self) {
        (0..self.net.servers()).for_each(|server| self.report(server, 1));
    }
}
