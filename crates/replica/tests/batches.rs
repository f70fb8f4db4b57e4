//! What follows from a batch of signatures is on its way before the next is checked, though one look
//! at the links brought the frames of both: others have work to do meanwhile.

use crate::running;

use bytes::Bytes;
use running::watched::{Call, watched};
use running::{CLIENT, Network, client_secret};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tercio_client::{Client, ClientAuth, CoreSettings, Settings};
use tercio_replica::{Durability, Layout};

/// How many signatures are a batch, unless the configuration says otherwise.
const BATCH: usize = 64;

/// What the loop did, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    /// Took a request whose signature is good.
    Take,
    /// Executed.
    Execute,
}

/// What the one replica of this test did since it was held up.
static DID: Mutex<Vec<Did>> = Mutex::new(Vec::new());
/// Whether it is held up, and whether it may go on.
static HELD: Mutex<(bool, bool)> = Mutex::new((false, false));
static CHANGED: Condvar = Condvar::new();

/// Notes what the counter is asked for, and is held up by one operation.
fn note(call: Call<'_>) {
    match call {
        Call::Execute(operations) if operations.iter().any(|o| o.op[..] == *b"hold") => {
            let mut held = HELD.lock().unwrap();
            held.0 = true;
            CHANGED.notify_all();
            drop(CHANGED.wait_while(held, |(_, may_go_on)| !*may_go_on).unwrap());
            DID.lock().unwrap().clear();
        }
        Call::Execute(_) => DID.lock().unwrap().push(Did::Execute),
        Call::Check => DID.lock().unwrap().push(Did::Take),
        Call::Restore => {}
    }
}

#[test]
fn a_batch_of_signatures_is_put_to_use_before_the_next() {
    let net = Network::with(1, Layout::AllInOne, Durability::Memory, |_| {}, || watched(note));
    // Nothing is sent twice, however long the machine takes.
    let hour = Duration::from_secs(3600);
    let mut settings = Settings::new(CLIENT, client_secret(CLIENT), net.membership.clone());
    settings.core = CoreSettings {
        auth: ClientAuth::Signature,
        timeout: hour,
        max_timeout: hour,
        deadline: hour,
        ..CoreSettings::unused_id()
    };
    let mut client = Client::connect(settings).unwrap();
    client.submit(vec![Bytes::from_static(b"hold")]).unwrap();
    let begun = |client: &mut Client| {
        client.poll(Duration::from_millis(1));
        HELD.lock().unwrap().0
    };
    while !begun(&mut client) {}
    // All of this waits in the replica's socket while it is held up.
    let count = 3 * BATCH;
    for _ in 0..count {
        client.submit(vec![Bytes::from_static(b"op")]).unwrap();
    }
    client.poll(Duration::from_millis(1));
    HELD.lock().unwrap().1 = true;
    CHANGED.notify_all();
    let mut done = 0;
    while done < count + 1 {
        done += client.poll(Duration::from_secs(1)).len();
    }
    let did = DID.lock().unwrap().clone();
    let taken = did.iter().filter(|did| **did == Did::Take).count();
    assert_eq!(taken, count, "each was taken once");
    let in_a_row = did.split(|did| *did == Did::Execute).map(<[Did]>::len).max();
    assert!(in_a_row <= Some(BATCH), "{in_a_row:?} taken in a row: {did:?}");
}
