//! f35, torn or corrupt log tail; corrupt middle (malachite#1434).

use super::{R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Disk, Tear, Violation, World};
use tercio_types::Height;

/// Changes to the disk after which the power fails: between an append to the write-ahead log and
/// its sync, for the vote PREPARE and for the vote COMMIT, and when the block is appended. Blocks
/// are synced at checkpoints only, since the write-ahead log has their bodies, so that there is a
/// long tail each time.
const CHANGES: [u64; 3] = [1, 3, 5];

/// The power fails at a backup in the midst of a request; of the bytes that were not synced, every
/// prefix is left once, with nothing behind it (or, for every eighth, with zeros). Then a byte is
/// flipped in the middle of each of its files.
///
/// With a torn tail the backup cuts it, starts, takes part as before, and starts once more from what
/// it appended behind the cut. With damage in the middle it does not start, and names the file and
/// the place.
pub(super) fn run() -> Result<(), Violation> {
    let mut torn = 0;
    for changes in CHANGES {
        let (mut kept, mut most) = (0, 0);
        while kept <= most {
            most = torn_tail(changes, Tear::Cut(kept))?;
            if kept % 8 == 0 {
                torn_tail(changes, Tear::Zeros(kept))?;
            }
            kept += 1;
        }
        torn += most;
    }
    demand(torn > 100, "f35", || format!("only {torn} torn tails"))?;
    corrupt_middle()
}

/// One torn tail; gives how many unsynced bytes the power failure met.
fn torn_tail(changes: u64, tear: Tear) -> Result<u64, Violation> {
    let mut world = four(&[Workload::NONE])?;
    world.submit(1, &["whole"]);
    settle(&mut world)?;
    world.host_mut(R3).tear(tear);
    world.crash(R3, Crash::PowerAfter(changes));
    world.submit(1, &["torn"]);
    world.run_for(millis(10))?;
    if world.host(R3).is_up() {
        world.crash(R3, Crash::Power);
    }
    let most = world.host(R3).torn();
    world.restart(R3)?;
    world.submit(1, &["afterwards"]);
    settle(&mut world)?;
    // What was appended behind the cut must be found again.
    world.crash(R3, Crash::Power);
    world.restart(R3)?;
    settle(&mut world)?;
    let height = world.status(R3)?.height;
    demand(height == Height(3), "f35", || format!("R3 stands at height {height}, not 3"))?;
    Ok(most)
}

/// Every log file with a byte flipped in its middle.
fn corrupt_middle() -> Result<(), Violation> {
    let work = Workload { packages: 12, ops: 1, under_way: 1, pause: millis(5) };
    let mut world = four(&[work])?;
    settle(&mut world)?;
    world.crash(R3, Crash::Power);
    let whole = world.host(R3).disk().files().fork();
    let mut damaged = 0;
    for name in log_files(&whole) {
        let middle = whole.contents(&name).map_or(0, |bytes| bytes.len()) / 2;
        let mut files = whole.fork();
        files.edit(&name, |bytes| bytes[middle] ^= 0x10);
        match start_from(&mut world, Disk::with_files(files)) {
            Ok(()) => {
                let seen = format!("R3 starts though byte {middle} of {name} was flipped");
                return Err(Violation::new("f35", seen));
            }
            Err(text) => demand(text.contains(&name) && text.contains("byte"), "f35", || {
                format!("byte {middle} of {name} was flipped, and R3 says: {text}")
            })?,
        }
        damaged += 1;
    }
    demand(damaged >= 2, "f35", || format!("{damaged} log files"))?;
    start_from(&mut world, Disk::with_files(whole)).map_err(|text| {
        Violation::new("f35", format!("R3 does not start from whole files: {text}"))
    })?;
    settle(&mut world)
}

fn log_files(files: &tercio_ledger::MemStorage) -> Vec<String> {
    let names = tercio_ledger::Storage::list(files).expect("a directory in memory lists");
    let long = |name: &String| files.contents(name).is_some_and(|bytes| bytes.len() > 1000);
    names.into_iter().filter(|name| !name.contains("snap")).filter(long).collect()
}

fn start_from(world: &mut World, disk: Disk) -> Result<(), String> {
    let now = world.now();
    let host = world.host_mut(R3);
    host.replace_disk(disk);
    host.start(now).map_err(|error| error.to_string())
}
