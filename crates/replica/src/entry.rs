//! The tables of `tercio.toml`, key by key. A number stands there with the range that makes sense; one
//! without does not compile.

use std::fmt;
use std::ops::RangeInclusive;
use tercio_genesis::{At, FileError, Source};

/// What a number of `tercio.toml` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The table that it stands in.
    pub table: &'static str,
    /// Its key.
    pub key: &'static str,
    /// The lowest value.
    pub least: i64,
    /// The highest value.
    pub most: i64,
    /// Why no other makes sense, where that is not plain.
    why: &'static str,
}

impl Range {
    pub(crate) const fn new(
        table: &'static str,
        key: &'static str,
        range: RangeInclusive<i64>,
        why: &'static str,
    ) -> Self {
        Self { table, key, least: *range.start(), most: *range.end(), why }
    }

    /// Holds the value against the range, if the file has one.
    pub(crate) fn check(
        &self,
        source: &Source<'_>,
        value: Option<&At<i64>>,
    ) -> Result<(), FileError> {
        match value {
            Some(value) if !(self.least..=self.most).contains(value.get()) => {
                Err(source.at(value, format!("{self}, not {}", value.get())))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {} to {}", self.least, self.most)?;
        if self.why.is_empty() { Ok(()) } else { write!(f, " ({})", self.why) }
    }
}

/// What has no range: words, and yes or no.
pub(crate) trait NoNumber {}
impl NoNumber for bool {}
impl NoNumber for At<String> {}

/// A number of the file that was [checked](Range::check), in the type of its setting.
pub(crate) fn number<T: TryFrom<i64>>(value: Option<&At<i64>>) -> Option<T> {
    value.map(|value| {
        let fits = T::try_from(*value.get()).ok();
        fits.expect("a range lies within its setting's type")
    })
}

/// A table: each key is optional and takes its place in the settings when it is there.
macro_rules! entry {
    ($name:ident in $table:literal {
        $(numbers { $($number:ident: $range:expr $(=> $why:expr)?,)* })?
        $(others { $($other:ident: $type:ty,)* })?
    }) => {
        #[derive(Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($($number: Option<tercio_genesis::At<i64>>,)*)?
            $($($other: Option<$type>,)*)?
        }

        impl $name {
            const RANGES: &'static [crate::entry::Range] = &[$($(
                crate::entry::Range::new($table, stringify!($number), $range, concat!($($why)?)),
            )*)?];

            /// Holds every number against its range.
            fn check(&self, source: &Source<'_>) -> Result<(), FileError> {
                let given: &[Option<&tercio_genesis::At<i64>>] = &[$($(self.$number.as_ref(),)*)?];
                let mut all = Self::RANGES.iter().zip(given);
                all.try_for_each(|(range, value)| range.check(source, *value))
            }
        }

        $($(const _: fn() = || {
            fn has_no_range<T: crate::entry::NoNumber>() {}
            has_no_range::<$type>();
        };)*)?
    };
}
pub(crate) use entry;
