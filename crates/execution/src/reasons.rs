//! Numbered reasons: how an application says in one byte why it refuses an operation.

/// Declares the reasons for which an application refuses operations: an enum of which each value
/// has a number for the result's bytes, and words for people. The numbers are part of the
/// application's format: give a new reason a new one.
///
/// ```
/// tercio_execution::reasons! {
///     /// Why a booking was refused.
///     pub enum Refused {
///         /// Nothing is free on that day.
///         Full = 1, "nothing is free on that day";
///         /// The day is over.
///         Past = 2, "the day is over";
///     }
/// }
/// assert_eq!(Refused::Past.code(), 2);
/// assert_eq!(Refused::from_code(1), Some(Refused::Full));
/// assert_eq!(Refused::from_code(3), None);
/// assert_eq!(Refused::Full.to_string(), "nothing is free on that day");
/// assert_eq!(Refused::ALL.len(), 2);
/// ```
#[macro_export]
macro_rules! reasons {
    (
        $(#[$enum_doc:meta])*
        pub enum $reason:ident {
            $($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*
        }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $reason {
            $($(#[$doc])* $name = $code,)*
        }

        impl $reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number in the result's bytes.
            #[must_use]
            pub fn code(self) -> u8 {
                self as u8
            }

            /// The reason of a number.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }

        impl ::std::fmt::Display for $reason {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }

        impl ::std::error::Error for $reason {}
    };
}
