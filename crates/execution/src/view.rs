//! One transaction's attempt on a state: what it may touch, sees, writes, and how it ends.
//!
//! - A [`StateView`] is buffered: reads come from a [`StateSource`], the transaction's own writes
//!   stand before them, and the source is never changed. Who runs the transaction applies its
//!   [`Writes`] when it commits, and forgets them otherwise.
//! - A declared [`Footprint`] binds. The first access outside of it ends the transaction there and
//!   then, as [`Aborted::OutsideFootprint`], whatever the transaction would do next; it never sees
//!   a made-up value. That needs unwinding, which calls no panic hook; a transaction that catches
//!   it ends so nevertheless.
//! - A panic in the transaction, or in its `footprint`, ends it as [`Aborted::Panicked`]. The text
//!   goes where the process's panic hook sends it, and nowhere into results: replicas may be built
//!   from other paths and on other compilers.
//! - An aborted one leaves no write and no result but its status, and the next transaction runs.
//! - On demand all is recorded that came from the source ([`Accesses`]): the keys with what was
//!   found, absence too, and the ranges as far as they were gone through, with all that was in
//!   them. While [`Accesses::hold`], the transaction would do the same again: a key that appeared
//!   in a range (a phantom) shows.
//!
//! All replicas abort the same as long as they run one program: transactions are deterministic, and what
//! makes them panic is a part of the program (overflow checks, for one, are one setting for all). What
//! is no panic is not caught: an endless loop, a stack that overflows, memory that ends, a panic
//! while another unwinds, or any panic in a program built with `panic = "abort"`.

use crate::{Context, Operation, Outcome, Store, Transaction, Writes};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tercio_types::zoo::{Defence, stands};
use tercio_wire::ResultStatus;

/// The keys from `from` on that are below `to`; all from `from` on without `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub from: Bytes,
    /// The first key behind it.
    pub to: Option<Bytes>,
}

impl KeyRange {
    fn contains(&self, key: &[u8]) -> bool {
        self.from.as_ref() <= key && self.to.as_ref().is_none_or(|to| key < to.as_ref())
    }

    fn covers(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        self.from.as_ref() <= from
            && match (&self.to, to) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(end), Some(to)) => to <= end.as_ref(),
            }
    }
}

/// Which keys a transaction touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Footprint {
    /// Nobody knows before it has run.
    #[default]
    Unknown,
    /// These and no others.
    Declared {
        /// The keys that it may read.
        reads: Vec<Bytes>,
        /// The keys that it may read or write.
        writes: Vec<Bytes>,
        /// The ranges that it may go through; it may read their keys.
        ranges: Vec<KeyRange>,
    },
}

impl Footprint {
    fn may_read(&self, key: &[u8]) -> bool {
        match self {
            Self::Unknown => true,
            Self::Declared { reads, ranges, .. } => {
                self.may_write(key)
                    || reads.iter().any(|k| k == key)
                    || ranges.iter().any(|range| range.contains(key))
            }
        }
    }

    fn may_write(&self, key: &[u8]) -> bool {
        match self {
            Self::Unknown => true,
            Self::Declared { writes, .. } => writes.iter().any(|k| k == key),
        }
    }

    fn may_go_through(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        match self {
            Self::Unknown => true,
            Self::Declared { ranges, .. } => ranges.iter().any(|range| range.covers(from, to)),
        }
    }
}

/// Takes a key with its value; whether to go on.
pub type Visit<'v> = dyn FnMut(&Bytes, &Bytes) -> ControlFlow<()> + 'v;

/// Where a view's reads come from: the store, one version of several, another machine.
pub trait StateSource {
    /// The value of a key.
    fn get(&mut self, key: &[u8]) -> Option<Bytes>;

    /// Gives `visit` the keys from `from` on that are below `to` with their values, in ascending
    /// order, until it breaks off.
    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>);
}

impl StateSource for &Store {
    fn get(&mut self, key: &[u8]) -> Option<Bytes> {
        Store::get(self, key).cloned()
    }

    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) {
        for (key, value) in Store::range(self, from) {
            if to.is_some_and(|to| key.as_ref() >= to) || visit(key, value).is_break() {
                break;
            }
        }
    }
}

/// What a transaction saw of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Keys, each with the value that was found.
    pub reads: BTreeMap<Bytes, Option<Bytes>>,
    /// Ranges as far as they were gone through, each with all that was in it.
    pub ranges: Vec<(KeyRange, Vec<(Bytes, Bytes)>)>,
}

impl Accesses {
    /// Whether a transaction that ran on `source` now would see the same.
    pub fn hold(&self, source: &mut dyn StateSource) -> bool {
        let mut same = self.reads.iter().all(|(key, value)| source.get(key) == *value);
        for (range, found) in &self.ranges {
            let mut found = found.iter();
            source.range(&range.from, range.to.as_deref(), &mut |key, value| {
                same &= found.next().is_some_and(|(k, v)| k == key && v == value);
                if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            same &= found.next().is_none();
        }
        same
    }
}

/// Why a transaction was aborted and has no result. The same at all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborted {
    /// It touched what its footprint does not declare.
    OutsideFootprint,
    /// It panicked.
    Panicked,
}

impl Aborted {
    /// What stands before its empty result.
    #[must_use]
    pub fn status(self) -> ResultStatus {
        match self {
            Self::OutsideFootprint => ResultStatus::OutsideFootprint,
            Self::Panicked => ResultStatus::Panicked,
        }
    }

    /// Its name among the reasons that a replica counts.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::OutsideFootprint => "operation_outside_footprint",
            Self::Panicked => "operation_panicked",
        }
    }
}

/// The state as one transaction sees it, with its own writes.
pub struct StateView<'a> {
    source: &'a mut dyn StateSource,
    footprint: Footprint,
    writes: &'a mut Writes,
    accesses: Option<Accesses>,
    strayed: bool,
}

/// What unwinds a transaction that left its footprint.
struct Strayed;

impl StateView<'_> {
    /// The value of a key. The footprint must declare the key ([`Aborted::OutsideFootprint`]); so
    /// must it for the three below.
    #[must_use]
    pub fn get(&mut self, key: &[u8]) -> Option<Bytes> {
        self.within(self.footprint.may_read(key));
        if !self.writes.is_empty()
            && let Some(own) = self.writes.get(key)
        {
            return own.cloned();
        }
        let Some(accesses) = &mut self.accesses else { return self.source.get(key) };
        if let Some(before) = accesses.reads.get(key) {
            return before.clone();
        }
        let value = self.source.get(key);
        accesses.reads.insert(Bytes::copy_from_slice(key), value.clone());
        value
    }

    /// Gives a key a value. It is no read: nothing is recorded of what the key had.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, Some(value));
    }

    /// Takes a key's value away, if it has one. It is no read either.
    pub fn delete(&mut self, key: &[u8]) {
        self.write(key, None);
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.within(self.footprint.may_write(key));
        self.writes.insert(key, value);
    }

    /// Gives `visit` the keys from `from` on that are below `to` with their values, in ascending
    /// order, until it breaks off. Say `to` where there is one, and break off early: what was gone
    /// through is what nobody may change meanwhile.
    pub fn range(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        mut visit: impl FnMut(&Bytes, &Bytes) -> ControlFlow<()>,
    ) {
        self.within(self.footprint.may_go_through(from, to));
        if to.is_some_and(|to| to <= from) {
            return;
        }
        let Self { source, writes, accesses, .. } = self;
        let mut own = writes.range(from, to).peekable();
        let mut found = Vec::new();
        let record = accesses.is_some();
        // The key at which `visit` broke off.
        let mut last: Option<Bytes> = None;
        source.range(from, to, &mut |key, value| {
            while let Some((before, value)) = own.next_if(|(own, _)| *own < key) {
                if let Some(value) = value
                    && visit(before, value).is_break()
                {
                    last = Some(before.clone());
                    return ControlFlow::Break(());
                }
            }
            if record {
                found.push((key.clone(), value.clone()));
            }
            let value = match own.next_if(|(own, _)| *own == key) {
                Some((_, own)) => own.as_ref(),
                None => Some(value),
            };
            let flow = value.map_or(ControlFlow::Continue(()), |value| visit(key, value));
            if flow.is_break() {
                last = Some(key.clone());
            }
            flow
        });
        while last.is_none()
            && let Some((key, value)) = own.next()
        {
            if let Some(value) = value
                && visit(key, value).is_break()
            {
                last = Some(key.clone());
            }
        }
        if let Some(accesses) = accesses {
            // The first key behind `last` is the one with a zero more.
            let to = match last {
                Some(last) => Some([&last[..], &[0]].concat().into()),
                None => to.map(Bytes::copy_from_slice),
            };
            let range = KeyRange { from: Bytes::copy_from_slice(from), to };
            accesses.ranges.push((range, found));
        }
    }

    fn within(&mut self, declared: bool) {
        if !declared && stands(Defence::F53FootprintBinds) {
            self.strayed = true;
            resume_unwind(Box::new(Strayed));
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What the transaction decided, or why it could not.
    pub end: Result<Outcome, Aborted>,
    /// What is to be applied; empty unless it commits.
    pub writes: Writes,
    /// What it saw, when that was to be recorded.
    pub accesses: Option<Accesses>,
}

/// Runs the transaction of `tx` on `source` and appends its result to `result`, of which nothing
/// counts that an aborted one appended. With `record` the attempt says what it saw.
pub fn attempt<T: Transaction + ?Sized>(
    logic: &T,
    tx: &Operation,
    context: &Context,
    source: &mut dyn StateSource,
    record: bool,
    result: &mut Vec<u8>,
) -> Attempt {
    let mut writes = Writes::default();
    let accesses = record.then(Accesses::default);
    let (end, accesses) = attempt_into(logic, tx, context, source, accesses, &mut writes, result);
    Attempt { end, writes, accesses }
}

/// The same, into `writes` and `accesses` that are empty, so that their memory can be used again.
pub(crate) fn attempt_into<T: Transaction + ?Sized>(
    logic: &T,
    tx: &Operation,
    context: &Context,
    source: &mut dyn StateSource,
    accesses: Option<Accesses>,
    writes: &mut Writes,
    result: &mut Vec<u8>,
) -> (Result<Outcome, Aborted>, Option<Accesses>) {
    let footprint = Footprint::Unknown;
    let mut view = StateView { source, footprint, writes, accesses, strayed: false };
    // Nothing that a panic leaves half done is looked at again: the writes are dropped, the result
    // is cut off, and the source was only read.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        view.footprint = logic.footprint(tx);
        logic.execute(tx, context, &mut view, result)
    }));
    let StateView { accesses, strayed, .. } = view;
    let end = match ran {
        _ if strayed => Err(Aborted::OutsideFootprint),
        Ok(outcome) => Ok(outcome),
        Err(panic) if !stands(Defence::F54PanicsAbort) => resume_unwind(panic),
        Err(_) => Err(Aborted::Panicked),
    };
    if end != Ok(Outcome::Commit) {
        writes.clear();
    }
    (end, accesses)
}
