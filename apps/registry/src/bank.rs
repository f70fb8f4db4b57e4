//! The bank in a genesis.

use crate::{rejected, shown, words};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tercio_bank::{Account, Bank, Outcome, Settings, text};
use tercio_execution::{Application, Keyed};
use tercio_genesis::{App, AppKind, Shown};
use tercio_types::{ClientId, Suite};

/// The bank: `[bank]`.
#[derive(Clone, Copy, Debug)]
pub struct BankKind;

/// What `[bank]` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// 0 for nobody, which no client is.
    issuer: u64,
    accounts: u64,
    balance: u64,
    owners: u64,
}

impl From<Settings> for Rules {
    fn from(Settings { issuer, accounts, balance, owners }: Settings) -> Self {
        Self { issuer: issuer.unwrap_or_default().0, accounts, balance, owners }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Settings::default().into()
    }
}

impl Rules {
    fn settings(&self) -> Settings {
        let Self { issuer, accounts, balance, owners } = *self;
        let issuer = (issuer != 0).then_some(ClientId(issuer));
        Settings { issuer, accounts, balance, owners }
    }
}

impl BankKind {
    /// The bank under these rules.
    #[must_use]
    pub fn app(settings: Settings) -> App {
        App::new::<Self>(settings.into())
    }
}

impl AppKind for BankKind {
    const NAME: &'static str = "bank";
    const OPERATION: &'static str = "open 1";
    const QUESTION: &'static str = "balance 1";

    type Rules = Rules;

    fn check(rules: &Rules) -> Result<(), String> {
        rules.settings().validate().map_err(|error| error.to_string())
    }

    fn build(rules: &Rules, suite: Suite) -> Box<dyn Application> {
        let bank = Bank::new(rules.settings()).expect("the rules were checked");
        Box::new(Keyed::new(bank, suite))
    }

    fn encode(rules: &Rules, out: &mut Vec<u8>) {
        let Rules { issuer, accounts, balance, owners } = *rules;
        for word in [issuer, accounts, balance, owners] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn operation(line: &str) -> Result<Bytes, String> {
        words(text::parse(line))
    }

    fn result(bytes: &Bytes) -> Shown {
        shown(Outcome::parse(bytes), fields)
    }

    fn without_content(rules: &Rules) -> Rules {
        Rules { accounts: 0, ..rules.clone() }
    }

    fn question(line: &str) -> Result<Bytes, String> {
        words(text::parse_query(line))
    }
}

fn fields(outcome: &Outcome) -> (&'static str, Value) {
    match outcome {
        Outcome::Rejected(reason) => rejected(reason.code(), reason),
        Outcome::Opened => ("opened", json!({})),
        Outcome::Deposited { balance } => ("deposited", json!({ "balance": balance })),
        Outcome::Transferred { left } => ("transferred", json!({ "left": left })),
        Outcome::Account(Account { owner, balance }) => {
            ("account", json!({ "owner": owner.0, "balance": balance }))
        }
    }
}
