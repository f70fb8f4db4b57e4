//! A replica whose memory is new becomes a member again.

use super::client::RsClient;
use super::phase::{Ask, Group, Worth};
use super::{Map, RsError, Tag, call};
use crate::client::Draft;
use crate::cluster::{Net, Reply, all};
use crate::op::{Action, Cas, Deref, Masks, Mode, Operand, Payload, Source, Status};
use std::cell::Cell;
use std::rc::Rc;

/// Blocks that are copied at once.
const AT_ONCE: usize = 16;

/// What a join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Joined {
    /// The number of the life that the replica began.
    pub life: u64,
    /// How many blocks were copied; the others nobody had written.
    pub copied: u64,
}

/// Makes the replica that is member `member` of the group on these servers join: it gets a number of
/// its new life, which f + 1 others know from then on, then a copy of each block from them, and only
/// then answers clients. To be run by one at a time for a replica, whose server runs already.
///
/// # Errors
/// When f + 1 others do not answer, or the replica itself.
pub async fn join(
    net: Net,
    servers: Vec<usize>,
    member: usize,
    patience_ns: u64,
) -> Result<Joined, RsError> {
    let me = servers[member];
    let group = Rc::new(Group::new(net.clone(), servers, Ask::All, patience_ns));
    let map = describe_new(&group, me).await?;
    if map.member != member || map.members != group.members() {
        return Err(RsError::Confused);
    }
    group.acquaint().await?;
    let others: Vec<usize> = (0..group.members()).filter(|other| *other != member).collect();
    // The numbers that a quorum knows, and one more than the greatest of them.
    let lives = |_: usize, reply: &Reply| lives_of(&group, reply);
    let mut told = vec![0; group.members()];
    let (known, _) = group
        .phase(
            &others,
            |map, draft| group.draft_lives(map, draft),
            |member, reply| {
                let (words, worth) = lives(member, reply);
                (words.as_ref().and_then(|words| words.get(member).copied()), worth)
            },
        )
        .await?;
    for (_, words) in &known {
        told.iter_mut().zip(words).for_each(|(most, word)| *most = (*most).max(*word));
    }
    let life = Tag::after(told[member], 0)?;
    told[member] = life;
    let (knowing, _) = group
        .phase(
            &others,
            |map, draft| {
                raise(map, member, life, draft);
                group.draft_lives(map, draft);
            },
            |other, reply| raised(&group, other, reply),
        )
        .await?;
    // Copies are of those that know: what they acknowledge from now on goes with the new number.
    let among: Vec<usize> = knowing.into_iter().map(|(other, ())| other).collect();
    let client = RsClient::of(Rc::clone(&group), 0, false);
    let (next, copied) = (Cell::new(0), Cell::new(0));
    let worker = async || {
        while next.get() < map.blocks {
            let block = next.replace(next.get() + 1);
            if client.copy(block, &among, (me, &map)).await? {
                copied.set(copied.get() + 1);
            }
        }
        Ok::<(), RsError>(())
    };
    all((0..AT_ONCE).map(|_| worker())).await.into_iter().collect::<Result<(), _>>()?;
    let lost = RsError::NoQuorum { answered: 0, needed: 1 };
    let write = |draft: &mut Draft| {
        let source = Source::Inline(Payload::of_words(&told));
        draft.op(Action::Write { addr: map.lives, deref: Deref::Direct, source });
    };
    net.ask(me, write).await.map_err(|_| lost)?;
    let reply = net.ask(me, |draft| draft.call(call::JOINED, &[])).await.map_err(|_| lost)?;
    match reply.answer().rejected {
        Some(why) => Err(RsError::Rejected(why)),
        None => Ok(Joined { life, copied: copied.get() }),
    }
}

async fn describe_new(group: &Group, me: usize) -> Result<Map, RsError> {
    let until_ns = group.net.now_ns() + group.patience_ns;
    loop {
        if let Ok(reply) = group.net.ask(me, |draft| draft.call(call::DESCRIBE_NEW, &[])).await {
            let answer = reply.answer();
            if let Some(why) = answer.rejected {
                return Err(RsError::Rejected(why));
            }
            return Map::of_words(answer.body()).ok_or(RsError::Confused);
        }
        if group.net.now_ns() >= until_ns {
            return Err(RsError::NoQuorum { answered: 0, needed: 1 });
        }
        group.net.sleep(10_000_000).await;
    }
}

type Lives = Vec<u64>;

fn lives_of(group: &Group, reply: &Reply) -> (Option<Lives>, Worth<Lives>) {
    match reply.answer().take() {
        Some([lives]) if lives.status == Status::Ok => {
            let words = lives.data.words().to_vec();
            if words.len() == group.members() {
                return (Some(words.clone()), Worth::Counts(words));
            }
            (None, Worth::Outdated)
        }
        _ => (None, Worth::Outdated),
    }
}

/// Leaves the number of a member's life, if it is greater than what is there.
fn raise(map: &Map, member: usize, life: u64, draft: &mut Draft) {
    draft.op(Action::Cas(Cas {
        mode: Mode::Greater,
        target: map.lives.plus(member as u64 * 8),
        indirect: false,
        words: 1,
        data: Operand::Inline(&[life]),
        comparand: None,
        masks: Masks::Words { compare: 1, swap: 1 },
    }));
}

fn raised(group: &Group, other: usize, reply: &Reply) -> (Option<u64>, Worth<()>) {
    let Some([raised, lives]) = reply.answer().take() else { return (None, Worth::Outdated) };
    let life = group.life_in(other, &lives);
    match raised.status {
        Status::Ok | Status::Miss => (life, Worth::Counts(())),
        _ => (life, Worth::Outdated),
    }
}
