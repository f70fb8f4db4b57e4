//! The bytes of commands and outcomes: little-endian, one encoding a value, nothing after it.

use crate::{Account, Command, Outcome, Reject};
use bytes::Bytes;
use tercio_types::{ClientId, Suite};
use tercio_wire::{Decode, DecodeError, Encode, Reader};

const OPERATION: &str = "operation type";

impl Command {
    /// Reads a command from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no command.
    pub fn parse(bytes: &Bytes) -> Result<Self, Reject> {
        Self::from_bytes(bytes, Suite::default()).map_err(|error| match error {
            DecodeError::Unknown { .. } => Reject::UnknownOperation,
            DecodeError::Truncated(_) => Reject::Truncated,
            DecodeError::Trailing(_) => Reject::TrailingBytes,
            other => unreachable!("a command cannot fail so: {other}"),
        })
    }
}

impl Outcome {
    /// Reads an outcome from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no outcome.
    pub fn parse(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::from_bytes(bytes, Suite::default())
    }
}

fn put(out: &mut Vec<u8>, kind: u8, words: &[u64]) {
    out.push(kind);
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

impl Encode for Command {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Open { account } => put(out, 1, &[account]),
            Self::Deposit { account, amount } => put(out, 2, &[account, amount]),
            Self::Transfer { from, to, amount } => put(out, 3, &[from, to, amount]),
            Self::Balance { account } => put(out, 4, &[account]),
        }
    }
}

impl Decode for Command {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let kind = input.u8(OPERATION)?;
        let mut word = || input.u64("command");
        match kind {
            1 => Ok(Self::Open { account: word()? }),
            2 => Ok(Self::Deposit { account: word()?, amount: word()? }),
            3 => Ok(Self::Transfer { from: word()?, to: word()?, amount: word()? }),
            4 => Ok(Self::Balance { account: word()? }),
            other => Err(DecodeError::Unknown { what: OPERATION, found: other.into() }),
        }
    }
}

impl Encode for Outcome {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Rejected(reason) => out.extend_from_slice(&[0, reason.code()]),
            Self::Opened => out.push(1),
            Self::Deposited { balance } => put(out, 2, &[balance]),
            Self::Transferred { left } => put(out, 3, &[left]),
            Self::Account(Account { owner, balance }) => put(out, 4, &[owner.0, balance]),
        }
    }
}

impl Decode for Outcome {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "outcome";
        match input.u8(WHAT)? {
            0 => {
                let code = input.u8("reason")?;
                let unknown = DecodeError::Unknown { what: "reason", found: code.into() };
                Reject::from_code(code).map(Self::Rejected).ok_or(unknown)
            }
            1 => Ok(Self::Opened),
            2 => Ok(Self::Deposited { balance: input.u64(WHAT)? }),
            3 => Ok(Self::Transferred { left: input.u64(WHAT)? }),
            4 => {
                let owner = ClientId(input.u64(WHAT)?);
                Ok(Self::Account(Account { owner, balance: input.u64(WHAT)? }))
            }
            other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
        }
    }
}
