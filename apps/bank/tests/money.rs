//! The bank against a naive reference, and the conservation of money.

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tercio_bank::{Account, Bank, Command, Outcome, Reject, Settings};
use tercio_execution::{Application, Context, Keyed, Operation, Replies};
use tercio_types::{ClientId, Digest, Height, RequestSeq, Suite, Timestamp};
use tercio_wire::Encode;

const ISSUER: ClientId = ClientId(3);
const ACCOUNTS: u64 = 3;
const BALANCE: u64 = 100;

fn new() -> Keyed<Bank> {
    let settings =
        Settings { issuer: Some(ISSUER), accounts: ACCOUNTS, balance: BALANCE, owners: 2 };
    Keyed::new(Bank::new(settings).unwrap(), Suite::default())
}

fn run(bank: &mut Keyed<Bank>, commands: &[(ClientId, Command)]) -> Vec<Outcome> {
    let context = Context { height: Height(1), time: Timestamp(1), seed: Digest::NULL };
    let operation = |(client, command): &(ClientId, Command)| Operation {
        client: *client,
        seq: RequestSeq(1),
        op: command.to_bytes(),
    };
    let mut replies = Replies::default();
    bank.execute(&context, &commands.iter().map(operation).collect::<Vec<_>>(), &mut replies);
    let outcome = |i| Outcome::parse(&Bytes::copy_from_slice(replies.get(i))).unwrap();
    (0..replies.len()).map(outcome).collect()
}

fn balance(bank: &Keyed<Bank>, account: u64) -> Option<Account> {
    let answer = bank.query(&Command::Balance { account }.to_bytes()).unwrap();
    match Outcome::parse(&answer).unwrap() {
        Outcome::Account(account) => Some(account),
        Outcome::Rejected(Reject::UnknownAccount) => None,
        other => panic!("{other:?}"),
    }
}

/// Accounts as a list of owner and balance in big integers; each rule as a sentence.
#[derive(Clone)]
struct Naive {
    accounts: BTreeMap<u64, (u64, i128)>,
    minted: i128,
}

impl Naive {
    fn apply(&mut self, client: ClientId, command: Command) -> Outcome {
        let most = i128::from(u64::MAX);
        match command {
            Command::Open { account } => {
                if self.accounts.contains_key(&account) {
                    return Outcome::Rejected(Reject::AccountExists);
                }
                self.accounts.insert(account, (client.0, 0));
                Outcome::Opened
            }
            Command::Deposit { amount: 0, .. } | Command::Transfer { amount: 0, .. } => {
                Outcome::Rejected(Reject::InvalidAmount)
            }
            Command::Deposit { account, amount } => {
                if client != ISSUER {
                    return Outcome::Rejected(Reject::NotIssuer);
                }
                let Some((_, balance)) = self.accounts.get_mut(&account) else {
                    return Outcome::Rejected(Reject::UnknownAccount);
                };
                if *balance + i128::from(amount) > most {
                    return Outcome::Rejected(Reject::Overflow);
                }
                *balance += i128::from(amount);
                self.minted += i128::from(amount);
                Outcome::Deposited { balance: *balance as u64 }
            }
            Command::Transfer { from, to, amount } => {
                let open = |account| self.accounts.contains_key(account);
                if ![from, to].iter().all(open) {
                    return Outcome::Rejected(Reject::UnknownAccount);
                }
                if self.accounts[&from].0 != client.0 {
                    return Outcome::Rejected(Reject::NotOwner);
                }
                let mut after = self.accounts.clone();
                after.get_mut(&from).unwrap().1 -= i128::from(amount);
                if after[&from].1 < 0 {
                    return Outcome::Rejected(Reject::InsufficientFunds);
                }
                after.get_mut(&to).unwrap().1 += i128::from(amount);
                if after[&to].1 > most {
                    return Outcome::Rejected(Reject::Overflow);
                }
                self.accounts = after;
                Outcome::Transferred { left: self.accounts[&from].1 as u64 }
            }
            Command::Balance { account } => match self.accounts.get(&account) {
                Some((owner, balance)) => {
                    Outcome::Account(Account { owner: ClientId(*owner), balance: *balance as u64 })
                }
                None => Outcome::Rejected(Reject::UnknownAccount),
            },
        }
    }
}

fn command() -> impl Strategy<Value = (ClientId, Command)> {
    let account = || 0u64..6;
    let amount = || {
        prop_oneof![
            1 => Just(0),
            8 => 1u64..150,
            1 => Just(u64::MAX),
            1 => Just(u64::MAX - 100),
        ]
    };
    let command = prop_oneof![
        2 => account().prop_map(|account| Command::Open { account }),
        3 => (account(), amount()).prop_map(|(account, amount)| Command::Deposit { account, amount }),
        8 => (account(), account(), amount())
            .prop_map(|(from, to, amount)| Command::Transfer { from, to, amount }),
        1 => account().prop_map(|account| Command::Balance { account }),
    ];
    ((1u64..4).prop_map(ClientId), command)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn money_is_conserved_and_all_is_as_the_reference_says(
        commands in prop::collection::vec(command(), 1..150),
        cut in any::<prop::sample::Index>(),
    ) {
        let begun = (0..ACCOUNTS).map(|i| (i, (1 + i % 2, i128::from(BALANCE))));
        let mut naive = Naive { accounts: begun.collect(), minted: 0 };
        let expected: Vec<_> = commands.iter().map(|(c, command)| naive.apply(*c, *command)).collect();
        let cut = cut.index(commands.len());

        let mut bank = new();
        let mut got = run(&mut bank, &commands[..cut]);
        let mut restored = new();
        restored.restore(&bank.snapshot().collect::<Vec<_>>()).unwrap();
        got.extend(run(&mut bank, &commands[cut..]));
        prop_assert_eq!(&got, &expected);
        prop_assert_eq!(&run(&mut restored, &commands[cut..]), &expected[cut..]);
        prop_assert_eq!(restored.state_digest(), bank.state_digest());
        let contract = tercio_execution::check_contract(&mut bank, &mut new(), Suite::default());
        prop_assert_eq!(contract, Ok(()));

        let accounts: Vec<_> = (0..10).filter_map(|number| balance(&bank, number)).collect();
        prop_assert_eq!(accounts.len(), naive.accounts.len());
        let sum: i128 = accounts.iter().map(|a| i128::from(a.balance)).sum();
        prop_assert_eq!(sum, i128::from(ACCOUNTS * BALANCE) + naive.minted);
    }
}

/// What a transfer from an account to itself would do if both sides were read before either was
/// written.
#[test]
fn a_transfer_to_itself_makes_no_money() {
    let mut bank = new();
    let transfer = |amount| (ClientId(1), Command::Transfer { from: 0, to: 0, amount });
    let expected =
        [Outcome::Transferred { left: 100 }, Outcome::Rejected(Reject::InsufficientFunds)];
    let before = bank.state_digest();
    assert_eq!(run(&mut bank, &[transfer(100), transfer(101)]), expected);
    assert_eq!(bank.state_digest(), before);
}
