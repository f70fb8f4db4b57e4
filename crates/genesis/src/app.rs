//! Kinds of applications: what a genesis can name, what its table says, what of it enters the chain
//! id, how people write operations and read results.
//!
//! An author implements [`AppKind`] once; everything else (configuration, command line, tests)
//! speaks to an [`App`], whatever its kind. A binary knows the kinds that its `main` lists
//! ([`Apps`]), and refuses a genesis of any other by name.

use crate::GenesisError;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tercio_consensus::ProtocolFacts;
use tercio_consensus::pbft::Pbft;
use tercio_execution::Application;
use tercio_types::Suite;

/// A kind of application, as its author describes it: never a value, only a name for what belongs
/// together.
///
/// All that says what replicas compute belongs into [`Self::Rules`]: rules are part of the chain
/// id, so that replicas under other rules are strangers to each other. By default operations,
/// questions and answers are text.
pub trait AppKind: 'static {
    /// Its name: the table in `genesis.toml`, and the word behind `--app`. Two kinds that compute
    /// differently have different names.
    const NAME: &'static str;
    /// An operation to begin with, as [`Self::operation`] reads it.
    const OPERATION: &'static str;
    /// A question to begin with, as [`Self::question`] reads it.
    const QUESTION: &'static str;

    /// What its table says, with a default for every key; [`NoRules`] when there is nothing to say.
    type Rules: Clone
        + fmt::Debug
        + PartialEq
        + Default
        + Serialize
        + DeserializeOwned
        + Send
        + Sync;

    /// Looks whether rules make sense.
    ///
    /// # Errors
    /// The first thing that does not, and what to write instead.
    fn check(_rules: &Self::Rules) -> Result<(), String> {
        Ok(())
    }

    /// The application in its first state, under rules that were checked.
    fn build(rules: &Self::Rules, suite: Suite) -> Box<dyn Application>;

    /// Appends the rules as the chain id covers them: one encoding for equal rules, another for
    /// all others. By default the table with its keys in order, each value with its type and
    /// length.
    fn encode(rules: &Self::Rules, out: &mut Vec<u8>) {
        encode_value(&table(rules), out);
    }

    /// Reads an operation as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    fn operation(line: &str) -> Result<Bytes, String> {
        Ok(Bytes::copy_from_slice(line.as_bytes()))
    }

    /// A result of an operation, for people and for programs.
    fn result(bytes: &Bytes) -> Shown {
        Shown::text(String::from_utf8_lossy(bytes))
    }

    /// Reads a question as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    fn question(text: &str) -> Result<Bytes, String> {
        Self::operation(text)
    }

    /// An answer to a question, for people and for programs.
    fn answer(bytes: &Bytes) -> Shown {
        Self::result(bytes)
    }

    /// The rules without the content that a network begins with: enough to look at an operation
    /// before it is sent ([`App::checker`]).
    fn without_content(rules: &Self::Rules) -> Self::Rules {
        rules.clone()
    }
}

/// A result or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// For people.
    pub text: String,
    /// For programs: a number, a text, or an object whose `outcome` says which fields it has.
    pub value: Value,
    /// Whether the application refused what it was asked for, and changed nothing.
    pub refused: bool,
}

impl Shown {
    /// The same text for people and programs.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { value: Value::from(text.as_str()), text, refused: false }
    }

    /// A number.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self { text: number.to_string(), value: number.into(), refused: false }
    }
}

/// The rules of an application that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoRules {}

/// The rules as a table. What cannot be written as TOML is an author's mistake that the first use
/// of the kind shows, whatever the file says.
fn table<R: Serialize>(rules: &R) -> toml::Value {
    toml::Value::try_from(rules).expect("an application's rules can be written as a TOML table")
}

/// Appends a value: its type, for all but numbers and truth its length, and its bytes, integers
/// little-endian.
fn encode_value(value: &toml::Value, out: &mut Vec<u8>) {
    let put_len = |out: &mut Vec<u8>, len: usize| {
        out.extend_from_slice(&(len as u64).to_le_bytes());
    };
    match value {
        toml::Value::Boolean(truth) => out.extend_from_slice(&[0, (*truth).into()]),
        toml::Value::Integer(number) => {
            out.push(1);
            out.extend_from_slice(&number.to_le_bytes());
        }
        toml::Value::Float(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        toml::Value::String(text) => {
            out.push(3);
            put_len(out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
        toml::Value::Datetime(time) => {
            let text = time.to_string();
            out.push(4);
            put_len(out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
        toml::Value::Array(items) => {
            out.push(5);
            put_len(out, items.len());
            items.iter().for_each(|item| encode_value(item, out));
        }
        toml::Value::Table(entries) => {
            out.push(6);
            put_len(out, entries.len());
            for (key, value) in entries {
                put_len(out, key.len());
                out.extend_from_slice(key.as_bytes());
                encode_value(value, out);
            }
        }
    }
}

/// [`AppKind`] with its rules, as an object.
trait Ruled: Send + Sync {
    fn kind(&self) -> Kind;
    fn name(&self) -> &'static str;
    fn rules(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Any) -> bool;
    fn debug(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn check(&self) -> Result<(), String>;
    fn build(&self, suite: Suite) -> Box<dyn Application>;
    fn encode(&self, out: &mut Vec<u8>);
    fn table(&self) -> toml::Value;
    fn examples(&self) -> [&'static str; 2];
    fn operation(&self, line: &str) -> Result<Bytes, String>;
    fn result(&self, bytes: &Bytes) -> Shown;
    fn question(&self, text: &str) -> Result<Bytes, String>;
    fn answer(&self, bytes: &Bytes) -> Shown;
    fn without_content(&self) -> App;
}

struct Rules<K: AppKind>(K::Rules);

impl<K: AppKind> Ruled for Rules<K> {
    fn kind(&self) -> Kind {
        Kind::of::<K>()
    }

    fn name(&self) -> &'static str {
        K::NAME
    }

    fn rules(&self) -> &dyn Any {
        &self.0
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K::Rules>().is_some_and(|other| *other == self.0)
    }

    fn debug(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(K::NAME).field(&self.0).finish()
    }

    fn check(&self) -> Result<(), String> {
        K::check(&self.0)
    }

    fn build(&self, suite: Suite) -> Box<dyn Application> {
        K::build(&self.0, suite)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        K::encode(&self.0, out);
    }

    fn table(&self) -> toml::Value {
        table(&self.0)
    }

    fn examples(&self) -> [&'static str; 2] {
        [K::OPERATION, K::QUESTION]
    }

    fn operation(&self, line: &str) -> Result<Bytes, String> {
        K::operation(line)
    }

    fn result(&self, bytes: &Bytes) -> Shown {
        K::result(bytes)
    }

    fn question(&self, text: &str) -> Result<Bytes, String> {
        K::question(text)
    }

    fn answer(&self, bytes: &Bytes) -> Shown {
        K::answer(bytes)
    }

    fn without_content(&self) -> App {
        App::new::<K>(K::without_content(&self.0))
    }
}

/// The application that a network runs: a kind, with the rules of this network.
#[derive(Clone)]
pub struct App(Arc<dyn Ruled>);

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(f)
    }
}

impl PartialEq for App {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.0.equals(other.0.rules())
    }
}

impl App {
    /// An application of kind `K` under these rules.
    #[must_use]
    pub fn new<K: AppKind>(rules: K::Rules) -> Self {
        Self(Arc::new(Rules::<K>(rules)))
    }

    /// Its name in the genesis.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Its kind alone: all that a program needs to know that runs this application.
    #[must_use]
    pub fn apps(&self) -> Apps {
        Apps::new(&[self.0.kind()])
    }

    /// Its rules, when they are of this type.
    #[must_use]
    pub fn rules<R: 'static>(&self) -> Option<&R> {
        self.0.rules().downcast_ref()
    }

    /// Looks whether its rules make sense.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), GenesisError> {
        let checked = self.guarded("is asked about its rules", || self.0.check())?;
        checked.map_err(|why| GenesisError::App { name: self.name(), why })
    }

    /// The application in its first state.
    ///
    /// # Errors
    /// When its rules make no sense, or its author's code panics over them.
    pub fn build(&self, suite: Suite) -> Result<Box<dyn Application>, GenesisError> {
        self.check()?;
        self.guarded("is built", || self.0.build(suite))
    }

    /// Runs an author's code, whose panic is an error that names the application. What it leaves
    /// behind is its own, and is dropped with it.
    fn guarded<T>(&self, when: &str, run: impl FnOnce() -> T) -> Result<T, GenesisError> {
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let why = format!("panics when it {when}: {}", said.unwrap_or("no message"));
            GenesisError::App { name: self.name(), why }
        })
    }

    /// Appends its rules as the chain id covers them.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    /// Its table in the file.
    pub(crate) fn table(&self) -> toml::Value {
        self.0.table()
    }

    /// An operation to begin with, as [`Self::operation`] reads it.
    #[must_use]
    pub fn example(&self) -> &'static str {
        self.0.examples()[0]
    }

    /// A question to begin with, as [`Self::question`] reads it.
    #[must_use]
    pub fn example_question(&self) -> &'static str {
        self.0.examples()[1]
    }

    /// Reads an operation as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub fn operation(&self, line: &str) -> Result<Bytes, String> {
        self.0.operation(line)
    }

    /// A result of an operation, for people and for programs.
    #[must_use]
    pub fn result(&self, bytes: &Bytes) -> Shown {
        self.0.result(bytes)
    }

    /// Reads a question as people write it.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    pub fn question(&self, text: &str) -> Result<Bytes, String> {
        self.0.question(text)
    }

    /// An answer to a question, for people and for programs.
    #[must_use]
    pub fn answer(&self, bytes: &Bytes) -> Shown {
        self.0.answer(bytes)
    }

    /// What replicas ask of an operation before they order it ([`tercio_execution::PreCheck`]), and why they
    /// would refuse it, which their REJECT does not say. It has the application's rules, and
    /// nothing of the content that a network begins with.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn checker(
        &self,
        suite: Suite,
    ) -> Result<impl Fn(&[u8]) -> Result<(), String> + use<>, GenesisError> {
        let look = self.0.without_content().build(suite)?.pre_check();
        Ok(move |operation: &[u8]| look.check(operation).map_err(|why| why.to_string()))
    }
}

/// A kind of application, as a value: what a binary's `main` lists.
#[derive(Clone, Copy)]
pub struct Kind {
    name: &'static str,
    default: fn() -> App,
    read: fn(toml::de::ValueDeserializer<'_>) -> Result<App, toml::de::Error>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kind").field(&self.name).finish()
    }
}

impl Kind {
    /// The kind `K`.
    #[must_use]
    pub const fn of<K: AppKind>() -> Self {
        Self {
            name: K::NAME,
            default: || App::new::<K>(K::Rules::default()),
            read: |table| K::Rules::deserialize(table).map(App::new::<K>),
        }
    }

    /// Its name in the genesis.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The application under its default rules.
    #[must_use]
    pub fn app(&self) -> App {
        (self.default)()
    }

    /// The application under the rules of a table.
    pub(crate) fn read(
        &self,
        table: toml::de::ValueDeserializer<'_>,
    ) -> Result<App, toml::de::Error> {
        (self.read)(table)
    }
}

/// The kinds that a program knows: of applications, and of protocols that order for them.
#[derive(Clone, Debug)]
pub struct Apps {
    kinds: Arc<[Kind]>,
    protocols: Arc<[ProtocolFacts]>,
}

impl Apps {
    /// These kinds, ordered for by PBFT; the first one is the default of a new network.
    ///
    /// # Panics
    /// When there is none, or two have one name: a genesis could not tell them apart.
    #[must_use]
    pub fn new(kinds: &[Kind]) -> Self {
        assert!(!kinds.is_empty(), "a program has one application at least");
        for (i, kind) in kinds.iter().enumerate() {
            let twice = kinds[..i].iter().any(|other| other.name == kind.name);
            assert!(!twice, "two applications have the name '{}'", kind.name);
        }
        Self { kinds: kinds.into(), protocols: Arc::new([ProtocolFacts::of::<Pbft>()]) }
    }

    /// The same kinds, ordered for by these protocols.
    #[must_use]
    pub fn with_protocols(self, protocols: &[ProtocolFacts]) -> Self {
        Self { protocols: protocols.into(), ..self }
    }

    /// The protocol of that name.
    #[must_use]
    pub fn protocol(&self, name: &str) -> Option<ProtocolFacts> {
        self.protocols.iter().find(|protocol| protocol.name() == name).copied()
    }

    /// The protocols' names.
    #[must_use]
    pub fn protocol_names(&self) -> Vec<&'static str> {
        self.protocols.iter().map(ProtocolFacts::name).collect()
    }

    /// The application of that name under its default rules.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<App> {
        self.kind(name).map(Kind::app)
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// The application of that name under the rules that the text of its table gives.
    ///
    /// # Errors
    /// When the text is no such table, or its rules make no sense.
    pub fn ruled(&self, name: &str, table: &str) -> Option<Result<App, String>> {
        let kind = self.kind(name)?;
        let table = toml::de::DeTable::parse(table).map(|table| {
            toml::Spanned::new(table.span(), toml::de::DeValue::Table(table.into_inner()))
        });
        let app = table.and_then(|table| kind.read(table.into()));
        let app = app.map_err(|error| error.message().to_owned());
        Some(app.and_then(|app| app.check().map_err(|error| error.to_string()).map(|()| app)))
    }

    /// The first one under its default rules.
    #[must_use]
    pub fn first(&self) -> App {
        self.kinds[0].app()
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.kinds.iter().map(Kind::name).collect()
    }
}
