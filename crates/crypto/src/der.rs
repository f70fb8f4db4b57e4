//! As much of DER (ITU-T X.690) as keys and signatures need: definite lengths in their shortest
//! form, unsigned integers in their shortest form. Everything else is refused.

/// The bytes are not the one DER encoding of what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Reads values one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The tag of the next value, when there is one.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The content of the next value, which must have this tag.
    pub(crate) fn value(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        if self.take(1)? != [tag] {
            return Err(Malformed);
        }
        let first = self.take(1)?[0];
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81 | 0x82 => {
                let bytes = self.take(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                // The shortest form only.
                if length < if first == 0x81 { 0x80 } else { 0x100 } {
                    return Err(Malformed);
                }
                length
            }
            // Indefinite, or longer than any key or signature.
            _ => return Err(Malformed),
        };
        self.take(length)
    }

    pub(crate) fn sequence(&mut self) -> Result<Self, Malformed> {
        self.value(SEQUENCE).map(Self::new)
    }

    pub(crate) fn oid(&mut self) -> Result<&'a [u8], Malformed> {
        self.value(OID)
    }

    pub(crate) fn octets(&mut self) -> Result<&'a [u8], Malformed> {
        self.value(OCTET_STRING)
    }

    /// A bit string of whole bytes.
    pub(crate) fn bits(&mut self) -> Result<&'a [u8], Malformed> {
        match self.value(BIT_STRING)? {
            [0, bytes @ ..] => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// An integer from 0 to 2^(8 N) - 1, most significant byte first.
    pub(crate) fn unsigned<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = match self.value(INTEGER)? {
            [] => return Err(Malformed),
            [0] => &[],
            // A leading zero stands only before a byte that would else look negative.
            [0, rest @ ..] if rest[0] >= 0x80 => rest,
            [0, ..] => return Err(Malformed),
            [first, ..] if *first >= 0x80 => return Err(Malformed),
            bytes => bytes,
        };
        let mut out = [0; N];
        let start = N.checked_sub(bytes.len()).ok_or(Malformed)?;
        out[start..].copy_from_slice(bytes);
        Ok(out)
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// A value of a tag, of at most 65,535 bytes.
pub(crate) fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u16::try_from(length).expect("keys and signatures are short").to_be_bytes() {
        [0, low @ 0..=0x7f] => out.push(low),
        [0, low] => out.extend([0x81, low]),
        [high, low] => out.extend([0x82, high, low]),
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, parts)
}

pub(crate) fn oid(content: &[u8]) -> Vec<u8> {
    value(OID, &[content])
}

pub(crate) fn octets(content: &[u8]) -> Vec<u8> {
    value(OCTET_STRING, &[content])
}

pub(crate) fn bits(content: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], content])
}

/// An unsigned integer, most significant byte first, in its shortest form.
pub(crate) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    match &bytes[zeros..] {
        [] => value(INTEGER, &[&[0]]),
        digits if digits[0] >= 0x80 => value(INTEGER, &[&[0], digits]),
        digits => value(INTEGER, &[digits]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_have_one_encoding(bytes in prop::array::uniform4(any::<u8>()), junk in prop::collection::vec(any::<u8>(), 0..12)) {
            let encoded = unsigned(&bytes);
            let mut reader = Reader::new(&encoded);
            prop_assert_eq!(reader.unsigned::<4>(), Ok(bytes));
            prop_assert!(reader.end().is_ok());
            // What is read from any bytes at all is what would be written.
            let mut reader = Reader::new(&junk);
            if let Ok(number) = reader.unsigned::<4>() {
                prop_assert_eq!(&unsigned(&number)[..], &junk[..junk.len() - reader.rest.len()]);
            }
        }

        #[test]
        fn lengths_have_one_encoding(length in 0usize..70_000, junk in prop::collection::vec(any::<u8>(), 0..8)) {
            if length <= 0xffff {
                let encoded = octets(&vec![1; length]);
                prop_assert_eq!(Reader::new(&encoded).octets().map(<[u8]>::len), Ok(length));
            }
            let mut bytes = vec![OCTET_STRING];
            bytes.extend(&junk);
            bytes.resize(70_000, 0);
            if let Ok(content) = Reader::new(&bytes).octets() {
                prop_assert_eq!(&octets(content)[..], &bytes[..octets(content).len()]);
            }
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        for bad in [
            &[][..],
            &[2],
            &[2, 0],
            &[2, 1],
            &[2, 1, 0x80],
            &[2, 2, 0, 0x7f],
            &[2, 0x81, 1, 1],
            &[2, 0x80, 1, 0, 0],
            &[2, 5, 1, 0, 0, 0, 0],
            &[2, 0x84, 0, 0, 0, 1, 1],
            &[3, 1, 1],
        ] {
            assert!(Reader::new(bad).unsigned::<4>().is_err(), "{bad:?}");
        }
    }
}
