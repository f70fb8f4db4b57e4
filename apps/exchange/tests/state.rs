//! State: equal commands give equal digests, and a snapshot is the whole of it.

use bytes::Bytes;
use tercio_exchange::flow::{Flow, Random};
use tercio_exchange::{Exchange, Outcome, Settings};
use tercio_execution::Application;
use tercio_types::{ClientId, Digest, Suite};

const CLIENTS: u64 = 5;
const SYMBOLS: u16 = 3;

fn exchange() -> Exchange {
    Exchange::new(Settings::markets(SYMBOLS), Suite::default()).unwrap()
}

/// Several clients' flows, interleaved.
struct Traffic {
    flows: Vec<Flow>,
    random: Random,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let flows = (0..CLIENTS).map(|c| Flow::new(seed, c, SYMBOLS)).collect();
        Self { flows, random: Random::new(seed) }
    }

    fn step(&mut self, exchanges: &mut [&mut Exchange]) {
        let client = self.random.below(CLIENTS);
        let command = self.flows[client as usize].command();
        let outcomes: Vec<Outcome> =
            exchanges.iter_mut().map(|e| e.apply(ClientId(client), &command)).collect();
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

fn restored(chunks: &[(Bytes, Bytes)]) -> Exchange {
    let mut exchange = exchange();
    exchange.restore(chunks).unwrap();
    exchange
}

#[test]
fn the_contract_of_digest_and_snapshot_holds() {
    for suite in Suite::ALL {
        let exchange = || Exchange::new(Settings::markets(SYMBOLS), suite).unwrap();
        let mut busy = exchange();
        let mut traffic = Traffic::new(7);
        for _ in 0..20 {
            tercio_execution::check_contract(&mut busy, &mut exchange(), suite).unwrap();
            (0..100).for_each(|_| traffic.step(&mut [&mut busy]));
        }
    }
}

#[test]
fn two_exchanges_agree_at_every_step_and_differ_after_every_change() {
    let (mut a, mut b) = (exchange(), exchange());
    let mut traffic = Traffic::new(1);
    let mut last = Digest::NULL;
    for _ in 0..3000 {
        traffic.step(&mut [&mut a, &mut b]);
        let digest = a.state_digest();
        assert_eq!(digest, b.state_digest());
        assert_eq!(digest, a.state_digest(), "asking changes nothing");
        last = digest;
    }
    // One that was never asked on the way has hashed everything at once.
    let mut c = exchange();
    let mut traffic = Traffic::new(1);
    (0..3000).for_each(|_| traffic.step(&mut [&mut c]));
    assert_eq!(c.state_digest(), last);
}

#[test]
fn the_digest_is_that_of_the_state_rebuilt_from_its_chunks_and_both_go_on_alike() {
    let mut a = exchange();
    let mut traffic = Traffic::new(2);
    for round in 0..12 {
        (0..250).for_each(|_| traffic.step(&mut [&mut a]));
        let chunks: Vec<_> = a.snapshot().collect();
        let mut b = restored(&chunks);
        assert_eq!(b.state_digest(), a.state_digest(), "round {round}");
        assert!(b.snapshot().eq(chunks));
        for _ in 0..250 {
            traffic.step(&mut [&mut a, &mut b]);
        }
        assert_eq!(b.state_digest(), a.state_digest(), "round {round}");
    }
    for (sum, supply) in a.supplies() {
        assert_eq!(sum, supply);
    }
}

#[test]
fn a_rejected_command_changes_nothing() {
    let mut a = exchange();
    let mut traffic = Traffic::new(3);
    (0..500).for_each(|_| traffic.step(&mut [&mut a]));
    let before = a.state_digest();
    for byte in 0..=255u8 {
        let outcome = a.apply_bytes(ClientId(99), &Bytes::from(vec![byte; 28]));
        assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    }
    assert_eq!(a.state_digest(), before);
}

#[test]
fn chunks_are_in_ascending_order_and_few_change_at_a_time() {
    let mut a = exchange();
    let mut traffic = Traffic::new(4);
    (0..5000).for_each(|_| traffic.step(&mut [&mut a]));
    let before: Vec<_> = a.snapshot().collect();
    assert!(before.windows(2).all(|pair| pair[0].0 < pair[1].0));
    traffic.step(&mut [&mut a]);
    let after: Vec<_> = a.snapshot().collect();
    let same = after.iter().filter(|chunk| before.contains(chunk)).count();
    assert!(before.len() > 30, "{} chunks", before.len());
    assert!(same + 8 >= after.len(), "{} of {} chunks changed", after.len() - same, after.len());
}

/// Whatever is done to a snapshot, it is refused, or it is the snapshot of another state that could
/// be (an order in another free slot, say) and has another digest.
#[test]
fn a_damaged_snapshot_is_refused_or_of_another_state() {
    let mut a = exchange();
    let mut traffic = Traffic::new(5);
    (0..400).for_each(|_| traffic.step(&mut [&mut a]));
    let digest = a.state_digest();
    let chunks: Vec<_> = a.snapshot().collect();
    let mut random = Random::new(6);
    let mut flip = |bytes: &Bytes| {
        let mut bytes = bytes.to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        Bytes::from(bytes)
    };
    let mut refused = 0;
    for i in 0..2000 {
        let mut damaged = chunks.clone();
        let at = i / 5 % chunks.len();
        match i % 5 {
            0 => {
                damaged.remove(at);
            }
            1 => damaged.insert(at, damaged[at].clone()),
            2 => damaged[at].0 = flip(&damaged[at].0),
            3 => damaged[at].1 = damaged[at].1.slice(1..),
            _ => damaged[at].1 = flip(&damaged[at].1),
        }
        let mut b = exchange();
        if b.restore(&damaged).is_ok() {
            assert!(matches!(i % 5, 2 | 4), "chunk {at}, damage {}", i % 5);
            assert_ne!(b.state_digest(), digest);
            assert!(b.snapshot().eq(damaged));
        } else {
            refused += 1;
        }
    }
    assert!(refused > 1600, "{refused}");
    assert!(exchange().restore(&[]).is_err());
    let mut other = Exchange::new(Settings::markets(SYMBOLS + 1), Suite::default()).unwrap();
    let error = other.restore(&chunks).unwrap_err();
    assert!(error.0.contains("other settings"), "{error}");
}
