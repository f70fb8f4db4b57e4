//! What goes to an application and comes from it: in its own words, or as bytes.

use crate::failure::Failure;
use crate::folder;
use crate::session::Who;
use bytes::Bytes;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tercio_crypto::{from_hex, to_hex};
use tercio_genesis::{App, ClientHome, Genesis, Shown};

/// Why an operation would not be taken.
type Check = dyn Fn(&[u8]) -> Result<(), String>;

/// The words of a network's application. Everything here is done without the network.
pub(crate) struct Words {
    app: App,
    /// Refuses what replicas would refuse before ordering it. They answer without a reason.
    check: Box<Check>,
    /// Bytes instead of words: hexadecimal digits, or `@FILE`.
    raw: bool,
}

impl Words {
    /// Of the network that a client belongs to.
    pub(crate) fn of(who: &Who, raw: bool) -> Result<Self, Failure> {
        let home = folder::client(&who.dir, who.client.as_deref())?;
        let ClientHome { genesis, .. } =
            ClientHome::load(&home, crate::apps()).map_err(Failure::new)?;
        Self::new(&genesis, raw)
    }

    pub(crate) fn new(genesis: &Genesis, raw: bool) -> Result<Self, Failure> {
        let check = Box::new(genesis.app.checker(genesis.suite).map_err(Failure::new)?);
        Ok(Self { app: genesis.app.clone(), check, raw })
    }

    /// Reads an operation.
    ///
    /// # Errors
    /// Wrong words are wrong usage; what reads well and the application would not take is its refusal.
    pub(crate) fn operation(&self, line: &str) -> Result<Bytes, Failure> {
        let op = match self.raw {
            true => bytes(line)?,
            false => self.app.operation(line).map_err(Failure::Usage)?,
        };
        (self.check)(&op).map_err(|why| {
            Failure::new(format!("{} refuses '{}': {why}", self.app.name(), short(line)))
        })?;
        Ok(op)
    }

    /// Reads a question.
    ///
    /// # Errors
    /// Wrong words are wrong usage.
    pub(crate) fn question(&self, text: &str) -> Result<Bytes, Failure> {
        match self.raw {
            true => bytes(text),
            false => self.app.question(text).map_err(Failure::Usage),
        }
    }

    pub(crate) fn result(&self, result: &Bytes) -> Shown {
        self.shown(self.app.result(result), result)
    }

    pub(crate) fn answer(&self, answer: &Bytes) -> Shown {
        self.shown(self.app.answer(answer), answer)
    }

    /// Whether bytes are a refusal is seen in them, too.
    fn shown(&self, shown: Shown, bytes: &Bytes) -> Shown {
        if !self.raw {
            return shown;
        }
        let text = to_hex(bytes);
        Shown { value: Value::from(text.as_str()), text, refused: shown.refused }
    }
}

/// Bytes as people give them.
fn bytes(text: &str) -> Result<Bytes, Failure> {
    let text = text.trim();
    if let Some(file) = text.strip_prefix('@') {
        let file = Path::new(file);
        return fs::read(file).map(Bytes::from).map_err(|error| Failure::at(file, error));
    }
    from_hex(text).map(Bytes::from).ok_or_else(|| {
        let text = short(text);
        Failure::Usage(format!("'{text}': with --raw write hexadecimal digits, or @FILE"))
    })
}

/// The beginning of a line, for an error.
fn short(line: &str) -> String {
    const MOST: usize = 60;
    let line = line.trim();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::Suite;

    fn words(app: &str, raw: bool) -> Words {
        let app = tercio_registry::apps().named(app).unwrap();
        Words { check: Box::new(app.checker(Suite::default()).unwrap()), app, raw }
    }

    #[test]
    fn an_application_says_why_it_would_not_take_an_operation() {
        let kv = words("kv", false);
        kv.operation("put hello world").unwrap();
        assert!(matches!(kv.operation("dance").unwrap_err(), Failure::Usage(_)));
        let long = format!("put {} v", "k".repeat(4000));
        let refused = kv.operation(&long).unwrap_err();
        assert!(matches!(refused, Failure::Failed(_)), "{refused}");
        let said = refused.to_string();
        assert!(said.starts_with("kv refuses 'put kkkk"), "{said}");
        assert!(said.ends_with("..': the key is empty or too long"), "{said}");
    }

    #[test]
    fn raw_is_digits_or_a_file_and_is_shown_as_digits() {
        let bank = words("bank", true);
        let open = words("bank", false).operation("open 7").unwrap();
        assert_eq!(bank.operation(&to_hex(&open)).unwrap(), open);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &open).unwrap();
        assert_eq!(bank.operation(&format!("@{}", file.path().display())).unwrap(), open);
        assert!(matches!(bank.operation("open 7").unwrap_err(), Failure::Usage(_)));
        let missing = bank.operation("@/no/such/file").unwrap_err().to_string();
        assert!(missing.contains("/no/such/file"), "{missing}");
        let refused = bank.operation("ff").unwrap_err().to_string();
        assert_eq!(refused, "bank refuses 'ff': unknown operation type");
        let rejected = Bytes::from_static(&[0, 9]);
        let shown = bank.result(&rejected);
        assert_eq!((shown.text.as_str(), shown.value), ("0009", Value::from("0009")));
    }
}
