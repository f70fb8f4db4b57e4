//! Attacks on a replica's files.

use crate::Trouble;
use crate::ground::Ground;
use crate::net::VICTIM;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;
use tercio_network::now;

/// What takes the room in a home.
const FILLER: &str = "filler";
const PATIENCE: Duration = Duration::from_secs(30);

/// Fills the file system of the victim's home to its last byte.
pub(super) fn fill(ground: &mut Ground) -> Result<(), Trouble> {
    let mut filler = File::create(ground.net.home(VICTIM).join(FILLER))?;
    let block = [0x55; 4096];
    loop {
        match filler.write(&block) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives the room back; the replica must run still.
pub(super) fn empty_again(ground: &mut Ground) -> Result<(), Trouble> {
    Ok(fs::remove_file(ground.net.home(VICTIM).join(FILLER))?)
}

/// Gives the room back, and starts the replica again if it has ended, as it may.
pub(super) fn start_again(ground: &mut Ground) -> Result<(), Trouble> {
    empty_again(ground)?;
    if let Some(said) = ground.net.ended().pop() {
        ground.notes.push(said);
        ground.net.kill(VICTIM)?;
        ground.net.restart(VICTIM, None)?;
    }
    Ok(())
}

/// Ends the victim as a crash does, and damages its data.
pub(super) fn damage(
    ground: &mut Ground,
    damage: fn(&Path) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    ground.net.kill(VICTIM)?;
    damage(&ground.net.home(VICTIM).join("data"))
}

/// Starts it again; it mends what is damaged.
pub(super) fn start_damaged(ground: &mut Ground) -> Result<(), Trouble> {
    ground.net.restart(VICTIM, None)
}

/// Starts it again, which must be refused with advice; then does what is right: empties `data/`.
pub(super) fn refused_then_empty(ground: &mut Ground) -> Result<(), Trouble> {
    ground.net.spawn(VICTIM, None)?;
    let start = now();
    loop {
        if let Some(said) = ground.net.ended().pop() {
            ground.notes.push(said.clone());
            if !said.contains("learn") {
                ground.wrong.push("the message does not say to start on no data and learn".into());
            }
            // An older copy has forgotten promises.
            if said.contains("from a copy") {
                ground.wrong.push("the message advises to put an older copy back".into());
            }
            break;
        }
        if let Some(report) = ground.net.reports().get(&VICTIM) {
            // It learns from the others then, on what it has.
            if !report.dropped.contains_key("own_log_was_cut") {
                ground.wrong.push("it started as if its promises were whole".into());
            }
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(Trouble::Means("it neither starts nor ends".into()));
        }
        ground.wait(Duration::from_millis(50));
    }
    ground.net.kill(VICTIM)?;
    let data = ground.net.home(VICTIM).join("data");
    fs::remove_dir_all(&data)?;
    fs::create_dir(&data)?;
    ground.net.restart(VICTIM, None)
}
