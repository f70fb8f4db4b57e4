//! Handshakes that are begun and never ended: each costs a replica multiplications on the curve, and
//! its sender nothing.

use super::Means;
use crate::Trouble;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tercio_network::{now, pause};
use tercio_transport::{Limits, Settings, Transport};
use tercio_types::{Member, Membership, Principal, ReplicaId};

/// How many connections an attacker leaves open behind it.
const LEFT_OPEN: usize = 24;
const CONNECT: Duration = Duration::from_millis(200);
/// How long the opening of a handshake may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The first bytes that a client says to each replica, as somebody on the way hears them.
fn overheard(means: &Means) -> Result<BTreeMap<ReplicaId, Vec<u8>>, Trouble> {
    let mut ears = BTreeMap::new();
    let mut members = BTreeMap::new();
    for id in means.membership.replicas() {
        let ear = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        ear.set_nonblocking(true)?;
        let address = ear.local_addr()?.to_string();
        let key = means.membership.member(id).expect("its own members").key;
        members.insert(id, Member { key, address });
        ears.insert(id, ear);
    }
    let ours = &means.membership;
    let clients = ours.clients().map(|(id, info)| (id, info.clone())).collect();
    let elsewhere = Membership::numbered(
        ours.chain(),
        ours.epoch(),
        ours.suite(),
        ours.model(),
        members,
        clients,
    );
    let elsewhere = elsewhere.map_err(|error| Trouble::Means(error.to_string()))?;
    let settings = Settings {
        me: Principal::Client(means.id()),
        secret: means.secret_of(means.id())?,
        membership: elsewhere.with_protocol(ours.protocol()).into(),
        listen: None,
        limits: Limits::default(),
    };
    let mut victim =
        Transport::bind(settings).map_err(|error| Trouble::Means(error.to_string()))?;
    let (mut heard, start) = (BTreeMap::new(), now());
    let mut streams: Vec<(ReplicaId, TcpStream)> = vec![];
    while heard.len() < ears.len() && start.elapsed() < PATIENCE {
        victim.poll(Some(Duration::from_millis(5)), &mut vec![]);
        for (id, ear) in &ears {
            if let Ok((stream, _)) = ear.accept() {
                stream.set_nonblocking(true)?;
                streams.push((*id, stream));
            }
        }
        for (id, stream) in &mut streams {
            let mut bytes = [0; 1024];
            if let Ok(count @ 1..) = stream.read(&mut bytes) {
                heard.entry(*id).or_insert_with(|| bytes[..count].to_vec());
            }
        }
    }
    Ok(heard)
}

/// Says these openings to their replicas, again and again.
fn flood(means: &Means, mut openings: Vec<(SocketAddr, Vec<u8>)>, junk: bool) -> u64 {
    let mut left: VecDeque<TcpStream> = VecDeque::new();
    let (mut said, mut noise) = (0_u64, 0x9E37_79B9_7F4A_7C15_u64);
    while !means.stopped() {
        for (address, opening) in &mut openings {
            if junk {
                // The hello stays good; what follows is a point, and no proof.
                for byte in opening.iter_mut().skip(96) {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (noise >> 56) as u8;
                }
            }
            let Ok(mut stream) = TcpStream::connect_timeout(address, CONNECT) else {
                pause(Duration::from_millis(1));
                continue;
            };
            said += u64::from(stream.write_all(opening).is_ok());
            left.push_back(stream);
            if left.len() > LEFT_OPEN {
                left.pop_front();
            }
        }
    }
    said
}

fn openings(means: &Means) -> Result<Vec<(SocketAddr, Vec<u8>)>, Trouble> {
    let heard = overheard(means)?;
    let of = |(id, opening)| Some((*means.addresses.get(&id)?, opening));
    let all: Vec<_> = heard.into_iter().filter_map(of).collect();
    if all.is_empty() {
        return Err(Trouble::Means("no opening of a handshake could be overheard".into()));
    }
    Ok(all)
}

/// Good hellos with junk behind them.
pub(super) fn junk(means: &Means) -> Result<u64, Trouble> {
    Ok(flood(means, openings(means)?, true))
}

/// Openings that were good once.
pub(super) fn replays(means: &Means) -> Result<u64, Trouble> {
    Ok(flood(means, openings(means)?, false))
}
