//! Clients that read without the server: they read what it would have read.
#![allow(clippy::print_stdout, reason = "the lane `prism` reports the counts")]

use crate::served;

use served::{
    OURS, Outcomes, burst, client, read, read_while_it_is_written, reader, run, serving, write,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tercio_prism::check::{Act, Event, linearizable};
use tercio_prism::client::{Client, ClientError, Draft};
use tercio_prism::clock::now_ns;
use tercio_prism::kv::Hash;
use tercio_prism::kv::driver::Driver;
use tercio_prism::kv::prism::PrismClient;
use tercio_prism::kv::server::{Class, Config, KvServer, Shared};
use tercio_prism::memory::{Memory, Rights};
use tercio_prism::op::{Action, Addr, Capability, Deref, Op, Payload, Status};
use tercio_prism::rng::Rng;
use tercio_prism::transport::Endpoint;

const PATIENCE_NS: u64 = 60_000_000_000;

/// Regions and buffers of all kinds, some of them stale, another's or nowhere.
fn places(memory: &Memory, region: Addr, maker: &mut Client) -> Vec<Addr> {
    let sealed = memory.register(OURS, Rights::WRITE, 4096).unwrap();
    let others = memory.register(Capability(9), Rights::ALL, 4096).unwrap();
    let gone = memory.register(OURS, Rights::ALL, 4096).unwrap();
    memory.unregister(gone);
    let pool = memory.register_pool(OURS, Rights::ALL, 200, 8, 8).unwrap();
    let mut places = vec![region, sealed, others, gone, Addr::NULL, Addr::new(1, 200, 0)];
    for number in 0..8 {
        let words = [number; 25];
        let data = Payload::of_words(&words);
        let take = Action::Allocate { pool, data, redirect: None };
        places.push(Addr(run(maker, &[take.into()]).unwrap()[0].1[0]));
    }
    let freed = maker.call(0, &[places[6].0]).unwrap();
    assert_eq!(freed, [1, 0]);
    // The region begins with pointers, bounds beside them, to each of the others and itself.
    let pairs = places.iter().flat_map(|to| [to.0, 40]).collect::<Vec<_>>();
    assert_eq!(run(maker, &[write(region, &pairs)]).unwrap()[0].0, Status::Ok);
    places
}

/// READs one after another, some of whose ranges are in pieces, or nobody's.
fn chain(rng: &mut Rng, places: &[Addr]) -> Vec<Op<'static>> {
    let op = |rng: &mut Rng| {
        let place = places[rng.below(places.len() as u64) as usize];
        let addr = if rng.percent(60) { places[0] } else { place };
        let addr = addr.plus(rng.below(30) * 8 + u64::from(rng.percent(5)));
        let deref = [Deref::Direct, Deref::Indirect, Deref::Bounded];
        let deref = deref[rng.below(3) as usize];
        let redirect = rng.percent(20).then(|| Addr::scratch(rng.below(4) * 8));
        let addr = if rng.percent(10) { Addr::scratch(0) } else { addr };
        let len = 1 + rng.below(64) as u32;
        Op { conditional: rng.percent(30), action: Action::Read { addr, len, deref, redirect } }
    };
    (0..1 + rng.below(4)).map(|_| op(rng)).collect()
}

/// Two clients of places of all kinds: one asks the server, the other reads without it.
fn compare(work: impl FnOnce(&mut Client, &mut Client, &[Addr])) {
    let memory = Arc::new(Memory::published().unwrap());
    let region = memory.register(OURS, Rights::ALL, 4096).unwrap();
    serving(&memory, None, |endpoint| {
        let mut asker = client(endpoint);
        let places = places(&memory, region, &mut asker);
        work(&mut asker, &mut reader(endpoint), &places);
    });
}

#[test]
fn a_chain_reads_what_the_server_would() {
    compare(|asker, reader, places| {
        let (mut rng, mut good) = (Rng::new(3), 0);
        const CHAINS: u64 = 5000;
        for _ in 0..CHAINS {
            let ops = chain(&mut rng, places);
            let outcomes = run(asker, &ops).unwrap();
            good += u64::from(succeeded(&outcomes));
            assert_eq!(run(reader, &ops).unwrap(), outcomes, "{ops:?}");
        }
        // The server may have been at its upkeep now and then.
        let direct = reader.answered_directly();
        assert!(direct <= good, "{direct} of {good}: only those that succeed");
        assert!(direct > good / 2, "{direct} of {good}: those that succeed");
        assert_eq!(asker.answered_directly(), 0);
        assert!(good > CHAINS / 10 && good < CHAINS, "{good} of {CHAINS}");
        println!("prism-count direct_chains {CHAINS}");
    });
}

fn succeeded(outcomes: &Outcomes) -> bool {
    outcomes.iter().all(|(status, _)| *status == Status::Ok)
}

/// Requests that are submitted together are run as if one by one: those before the first that fails
/// here, the others by the server.
#[test]
fn a_burst_reads_what_the_server_would() {
    compare(|asker, reader, places| {
        let (mut rng, mut good, mut chains) = (Rng::new(4), 0, 0);
        for _ in 0..500 {
            let mut requests: Vec<_> =
                (0..1 + rng.below(60)).map(|_| chain(&mut rng, places)).collect();
            let mut outcomes = burst(asker, &requests).unwrap();
            if rng.percent(80) {
                let all = requests.into_iter().zip(outcomes).filter(|(_, o)| succeeded(o));
                (requests, outcomes) = all.unzip();
            }
            good += outcomes.iter().take_while(|outcomes| succeeded(outcomes)).count() as u64;
            chains += requests.len();
            assert_eq!(burst(reader, &requests).unwrap(), outcomes);
        }
        let direct = reader.answered_directly();
        assert!(direct <= good, "{direct} of {good}: only those before the first that fails");
        assert!(direct > good / 2, "{direct} of {good}: those before the first that fails");
        println!("prism-count direct_chains {chains}");
    });
}

#[test]
fn a_request_sees_one_moment() {
    read_while_it_is_written(|direct, changes| direct > 20_000 && changes > 500).unwrap();
}

#[test]
fn requests_stay_in_order() {
    let memory = Arc::new(Memory::published().unwrap());
    let word = memory.register(OURS, Rights::ALL, 64).unwrap();
    serving(&memory, None, |endpoint| {
        let mut client = reader(endpoint);
        for number in 1..2000 {
            // The READ is submitted while the WRITE is in flight.
            let mut draft = Draft::default();
            draft.op(write(word, &[number]));
            client.submit(&draft, now_ns()).unwrap();
            client.flush().unwrap();
            let outcomes = run(&mut client, &[read(word, 8, Deref::Direct)]).unwrap();
            assert_eq!(outcomes[0].1, [number]);
        }
        assert_eq!(client.under_way(), 0);
        // READs on both sides of a WRITE, all at once: more than are fetched together.
        for number in 2000..3000u64 {
            let (old, new) = (number - 1, [number]);
            let at = number as usize % 50;
            let requests: Vec<_> = (0..50)
                .map(|i| {
                    vec![if i == at { write(word, &new) } else { read(word, 8, Deref::Direct) }]
                })
                .collect();
            let outcomes = burst(&mut client, &requests).unwrap();
            for (i, outcome) in outcomes.iter().enumerate().filter(|(i, _)| *i != at) {
                assert_eq!(outcome[0].1, [if i < at { old } else { number }], "{i} of {at}");
            }
        }
        assert_eq!(client.under_way(), 0);
    });
}

#[test]
fn regions_that_go_are_not_read_any_more_and_those_that_come_are() {
    let memory = Arc::new(Memory::published().unwrap());
    let first = memory.register(OURS, Rights::ALL, 4096).unwrap();
    serving(&memory, None, |endpoint| {
        let mut client = reader(endpoint);
        let status =
            |client: &mut Client, addr| run(client, &[read(addr, 8, Deref::Direct)]).unwrap()[0].0;
        // Not each time: the server may be at its upkeep.
        let is_read_here = |client: &mut Client, addr| {
            let (before, end) = (client.answered_directly(), now_ns() + PATIENCE_NS);
            while client.answered_directly() == before {
                assert_eq!(status(client, addr), Status::Ok);
                assert!(now_ns() < end, "it is always the server that reads");
            }
        };
        is_read_here(&mut client, first);
        let mut draft = Draft::default();
        draft.op(read(first, 8, Deref::Direct));
        client.submit(&draft, now_ns()).unwrap();
        client.flush().unwrap();
        let before = client.answered_directly();
        memory.unregister(first);
        // One answer is not taken yet: the memory cannot be mapped anew, and is not read either.
        assert_eq!(status(&mut client, first), Status::UnknownRegion);
        assert!(client.answered_directly() <= before + 1);
        let second = memory.register(OURS, Rights::ALL, 4096).unwrap();
        is_read_here(&mut client, second);
        let before = client.answered_directly();
        assert_ne!(status(&mut client, first), Status::Ok);
        assert_eq!(client.answered_directly(), before);
    });
}

#[test]
fn it_is_noticed_that_the_server_has_ended() {
    let memory = Arc::new(Memory::published().unwrap());
    let region = memory.register(OURS, Rights::ALL, 4096).unwrap();
    let mut left = None;
    serving(&memory, None, |endpoint| left = Some(reader(endpoint)));
    let (mut client, end) = (left.unwrap(), now_ns() + PATIENCE_NS);
    loop {
        match run(&mut client, &[read(region, 8, Deref::Direct)]) {
            Ok(_) => assert!(now_ns() < end, "the memory outlives its server"),
            Err(ClientError::Link(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn memory_that_is_not_published_or_out_of_reach_is_not_read() {
    let memory = Arc::new(Memory::new());
    memory.register(OURS, Rights::ALL, 4096).unwrap();
    serving(&memory, None, |endpoint| {
        let error = client(endpoint).read_directly().unwrap_err();
        assert!(error.to_string().contains("keeps it to itself"), "{error}");
    });
}

/// Three clients at a few keys of a table that grows; two of them read without the server.
#[test]
fn histories_are_linearizable() {
    const KEYS: u64 = 60;
    const COMMANDS: u64 = 30;
    let (mut histories, mut direct, mut growths) = (0, 0, 0);
    for seed in 0..6 {
        let memory = Arc::new(Memory::published().unwrap());
        let classes = vec![Class { payload: 56, posted: 512, limit: 512 }];
        let config = Config { slots: 64, hash: Hash::Mixed, classes, poison: true, growth_step: 4 };
        let server = KvServer::new(&memory, OURS, seed, &config).unwrap();
        let server = Arc::new(Mutex::new(server));
        let service = Box::new(Shared(Arc::clone(&server)));
        let events = Mutex::new(BTreeMap::<u64, Vec<Event>>::new());
        let time = AtomicU64::new(1);
        serving(&memory, Some(service), |endpoint| {
            let work = |player: u64| {
                let mut rng = Rng::new(seed * 10 + player);
                let mut store = Driver::new(
                    PrismClient::new(),
                    match player {
                        0 => client(endpoint),
                        _ => reader(endpoint),
                    },
                );
                let mut done = Vec::new();
                for i in 0..KEYS * COMMANDS / 3 {
                    let key = rng.below(KEYS);
                    let name = format!("key {key}");
                    let number = player << 32 | i;
                    let began = time.fetch_add(1, Ordering::SeqCst);
                    let act = match rng.below(if player == 0 { 4 } else { 10 }) {
                        0 => Act::Delete(store.delete(name.as_bytes()).unwrap()),
                        1 => {
                            store.put(name.as_bytes(), &number.to_le_bytes()).unwrap();
                            Act::Put(number)
                        }
                        _ => Act::Get(store.get(name.as_bytes()).unwrap().map(|value| {
                            u64::from_le_bytes(value.try_into().expect("as long as it was set"))
                        })),
                    };
                    let returned = Some(time.fetch_add(1, Ordering::SeqCst));
                    done.push((key, Event { act, began, returned }));
                }
                store.finish().unwrap();
                let mut all = events.lock().unwrap();
                done.into_iter().for_each(|(key, event)| all.entry(key).or_default().push(event));
                store.into_client().answered_directly()
            };
            let direct_here: u64 = thread::scope(|scope| {
                let players: Vec<_> =
                    (0..3).map(|player| scope.spawn(move || work(player))).collect();
                players.into_iter().map(|player| player.join().unwrap()).sum()
            });
            direct += direct_here;
        });
        growths += server.lock().unwrap().count(&memory, &memory.view(0)).growths;
        for (key, events) in events.into_inner().unwrap() {
            assert!(linearizable(&events).is_some(), "seed {seed}, key {key}: {events:?}");
            histories += 1;
        }
    }
    assert!(direct > 0 && growths > 0, "{direct} reads without the server, {growths} growths");
    println!("prism-count histories {histories}");
}

#[test]
fn over_other_links_the_server_is_asked() {
    let memory = Arc::new(Memory::published().unwrap());
    memory.register(OURS, Rights::ALL, 4096).unwrap();
    let (port, endpoint) = "udp:127.0.0.1:0".parse::<Endpoint>().unwrap().port().unwrap();
    let engine = tercio_prism::engine::Engine::new(memory, 0, 1);
    let mut server = tercio_prism::server::Server::new(engine, vec![port], Default::default());
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.run(&stop, &AtomicU64::new(0)).unwrap());
        let refused = client(&endpoint).read_directly();
        stop.store(true, Ordering::Relaxed);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("nobody would notice"), "{error}");
    });
}
