//! The bytes of commands, queries and replies: little-endian, one encoding a value, nothing after
//! it. A length says how many bytes follow; nothing is allocated by what a length promises.

use crate::{Command, Page, Query, Reject, Reply, Scan};
use bytes::Bytes;
use tercio_types::Suite;
use tercio_wire::{Decode, DecodeError, Encode, Reader};

const OPERATION: &str = "operation type";

const GET: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const SWAP: u8 = 4;
const SCAN: u8 = 5;
const COUNT: u8 = 6;

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    let length = u16::try_from(key.len()).expect("keys are below 64 KiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(key);
}

fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    let length = u32::try_from(value.len()).expect("values are below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

fn put_option(out: &mut Vec<u8>, bytes: Option<&Bytes>, put: fn(&mut Vec<u8>, &[u8])) {
    out.push(bytes.is_some().into());
    if let Some(bytes) = bytes {
        put(out, bytes);
    }
}

fn key(input: &mut Reader) -> Result<Bytes, DecodeError> {
    let length = input.u16("key")?;
    input.take(length.into(), "key")
}

fn value(input: &mut Reader) -> Result<Bytes, DecodeError> {
    let length = input.u32("value")?;
    input.take(length as usize, "value")
}

fn option(
    input: &mut Reader,
    read: fn(&mut Reader) -> Result<Bytes, DecodeError>,
) -> Result<Option<Bytes>, DecodeError> {
    input.flag("flag")?.then(|| read(input)).transpose()
}

/// Reads all of `bytes` as a `T`.
fn parse<T: Decode>(bytes: &Bytes) -> Result<T, Reject> {
    T::from_bytes(bytes, Suite::default()).map_err(|error| match error {
        DecodeError::Unknown { what: OPERATION, .. } => Reject::UnknownOperation,
        DecodeError::Unknown { .. } => Reject::InvalidFlag,
        DecodeError::Truncated(_) => Reject::Truncated,
        DecodeError::Trailing(_) => Reject::TrailingBytes,
        other => unreachable!("a command cannot fail so: {other}"),
    })
}

impl Command {
    /// Reads a command from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no command.
    pub fn parse(bytes: &Bytes) -> Result<Self, Reject> {
        parse(bytes)
    }
}

impl Query {
    /// Reads a query from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no query.
    pub fn parse(bytes: &Bytes) -> Result<Self, Reject> {
        parse(bytes)
    }
}

impl Reply {
    /// Reads a reply from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no reply.
    pub fn parse(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::from_bytes(bytes, Suite::default())
    }
}

impl Encode for Scan {
    fn encode(&self, out: &mut Vec<u8>) {
        put_key(out, &self.from);
        put_option(out, self.to.as_ref(), put_key);
        out.extend_from_slice(&self.limit.to_le_bytes());
    }
}

impl Decode for Scan {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { from: key(input)?, to: option(input, key)?, limit: input.u32("scan")? })
    }
}

impl Encode for Command {
    /// # Panics
    /// When a key has 64 KiB or more; settings allow no such key.
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.push(GET);
                put_key(out, key);
            }
            Self::Put { key, value } => {
                out.push(PUT);
                put_key(out, key);
                put_value(out, value);
            }
            Self::Delete { key } => {
                out.push(DELETE);
                put_key(out, key);
            }
            Self::Swap { key, expected, new } => {
                out.push(SWAP);
                put_key(out, key);
                put_option(out, expected.as_ref(), put_value);
                put_option(out, new.as_ref(), put_value);
            }
            Self::Scan(scan) => {
                out.push(SCAN);
                scan.encode(out);
            }
        }
    }
}

impl Decode for Command {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u8(OPERATION)? {
            GET => Ok(Self::Get { key: key(input)? }),
            PUT => Ok(Self::Put { key: key(input)?, value: value(input)? }),
            DELETE => Ok(Self::Delete { key: key(input)? }),
            SWAP => {
                let key = key(input)?;
                let (expected, new) = (option(input, value)?, option(input, value)?);
                Ok(Self::Swap { key, expected, new })
            }
            SCAN => Scan::decode(input).map(Self::Scan),
            other => Err(DecodeError::Unknown { what: OPERATION, found: other.into() }),
        }
    }
}

impl Encode for Query {
    /// # Panics
    /// When a key has 64 KiB or more; settings allow no such key.
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.push(GET);
                put_key(out, key);
            }
            Self::Scan(scan) => {
                out.push(SCAN);
                scan.encode(out);
            }
            Self::Count => out.push(COUNT),
        }
    }
}

impl Decode for Query {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u8(OPERATION)? {
            GET => Ok(Self::Get { key: key(input)? }),
            SCAN => Scan::decode(input).map(Self::Scan),
            COUNT => Ok(Self::Count),
            other => Err(DecodeError::Unknown { what: OPERATION, found: other.into() }),
        }
    }
}

impl Encode for Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Rejected(reason) => out.extend_from_slice(&[0, reason.code()]),
            Self::Found(value) => {
                out.push(1);
                put_value(out, value);
            }
            Self::Missing => out.push(2),
            Self::Stored { replaced } => out.extend_from_slice(&[3, (*replaced).into()]),
            Self::Deleted { existed } => out.extend_from_slice(&[4, (*existed).into()]),
            Self::Swapped => out.push(5),
            Self::Differs(value) => {
                out.push(6);
                put_option(out, value.as_ref(), put_value);
            }
            Self::Page(Page { entries, more }) => {
                out.push(7);
                out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
                for (key, value) in entries {
                    put_key(out, key);
                    put_value(out, value);
                }
                out.push((*more).into());
            }
            Self::Count(count) => {
                out.push(8);
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
    }
}

impl Decode for Reply {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "reply";
        match input.u8(WHAT)? {
            0 => {
                let code = input.u8("reason")?;
                let unknown = DecodeError::Unknown { what: "reason", found: code.into() };
                Reject::from_code(code).map(Self::Rejected).ok_or(unknown)
            }
            1 => Ok(Self::Found(value(input)?)),
            2 => Ok(Self::Missing),
            3 => Ok(Self::Stored { replaced: input.flag(WHAT)? }),
            4 => Ok(Self::Deleted { existed: input.flag(WHAT)? }),
            5 => Ok(Self::Swapped),
            6 => Ok(Self::Differs(option(input, value)?)),
            7 => {
                let count = input.count(6, Scan::MAX_KEYS as usize, "page")?;
                let entries = (0..count).map(|_| Ok((key(input)?, value(input)?)));
                let entries = entries.collect::<Result<_, DecodeError>>()?;
                Ok(Self::Page(Page { entries, more: input.flag(WHAT)? }))
            }
            8 => Ok(Self::Count(input.u64(WHAT)?)),
            other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
        }
    }
}
