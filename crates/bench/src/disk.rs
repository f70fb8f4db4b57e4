//! How often the disk makes a write durable, by itself: what `sync` and `group` are held against.

use crate::figures::{Recorder, round};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use tercio_network::now;

/// How long it is measured.
const TIME: Duration = Duration::from_millis(500);
/// Bytes of a write: about a full batch of requests of 100 bytes.
const WRITE: usize = 128 << 10;

/// Writes of a batch's size, each made durable before the next, by one writer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DiskRate {
    /// Bytes of a write.
    pub write_bytes: usize,
    /// How many there were in a second, each with an fdatasync of its own.
    pub fdatasync_per_s: f64,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 99 of 100 took at most this.
    pub p99_us: f64,
}

/// Measures in a file of its own in `dir`, which is gone afterwards.
///
/// # Errors
/// When the file cannot be written.
pub fn rate(dir: &Path) -> io::Result<DiskRate> {
    let path = dir.join("disk-rate");
    let mut file = File::create(&path)?;
    let (bytes, mut times) = (vec![0x5a; WRITE], Recorder::default());
    let begin = now();
    while now() - begin < TIME {
        let start = now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.record(now() - start, 1);
    }
    let rate = times.count() as f64 / (now() - begin).as_secs_f64();
    std::fs::remove_file(path)?;
    let latency = times.latency();
    Ok(DiskRate {
        write_bytes: WRITE,
        fdatasync_per_s: round(rate, 1),
        p50_us: latency.p50,
        p99_us: latency.p99,
    })
}
