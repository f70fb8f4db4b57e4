//! What attacks do to a replica's files, and read from them.

use crate::Trouble;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tercio_ledger::{BlockLog, BlockLogSettings, DirStorage};
use tercio_types::ChainId;

fn files(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>, Trouble> {
    let mut found = vec![];
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let named = path.file_name().and_then(|name| name.to_str());
        if named.is_some_and(|name| name.starts_with(prefix)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// How much of a file is not zeros at its end.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn latest(data: &Path, folder: &str, prefix: &str) -> Result<(PathBuf, Vec<u8>), Trouble> {
    let path = files(&data.join(folder), prefix)?.pop();
    let path = path.ok_or_else(|| Trouble::Means(format!("no {prefix} in {}", data.display())))?;
    let bytes = fs::read(&path)?;
    Ok((path, bytes))
}

fn flip(path: &Path, bytes: &[u8], at: usize) -> Result<(), Trouble> {
    let file = File::options().write(true).open(path)?;
    Ok(file.write_all_at(&[bytes[at] ^ 0x10], at as u64)?)
}

/// Turns one bit over in the middle of the block log.
pub(crate) fn flip_block(data: &Path) -> Result<(), Trouble> {
    let (path, bytes) = latest(data, "blocks", "blocks-")?;
    flip(&path, &bytes, used(&bytes) / 2)
}

/// Turns one bit over in the middle of the write-ahead log.
pub(crate) fn flip_wal(data: &Path) -> Result<(), Trouble> {
    let (path, bytes) = latest(data, "wal", "wal-")?;
    flip(&path, &bytes, used(&bytes) / 2)
}

/// Cuts the write-ahead log to half.
pub(crate) fn halve_wal(data: &Path) -> Result<(), Trouble> {
    let (path, bytes) = latest(data, "wal", "wal-")?;
    File::options().write(true).open(&path)?.set_len(used(&bytes) as u64 / 2)?;
    Ok(())
}

/// The agreed time of the last block in a log, since 1970; the replica may run.
pub(crate) fn last_time(data: &Path, chain: ChainId, aside: &Path) -> Result<Duration, Trouble> {
    let copy = aside.join("blocks-copy");
    fs::create_dir_all(&copy)?;
    for file in files(&data.join("blocks"), "")? {
        fs::copy(&file, copy.join(file.file_name().expect("it was listed")))?;
    }
    let means = |error: String| Trouble::Means(error);
    let storage = DirStorage::open(&copy)?;
    let (log, _) = BlockLog::open(Box::new(storage), chain, BlockLogSettings::default())
        .map_err(|error| means(error.to_string()))?;
    let (_, _, header) = log.head().ok_or_else(|| means("the log has no block".into()))?;
    fs::remove_dir_all(&copy)?;
    Ok(Duration::from_micros(header.time.0))
}
