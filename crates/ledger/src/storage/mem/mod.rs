//! A directory in memory that models a page cache, crashes and failing disks, for simulation and
//! tests.

mod file;

pub use file::MediaFault;

use super::Storage;
use file::File;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A directory in memory. Clones are handles of the same directory, so that a test keeps one while
/// a log owns another; a log that lived before a crash must not be used after it.
#[derive(Clone, Debug, Default)]
pub struct MemStorage {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    directory: Mutex<Directory>,
    /// Removals are not held any more.
    released: Condvar,
}

type Inode = u64;

#[derive(Clone, Debug, Default)]
struct Directory {
    next: Inode,
    files: BTreeMap<Inode, File>,
    /// What every process sees.
    names: BTreeMap<String, Inode>,
    /// What survives a crash.
    durable: BTreeMap<String, Inode>,
    /// What happened to the names since the last sync of the directory.
    pending: Vec<NameChange>,
    /// The operation, counted from now, that fails.
    fail_in: Option<u64>,
    /// How many more bytes fit.
    room: Option<u64>,
    /// Whether removals wait, and how many do.
    holds: bool,
    held: usize,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, Inode),
    Unlink(String),
    Rename(String, String, Inode),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, Inode>) {
        match self {
            Self::Link(name, inode) => {
                names.insert(name, inode);
            }
            Self::Unlink(name) => {
                names.remove(&name);
            }
            Self::Rename(from, to, inode) => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

impl Directory {
    fn step(&mut self, what: &str, name: &str) -> io::Result<()> {
        if let Some(left) = &mut self.fail_in {
            if *left == 0 {
                self.fail_in = None;
                return Err(io::Error::other(format!("cannot {what} {name}: injected fault")));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn file(&mut self, what: &str, name: &str) -> io::Result<&mut File> {
        let inode = self.names.get(name).ok_or_else(|| not_found(what, name))?;
        Ok(self.files.get_mut(inode).expect("a name stands for a file"))
    }

    /// A sector of any file, as the disk has it.
    fn any_sector(&self, choose: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let counts = || self.files.values().map(|file| (file, file.durable_sectors()));
        let all: usize = counts().map(|(_, count)| count).sum();
        let mut chosen = (all > 0).then(|| choose(all as u64) as usize)?;
        for (file, count) in counts() {
            if chosen < count {
                return Some(file.sector(chosen));
            }
            chosen -= count;
        }
        None
    }

    fn rename(&mut self, change: NameChange) {
        self.pending.push(change.clone());
        change.apply(&mut self.names);
    }
}

fn not_found(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("cannot {what} {name}: no such file"))
}

impl MemStorage {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Directory> {
        self.shared.directory.lock().expect("no holder panics")
    }

    /// The power fails. `choose(n)` gives a number below `n` and decides what is left; injected
    /// faults are taken back. It is asked, in this order:
    ///
    /// - 2, for each change of a name that was not synced: 1 when it has happened.
    /// - Then of each file: 3, for each sector that was written over and not synced: 0 when it is as
    ///   it was, else it is as it was to be.
    /// - One more than there are bytes that were appended and not synced, if there are any: how many
    ///   of them the length covers that reached the disk.
    /// - 5, for the manner in which those are there: 0 when they are whole, and the file has its full
    ///   length with zeros behind them (of 0 bytes: the length reached the disk, and nothing else); 1
    ///   when up to 512 bytes at their end are wrong; 2 when they are whole and end there; 3 when
    ///   each sector, 4 when each page of 4 KiB, is on the disk or is zeros. It is asked 3 then for
    ///   each of these, 0 when it is lost, and for wrong bytes how many and what is wrong with each.
    pub fn crash(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        let mut dir = self.lock();
        for change in std::mem::take(&mut dir.pending) {
            if choose(2) == 1 {
                change.apply(&mut dir.durable);
            }
        }
        dir.names = dir.durable.clone();
        let Directory { files, names, .. } = &mut *dir;
        let kept: Vec<Inode> = names.values().copied().collect();
        files.retain(|inode, _| kept.contains(inode));
        files.values_mut().for_each(|file| file.crash(choose));
        (dir.fail_in, dir.room) = (None, None);
    }

    /// What a [`Self::crash`] now would leave, as a directory that shares nothing with this one.
    #[must_use]
    pub fn after_crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let directory = Mutex::new(self.lock().clone());
        let mut copy = Self { shared: Arc::new(Shared { directory, ..Shared::default() }) };
        copy.crash(choose);
        copy
    }

    /// The process dies: all that it wrote is in the page cache and stays. Injected faults are
    /// taken back.
    pub fn kill(&mut self) {
        let mut dir = self.lock();
        (dir.fail_in, dir.room) = (None, None);
    }

    /// Lets the `k`-th change from now fail (0 is the next one). A failing sync drops the pages
    /// that it should have written and marks them clean, as Linux does.
    pub fn fail_in(&mut self, k: u64) {
        self.lock().fail_in = Some(k);
    }

    /// Lets the disk be full after `bytes` more.
    pub fn full_after(&mut self, bytes: u64) {
        self.lock().room = Some(bytes);
    }

    /// Lets whoever removes a file wait, until this is called with `false`: a busy disk.
    pub fn hold_removals(&mut self, hold: bool) {
        self.lock().holds = hold;
        self.shared.released.notify_all();
    }

    /// How many removals wait.
    #[must_use]
    pub fn held_removals(&self) -> usize {
        self.lock().held
    }

    /// A file's bytes, as a process sees them.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().file("read", name).ok().map(|file| file.bytes.clone())
    }

    /// Changes a file behind the ledger's back, durably; it is created when there is none.
    pub fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut dir = self.lock();
        if !dir.names.contains_key(name) {
            let inode = dir.next;
            dir.next += 1;
            dir.files.insert(inode, File::default());
            dir.names.insert(name.to_owned(), inode);
            dir.durable.insert(name.to_owned(), inode);
        }
        let file = dir.file("edit", name).expect("just put there");
        edit(&mut file.bytes);
        *file = File::durable(std::mem::take(&mut file.bytes));
    }

    /// The medium fails: what is durable in a file is not what was written any more. `choose(n)`
    /// gives a number below `n`. Gives the range of bytes in which something changed, `None` when
    /// nothing did: the file has no durable sector that is not about to be written again, or the
    /// chosen place would hold what it held.
    pub fn media_fault(
        &mut self,
        name: &str,
        fault: MediaFault,
        choose: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Range<usize>> {
        let mut dir = self.lock();
        let stray = match fault {
            MediaFault::MisdirectedWrite => dir.any_sector(choose)?,
            MediaFault::BitRot | MediaFault::LostWrite => Vec::new(),
        };
        dir.file("damage", name).ok()?.fault(fault, &stray, choose)
    }

    /// A copy that shares nothing with this directory; everything in it is durable.
    #[must_use]
    pub fn fork(&self) -> Self {
        let dir = self.lock();
        let mut copy = Self::new();
        for (name, inode) in &dir.names {
            copy.edit(name, |bytes| bytes.clone_from(&dir.files[inode].bytes));
        }
        copy
    }
}

impl Storage for MemStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.lock().file("read", name)?.bytes.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut dir = self.lock();
        let file = dir.file("read", name)?;
        let range = usize::try_from(offset).ok().and_then(|at| Some(at..at.checked_add(len)?));
        match range.and_then(|range| file.bytes.get(range)) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("cannot read {name}: the file ends before byte {offset} + {len}"),
            )),
        }
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let len = match self.len(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            len => len?,
        };
        self.write_at(name, len, bytes)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut dir = self.lock();
        dir.step("write", name)?;
        if !dir.names.contains_key(name) {
            let inode = dir.next;
            dir.next += 1;
            dir.files.insert(inode, File::default());
            dir.rename(NameChange::Link(name.to_owned(), inode));
        }
        let (at, room) = (at as usize, dir.room);
        let file = dir.file("write", name)?;
        let over = file.bytes.len().checked_sub(at).expect("the ledger leaves no gaps");
        let longer = bytes.len().saturating_sub(over);
        let grows = room.map_or(longer, |room| longer.min(room as usize));
        let fits = bytes.len() - longer + grows;
        file.write(at, &bytes[..fits]);
        if let Some(room) = &mut dir.room {
            *room -= grows as u64;
        }
        if fits < bytes.len() {
            let text = format!("cannot write {name}: the disk is full; free space, then restart");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut dir = self.lock();
        let step = dir.step("sync", name);
        let file = dir.file("sync", name)?;
        match step {
            Ok(()) => file.sync(),
            Err(_) => file.fail_sync(),
        }
        step
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut dir = self.lock();
        dir.held += 1;
        let released = self.shared.released.wait_while(dir, |dir| dir.holds);
        let mut dir = released.expect("no holder panics");
        dir.held -= 1;
        dir.step("remove", name)?;
        if !dir.names.contains_key(name) {
            return Err(not_found("remove", name));
        }
        dir.rename(NameChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut dir = self.lock();
        dir.step("rename", from)?;
        let inode = *dir.names.get(from).ok_or_else(|| not_found("rename", from))?;
        dir.rename(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn hand_over(&mut self, _names: &[String]) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.clone()))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let mut dir = self.lock();
        dir.step("sync", "the directory")?;
        let Directory { files, names, durable, pending, .. } = &mut *dir;
        pending.clear();
        durable.clone_from(names);
        let used: Vec<Inode> = names.values().copied().collect();
        files.retain(|inode, _| used.contains(inode));
        Ok(())
    }
}
