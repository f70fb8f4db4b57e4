//! The named faults that Tercio must survive (`docs/protocol/faults.md`), each a scenario of its
//! own that injects the fault and says what must come of it. Every scenario ends in a violation
//! when the defence that answers it is taken away; `tercio-sim zoo` shows it.

mod f01;
mod f03;
mod f04;
mod f05;
mod f06;
mod f08;
mod f14;
mod f16;
mod f18;
mod f21;
mod f22;
mod f23;
mod f24;
mod f25;
mod f26;
mod f26_keys;
mod f27;
mod f28;
mod f29;
mod f30;
mod f31;
mod f32;
mod f32_approvals;
mod f33;
mod f34;
mod f35;
mod f35_middle;
mod f36;
mod f41;
mod f42;
mod f43;
mod f44;
mod f45;
mod f46;
mod f47;
mod f48;
mod f51;
mod f52;
mod f56;
mod f59;
mod f60;
mod f61;
mod f62;
mod f63;
mod f64;
mod f65;

use crate::actors::{FalseSource, Falsehood};
use crate::checks::{Violation, demand};
use crate::world::{World, WorldSettings};
use crate::{Cast, Crash, FalseClient, Forger, Workload};
use bytes::Bytes;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::Settings;
use tercio_consensus::pbft::{PbftMessage, Report};
use tercio_types::zoo::Defence;
use tercio_types::{Batch, ClientId, Package, Principal, ReplicaId, SeqNum, Timestamp, View};
use tercio_wire::{EncodedBatch, Key};

/// A named fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its number, as tests carry it in their names.
    pub number: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What answers it.
    pub defence: Defence,
    /// The scenario.
    pub run: fn() -> Result<(), Violation>,
}

macro_rules! faults {
    ($($number:ident $name:literal $defence:ident),* $(,)?) => {
        /// All of them, in order.
        pub const ALL: &[Fault] = &[$(Fault {
            number: stringify!($number),
            name: $name,
            defence: Defence::$defence,
            run: $number::run,
        }),*];
    };
}

faults! {
    f01 "equivocating primary" F01OneDigestPerNumber,
    f03 "state forgotten after restart" F03RememberPromises,
    f04 "crash between signing and persisting" F04PersistBeforeSend,
    f05 "a restarted replica repeats its vote" F05RepeatVotes,
    f06 "view change drops a prepared request" F06CarryPrepared,
    f08 "new view without a quorum" F08DistinctViewChanges,
    f14 "gaps after a view change" F14NullRequests,
    f16 "client MAC attack" F16VouchForClients,
    f18 "censoring primary" F18RequestTimers,
    f21 "a view named by one replica" F21JoinOnWeakQuorum,
    f22 "source lowers its offer" F22NeverLower,
    f23 "pieces that belong elsewhere" F23PieceByDigest,
    f24 "source sends junk or stalls" F24SwitchSource,
    f25 "forged blocks" F25FullCertificate,
    f26 "corrupt checkpoint message" F26CompareCheckpoints,
    f26_keys "keys of a corrupt state" F26NameTheKeys,
    f27 "laggards when checkpoints stop" F27ServeLaggards,
    f28 "state transfer races with consensus" F28OneOwner,
    f29 "paused replica returns" F29BoundedBacklog,
    f30 "numbers beyond the watermarks" F30Watermarks,
    f31 "one client floods" F31ClientQuotas,
    f32 "unsigned, malformed or absurd request" F32CheckClients,
    f32_approvals "a client on forged approvals" F32CheckApprovals,
    f33 "votes before the proposal" F33ParkEarlyVotes,
    f34 "one decision twice around a sync" F34FetchedIsDelivered,
    f35 "torn log tail" F35CutTornTail,
    f35_middle "corrupt middle of a log" F35MendFromOthers,
    f36 "failed fsync, full disk" F36FailStop,
    f41 "lost log" F41LearnAfterLoss,
    f42 "forgotten proposal" F42ResignAfterRestart,
    f43 "long batches without checkpoints" F43BoundedBytes,
    f44 "views that a laggard cannot follow" F44SkipToCertificate,
    f45 "a record before what it stands on" F45StateFollows,
    f46 "a certificate of what nobody has" F46DurableCheckpoint,
    f47 "blocks beyond the buffer" F47UncertifiedIsGone,
    f48 "absurd numbers in an offer" F48BoundOffers,
    f51 "a log that went back" F51AskAfterRestart,
    f52 "execution halts" F52OrderAhead,
    f56 "a primary dies under full load" F56LearnFromWork,
    f59 "false signatures and old forwards" F59ChargeByCost,
    f60 "large requests" F60SizeOfWhatWaits,
    f61 "links across the world" F61MeasuredTrips,
    f62 "a lone view changer" F62ReturnToTheView,
    f63 "clocks that are wrong" F63JudgeTime,
    f64 "a write-ahead log that was cut" F64MarkLog,
    f65 "numbers far ahead" F65FarNumbers,
}

/// The fault of a number.
#[must_use]
pub fn by_number(number: &str) -> Option<&'static Fault> {
    ALL.iter().find(|fault| fault.number == number)
}

/// Runs a scenario; a broken assertion of a replica is a violation too.
///
/// # Errors
/// What was violated.
pub fn guarded(run: fn() -> Result<(), Violation>) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Violation::new("panic", said))
    })
}

const R0: ReplicaId = ReplicaId(0);
const R1: ReplicaId = ReplicaId(1);
const R2: ReplicaId = ReplicaId(2);
const R3: ReplicaId = ReplicaId(3);
const EVERYBODY: [ReplicaId; 4] = [R0, R1, R2, R3];

/// How long a network of four may take to finish what it was given, in virtual time.
const SOON: Duration = Duration::from_secs(30);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Four replicas on steady links, and clients that a script drives.
fn four(clients: &[Workload]) -> Result<World, Violation> {
    four_with(clients, WorldSettings::default().consensus)
}

/// The same, with other settings.
fn four_with(clients: &[Workload], consensus: Settings) -> Result<World, Violation> {
    let clients = clients.iter().map(|work| (ClientAuth::Mac, *work)).collect();
    World::new(&Cast::new(4), WorldSettings { clients, consensus, ..WorldSettings::default() })
}

/// Everything that was asked for is done, everywhere.
fn settle(world: &mut World) -> Result<(), Violation> {
    world.expect_within(SOON, "settling", World::is_settled)?;
    world.finish()
}

/// R3 loses its disk while the others go on and, if they are forgetful, let the blocks go; R0 lies
/// when R3 is back. Everything is done everywhere in the end.
fn refill(how: Falsehood, forgetful: bool) -> Result<World, Violation> {
    let work = Workload { packages: 80, ops: 1, under_way: 2, pause: millis(5) };
    let clients = vec![(ClientAuth::Mac, work)];
    let mut world = World::new(
        &Cast::new(4),
        WorldSettings { clients, forgetful, ..WorldSettings::default() },
    )?;
    world.corrupt(R0, Box::new(FalseSource::of(how)));
    world.run_for(millis(50))?;
    world.crash(R3, Crash::Power);
    world.lose_disk(R3);
    world.expect_within(SOON, "the work of the others", |world| world.customer(1).is_done())?;
    world.restart(R3)?;
    world.submit(1, &["afterwards"]);
    settle(&mut world)?;
    Ok(world)
}

/// R3 fetched state, and names R0 for this reason.
fn named(world: &World, number: &'static str, reasons: &[&str]) -> Result<(), Violation> {
    let status = world.status(R3)?.transfer;
    demand(status.as_ref().is_some_and(|status| status.phase == "done"), number, || {
        format!("R3 fetched no state: {status:?}")
    })?;
    let dropped = status.map(|status| status.dropped).unwrap_or_default();
    demand(dropped.iter().any(|(id, why)| *id == R0 && reasons.contains(why)), number, || {
        format!("R0 is not named: {dropped:?}")
    })
}

/// Starts a replica again whose questions all others answer, and have nothing of its to show (rule
/// L7): for scenarios in which it hears nothing else of them.
fn restart_unsuspected(world: &mut World, id: ReplicaId) -> Result<(), Violation> {
    world.restart(id)?;
    let nonce = world.now().0;
    let report = Report { nonce, view: View(0), reach: SeqNum(0), said: None };
    for by in EVERYBODY.into_iter().filter(|by| *by != id) {
        let frame = Forger::new(world.cast(), by).message(&PbftMessage::Report(report.clone()));
        world.inject(Principal::Replica(by), Principal::Replica(id), frame);
    }
    Ok(())
}

/// A client that a script plays, and what it asks for.
struct Puppeteer {
    client: FalseClient,
    id: ClientId,
    next: u64,
}

impl Puppeteer {
    fn new(cast: &Arc<Cast>, id: u64) -> Self {
        let id = ClientId(id);
        Self { client: FalseClient::new(cast, id), id, next: 1 }
    }

    /// A package of one signed operation that the checkers know of.
    fn signed(&mut self, world: &mut World, op: &'static str) -> Package {
        let package = self.client.signed(self.next, &[Bytes::from_static(op.as_bytes())]);
        self.next += 1;
        world.asked_for(&package);
        package
    }

    /// A package of one operation whose MAC is good for `good` only.
    fn maced(&mut self, world: &mut World, op: &'static str, good: &[ReplicaId]) -> Package {
        let package = self.client.maced(self.next, &[Bytes::from_static(op.as_bytes())], good);
        self.next += 1;
        world.asked_for(&package);
        package
    }

    /// Sends a package to these replicas.
    fn send(&self, world: &mut World, package: &Package, to: &[ReplicaId]) {
        let frame = self.client.request(package);
        for id in to {
            world.inject(Principal::Client(self.id), Principal::Replica(*id), frame.clone());
        }
    }
}

/// A batch of one package, as a primary might make it at this time.
fn batch_of(world: &World, package: &Package, time: u64) -> Arc<EncodedBatch> {
    let packages = vec![package.clone()];
    let batch = Batch { time: Timestamp(time), checkpoint: false, packages };
    Arc::new(EncodedBatch::new(batch, world.cast().suite()))
}

/// The keys of all frames that one replica sends from now on.
fn record(world: &mut World, by: ReplicaId) -> Rc<RefCell<Vec<Key>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let keys = log.clone();
    world.set_gate(move |passing| {
        if passing.from == Principal::Replica(by) {
            keys.borrow_mut().push(passing.key);
        }
        crate::Fate::Pass
    });
    log
}
