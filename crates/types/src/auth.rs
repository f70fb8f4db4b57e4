//! Authenticators as data: what travels beside a message to show who sent it.

use bytes::Bytes;
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

/// One tag a replica, one behind the other. Tags that were received stay where they came in.
#[derive(Clone, PartialEq, Eq)]
pub struct Tags(Bytes);

impl Tags {
    const TAG: usize = 16;

    /// Takes over tags that stand one behind the other; `None` when the last one is cut short.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Option<Self> {
        bytes.len().is_multiple_of(Self::TAG).then_some(Self(bytes))
    }

    /// The tags one behind the other.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() / Self::TAG
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The i-th tag, if there are as many.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<Tag> {
        self.0.get(Self::TAG * i..)?.first_chunk().map(|tag| Tag(*tag))
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = Tag> {
        self.0.as_chunks().0.iter().map(|tag| Tag(*tag))
    }
}

impl FromIterator<Tag> for Tags {
    fn from_iter<I: IntoIterator<Item = Tag>>(tags: I) -> Self {
        let tags = tags.into_iter();
        let mut bytes = Vec::with_capacity(Self::TAG * tags.size_hint().0);
        tags.for_each(|tag| bytes.extend_from_slice(&tag.0));
        Self(bytes.into())
    }
}

impl From<Vec<Tag>> for Tags {
    fn from(tags: Vec<Tag>) -> Self {
        tags.into_iter().collect()
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How a message shows its sender. Signatures are boxed: messages under MACs, which are the most by
/// far, are not to be moved about with room for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authenticator {
    /// One tag, for the one receiver.
    Mac(Tag),
    /// One tag a replica, in the order of the membership. Convinces each receiver, and nobody
    /// else.
    MacVector(Tags),
    /// A signature, which convinces anybody.
    Signature(Box<SignatureBytes>),
    /// A certificate of a trusted counter.
    Attested(Box<Attested>),
}

/// What a trusted counter's certificate says of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttestedKind {
    /// The counter was below the value, and has it for this message alone. Values may be left out.
    Independent,
    /// The counter went from the previous value to this one, so that nothing between is hidden.
    Continuing,
    /// A subsystem that holds the key said so; no counter moved.
    Trusted,
}

impl AttestedKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Independent, Self::Continuing, Self::Trusted];

    /// The number that stands in encodings.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Independent => 1,
            Self::Continuing => 2,
            Self::Trusted => 3,
        }
    }

    /// The kind of a number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// A trusted counter's certificate of a message (Hybster's TrInX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attested {
    /// What it says of the counter.
    pub kind: AttestedKind,
    /// Which of the subsystem's counters.
    pub counter: u32,
    /// Which life of the subsystem: one that cannot prove that it forgot nothing begins another.
    pub incarnation: u64,
    /// The counter's value: a view and a number, say, in the high and the low half. Zero when none
    /// moved.
    pub value: u128,
    /// The value before; zero unless the kind is continuing.
    pub previous: u128,
    /// The subsystem's signature, or its tag, over message and counter.
    pub certificate: SignatureBytes,
}

impl Attested {
    /// Whether its values are such as its kind has: there is one form for each.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        match self.kind {
            AttestedKind::Independent => self.value > 0 && self.previous == 0,
            AttestedKind::Continuing => self.previous <= self.value,
            AttestedKind::Trusted => self.value == 0 && self.previous == 0,
        }
    }
}

impl From<SignatureBytes> for Authenticator {
    fn from(signature: SignatureBytes) -> Self {
        Self::Signature(Box::new(signature))
    }
}

impl From<Vec<Tag>> for Authenticator {
    fn from(tags: Vec<Tag>) -> Self {
        Self::MacVector(tags.into())
    }
}
