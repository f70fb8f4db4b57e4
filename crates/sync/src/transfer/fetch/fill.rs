//! Work for the sources: which of them is asked for which nodes and chunks.

use super::{Peer, Question, Standing, Transfer, Wanted};
use crate::transfer::message::{ASKED, FetchState, STATE_ANSWER_BYTES};
use tercio_consensus::Instant;
use tercio_types::ReplicaId;

/// How many questions are out at a source at once.
const WINDOW: usize = 4;

/// This many chunks to ask for, and nodes can wait.
const CHUNKS_READY: usize = 1024;

/// How many nodes one question asks for; each answer shows some levels below it.
const NODES_ASKED: usize = 8;

impl Transfer {
    /// Gives work to every source that has room for some.
    pub(super) fn fill(&mut self, now: Instant) {
        let seq = self.target.as_ref().expect("a target").certificate.checkpoint.seq;
        loop {
            let has_room = |peer: &Peer| peer.standing == Standing::Source;
            let sources = self.peers.iter().filter(|(_, peer)| has_room(peer));
            let least = sources.min_by_key(|(_, peer)| peer.out.len());
            let Some((&to, peer)) = least.filter(|(_, peer)| peer.out.len() < WINDOW) else {
                return;
            };
            let idle = peer.out.is_empty();
            if self.nodes.is_empty() && self.chunks.is_empty() {
                return;
            }
            if idle {
                self.peers.get_mut(&to).expect("a peer").heard = now;
            }
            if self.chunks.len() >= CHUNKS_READY || self.nodes.is_empty() {
                let mut asked = Vec::new();
                let most = self.chunks_asked();
                while asked.len() < most
                    && let Some(wanted) = self.chunks.pop_front()
                {
                    asked.push(wanted);
                }
                self.ask_chunks(to, asked);
            } else {
                let count = self.nodes.len().min(NODES_ASKED);
                let asked: Vec<_> = self.nodes.drain(..count).collect();
                let paths = asked.iter().map(|(path, _)| path.clone()).collect();
                self.ask(to, Question::Nodes(asked), FetchState::Nodes { seq, paths });
            }
        }
    }

    pub(super) fn ask_chunks(&mut self, to: ReplicaId, asked: Vec<Wanted>) {
        let seq = self.target.as_ref().expect("a target").certificate.checkpoint.seq;
        let part = |wanted: &Wanted| (wanted.path.clone(), wanted.begun.len() as u64);
        let parts = asked.iter().map(part).collect();
        self.ask(to, Question::Chunks(asked), FetchState::Chunks { seq, parts });
    }

    /// About as many chunks as an answer has room for.
    pub(super) fn chunks_asked(&self) -> usize {
        let mean = self.status.bytes / (self.status.chunks + 1);
        let fit = STATE_ANSWER_BYTES as u64 / mean.max(1) + 1;
        (fit as usize).clamp(8, ASKED)
    }
}
