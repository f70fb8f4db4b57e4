//! Every kind of bad input has a reason of its own, and no bytes make the bank panic.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tercio_bank::text::{self, TextError};
use tercio_bank::{Account, Bank, Command, Outcome, Reject, Settings, SettingsError};
use tercio_execution::{Application, Context, Footprint, Keyed, Operation, Replies, Transaction};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::{DecodeError, Encode};

const ISSUER: ClientId = ClientId(1);
const ALICE: ClientId = ClientId(2);

fn bank() -> Bank {
    Bank::new(Settings::default()).unwrap()
}

fn run(bank: &mut Keyed<Bank>, client: ClientId, op: Bytes) -> Outcome {
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let mut replies = Replies::default();
    bank.execute(&context, &[Operation { client, seq: RequestSeq(1), op }], &mut replies);
    Outcome::parse(&Bytes::copy_from_slice(replies.get(0))).unwrap()
}

#[test]
fn every_reason_is_given_for_its_own_mistake() {
    use Reject::*;
    let mut bank = Keyed::new(bank(), Suite::default());
    let deposit = |account, amount| Command::Deposit { account, amount }.to_bytes();
    let transfer = |from, to, amount| Command::Transfer { from, to, amount }.to_bytes();
    let open = |account| Command::Open { account }.to_bytes();
    assert_eq!(run(&mut bank, ALICE, open(7)), Outcome::Opened);
    assert_eq!(run(&mut bank, ISSUER, open(8)), Outcome::Opened);
    assert_eq!(run(&mut bank, ISSUER, deposit(7, 10)), Outcome::Deposited { balance: 10 });
    let rich = Outcome::Deposited { balance: u64::MAX };
    assert_eq!(run(&mut bank, ISSUER, deposit(8, u64::MAX)), rich);
    let cases: Vec<(ClientId, Bytes, Reject)> = vec![
        (ALICE, Bytes::from_static(&[0]), UnknownOperation),
        (ALICE, Bytes::from_static(&[5; 9]), UnknownOperation),
        (ALICE, Bytes::new(), Truncated),
        (ALICE, transfer(7, 8, 1).slice(..24), Truncated),
        (ALICE, [&open(9)[..], &[0]].concat().into(), TrailingBytes),
        (ISSUER, deposit(7, 0), InvalidAmount),
        (ALICE, transfer(7, 8, 0), InvalidAmount),
        (ISSUER, deposit(9, 1), UnknownAccount),
        (ALICE, transfer(7, 9, 1), UnknownAccount),
        (ALICE, transfer(9, 7, 1), UnknownAccount),
        (ALICE, Command::Balance { account: 9 }.to_bytes(), UnknownAccount),
        (ALICE, open(7), AccountExists),
        (ALICE, open(8), AccountExists),
        (ALICE, transfer(8, 7, 1), NotOwner),
        (ISSUER, transfer(7, 8, 1), NotOwner),
        (ALICE, deposit(7, 1), NotIssuer),
        (ALICE, transfer(7, 8, 11), InsufficientFunds),
        (ALICE, transfer(7, 7, 11), InsufficientFunds),
        (ALICE, transfer(7, 8, u64::MAX), InsufficientFunds),
        (ALICE, transfer(7, 8, 1), Overflow),
        (ISSUER, deposit(8, 1), Overflow),
    ];
    let before = bank.state_digest();
    let mut seen = BTreeSet::new();
    for (client, op, reason) in cases {
        assert_eq!(run(&mut bank, client, op.clone()), Outcome::Rejected(reason), "{op:?}");
        let early = matches!(reason, UnknownOperation | Truncated | TrailingBytes | InvalidAmount);
        assert_eq!(bank.pre_check().check(&op).is_err(), early, "check of {op:?}");
        seen.insert(reason);
    }
    assert_eq!(bank.state_digest(), before, "nothing was changed");
    assert_eq!(seen, Reject::ALL.iter().copied().collect(), "no reason is left out");
    for write in [open(9), deposit(7, 1), transfer(7, 8, 1)] {
        assert!(bank.query(&write).unwrap_err().0.starts_with("only a balance"));
    }
    let unknown = bank.query(&Command::Balance { account: 9 }.to_bytes()).unwrap();
    assert_eq!(Outcome::parse(&unknown), Ok(Outcome::Rejected(UnknownAccount)));
}

#[test]
fn footprints_are_exact() {
    let bank = bank();
    let of = |client, op: Bytes| match bank.footprint(&Operation { client, seq: RequestSeq(1), op })
    {
        Footprint::Unknown => panic!("every command declares its accounts"),
        Footprint::Declared { reads, writes, ranges } => {
            assert_eq!(ranges, []);
            (reads, writes)
        }
    };
    let key = |account: u64| Bytes::copy_from_slice(&account.to_be_bytes());
    let deposit = Command::Deposit { account: 7, amount: 1 }.to_bytes();
    let transfer = |to| Command::Transfer { from: 7, to, amount: 1 }.to_bytes();
    assert_eq!(of(ALICE, Command::Balance { account: 7 }.to_bytes()), (vec![key(7)], vec![]));
    assert_eq!(of(ALICE, Command::Open { account: 7 }.to_bytes()), (vec![], vec![key(7)]));
    assert_eq!(of(ISSUER, deposit.clone()), (vec![], vec![key(7)]));
    assert_eq!(of(ALICE, deposit), (vec![], vec![]));
    assert_eq!(of(ALICE, transfer(8)), (vec![], vec![key(7), key(8)]));
    assert_eq!(of(ALICE, transfer(7)), (vec![key(7)], vec![]));
    assert_eq!(of(ALICE, Bytes::new()), (vec![], vec![]));
}

#[test]
fn settings_that_make_no_bank_are_refused() {
    let new = |settings| Bank::new(settings).err();
    let default = Settings::default();
    assert_eq!(new(default), None);
    let many = Settings { accounts: u64::MAX, ..default };
    assert_eq!(new(many), Some(SettingsError::Accounts(u64::MAX)));
    assert_eq!(new(Settings { owners: 0, ..default }), Some(SettingsError::Owners));
    let nobody = Settings { issuer: Some(ClientId(0)), ..default };
    assert_eq!(new(nobody), Some(SettingsError::Issuer));
}

#[test]
fn lines_are_commands_and_outcomes_have_words() {
    assert_eq!(text::parse(" open 7 "), Ok(Command::Open { account: 7 }));
    assert_eq!(text::parse("deposit 7 10"), Ok(Command::Deposit { account: 7, amount: 10 }));
    let transfer = Command::Transfer { from: 1, to: 2, amount: u64::MAX };
    assert_eq!(text::parse("transfer 1 2 18446744073709551615"), Ok(transfer));
    assert_eq!(text::parse_query("balance 7"), Ok(Command::Balance { account: 7 }));
    for line in ["", "open", "open 1 2", "Open 1", "transfer 1 2", "close 1"] {
        assert_eq!(text::parse(line), Err(TextError::Usage(text::USAGE)), "{line}");
    }
    for number in ["x", "-1", "+1", "1.5", "18446744073709551616", "0x1", "٣"] {
        let refused = text::parse(&format!("open {number}"));
        assert_eq!(refused, Err(TextError::Number(number.into())));
    }
    for line in ["open 7", "transfer 1 2 3", "7", ""] {
        assert_eq!(text::parse_query(line), Err(TextError::Usage(text::QUERY_USAGE)), "{line}");
    }
    let account = Account { owner: ALICE, balance: 5 };
    let cases = [
        (Outcome::Rejected(Reject::NotIssuer), "rejected: only the issuer may deposit"),
        (Outcome::Opened, "opened"),
        (Outcome::Deposited { balance: 5 }, "deposited; the balance is 5"),
        (Outcome::Transferred { left: 0 }, "transferred; 0 left"),
        (Outcome::Account(account), "5, owned by client 2"),
    ];
    for (outcome, words) in cases {
        assert_eq!(outcome.to_string(), words);
    }
}

proptest! {
    /// Mostly garbage; the first byte small so that some is not.
    #[test]
    fn values_have_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..40), tag in 0u8..6) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        let bytes = Bytes::from(bytes);
        if let Ok(command) = Command::parse(&bytes) {
            prop_assert_eq!(&command.to_bytes(), &bytes);
        }
        if let Ok(outcome) = Outcome::parse(&bytes) {
            prop_assert_eq!(&outcome.to_bytes(), &bytes);
        }
        let mut bank = Keyed::new(bank(), Suite::default());
        run(&mut bank, ALICE, bytes.clone());
        let _ = bank.query(&bytes);
    }

    #[test]
    fn outcomes_read_back(number in any::<u64>(), owner in any::<u64>(), kind in 0u8..5) {
        let outcome = match kind {
            0 => Outcome::Rejected(Reject::ALL[number as usize % Reject::ALL.len()]),
            1 => Outcome::Opened,
            2 => Outcome::Deposited { balance: number },
            3 => Outcome::Transferred { left: number },
            _ => Outcome::Account(Account { owner: ClientId(owner), balance: number }),
        };
        let bytes = outcome.to_bytes();
        prop_assert_eq!(Outcome::parse(&bytes), Ok(outcome));
        let cut = Outcome::parse(&bytes.slice(..bytes.len() - 1));
        prop_assert!(matches!(cut, Err(DecodeError::Truncated(_))));
        let long = Bytes::from([&bytes[..], &[0]].concat());
        prop_assert_eq!(Outcome::parse(&long), Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn no_line_makes_the_parser_panic(line in ".{0,40}") {
        let _ = text::parse(&line);
        let _ = text::parse_query(&line);
    }
}
