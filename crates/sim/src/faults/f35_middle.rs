//! f35, corrupt middle of a log (malachite#1434).

use super::{R0, R1, R2, R3, demand, four, millis, settle};
use crate::customer::Workload;
use crate::{Crash, Disk, Violation, World};

/// A byte is flipped in the middle of each of a backup's files, while it is down; then of each closed
/// segment of its block log while it runs.
///
/// Damage in the block log it mends with the others' help while it serves. What is said about blocks
/// it passes over where it is damaged: the rest of it is as good. With damage in its write-ahead log it
/// does not start, and names the file and the place.
pub(super) fn run() -> Result<(), Violation> {
    corrupt_middle()?;
    corrupt_while_running()
}

/// Every log file with a byte flipped in its middle.
fn corrupt_middle() -> Result<(), Violation> {
    let work = Workload { packages: 40, ops: 1, under_way: 1, pause: millis(5) };
    let mut world = four(&[work])?;
    settle(&mut world)?;
    world.crash(R3, Crash::Power);
    let whole = world.host(R3).disk().files().fork();
    let (mut refused, mut mended, mut passed_over) = (0, 0, 0);
    for name in log_files(&whole) {
        let middle = whole.contents(&name).map_or(0, |bytes| bytes.len()) / 2;
        let mut files = whole.fork();
        files.edit(&name, |bytes| bytes[middle] ^= 0x10);
        match start_from(&mut world, Disk::with_files(files)) {
            Ok(()) if name.starts_with("blocks-") => {
                wait_until_mended(&mut world, &[name])?;
                settle(&mut world)?;
                world.crash(R3, Crash::Power);
                mended += 1;
            }
            Ok(()) if name.starts_with("results-") => {
                world.expect_within(super::SOON, "mending results", |world| {
                    world.status(R3).is_ok_and(|status| status.repair.lost_results == 0)
                })?;
                settle(&mut world)?;
                world.crash(R3, Crash::Power);
                mended += 1;
            }
            Ok(()) if name == "certificates" || name.starts_with("attest-") => {
                settle(&mut world)?;
                world.crash(R3, Crash::Power);
                passed_over += 1;
            }
            Ok(()) => {
                let seen = format!("R3 starts though byte {middle} of {name} was flipped");
                return Err(Violation::new("f35_middle", seen));
            }
            Err(text) => {
                let named = text.contains(&name) && text.contains("byte");
                demand(named && name.starts_with("wal-"), "f35_middle", || {
                    format!("byte {middle} of {name} was flipped, and R3 says: {text}")
                })?;
                refused += 1;
            }
        }
    }
    demand(refused > 0 && mended > 1 && passed_over > 0, "f35_middle", || {
        format!("{refused} refused, {mended} mended, {passed_over} passed over")
    })?;
    start_from(&mut world, Disk::with_files(whole)).map_err(|text| {
        Violation::new("f35_middle", format!("R3 does not start from whole files: {text}"))
    })?;
    settle(&mut world)
}

/// Bits flip under a running backup, in every segment that is closed, while clients ask.
fn corrupt_while_running() -> Result<(), Violation> {
    let work = Workload { packages: 80, ops: 1, under_way: 1, pause: millis(30) };
    let mut world = four(&[work])?;
    world.run_for(millis(2000))?;
    let mut files = world.host(R3).disk().files().clone();
    let mut names: Vec<String> =
        log_files(&files).into_iter().filter(|name| name.starts_with("blocks-")).collect();
    // The last is being appended to.
    names.pop();
    demand(names.len() > 1, "f35_middle", || format!("only {names:?} are closed"))?;
    for name in &names {
        files.edit(name, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
        });
    }
    wait_until_mended(&mut world, &names)?;
    settle(&mut world)
}

/// R3 finds the damage in these files, mends them, and they are then as another replica's.
fn wait_until_mended(world: &mut World, names: &[String]) -> Result<(), Violation> {
    let whole = |world: &World, name: &str| {
        let at = |id| world.host(id).disk().files().contents(name);
        at(R3).is_some() && [R0, R1, R2].iter().any(|other| at(*other) == at(R3))
    };
    world.expect_within(super::SOON, "mending", |world| {
        world.status(R3).is_ok_and(|status| status.repair.damaged == 0)
            && names.iter().all(|name| whole(world, name))
    })
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
