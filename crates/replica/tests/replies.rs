//! What a client gets to see of results: the client's half of the protocol against whole nodes.

use crate::common;

use bytes::Bytes;
use common::{CLIENT, Net, client_secret};
use std::sync::{Arc, Mutex};
use tercio_client::{ClientCore, Completion, CoreSettings, Nanos};
use tercio_types::{Principal, ReplicaId, Suite};
use tercio_wire::{Frame, Kind, decode_replies};

const ME: Principal = Principal::Client(CLIENT);

/// A network, and a client of it whose packages name one replica after the other.
struct Asking {
    net: Net,
    core: ClientCore,
    now: Nanos,
    /// Frames for the client that it has not been given.
    heard: Arc<Mutex<Vec<(ReplicaId, Bytes)>>>,
    /// How many frames the client sent.
    sent: usize,
    /// How many entries with results came.
    full: usize,
}

impl Asking {
    fn new() -> Self {
        let mut net = Net::new(4);
        let heard: Arc<Mutex<Vec<(ReplicaId, Bytes)>>> = Arc::default();
        let all = heard.clone();
        net.tamper = Some(Box::new(move |from, to, bytes| {
            if let (Principal::Replica(from), ME) = (from, to) {
                all.lock().unwrap().push((from, bytes.clone()));
            }
            Some(bytes.clone())
        }));
        let settings = CoreSettings::unused_id();
        let secret = client_secret(CLIENT);
        let mut core = ClientCore::new(CLIENT, secret, net.membership.clone(), settings);
        (0..4).for_each(|i| core.handle_connected(ReplicaId(i)));
        Self { net, core, now: Nanos(0), heard, sent: 0, full: 0 }
    }

    /// Has a package of `ops` ordered by all that run, and gives the client what they answer. No
    /// time passes for it.
    fn submit(&mut self, ops: usize) {
        self.core.submit(vec![Bytes::from_static(b"op"); ops], self.now).unwrap();
        self.exchange();
    }

    /// Carries what the client sends, until nobody says anything more.
    fn exchange(&mut self) {
        loop {
            let sends: Vec<_> = std::iter::from_fn(|| self.core.poll_send()).collect();
            if sends.is_empty() {
                return;
            }
            self.sent += sends.len();
            for (to, bytes) in sends {
                self.net.send(ME, to.index(), bytes);
            }
            // Answers come at once; a checkpoint of the idle network ends what they belong to.
            let stable = |net: &Net| {
                let heads: Vec<_> = net.nodes.iter().flatten().map(|node| node.status()).collect();
                heads.iter().all(|s| s.protocol.stable == s.protocol.delivered)
            };
            self.net.until("all is done", |net| net.agree() && stable(net));
            for (from, bytes) in std::mem::take(&mut *self.heard.lock().unwrap()) {
                let frame = Frame::decode(&bytes, Suite::default()).unwrap();
                if frame.key.kind == Kind::REPLY {
                    let entries = decode_replies(&frame.body, Suite::default()).unwrap();
                    self.full += entries.iter().filter(|entry| !entry.results.is_empty()).count();
                }
                self.core.handle_frame(from, &bytes, self.now);
            }
        }
    }

    fn completion(&mut self) -> Option<Completion> {
        let completion = self.core.poll_completion()?;
        assert!(completion.outcome.is_ok(), "{:?}", completion.outcome);
        Some(completion)
    }
}

/// The replica that is to send a package's results is dead. Short ones come from the others, in the
/// first round trip: no time passes for the client and it sends one frame. Long ones travel once,
/// and of a dead replica not at all: the client has to ask another.
#[test]
fn a_dead_replier_costs_nothing_when_results_are_short() {
    for (ops, long) in [(20, false), (500, true)] {
        let mut asking = Asking::new();
        asking.submit(ops);
        assert!(asking.completion().is_some());
        assert_eq!((asking.sent, asking.full), (1, if long { 1 } else { 4 }));
        // The second package names replica 1.
        asking.net.stop(1);
        asking.submit(ops);
        let completion = asking.completion();
        assert_eq!(completion.is_none(), long);
        assert_eq!((asking.sent, asking.full), (2, if long { 1 } else { 7 }));
        if let Some(completion) = completion {
            assert_eq!(completion.resent, 0);
            continue;
        }
        asking.now = asking.core.poll_timeout().expect("it waits for the results");
        asking.core.handle_timeout(asking.now);
        asking.exchange();
        assert!(asking.completion().is_some());
        assert!(asking.sent > 2 && asking.full > 1);
    }
}
