//! Queries: questions that all replicas answer from their state, without ordering.

use crate::core::ClientCore;
use crate::pending::seal;
use crate::tally::Tally;
use crate::{Answer, ClientAuth, Failure, Nanos, SubmitError};
use bytes::Bytes;
use std::time::Duration;
use tercio_crypto::hash;
use tercio_types::{Height, Principal, ReplicaId};
use tercio_wire::{CLIENT_SENDER, Frame, Key, Kind};

/// Names a query until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryTicket(pub u64);

/// A query in flight.
#[derive(Debug)]
pub(crate) struct Asking {
    frame: Bytes,
    /// How many equal answers end it.
    threshold: usize,
    /// The height that each replica last answered at.
    heights: Vec<u64>,
    tally: Tally,
    retry_at: Nanos,
    pause: Duration,
    deadline: Nanos,
    /// How long that is after it was taken.
    within: Duration,
}

impl Asking {
    pub(crate) fn due(&self) -> Nanos {
        self.retry_at.min(self.deadline)
    }

    pub(crate) fn frame(&self) -> &Bytes {
        &self.frame
    }
}

impl ClientCore {
    /// Asks all replicas; f+1 equal answers end it. Replicas answer from their latest state, so
    /// under a steady load they may differ; they are asked again then, until the deadline.
    ///
    /// # Errors
    /// When too many queries are in flight, or the question is too long.
    pub fn query(&mut self, question: Bytes, now: Nanos) -> Result<QueryTicket, SubmitError> {
        self.ask(Kind::QUERY, question, self.membership.reply_threshold(), now)
    }

    /// Asks all replicas; `threshold` equal answers end it.
    pub(crate) fn ask(
        &mut self,
        kind: Kind,
        question: Bytes,
        threshold: usize,
        now: Nanos,
    ) -> Result<QueryTicket, SubmitError> {
        if self.queries.len() >= self.settings.max_outstanding {
            return Err(SubmitError::TooMany { outstanding: self.queries.len() });
        }
        let Principal::Client(me) = self.keys.me() else { unreachable!("made for a client") };
        let key = Key {
            kind,
            flags: 0,
            sender: CLIENT_SENDER,
            view: me.0,
            seq: self.next_query,
            digest: hash(self.membership.suite(), &[&question]),
        };
        self.check_size(question.len())?;
        let frame = seal(&self.keys, ClientAuth::Mac, key, question);
        self.next_query += 1;
        for replica in self.peers.connected().iter() {
            self.outgoing.push_back((replica, frame.clone()));
        }
        let longest = self.peers.longest_pause(self.settings.max_timeout);
        let pause = self.peers.timeout(self.settings.timeout).min(longest);
        let asking = Asking {
            frame,
            threshold,
            heights: vec![0; self.membership.ids().bound()],
            tally: Tally::new(self.membership.ids()),
            retry_at: now + pause,
            pause,
            deadline: now + self.settings.deadline,
            within: self.settings.deadline,
        };
        self.queries.insert(key.seq, asking);
        Ok(QueryTicket(key.seq))
    }

    /// The next query that came to its end.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// A verified ANSWER.
    pub(crate) fn on_answer(&mut self, from: ReplicaId, frame: Frame) {
        let (number, height) = (frame.key.seq, frame.key.view);
        // A frame's body is held against its digest when there is one; here there always is.
        if frame.body.is_empty() && frame.key.digest != hash(self.membership.suite(), &[]) {
            return self.count("wrong_digest");
        }
        let Some(asking) = self.queries.get_mut(&number) else { return };
        asking.tally.say(from, frame.key.digest, Some(frame.body));
        asking.heights[from.index()] = height;
        let Some(digest) = asking.tally.agreed(asking.threshold) else { return };
        let (_, answer) = asking.tally.body(digest).expect("every answer has its bytes");
        // One of them at least is correct, and is no lower than the lowest.
        let agree = asking.tally.who(digest);
        let height = agree.iter().map(|replica| asking.heights[replica.index()]).min();
        let (outcome, height) = (Ok(answer.clone()), Height(height.unwrap_or(0)));
        self.queries.remove(&number);
        self.answers.push_back(Answer { ticket: QueryTicket(number), outcome, height });
    }

    /// Asks again, or gives up, where it is time.
    pub(crate) fn query_timeouts(&mut self, now: Nanos) {
        let mut ended = vec![];
        for (number, asking) in &mut self.queries {
            if asking.deadline <= now {
                ended.push(*number);
            } else if asking.retry_at <= now {
                for replica in self.peers.connected().iter() {
                    self.outgoing.push_back((replica, asking.frame.clone()));
                }
                asking.pause = asking.pause.saturating_mul(2).min(self.settings.max_timeout);
                asking.retry_at = now + asking.pause;
            }
        }
        for number in ended {
            let asking = self.queries.remove(&number).expect("just seen");
            let spoke = asking.tally.speakers();
            let silent = self.membership.replicas().filter(|r| !spoke.contains(*r)).collect();
            let (within, split) = (asking.within, spoke.iter().collect());
            let failure =
                Failure::TimedOut { numbers: None, within, silent, refused: vec![], split };
            let (ticket, outcome, height) = (QueryTicket(number), Err(failure), Height(0));
            self.answers.push_back(Answer { ticket, outcome, height });
        }
    }
}
