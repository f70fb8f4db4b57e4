//! Authenticators as data: what travels beside a message to show who sent it.

use std::fmt;

/// A message authentication code, cut to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag(pub [u8; 16]);

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Bytes of at most `MAX`, kept in place: keys and signatures of every suite, without a heap
/// allocation and without fixing one scheme's length.
macro_rules! bounded_bytes {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            len: u16,
            bytes: [u8; $max],
        }

        impl $name {
            /// The longest value of any suite, in bytes.
            pub const MAX: usize = $max;

            /// Takes `bytes`, or gives `None` when they are more than [`Self::MAX`].
            #[must_use]
            pub fn new(bytes: &[u8]) -> Option<Self> {
                let mut all = [0; $max];
                all.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(Self { len: bytes.len() as u16, bytes: all })
            }

            /// The bytes themselves.
            #[must_use]
            pub fn as_slice(&self) -> &[u8] {
                &self.bytes[..usize::from(self.len)]
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(", stringify!($name))?;
                self.as_slice().iter().take(4).try_for_each(|b| write!(f, "{b:02x}"))?;
                f.write_str("..)")
            }
        }
    };
}

bounded_bytes! {
    /// A signature under the suite of the network, at most 256 bytes (RSA-2048).
    SignatureBytes, 256
}
bounded_bytes! {
    /// A public key under the suite of the network, at most 300 bytes (RSA-2048 in DER).
    PublicKey, 300
}

/// How a message shows its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authenticator {
    /// One tag, for the one receiver.
    Mac(Tag),
    /// One tag a replica, in the order of the membership. Convinces each receiver, and nobody
    /// else.
    MacVector(Vec<Tag>),
    /// A signature, which convinces anybody.
    Signature(SignatureBytes),
    /// A certificate of a trusted counter: the counter's value and the subsystem's signature.
    Attested {
        /// The value that the counter had for this message and will have for no other.
        counter: u64,
        /// The trusted subsystem's signature over message and counter.
        certificate: SignatureBytes,
    },
}
