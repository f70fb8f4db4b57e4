//! The hand behind all plots: the liars' keys, a gate that decides about every frame between correct
//! replicas, and the steps that histories are made of: a number that some accept, fewer prepare and
//! one commits; a view change that hears the right replicas only.

use crate::checks::{Violation, kinds};
use crate::world::{Fate, Passing};
use crate::{CLIENTS, Crash, FalseClient, Forger, Quality, Rng, World};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tercio_consensus::pbft::{Claimed, PbftMessage, SignedNewView, SignedViewChange, ViewChange};
use tercio_types::{
    Batch, Checkpoint, ClientId, Digest, Package, Principal, ReplicaId, ReplicaSet, SeqNum,
    SignatureBytes, Suite, Timestamp, View,
};
use tercio_wire::{EncodedBatch, Frame, Kind, Message};

/// Whom what is said in one view reaches, of the correct replicas; nobody, if nothing else is said.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    /// A correct primary's PRE-PREPAREs.
    pub(super) propose: ReplicaSet,
    /// PREPAREs.
    pub(super) prepare: ReplicaSet,
    /// COMMITs.
    pub(super) commit: ReplicaSet,
    /// A correct primary's NEW-VIEW.
    pub(super) begin: ReplicaSet,
    /// Whose VIEW-CHANGEs its primary hears. All others hear all.
    pub(super) leave: ReplicaSet,
    /// The last number of which anything is heard; all, when there is none.
    pub(super) last: Option<u64>,
}

impl Hearing {
    /// Everything reaches these.
    pub(super) fn of(all: &[ReplicaId]) -> Self {
        let all: ReplicaSet = set(all);
        Self { propose: all, prepare: all, commit: all, begin: all, ..Self::default() }
    }
}

pub(super) fn set(ids: &[ReplicaId]) -> ReplicaSet {
    ids.iter().copied().collect()
}

/// What the liars have heard. They hear everything that is said to all.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) view_changes: BTreeMap<(View, ReplicaId), Arc<SignedViewChange>>,
    pub(super) new_views: BTreeMap<View, Arc<SignedNewView>>,
    pub(super) proposals: BTreeMap<(View, SeqNum), Arc<EncodedBatch>>,
    pub(super) checkpoints: BTreeMap<(SeqNum, ReplicaId), (Checkpoint, SignatureBytes)>,
}

pub(super) struct Rules {
    suite: Suite,
    n: u64,
    liars: ReplicaSet,
    pub(super) views: BTreeMap<View, Hearing>,
    /// Replicas that hear nothing, but for the question what they know.
    pub(super) deaf: ReplicaSet,
    /// Whether signed states, and the certificates made of them, are heard.
    pub(super) checkpoints: bool,
    /// Whether laggards get help: STATUS and what it brings, blocks and state.
    pub(super) help: bool,
    pub(super) heard: Heard,
}

impl Rules {
    fn listen(&mut self, bytes: &Bytes) {
        let Ok(frame) = Frame::decode(bytes, self.suite) else { return };
        let Principal::Replica(from) = frame.key.principal() else { return };
        match PbftMessage::from_frame(&frame, self.suite) {
            Ok(PbftMessage::ViewChange(vc)) => {
                self.heard.view_changes.insert((vc.content.view, vc.sender), vc);
            }
            Ok(PbftMessage::NewView(begun)) => {
                self.heard.new_views.insert(begun.view, begun);
            }
            Ok(PbftMessage::PrePrepare { view, seq, batch }) => {
                self.heard.proposals.insert((view, seq), batch);
            }
            Ok(PbftMessage::Checkpoint { checkpoint, signature }) => {
                self.heard.checkpoints.insert((checkpoint.seq, from), (*checkpoint, *signature));
            }
            _ => {}
        }
    }

    fn begun(&self, bytes: &Bytes) -> Option<View> {
        let frame = Frame::decode(bytes, self.suite).ok()?;
        match PbftMessage::from_frame(&frame, self.suite).ok()? {
            PbftMessage::NewView(begun) => Some(begun.view),
            _ => None,
        }
    }

    fn judge(&mut self, passing: &Passing<'_>) -> Fate {
        let (from, to) = match (passing.from, passing.to) {
            (Principal::Replica(from), Principal::Replica(to)) => (from, to),
            // The clients of the world have to wait.
            (Principal::Client(_), _) => return Fate::Lose,
            _ => return Fate::Pass,
        };
        if self.liars.contains(to) {
            self.listen(passing.bytes);
            return Fate::Lose;
        }
        let key = passing.key;
        let learning = [Kind(25), Kind(26)].contains(&key.kind);
        if (self.deaf.contains(to) || self.deaf.contains(from)) && !learning {
            return Fate::Lose;
        }
        let view = match (key.kind, passing.bytes) {
            // A NEW-VIEW is carried, and its carrier's key names no view.
            (kinds::NEW_VIEW, bytes) => self.begun(bytes).unwrap_or_default(),
            _ => View(key.view),
        };
        let nothing = Hearing::default();
        let hearing = self.views.get(&view).unwrap_or(&nothing);
        let in_reach = hearing.last.is_none_or(|last| key.seq <= last);
        let leads = u64::from(to.0) == key.view % self.n;
        let passes = match key.kind {
            kinds::PRE_PREPARE => hearing.propose.contains(to) && in_reach,
            kinds::PREPARE => hearing.prepare.contains(to) && in_reach,
            kinds::COMMIT => hearing.commit.contains(to) && in_reach,
            kinds::VIEW_CHANGE => !leads || hearing.leave.contains(from),
            kinds::NEW_VIEW => hearing.begin.contains(to),
            Kind::CHECKPOINT | kinds::STABLE => self.checkpoints,
            // A body that is asked for, and given.
            Kind(22) | kinds::BODY => true,
            _ => learning || self.help,
        };
        if passes { Fate::Pass } else { Fate::Lose }
    }
}

/// A plot at work.
pub(super) struct Scheme<'w> {
    pub(super) world: &'w mut World,
    pub(super) rng: Rng,
    pub(super) liars: Vec<ReplicaId>,
    /// All others, in an order that the seed chose.
    pub(super) correct: Vec<ReplicaId>,
    pub(super) f: usize,
    pub(super) quorum: usize,
    forgers: BTreeMap<ReplicaId, Forger>,
    pub(super) rules: Rc<RefCell<Rules>>,
    client: FalseClient,
    next_op: u64,
}

/// Longer than it takes for anything to arrive and to become durable.
pub(super) const MOMENT: Duration = Duration::from_millis(25);

impl<'w> Scheme<'w> {
    /// Corrupts `count` replicas, the primaries of `views` first.
    pub(super) fn new(world: &'w mut World, mut rng: Rng, views: &[u64], count: usize) -> Self {
        let cast = world.cast().clone();
        let membership = cast.membership();
        let (n, f, quorum) = (membership.n(), membership.f(), membership.quorum());
        let mut correct: Vec<ReplicaId> = cast.replicas().collect();
        shuffle(&mut correct, &mut rng);
        let first = |id: &ReplicaId| !views.iter().any(|v| membership.primary(View(*v)) == *id);
        correct.sort_by_key(first);
        let liars = correct.drain(..count).collect::<Vec<_>>();
        shuffle(&mut correct, &mut rng);
        let forgers = liars.iter().map(|id| (*id, world.puppet(*id))).collect();
        let rules = Rules {
            suite: cast.suite(),
            n: n as u64,
            liars: set(&liars),
            views: BTreeMap::new(),
            deaf: ReplicaSet::EMPTY,
            checkpoints: false,
            help: false,
            heard: Heard::default(),
        };
        let rules = Rc::new(RefCell::new(rules));
        let judge = rules.clone();
        world.set_gate(move |passing| judge.borrow_mut().judge(passing));
        // Nothing overtakes anything: what comes too early is lost, and here nobody says it again.
        let slow = Duration::from_micros(rng.between(150, 2_000));
        world.network.heal(Quality { delay: (slow, slow), ..Quality::GOOD });
        let client = FalseClient::new(&cast, ClientId(CLIENTS));
        Self { world, rng, liars, correct, f, quorum, forgers, rules, client, next_op: 1 }
    }

    pub(super) fn leader(&self, view: u64) -> ReplicaId {
        self.world.cast().membership().primary(View(view))
    }

    pub(super) fn lies(&self, id: ReplicaId) -> bool {
        self.liars.contains(&id)
    }

    /// This many correct replicas, those of `first` that are correct before all others, and none of
    /// `but`.
    pub(super) fn choose(
        &self,
        count: usize,
        first: &[ReplicaId],
        but: &[ReplicaId],
    ) -> Vec<ReplicaId> {
        let mut all: Vec<_> = self.correct.iter().copied().filter(|id| !but.contains(id)).collect();
        all.sort_by_key(|id| !first.contains(id));
        all.truncate(count);
        all
    }

    /// Says whom what is said in a view reaches from now on.
    pub(super) fn hear(&mut self, view: u64, hearing: Hearing) {
        self.rules.borrow_mut().views.insert(View(view), hearing);
    }

    /// Nothing that is said in this view is heard any more.
    pub(super) fn hush(&mut self, view: u64) {
        self.rules.borrow_mut().views.remove(&View(view));
    }

    pub(super) fn wait(&mut self, time: Duration) -> Result<(), Violation> {
        self.world.run_for(time)
    }

    fn package(&mut self) -> Package {
        let op = Bytes::from(format!("plotted {}", self.next_op));
        let package = self.client.signed(self.next_op, &[op]);
        self.next_op += 1;
        self.world.asked_for(&package);
        package
    }

    /// A batch of one new operation, as a primary might make it.
    pub(super) fn batch(&mut self, checkpoint: bool) -> Arc<EncodedBatch> {
        let time = Timestamp(self.world.now().0 / 1000 + self.rng.below(1000));
        let packages = vec![self.package()];
        let batch = Batch { time, checkpoint, packages };
        Arc::new(EncodedBatch::new(batch, self.world.cast().suite()))
    }

    /// A client asks these for something.
    pub(super) fn ask(&mut self, of: &[ReplicaId]) {
        let package = self.package();
        let frame = self.client.request(&package);
        let client = Principal::Client(package.client);
        of.iter().for_each(|id| self.world.inject(client, Principal::Replica(*id), frame.clone()));
    }

    /// A liar's signature on a state.
    pub(super) fn sign(&self, by: ReplicaId, checkpoint: &Checkpoint) -> SignatureBytes {
        self.forgers[&by].sign_checkpoint(checkpoint)
    }

    /// A liar says something to these.
    pub(super) fn say(&mut self, by: ReplicaId, message: &PbftMessage, to: &[ReplicaId]) {
        let frame = self.forgers[&by].message(message);
        let from = Principal::Replica(by);
        to.iter().for_each(|id| self.world.inject(from, Principal::Replica(*id), frame.clone()));
    }

    /// All liars vote PREPARE towards some, and COMMIT towards some.
    pub(super) fn vote(
        &mut self,
        (view, seq, digest): (u64, u64, Digest),
        prepare: &[ReplicaId],
        commit: &[ReplicaId],
    ) {
        let (view, seq) = (View(view), SeqNum(seq));
        for liar in self.liars.clone() {
            self.say(liar, &PbftMessage::Prepare { view, seq, digest }, prepare);
            self.say(liar, &PbftMessage::Commit { view, seq, digest }, commit);
        }
    }

    /// A lying primary proposes.
    pub(super) fn offer(
        &mut self,
        view: u64,
        seq: u64,
        batch: &Arc<EncodedBatch>,
        to: &[ReplicaId],
    ) {
        let leader = self.leader(view);
        let (view, seq, batch) = (View(view), SeqNum(seq), batch.clone());
        self.say(leader, &PbftMessage::PrePrepare { view, seq, batch }, to);
    }

    /// Lets the view's primary propose something new at `seq`, which those accept that hear of it;
    /// the liars vote for it towards those that hear votes. Gives it, if it was proposed.
    pub(super) fn order(
        &mut self,
        view: u64,
        seq: u64,
        hearing: &Hearing,
    ) -> Result<Option<Arc<EncodedBatch>>, Violation> {
        self.hear(view, hearing.clone());
        let leader = self.leader(view);
        let list = |set: ReplicaSet| set.iter().collect::<Vec<_>>();
        let batch = if self.lies(leader) {
            let batch = self.batch(false);
            self.offer(view, seq, &batch, &list(hearing.propose));
            Some(batch)
        } else {
            self.ask(&[leader]);
            let (rules, at) = (self.rules.clone(), (View(view), SeqNum(seq)));
            let until = self.world.now() + Duration::from_millis(100);
            self.world.run_while(until, |_| !rules.borrow().heard.proposals.contains_key(&at))?;
            self.rules.borrow().heard.proposals.get(&at).cloned()
        };
        if let Some(batch) = &batch {
            self.vote((view, seq, batch.digest), &list(hearing.prepare), &list(hearing.commit));
        }
        self.wait(MOMENT)?;
        Ok(batch)
    }

    /// A VIEW-CHANGE without a certificate: P and Q as they are given.
    pub(super) fn words(view: u64, prepared: &[Claimed], accepted: &[Claimed]) -> ViewChange {
        let mut preprepared = accepted.to_vec();
        preprepared.sort();
        let (view, prepared) = (View(view), prepared.to_vec());
        ViewChange { view, stable: None, prepared, preprepared, blamed: vec![] }
    }

    pub(super) fn signed(&self, by: ReplicaId, words: ViewChange) -> Arc<SignedViewChange> {
        self.forgers[&by].signed_view_change(words)
    }

    /// Gets all correct replicas to leave for `to`, by what the liars say, or by waiting. Whether
    /// they did. Of each liar's words for a view the first count, so they are those of `lie`.
    pub(super) fn drive_out(
        &mut self,
        to: u64,
        lie: impl Fn(ReplicaId) -> ViewChange,
    ) -> Result<bool, Violation> {
        let correct = self.correct.clone();
        self.ask(&correct);
        self.wait(Duration::from_millis(3))?;
        for id in &correct {
            let Ok(status) = self.world.status(*id) else { continue };
            let leader = status.protocol.primary;
            let next = status.protocol.view.0 + 1;
            if self.lies(leader) && !status.protocol.changing && next <= to {
                let words = if next == to { lie(leader) } else { Self::words(next, &[], &[]) };
                let word = self.signed(leader, words);
                self.say(leader, &PbftMessage::ViewChange(word), &[*id]);
            }
        }
        let until = self.world.now() + Duration::from_secs(15);
        self.world.run_while(until, |world| {
            correct
                .iter()
                .any(|id| world.status(*id).is_ok_and(|status| status.protocol.view < View(to)))
        })
    }

    /// All leave for `to`, whose primary hears what the liars say, and then those that
    /// `hearing.leave` names. Whether those that may hear of its beginning are in it.
    pub(super) fn change_view(
        &mut self,
        to: u64,
        hearing: &Hearing,
        lie: impl Fn(ReplicaId) -> ViewChange,
    ) -> Result<bool, Violation> {
        self.hear(to, Hearing { leave: ReplicaSet::EMPTY, ..hearing.clone() });
        if !self.drive_out(to, &lie)? {
            return Ok(false);
        }
        let leader = self.leader(to);
        let lies: Vec<_> = self.liars.iter().map(|id| self.signed(*id, lie(*id))).collect();
        if self.lies(leader) {
            self.begin(to, &lies, hearing.leave, hearing.begin)?;
        } else {
            for word in lies {
                self.say(word.sender, &PbftMessage::ViewChange(word.clone()), &[leader]);
            }
            self.wait(Duration::from_millis(3))?;
            self.hear(to, hearing.clone());
        }
        self.entered(to, hearing.begin)
    }

    /// A lying primary begins a view, on the liars' words and those of `heard`.
    pub(super) fn begin(
        &mut self,
        view: u64,
        lies: &[Arc<SignedViewChange>],
        heard: ReplicaSet,
        to: ReplicaSet,
    ) -> Result<(), Violation> {
        self.wait(Duration::from_millis(3))?;
        let mut on = lies.to_vec();
        let rules = self.rules.borrow();
        let known = |id| rules.heard.view_changes.get(&(View(view), id)).cloned();
        on.extend(heard.iter().filter_map(known));
        drop(rules);
        on.sort_by_key(|word| word.sender);
        let leader = self.leader(view);
        let frame = self.forgers[&leader].new_view(View(view), on);
        for id in to.iter() {
            self.world.inject(Principal::Replica(leader), Principal::Replica(id), frame.clone());
        }
        Ok(())
    }

    /// Waits until these are in a view that has begun; whether they are.
    pub(super) fn entered(&mut self, view: u64, who: ReplicaSet) -> Result<bool, Violation> {
        let until = self.world.now() + Duration::from_millis(200);
        let inside = |world: &World, id| {
            world.status(id).is_ok_and(|s| s.protocol.view == View(view) && !s.protocol.changing)
        };
        self.world.run_while(until, |world| !who.iter().all(|id| inside(world, id)))
    }

    /// The liars give everybody the batch that a view has begun with.
    pub(super) fn give(&mut self, seq: u64, batch: &Arc<EncodedBatch>) -> Result<(), Violation> {
        let (correct, liar) = (self.correct.clone(), self.liars[0]);
        let body = PbftMessage::Body { seq: SeqNum(seq), batch: batch.clone() };
        self.say(liar, &body, &correct);
        self.wait(MOMENT)
    }

    /// The view goes on as if nothing were wrong: something new commits, at this number if it can.
    pub(super) fn go_on(&mut self, view: u64, seq: u64) -> Result<(), Violation> {
        let all = Hearing::of(&self.correct);
        // The views that the others may be in are left alone, too.
        self.order(view, seq, &all)?;
        self.wait(MOMENT)
    }

    /// The power fails at some, and they start again.
    pub(super) fn fail_power(&mut self, ids: &[ReplicaId]) -> Result<(), Violation> {
        ids.iter().for_each(|id| self.world.crash(*id, Crash::Power));
        let pause = Duration::from_micros(self.rng.between(100, 5_000));
        self.wait(pause)?;
        ids.iter().try_for_each(|id| self.world.restart(*id))?;
        self.wait(MOMENT)
    }

    /// Whether a replica has executed something.
    pub(super) fn delivered(&self, id: ReplicaId, seq: u64) -> bool {
        self.world.status(id).is_ok_and(|status| status.protocol.delivered >= SeqNum(seq))
    }
}

pub(super) fn claim(seq: u64, digest: Digest, view: u64) -> Claimed {
    Claimed { seq: SeqNum(seq), digest, view: View(view) }
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng.below(i as u64 + 1) as usize);
    }
}
