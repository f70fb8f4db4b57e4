//! Bounds of the scheduler: who gets how much, and who finds room.

use super::*;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { frames: 64, bytes: 1 << 20 };

fn client(i: u64) -> Lane {
    Lane::Client(ClientId(i))
}

fn job(lane: Lane, number: u64, cost: u64) -> Job<u64> {
    Job { lane, cost, bytes: 100, refusal: Filtered::NoRoom, what: number }
}

fn offer(lanes: &mut Lanes<u64>, job: Job<u64>) -> (bool, Vec<Lane>) {
    let room = lanes.has_room(job.lane);
    let evicted = if room { lanes.push(job) } else { vec![] };
    (room, evicted.into_iter().map(|job| job.lane).collect())
}

#[test]
fn replicas_come_first_and_lanes_take_turns() {
    let mut lanes = Lanes::new(BOUNDS);
    let (peer, forwards) = (Lane::Replica(ReplicaId(1)), Lane::Forwards(ReplicaId(1)));
    for (lane, numbers) in [(client(1), 1..=4), (forwards, 5..=6), (client(2), 7..=7)] {
        numbers.for_each(|number| drop(lanes.push(job(lane, number, QUANTUM))));
    }
    lanes.push(job(peer, 8, 1_000 * QUANTUM));
    lanes.push(job(peer, 9, 0));
    assert_eq!((lanes.urgent().frames, lanes.load().frames), (2, 9));
    let urgent: Vec<_> = std::iter::from_fn(|| lanes.next_urgent()).map(|job| job.what).collect();
    assert_eq!(urgent, [8, 9]);
    let order: Vec<_> = std::iter::from_fn(|| lanes.next_fair()).map(|job| job.what).collect();
    assert_eq!(order, [1, 5, 7, 2, 6, 3, 4]);
    assert!(lanes.is_empty() && lanes.load().bytes == 0);
}

#[test]
fn a_lane_below_its_part_finds_room_at_the_cost_of_the_longest() {
    let mut lanes = Lanes::new(BOUNDS);
    let mut taken = |i| (0..100).filter(|n| offer(&mut lanes, job(client(i), *n, 1)).0).count();
    assert_eq!(taken(1), 16, "a quarter of all");
    assert_eq!(taken(2), 16, "so all have half");
    assert_eq!(taken(3), 10, "and a third of that is its part");
    for n in 0..8 {
        let (room, evicted) = offer(&mut lanes, job(client(4), n, 1));
        assert!(room && evicted.len() == 1 && evicted[0] != client(4), "{n}: {evicted:?}");
    }
    assert!(!lanes.has_room(client(4)));
    assert_eq!(lanes.load().frames, 32, "no more than half");
    // FORWARDs have their own.
    let forwards = Lane::Forwards(ReplicaId(0));
    assert_eq!((0..100).filter(|n| offer(&mut lanes, job(forwards, *n, 1)).0).count(), 32);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Over any stretch of time in which two lanes both have something waiting, the one gets no more
    /// than `QUANTUM + 2 M` ahead of the other; and each lane keeps its order.
    #[test]
    fn no_lane_gets_ahead_of_another_by_more_than_is_said(
        costs in prop::collection::vec(prop::collection::vec(1..5 * QUANTUM, 1..40), 2..6),
        from in 0..60_usize,
    ) {
        let mut lanes = Lanes::new(Bounds { frames: 1 << 20, bytes: 1 << 30 });
        for (i, costs) in costs.iter().enumerate() {
            for (number, cost) in costs.iter().enumerate() {
                lanes.push(job(client(i as u64), number as u64, *cost));
            }
        }
        let dearest = *costs.iter().flatten().max().expect("there are some");
        let mut next = vec![0_usize; costs.len()];
        let mut got = vec![0_u64; costs.len()];
        for service in 0.. {
            // As long as both wait.
            let Some(job) = lanes.next_fair() else { break };
            let Lane::Client(ClientId(i)) = job.lane else { unreachable!() };
            prop_assert_eq!(job.what, next[i as usize] as u64);
            next[i as usize] += 1;
            if service >= from {
                got[i as usize] += job.cost;
            }
            let waiting = |i: &usize| next[*i] < costs[*i].len();
            let all: Vec<_> = (0..costs.len()).filter(waiting).map(|i| got[i]).collect();
            if let (Some(most), Some(least)) = (all.iter().max(), all.iter().min()) {
                prop_assert!(most - least <= QUANTUM + 2 * dearest, "{most} and {least}");
            }
        }
        prop_assert!((0..costs.len()).all(|i| next[i] == costs[i].len()), "all are served");
    }

    /// Whatever comes and goes, in whatever order: half of the bounds is the most that waits of
    /// clients, one frame more apart, whoever is below its part finds room, and what was counted in is
    /// counted out.
    #[test]
    fn what_waits_is_bounded_and_nobody_is_crowded_out(
        steps in prop::collection::vec((0..6_u64, any::<bool>(), 1..40_000_usize), 1..300),
    ) {
        let mut lanes = Lanes::new(BOUNDS);
        let mut held = [0_usize; 6];
        for (i, comes, bytes) in steps {
            if comes {
                let lane = client(i);
                let active = held.iter().filter(|held| **held > 0).count() + usize::from(held[i as usize] == 0);
                let own = lanes.queues.get(&lane).map(|queue| queue.load).unwrap_or_default();
                let part = !own.reaches(&BOUNDS, 4) && !own.reaches(&BOUNDS, 2 * active);
                let (room, evicted) = offer(&mut lanes, Job { bytes, ..job(lane, 0, 1) });
                prop_assert!(room || !part, "below its part");
                held[i as usize] += usize::from(room);
                for lane in evicted {
                    let Lane::Client(ClientId(i)) = lane else { unreachable!() };
                    held[i as usize] -= 1;
                }
            } else if let Some(job) = lanes.next_fair() {
                let Lane::Client(ClientId(i)) = job.lane else { unreachable!() };
                held[i as usize] -= 1;
            }
            let load = lanes.load();
            prop_assert_eq!(load.frames, held.iter().sum::<usize>());
            prop_assert!(load.frames <= BOUNDS.frames / 2 && load.bytes <= BOUNDS.bytes / 2 + 40_000);
        }
        while lanes.next_fair().is_some() {}
        prop_assert!(lanes.is_empty() && lanes.queues.is_empty() && lanes.turns.is_empty());
        let Load { frames, bytes } = lanes.load();
        prop_assert_eq!((frames, bytes, lanes.clients.lanes), (0, 0, 0));
    }
}
