//! Errors of the configuration files, with file, line and key.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::Spanned;
use toml::de::DeTable;

/// What is wrong in a configuration file, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}:{line}: {}{what}", file.display(), key.as_ref().map_or(String::new(), |k| format!("{k}: ")))]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
    /// The key, when it is known.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub what: String,
}

/// A value with its place in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct At<T>(Spanned<T>);

impl<T> At<T> {
    /// The value.
    pub fn get(&self) -> &T {
        self.0.get_ref()
    }
}

/// The text of a file, to say where something is wrong.
pub struct Source<'a> {
    /// The file.
    pub file: &'a Path,
    /// Its text.
    pub text: &'a str,
}

impl Source<'_> {
    /// Reads the whole text strictly.
    ///
    /// # Errors
    /// When it is no TOML, or says something else than `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(self.text).map_err(|error| self.parse_error(&error))
    }

    /// The text as a table.
    pub(crate) fn table(&self) -> Result<Spanned<DeTable<'_>>, FileError> {
        DeTable::parse(self.text).map_err(|error| self.parse_error(&error))
    }

    /// Reads a part of [`Self::table`] strictly.
    pub(crate) fn read<T: DeserializeOwned>(&self, part: DeTable<'_>) -> Result<T, FileError> {
        let part = toml::Deserializer::from(Spanned::new(0..0, part));
        T::deserialize(part).map_err(|error| self.parse_error(&error))
    }

    /// What is wrong with the text, where.
    pub(crate) fn parse_error(&self, error: &toml::de::Error) -> FileError {
        self.error(error.span().unwrap_or(0..0), error.message().trim_end())
    }

    /// An error at the place of a value.
    pub fn at<T>(&self, value: &At<T>, what: impl fmt::Display) -> FileError {
        self.error(value.0.span(), what)
    }

    /// An error at the line that gives `key` its value, in whatever unit; at the first line when
    /// none does.
    pub fn at_key(&self, key: &str, what: impl fmt::Display) -> FileError {
        let gives = |line: &str| {
            let found = line.split_once('=').map(|(found, _)| found.trim().to_owned());
            found.is_some_and(|found| {
                found.strip_prefix(key).is_some_and(|unit| ["", "_ms", "_us"].contains(&unit))
            })
        };
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            if gives(line) {
                return self.error(start..start, what);
            }
            start += line.len();
        }
        let (file, key) = (self.file.to_owned(), Some(key.to_owned()));
        FileError { file, line: 1, key, what: what.to_string() }
    }

    /// An error at a place in the text.
    pub fn error(&self, span: Range<usize>, what: impl fmt::Display) -> FileError {
        let start = span.start.min(self.text.len());
        let before = self.text.as_bytes()[..start].iter().filter(|b| **b == b'\n').count();
        let text = self.text.lines().nth(before).unwrap_or_default();
        let key = text.split_once('=').map(|(key, _)| key.trim().to_owned());
        let key = key.filter(|key| !key.is_empty() && !key.starts_with('#'));
        FileError { file: self.file.to_owned(), line: before + 1, key, what: what.to_string() }
    }
}
