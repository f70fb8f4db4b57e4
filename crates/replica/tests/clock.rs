//! Machines' clocks are set back: agreed time never goes back, and nothing waits for them.

use crate::common;

use common::{Asker, CLIENT, Net};
use std::time::Duration;
use tercio_consensus::Instant;
use tercio_ledger::audit;
use tercio_types::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);

fn time(net: &Net, i: usize) -> Timestamp {
    net.nodes[i].as_ref().unwrap().stages().execute.execution().time()
}

/// Orders `count` requests; each takes agreed time forward, everywhere.
fn order(net: &mut Net, asker: &Asker, first: u64, count: u64) {
    for number in first..first + count {
        let before = time(net, 1);
        net.order(asker, number, 1);
        net.until("all have executed it", |net| net.agree() && net.all_at(number));
        assert!((0..4).all(|i| time(net, i) > before), "request {number}");
    }
}

#[test]
fn agreed_time_goes_on_when_clocks_are_set_back() {
    let mut net = Net::new(4);
    net.now = Instant(10 * HOUR.as_nanos() as u64);
    let asker = Asker::new(CLIENT, &net.membership);
    order(&mut net, &asker, 1, 5);
    let late = time(&net, 0);
    assert!(late >= Timestamp(10 * HOUR.as_micros() as u64), "agreed time is the primary's");
    // The primary's alone, then everybody's, each by another time.
    for (round, hours) in [[1, 0, 0, 0], [2, 1, 5, 3]].into_iter().enumerate() {
        for i in 0..4 {
            net.stop(i);
        }
        for (i, hours) in hours.into_iter().enumerate() {
            net.behind[i] = HOUR * hours;
            net.start(i);
        }
        order(&mut net, &asker, 6 + 5 * round as u64, 5);
    }
    // A microsecond a block, and not by jumps.
    assert!(time(&net, 0) < Timestamp(late.0 + HOUR.as_micros() as u64));
    // It is with the clocks again once they have passed it.
    net.now = net.now + HOUR * 6;
    order(&mut net, &asker, 16, 1);
    assert!(time(&net, 0) >= Timestamp(11 * HOUR.as_micros() as u64));
    assert!(net.stopped.is_empty(), "{:?}", net.stopped);
    for i in 0..4 {
        net.stop(i);
        audit(&net.disks[i], &net.membership, &mut |_| {}).unwrap();
    }
}
