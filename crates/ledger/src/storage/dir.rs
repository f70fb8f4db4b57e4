//! A directory of the file system.

use super::Storage;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many files are kept open for writing, beyond those with unsynced bytes.
const OPEN_FILES: usize = 8;

/// A directory of the file system: mode 0700, its files 0600.
#[derive(Debug)]
pub struct DirStorage {
    path: PathBuf,
    open: BTreeMap<String, OpenFile>,
    /// The file that was read last, beyond those.
    read: RefCell<Option<(String, File)>>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    len: u64,
    unsynced: bool,
}

fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "; run as the user who owns it, or change its owner",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space on this file system, then restart"
        }
        io::ErrorKind::FileTooLarge => "; raise the limit on the length of files (ulimit -f)",
        io::ErrorKind::ReadOnlyFilesystem => "; mount the file system for writing",
        io::ErrorKind::UnexpectedEof => "; the file is shorter than it was",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; name a directory, or one that does not exist yet"
        }
        _ => "",
    }
}

/// An error that says which file it was, what was tried, and what to do.
#[must_use]
pub fn describe(action: &str, path: &Path, error: &io::Error) -> io::Error {
    let kind = error.kind();
    io::Error::new(kind, format!("cannot {action} {}: {error}{}", path.display(), advice(kind)))
}

impl DirStorage {
    /// Opens the directory, and creates it and its parents when it does not exist.
    ///
    /// # Errors
    /// When it cannot be created or is no directory.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| describe("create", &path, &e))?;
        // A new directory survives a crash once its parent is durable.
        for parent in missing.iter().filter_map(|made| made.parent()) {
            let parent = if parent == Path::new("") { Path::new(".") } else { parent };
            let synced = File::open(parent).and_then(|dir| dir.sync_all());
            synced.map_err(|e| describe("sync", parent, &e))?;
        }
        Ok(Self::at(path))
    }

    fn at(path: PathBuf) -> Self {
        Self { path, open: BTreeMap::new(), read: RefCell::new(None) }
    }

    /// Opens a directory that must exist.
    ///
    /// # Errors
    /// When it does not, or cannot be read.
    pub fn open_existing(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::read_dir(&path).map_err(|e| describe("open", &path, &e))?;
        Ok(Self::at(path))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file_path(&self, name: &str) -> PathBuf {
        assert!(!name.contains('/') && !name.starts_with('.'), "file names are the ledger's own");
        self.path.join(name)
    }

    /// Reads from a file that is kept open until another is read: whoever reads here and there
    /// stays with one file for a while.
    fn reading<R>(&self, name: &str, read: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
        let mut kept = self.read.borrow_mut();
        match &mut *kept {
            Some((held, file)) if held == name => read(file),
            _ => {
                let file = File::open(self.file_path(name))?;
                let result = read(&file);
                *kept = Some((name.to_owned(), file));
                result
            }
        }
    }

    fn writable(&mut self, name: &str) -> io::Result<&mut OpenFile> {
        if !self.open.contains_key(name) {
            if self.open.len() >= OPEN_FILES {
                self.open.retain(|_, f| f.unsynced);
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(self.file_path(name))?;
            let len = file.metadata()?.len();
            self.open.insert(name.to_owned(), OpenFile { file, len, unsynced: false });
        }
        Ok(self.open.get_mut(name).expect("just put there"))
    }

    /// Writes at a place, or at the end.
    fn write(&mut self, name: &str, at: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        let written = self.writable(name).and_then(|open| {
            let at = at.unwrap_or(open.len);
            assert!(at <= open.len, "the ledger leaves no gaps");
            open.unsynced = true;
            open.file.write_all_at(bytes, at)?;
            open.len = open.len.max(at + bytes.len() as u64);
            Ok(())
        });
        written.map_err(|e| describe("write", &self.file_path(name), &e))
    }
}

impl Storage for DirStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    names.extend(entry.file_name().into_string().ok());
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        read().map_err(|e| describe("list", &self.path, &e))
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        let path = self.file_path(name);
        fs::metadata(&path).map(|m| m.len()).map_err(|e| describe("read", &path, &e))
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let path = self.file_path(name);
        match self.open.get(name) {
            Some(open) => open.file.read_exact_at(&mut bytes, offset),
            None => self.reading(name, |file| file.read_exact_at(&mut bytes, offset)),
        }
        .map_err(|e| describe("read", &path, &e))?;
        Ok(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, None, bytes)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(name, Some(at), bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let path = self.file_path(name);
        match self.open.get_mut(name) {
            Some(open) => open.file.sync_data().map(|()| open.unsynced = false),
            None => OpenOptions::new().write(true).open(&path).and_then(|f| f.sync_data()),
        }
        .map_err(|e| describe("sync", &path, &e))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        self.read.take();
        let path = self.file_path(name);
        fs::remove_file(&path).map_err(|e| describe("remove", &path, &e))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.open.remove(from);
        self.open.remove(to);
        self.read.take();
        let path = self.file_path(from);
        fs::rename(&path, self.file_path(to)).map_err(|e| describe("rename", &path, &e))
    }

    /// A file that is unlinked while somebody has it open is freed when that is closed, which takes
    /// the time: so it is closed here before.
    fn hand_over(&mut self, names: &[String]) -> io::Result<Box<dyn Storage>> {
        names.iter().for_each(|name| drop(self.open.remove(name)));
        self.read.take();
        Ok(Box::new(Self::at(self.path.clone())))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(|e| describe("sync", &self.path, &e))
    }
}
