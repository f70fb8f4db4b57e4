//! The rules: what each command does to accounts.

use crate::{Account, Command, Outcome, Reject, Settings, SettingsError};
use bytes::Bytes;
use tercio_execution::{AppError, Context, Footprint, Operation, StateView, Store, Transaction};
use tercio_types::ClientId;
use tercio_wire::Encode;

/// The bank. Its state is the engine's [`Store`]: an [`Account`] under its number.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    settings: Settings,
}

fn read(view: &mut StateView<'_>, number: u64) -> Result<Account, Reject> {
    let value = view.get(&Account::key(number)).ok_or(Reject::UnknownAccount)?;
    Ok(Account::from_value(&value))
}

fn write(view: &mut StateView<'_>, number: u64, account: Account) {
    view.put(&Account::key(number), &account.to_value());
}

fn transfer(
    view: &mut StateView<'_>,
    client: ClientId,
    from: u64,
    to: u64,
    amount: u64,
) -> Result<Outcome, Reject> {
    let (mut payer, mut payee) = (read(view, from)?, read(view, to)?);
    if payer.owner != client {
        return Err(Reject::NotOwner);
    }
    payer.balance = payer.balance.checked_sub(amount).ok_or(Reject::InsufficientFunds)?;
    if from == to {
        return Ok(Outcome::Transferred { left: payee.balance });
    }
    payee.balance = payee.balance.checked_add(amount).ok_or(Reject::Overflow)?;
    write(view, from, payer);
    write(view, to, payee);
    Ok(Outcome::Transferred { left: payer.balance })
}

impl Bank {
    /// A bank under these rules.
    ///
    /// # Errors
    /// When the settings make no bank.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self { settings })
    }

    /// What can be refused without looking at accounts.
    fn parse(&self, bytes: &Bytes) -> Result<Command, Reject> {
        let command = Command::parse(bytes)?;
        match command {
            Command::Deposit { amount: 0, .. } | Command::Transfer { amount: 0, .. } => {
                Err(Reject::InvalidAmount)
            }
            _ => Ok(command),
        }
    }

    fn apply(
        &self,
        client: ClientId,
        bytes: &Bytes,
        view: &mut StateView<'_>,
    ) -> Result<Outcome, Reject> {
        match self.parse(bytes)? {
            Command::Open { account } => {
                if view.get(&Account::key(account)).is_some() {
                    return Err(Reject::AccountExists);
                }
                write(view, account, Account { owner: client, balance: 0 });
                Ok(Outcome::Opened)
            }
            Command::Deposit { account: number, amount } => {
                if self.settings.issuer != Some(client) {
                    return Err(Reject::NotIssuer);
                }
                let mut account = read(view, number)?;
                account.balance = account.balance.checked_add(amount).ok_or(Reject::Overflow)?;
                write(view, number, account);
                Ok(Outcome::Deposited { balance: account.balance })
            }
            Command::Transfer { from, to, amount } => transfer(view, client, from, to, amount),
            Command::Balance { account } => read(view, account).map(Outcome::Account),
        }
    }
}

impl Transaction for Bank {
    fn genesis(&self, store: &mut Store) {
        let Settings { accounts, balance, owners, .. } = self.settings;
        for number in 0..accounts {
            let account = Account { owner: ClientId(1 + number % owners), balance };
            store.put(&Account::key(number), &account.to_value());
        }
    }

    fn execute(
        &self,
        tx: &Operation,
        _: &Context,
        view: &mut StateView<'_>,
        result: &mut Vec<u8>,
    ) -> tercio_execution::Outcome {
        match self.apply(tx.client, &tx.op, view) {
            Ok(outcome) => {
                outcome.encode(result);
                tercio_execution::Outcome::Commit
            }
            Err(reason) => {
                Outcome::Rejected(reason).encode(result);
                tercio_execution::Outcome::Abort
            }
        }
    }

    /// The accounts of the command; none when it is refused without looking at them.
    fn footprint(&self, tx: &Operation) -> Footprint {
        let key = Account::key;
        let (reads, writes) = match self.parse(&tx.op) {
            Err(_) => (vec![], vec![]),
            Ok(Command::Balance { account }) => (vec![key(account)], vec![]),
            Ok(Command::Deposit { .. }) if self.settings.issuer != Some(tx.client) => {
                (vec![], vec![])
            }
            Ok(Command::Open { account } | Command::Deposit { account, .. }) => {
                (vec![], vec![key(account)])
            }
            Ok(Command::Transfer { from, to, .. }) if from == to => (vec![key(from)], vec![]),
            Ok(Command::Transfer { from, to, .. }) => (vec![], vec![key(from), key(to)]),
        };
        Footprint::Declared { reads, writes, ranges: vec![] }
    }

    /// A [`Command::Balance`], answered by an [`Outcome`].
    fn query(&self, question: &[u8], store: &Store) -> Result<Bytes, AppError> {
        let refused = |reason: Reject| AppError(reason.to_string());
        match self.parse(&Bytes::copy_from_slice(question)).map_err(refused)? {
            Command::Balance { account } => {
                let value = store.get(&Account::key(account));
                let outcome = match value {
                    Some(value) => Outcome::Account(Account::from_value(value)),
                    None => Outcome::Rejected(Reject::UnknownAccount),
                };
                Ok(outcome.to_bytes())
            }
            _ => Err(AppError("only a balance can be asked for; order the others".into())),
        }
    }

    fn check(&self, operation: &[u8]) -> Result<(), AppError> {
        let parsed = self.parse(&Bytes::copy_from_slice(operation));
        parsed.map(|_| ()).map_err(|reason| AppError(reason.to_string()))
    }
}
