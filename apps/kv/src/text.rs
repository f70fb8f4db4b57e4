//! Commands, queries and replies as people write and read them.
//!
//! ```
//! use tercio_kv::{Command, Reply, text};
//! let command = text::parse("put city \"New York\"").unwrap();
//! assert_eq!(command, Command::Put { key: "city".into(), value: "New York".into() });
//! assert_eq!(Reply::Found("New York".into()).to_string(), "\"New York\"");
//! ```
//! A line is words with spaces between. A word stands as it is, or in double quotes, where `\"`,
//! `\\`, `\n` and `\xHH` (a byte in hexadecimal) may stand; one that is empty, `-`, or holds a
//! space, quote, backslash or control character needs the quotes. What a reply shows can be pasted
//! into a command again.

use crate::{Command, Query, Reply, Scan};
use bytes::Bytes;
use std::fmt;
use thiserror::Error;

/// The forms of a command.
pub const USAGE: &str = "get KEY | put KEY VALUE | delete KEY | swap KEY EXPECTED NEW (- for no \
                         value) | scan [FROM [TO [LIMIT]]] (- for no bound)";
/// The forms of a query.
pub const QUERY_USAGE: &str = "get KEY | scan [FROM [TO [LIMIT]]] (- for no bound) | count";
/// The most keys of a scan that names no limit.
const LIMIT: u32 = 100;

/// Why a line is no command or query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The words make none.
    #[error("write one of: {0}")]
    Usage(&'static str),
    /// The quoted word does not end.
    #[error("the quote at column {0} is not closed")]
    OpenQuote(usize),
    /// A backslash is followed by something else than it may be.
    #[error("after the backslash at column {0} stands none of \\ \" n xHH")]
    Escape(usize),
    /// Something follows a closing quote without a space.
    #[error("a space is missing at column {0}")]
    NoSpace(usize),
    /// A number of keys that is none.
    #[error("{0:?} is no number of keys: write 1 to 1000")]
    Limit(String),
    /// A key that no settings allow.
    #[error("a key has at most 4096 bytes")]
    Key,
}

/// Reads a command. Whether its sizes fit is for the network to say.
///
/// # Errors
/// Why the line is no command.
pub fn parse(line: &str) -> Result<Command, TextError> {
    let words = words(line)?;
    let Some((verb, rest)) = words.split_first() else { return Err(TextError::Usage(USAGE)) };
    match (verb.bare.then_some(verb.bytes.as_slice()), rest) {
        (Some(b"get"), [key]) => Ok(Command::Get { key: key.key()? }),
        (Some(b"put"), [key, value]) => Ok(Command::Put { key: key.key()?, value: value.bytes() }),
        (Some(b"delete"), [key]) => Ok(Command::Delete { key: key.key()? }),
        (Some(b"swap"), [key, expected, new]) => {
            Ok(Command::Swap { key: key.key()?, expected: expected.option(), new: new.option() })
        }
        (Some(b"scan"), bounds) if bounds.len() <= 3 => scan(bounds).map(Command::Scan),
        _ => Err(TextError::Usage(USAGE)),
    }
}

/// Reads a query.
///
/// # Errors
/// Why the line is no query.
pub fn parse_query(line: &str) -> Result<Query, TextError> {
    if line.trim() == "count" {
        return Ok(Query::Count);
    }
    match parse(line) {
        Ok(Command::Get { key }) => Ok(Query::Get { key }),
        Ok(Command::Scan(scan)) => Ok(Query::Scan(scan)),
        Ok(_) | Err(TextError::Usage(_)) => Err(TextError::Usage(QUERY_USAGE)),
        Err(error) => Err(error),
    }
}

fn scan(bounds: &[Word]) -> Result<Scan, TextError> {
    let key = |i: usize| match bounds.get(i) {
        Some(word) if !word.is_none() => word.key().map(Some),
        _ => Ok(None),
    };
    let limit = match bounds.get(2) {
        None => LIMIT,
        Some(word) => {
            let text = String::from_utf8_lossy(&word.bytes);
            let limit = text.parse().ok().filter(|limit| (1..=Scan::MAX_KEYS).contains(limit));
            limit.ok_or_else(|| TextError::Limit(text.into_owned()))?
        }
    };
    Ok(Scan { from: key(0)?.unwrap_or_default(), to: key(1)?, limit })
}

struct Word {
    bytes: Vec<u8>,
    /// Not in quotes.
    bare: bool,
}

impl Word {
    fn bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }

    fn key(&self) -> Result<Bytes, TextError> {
        (self.bytes.len() <= 4096).then(|| self.bytes()).ok_or(TextError::Key)
    }

    fn is_none(&self) -> bool {
        self.bare && self.bytes == b"-"
    }

    fn option(&self) -> Option<Bytes> {
        (!self.is_none()).then(|| self.bytes())
    }
}

fn words(line: &str) -> Result<Vec<Word>, TextError> {
    let mut words = Vec::new();
    let mut chars = line.chars().zip(1..).peekable();
    while let Some((c, column)) = chars.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut bytes = Vec::new();
        let bare = c != '"';
        if bare {
            let mut next = Some((c, column));
            while let Some((c, _)) = next {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                next = chars.next_if(|(c, _)| !c.is_whitespace());
            }
        } else {
            loop {
                match chars.next() {
                    None => return Err(TextError::OpenQuote(column)),
                    Some(('"', _)) => break,
                    Some(('\\', column)) => {
                        let mut next = || chars.next().map(|(c, _)| c);
                        let byte = match next() {
                            Some('"') => Some(b'"'),
                            Some('\\') => Some(b'\\'),
                            Some('n') => Some(b'\n'),
                            Some('x') => {
                                let mut digit = || next()?.to_digit(16);
                                digit().zip(digit()).map(|(high, low)| (high << 4 | low) as u8)
                            }
                            _ => None,
                        };
                        bytes.push(byte.ok_or(TextError::Escape(column))?);
                    }
                    Some((c, _)) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            if let Some((_, column)) = chars.peek().filter(|(c, _)| !c.is_whitespace()) {
                return Err(TextError::NoSpace(*column));
            }
        }
        words.push(Word { bytes, bare });
    }
    Ok(words)
}

/// Bytes as a word of a command.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '"' && c != '\\';
        if let Ok(text) = std::str::from_utf8(self.0)
            && !matches!(text, "" | "-")
            && text.chars().all(plain)
        {
            return f.write_str(text);
        }
        f.write_str("\"")?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    c if plain(c) || c == ' ' => write!(f, "{c}")?,
                    c => escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            escape(f, chunk.invalid())?;
        }
        f.write_str("\"")
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// As a person reads it. A page has a line for each key, and a last one when there is more.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(reason) => write!(f, "rejected: {reason}"),
            Self::Found(value) => Shown(value).fmt(f),
            Self::Missing => f.write_str("no value"),
            Self::Stored { replaced: false } => f.write_str("stored"),
            Self::Stored { replaced: true } => f.write_str("stored, in place of another value"),
            Self::Deleted { existed: true } => f.write_str("deleted"),
            Self::Deleted { existed: false } => f.write_str("there was no value"),
            Self::Swapped => f.write_str("swapped"),
            Self::Differs(Some(value)) => write!(f, "not swapped: the value is {}", Shown(value)),
            Self::Differs(None) => f.write_str("not swapped: there is no value"),
            Self::Page(page) => {
                for (i, (key, value)) in page.entries.iter().enumerate() {
                    let end = if i == 0 { "" } else { "\n" };
                    write!(f, "{end}{} {}", Shown(key), Shown(value))?;
                }
                match page.entries.last() {
                    None => f.write_str("no keys"),
                    Some((key, _)) if page.more => {
                        let next = [key.as_ref(), &[0]].concat();
                        write!(f, "\nmore: scan {}", Shown(&next))
                    }
                    Some(_) => Ok(()),
                }
            }
            Self::Count(1) => f.write_str("1 key"),
            Self::Count(count) => write!(f, "{count} keys"),
        }
    }
}
