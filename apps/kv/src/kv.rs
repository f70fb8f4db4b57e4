//! The rules: what each command reads and changes.

use crate::{Command, Page, Query, Reject, Reply, Scan, Settings, SettingsError};
use bytes::Bytes;
use std::ops::ControlFlow;
use tercio_execution::{
    AppError, Context, Footprint, KeyRange, Operation, Outcome, StateView, Store, Transaction,
};
use tercio_wire::Encode;

/// The key-value store. Its state is the engine's [`Store`]: keys and values as clients gave them.
#[derive(Clone, Copy, Debug)]
pub struct Kv {
    settings: Settings,
}

impl Kv {
    /// A store under these rules.
    ///
    /// # Errors
    /// When the settings make no store.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self { settings })
    }

    fn parse(&self, bytes: &Bytes) -> Result<Command, Reject> {
        let command = Command::parse(bytes)?;
        match &command {
            Command::Get { key } | Command::Delete { key } => self.check_key(key)?,
            Command::Put { key, value } => {
                self.check_key(key)?;
                self.check_value(value)?;
            }
            Command::Swap { key, expected, new } => {
                self.check_key(key)?;
                [expected, new].into_iter().flatten().try_for_each(|v| self.check_value(v))?;
            }
            Command::Scan(scan) => self.check_scan(scan)?,
        }
        Ok(command)
    }

    fn parse_query(&self, bytes: &Bytes) -> Result<Query, Reject> {
        let query = Query::parse(bytes)?;
        match &query {
            Query::Get { key } => self.check_key(key)?,
            Query::Scan(scan) => self.check_scan(scan)?,
            Query::Count => {}
        }
        Ok(query)
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Reject> {
        let fits = (1..=self.settings.max_key_bytes as usize).contains(&key.len());
        fits.then_some(()).ok_or(Reject::KeySize)
    }

    fn check_value(&self, value: &[u8]) -> Result<(), Reject> {
        let fits = value.len() <= self.settings.max_value_bytes as usize;
        fits.then_some(()).ok_or(Reject::ValueSize)
    }

    /// The bounds of a scan may be any keys or none; one longer than keys are is only a bound.
    fn check_scan(&self, scan: &Scan) -> Result<(), Reject> {
        let fits = (1..=Scan::MAX_KEYS).contains(&scan.limit);
        fits.then_some(()).ok_or(Reject::ScanLimit)
    }
}

fn found(value: Option<Bytes>) -> Reply {
    value.map_or(Reply::Missing, Reply::Found)
}

/// A page that is filled with keys that are not below `scan.from`, in ascending order.
struct Filling<'a> {
    scan: &'a Scan,
    page: Page,
    bytes: usize,
}

impl<'a> Filling<'a> {
    fn new(scan: &'a Scan) -> Self {
        Self { scan, page: Page::default(), bytes: 0 }
    }

    /// Takes the next key, unless it is beyond the end or the page is full.
    fn take(&mut self, key: &Bytes, value: &Bytes) -> ControlFlow<()> {
        let Self { scan, page, bytes } = self;
        if scan.to.as_ref().is_some_and(|to| key >= to) {
            return ControlFlow::Break(());
        }
        *bytes += key.len() + value.len();
        let full = page.entries.len() == scan.limit as usize || *bytes > Scan::MAX_BYTES;
        if full && !page.entries.is_empty() {
            page.more = true;
            return ControlFlow::Break(());
        }
        page.entries.push((key.clone(), value.clone()));
        ControlFlow::Continue(())
    }
}

fn apply(command: &Command, view: &mut StateView<'_>) -> Reply {
    match command {
        Command::Get { key } => found(view.get(key)),
        Command::Put { key, value } => {
            let replaced = view.get(key).is_some();
            view.put(key, value);
            Reply::Stored { replaced }
        }
        Command::Delete { key } => {
            let existed = view.get(key).is_some();
            view.delete(key);
            Reply::Deleted { existed }
        }
        Command::Swap { key, expected, new } => {
            let current = view.get(key);
            if current != *expected {
                return Reply::Differs(current);
            }
            match new {
                Some(value) => view.put(key, value),
                None => view.delete(key),
            }
            Reply::Swapped
        }
        Command::Scan(scan) => {
            let mut filling = Filling::new(scan);
            view.range(&scan.from, scan.to.as_deref(), |key, value| filling.take(key, value));
            Reply::Page(filling.page)
        }
    }
}

impl Transaction for Kv {
    fn genesis(&self, store: &mut Store) {
        for i in 0..self.settings.fill_keys {
            store.put(&self.settings.fill_key(i), &self.settings.fill_value(i));
        }
    }

    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> Outcome {
        match self.parse(&tx.op) {
            Ok(command) => {
                apply(&command, view).encode(result);
                Outcome::Commit
            }
            Err(reason) => {
                Reply::Rejected(reason).encode(result);
                Outcome::Abort
            }
        }
    }

    /// One key, or the range of a scan; nothing when the command is refused.
    fn footprint(&self, tx: &Operation) -> Footprint {
        let (mut reads, mut writes, mut ranges) = (vec![], vec![], vec![]);
        match self.parse(&tx.op) {
            Err(_) => {}
            Ok(Command::Get { key }) => reads.push(key),
            Ok(Command::Put { key, .. } | Command::Delete { key } | Command::Swap { key, .. }) => {
                writes.push(key);
            }
            Ok(Command::Scan(Scan { from, to, .. })) => ranges.push(KeyRange { from, to }),
        }
        Footprint::Declared { reads, writes, ranges }
    }

    /// A [`Query`], answered by a [`Reply`].
    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        let query = self.parse_query(&Bytes::copy_from_slice(question));
        let reply = match query.map_err(|reason| AppError(reason.to_string()))? {
            Query::Get { key } => found(store.get(&key).cloned()),
            Query::Scan(scan) => {
                let mut filling = Filling::new(&scan);
                let mut keys = store.range(&scan.from);
                let _ = keys.try_for_each(|(key, value)| filling.take(key, value));
                Reply::Page(filling.page)
            }
            Query::Count => Reply::Count(store.len() as u64),
        };
        Ok(reply.to_bytes())
    }

    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        let parsed = self.parse(&Bytes::copy_from_slice(operation));
        parsed.map(|_| ()).map_err(|reason| AppError(reason.to_string()))
    }
}
