//! Clients that come back under an id used before.

use crate::running::{CLIENT, Network, client_secret, number};
use bytes::Bytes;
use std::fs;
use std::path::Path;
use tercio_client::{
    CallError, Client, CoreSettings, Failure, Numbers, NumbersError, OpResult, Settings,
    SubmitError,
};
use tercio_replica::{Durability, Layout};
use tercio_types::{ClientId, RequestSeq, WINDOW};

const OP: Bytes = Bytes::from_static(b"op");

fn network() -> Network {
    Network::start(4, Layout::AllInOne, Durability::Memory)
}

fn settings(net: &Network) -> Settings {
    Settings::new(CLIENT, client_secret(CLIENT), net.membership.clone())
}

/// Settings with a file, which another thread may be about to close.
fn with_numbers(net: &Network, file: &Path) -> Settings {
    Settings { numbers: Some(Numbers::wait(file, || {}).unwrap()), ..settings(net) }
}

/// The reply cache has the results of its first numbers: it may ask, and submits nothing before it
/// knows which numbers those are.
#[test]
fn a_client_that_returns_gets_no_old_results() {
    let net = network();
    for total in [1, 3, 5] {
        let mut client = Client::connect(settings(&net)).unwrap();
        let error = client.call(OP).unwrap_err();
        assert!(matches!(error, CallError::Submit(SubmitError::NotResumed)), "{error}");
        assert!(error.to_string().contains("Client::resume"), "{error}");
        let error = client.read(OP).unwrap_err();
        assert!(matches!(error, CallError::Submit(SubmitError::NotResumed)), "{error}");
        assert_eq!(number(&client.query(Bytes::new()).unwrap()), total - 1);
        client.resume(RequestSeq(1)).unwrap();
        assert_eq!(number(&client.call(OP).unwrap()), total);
        assert_eq!(number(&client.call(OP).unwrap()), total + 1);
    }
}

#[test]
fn a_client_with_a_file_of_its_numbers_goes_on() {
    let net = network();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numbers");
    let noted = || fs::read_to_string(&file).unwrap().trim().parse::<u64>().unwrap();
    for total in [1, 2] {
        let mut client = Client::connect(with_numbers(&net, &file)).unwrap();
        assert_eq!(number(&client.call(OP).unwrap()), total);
        assert!(noted() > total);
        // Nobody else may use it meanwhile.
        let error = Numbers::open(&file).unwrap_err();
        assert!(matches!(error, NumbersError::InUse(_)), "{error}");
        assert!(error.to_string().contains("another process uses this client"), "{error}");
        drop(client);
        assert_eq!(noted(), total + 1, "each number was used");
    }
    let client = Client::connect(with_numbers(&net, &file)).unwrap().into_async().unwrap();
    let calls: Vec<_> = (0..200).map(|_| client.call(OP)).collect();
    for call in calls {
        assert!(number(&call.wait().unwrap()) > 2);
    }
    assert!(noted() >= 203);
    drop(client);
    // A process that was killed leaves numbers that it noted and never sent.
    let skipped = {
        let numbers = Numbers::wait(&file, || {}).unwrap();
        assert_eq!(numbers.next(), RequestSeq(203));
        numbers.next().0 + 2000
    };
    fs::write(&file, format!("{skipped}\n")).unwrap();
    let mut client = Client::connect(with_numbers(&net, &file)).unwrap();
    assert_eq!(client.core().next_number(), Some(RequestSeq(skipped)));
    assert_eq!(number(&client.call(OP).unwrap()), 203);
    drop(client);
    // Without the file, and with one of an earlier day, the replicas know.
    for old in ["", "7"] {
        fs::write(&file, old).unwrap();
        let mut client = Client::connect(with_numbers(&net, &file)).unwrap();
        assert!(number(&client.call(OP).unwrap()) > 203);
    }
}

/// Nobody used the numbers below it, and using them up would take for ever.
#[test]
fn a_kept_number_of_another_network_is_refused() {
    let net = network();
    assert_eq!(number(&net.client(CLIENT).call(OP).unwrap()), 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numbers");
    for far in ["3000\n", "2000000\n", "9000000000\n"] {
        fs::write(&file, far).unwrap();
        let error = Client::connect(with_numbers(&net, &file)).unwrap_err().to_string();
        let words = [file.display().to_string(), far.trim().into(), "write 2 into it".into()];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), far);
    }
    fs::remove_file(&file).unwrap();
    let mut client = Client::connect(with_numbers(&net, &file)).unwrap();
    assert_eq!(number(&client.call(OP).unwrap()), 2);
}

/// What a number gave is known while its result is kept, and whether it can still give something.
#[test]
fn what_became_of_a_number_can_be_asked() {
    let net = network();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numbers");
    let ask_only = || Settings { resume: false, ..with_numbers(&net, &file) };
    let mut client = Client::connect(with_numbers(&net, &file)).unwrap();
    let first = client.call(OP).unwrap();
    assert_eq!(client.ask_number(RequestSeq(1)).unwrap(), Some(OpResult::Executed(first)));
    assert_eq!(client.ask_number(RequestSeq(2)).unwrap(), None);
    drop(client);
    // Three numbers of a process that ended with them: open, until they are used up.
    fs::write(&file, "5\n").unwrap();
    let mut client = Client::connect(ask_only()).unwrap();
    assert_eq!(client.ask_number(RequestSeq(3)).unwrap(), None, "asking uses nothing up");
    assert_eq!(client.resume(RequestSeq(1)).unwrap(), RequestSeq(5));
    assert_eq!(client.ask_number(RequestSeq(3)).unwrap(), Some(OpResult::Unsupported));
    // One whose result went, as long as the results of a window take.
    let many = WINDOW + 10;
    (0..many / 2).for_each(|_| drop(client.call_all(vec![OP; 2]).unwrap()));
    assert_eq!(client.ask_number(RequestSeq(1)).unwrap(), Some(OpResult::NoLongerKept));
}

/// It believes that its id was never used: the old results are not given for its new operations,
/// and the replicas know after a restart, too, what their logs tell them.
#[test]
fn a_number_for_another_operation_is_refused_by_name() {
    let mut net = network();
    assert_eq!(number(&net.client(CLIENT).call(OP).unwrap()), 1);
    for _ in 0..2 {
        let core = CoreSettings::unused_id();
        let mut client = Client::connect(Settings { core, ..settings(&net) }).unwrap();
        let error = client.call(Bytes::from_static(b"another")).unwrap_err();
        let CallError::Failed { failure, .. } = &error else { panic!("{error}") };
        assert!(matches!(**failure, Failure::NumberUsed { first: RequestSeq(1), .. }), "{error}");
        assert!(error.to_string().starts_with("number 1 was used for another operation"));
        assert_eq!(number(&client.query(Bytes::new()).unwrap()), 1, "it was not executed");
        drop(client);
        for i in 0..4 {
            net.replicas[i].take().unwrap().stop().unwrap();
            net.restart(i);
        }
    }
    assert_eq!(number(&net.client(CLIENT).call(OP).unwrap()), 2);
}

#[test]
fn a_client_that_only_asks_needs_no_numbers() {
    let net = network();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("numbers");
    let mut settings = with_numbers(&net, &file);
    settings.resume = false;
    let mut client = Client::connect(settings).unwrap();
    assert_eq!(number(&client.query(Bytes::new()).unwrap()), 0);
    let error = client.call(OP).unwrap_err();
    assert!(matches!(error, CallError::Submit(SubmitError::NotResumed)), "{error}");
    assert_eq!(client.resume(RequestSeq(1)).unwrap(), RequestSeq(1));
    assert_eq!(number(&client.call(OP).unwrap()), 1);
    let mut other = net.client(ClientId(8));
    assert_eq!(number(&other.call(OP).unwrap()), 2);
}
