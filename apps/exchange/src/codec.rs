//! The bytes of commands and outcomes: little-endian, one encoding a value, nothing after it.

use crate::{Command, Fill, Outcome, Reject, Side};
use bytes::Bytes;
use tercio_types::Suite;
use tercio_wire::{Decode, DecodeError, Encode, Reader};

const OPERATION: &str = "operation type";
const SIDE: &str = "side";
/// The most fills that an outcome is read with; settings allow no more.
pub(crate) const MAX_FILLS: usize = 1 << 16;

impl Side {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Bid => 0,
            Self::Ask => 1,
        }
    }

    pub(crate) fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Bid),
            1 => Ok(Self::Ask),
            other => Err(DecodeError::Unknown { what: SIDE, found: other.into() }),
        }
    }
}

/// The fields of an order with a price, after the first byte.
fn put_order(out: &mut Vec<u8>, symbol: u16, id: u64, side: Side, price: i64, quantity: i64) {
    out.extend_from_slice(&symbol.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.push(side.number());
    out.extend_from_slice(&price.to_le_bytes());
    out.extend_from_slice(&quantity.to_le_bytes());
}

impl Command {
    /// Reads a command from all of `bytes`.
    ///
    /// # Errors
    /// Why the bytes are no command.
    pub fn parse(bytes: &Bytes) -> Result<Self, Reject> {
        Self::from_bytes(bytes, Suite::default()).map_err(|error| match error {
            DecodeError::Unknown { what: OPERATION, .. } => Reject::UnknownOperation,
            DecodeError::Unknown { what: SIDE, .. } => Reject::UnknownSide,
            DecodeError::Truncated(_) => Reject::Truncated,
            DecodeError::Trailing(_) => Reject::TrailingBytes,
            other => unreachable!("a command cannot fail so: {other}"),
        })
    }
}

impl Encode for Command {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Limit { symbol, id, side, price, quantity } => {
                out.push(1);
                put_order(out, symbol, id, side, price, quantity);
            }
            Self::Cancel { symbol, id } => {
                out.push(2);
                out.extend_from_slice(&symbol.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
            }
            Self::Reduce { symbol, id, quantity } => {
                out.push(3);
                out.extend_from_slice(&symbol.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&quantity.to_le_bytes());
            }
            Self::Deposit { account, asset, amount } => {
                out.push(4);
                out.extend_from_slice(&account.to_le_bytes());
                out.extend_from_slice(&asset.to_le_bytes());
                out.extend_from_slice(&amount.to_le_bytes());
            }
            Self::ImmediateOrCancel { symbol, id, side, price, quantity } => {
                out.push(5);
                put_order(out, symbol, id, side, price, quantity);
            }
            Self::FillOrKill { symbol, id, side, price, quantity } => {
                out.push(6);
                put_order(out, symbol, id, side, price, quantity);
            }
            Self::Market { symbol, id, side, quantity } => {
                out.push(7);
                out.extend_from_slice(&symbol.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.push(side.number());
                out.extend_from_slice(&quantity.to_le_bytes());
            }
            Self::Replace { symbol, id, price, quantity } => {
                out.push(8);
                out.extend_from_slice(&symbol.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&price.to_le_bytes());
                out.extend_from_slice(&quantity.to_le_bytes());
            }
        }
    }
}

/// Eight bytes of a fixed layout.
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("the layout is longer")
}

impl Decode for Command {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        // One slice a command and not one a field: the reader counts references at each.
        match input.u8(OPERATION)? {
            kind @ (1 | 5 | 6) => {
                let b = input.array::<27>("order")?;
                let symbol = u16::from_le_bytes([b[0], b[1]]);
                let id = u64::from_le_bytes(word(&b, 2));
                let side = Side::from_number(b[10])?;
                let price = i64::from_le_bytes(word(&b, 11));
                let quantity = i64::from_le_bytes(word(&b, 19));
                Ok(match kind {
                    1 => Self::Limit { symbol, id, side, price, quantity },
                    5 => Self::ImmediateOrCancel { symbol, id, side, price, quantity },
                    _ => Self::FillOrKill { symbol, id, side, price, quantity },
                })
            }
            2 => {
                let b = input.array::<10>("cancel")?;
                Ok(Self::Cancel {
                    symbol: u16::from_le_bytes([b[0], b[1]]),
                    id: u64::from_le_bytes(word(&b, 2)),
                })
            }
            3 => {
                let b = input.array::<18>("reduce")?;
                Ok(Self::Reduce {
                    symbol: u16::from_le_bytes([b[0], b[1]]),
                    id: u64::from_le_bytes(word(&b, 2)),
                    quantity: i64::from_le_bytes(word(&b, 10)),
                })
            }
            4 => Ok(Self::Deposit {
                account: input.u64("deposit")?,
                asset: input.u16("deposit")?,
                amount: i128::from_le_bytes(input.array("deposit")?),
            }),
            7 => {
                let b = input.array::<19>("market order")?;
                Ok(Self::Market {
                    symbol: u16::from_le_bytes([b[0], b[1]]),
                    id: u64::from_le_bytes(word(&b, 2)),
                    side: Side::from_number(b[10])?,
                    quantity: i64::from_le_bytes(word(&b, 11)),
                })
            }
            8 => {
                let b = input.array::<26>("replace")?;
                Ok(Self::Replace {
                    symbol: u16::from_le_bytes([b[0], b[1]]),
                    id: u64::from_le_bytes(word(&b, 2)),
                    price: i64::from_le_bytes(word(&b, 10)),
                    quantity: i64::from_le_bytes(word(&b, 18)),
                })
            }
            other => Err(DecodeError::Unknown { what: OPERATION, found: other.into() }),
        }
    }
}

impl Encode for Outcome {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Rejected(reason) => out.extend_from_slice(&[0, reason.code()]),
            Self::Placed { remaining, dropped, fills } => {
                out.push(1);
                out.extend_from_slice(&remaining.to_le_bytes());
                out.extend_from_slice(&dropped.to_le_bytes());
                out.extend_from_slice(&(fills.len() as u32).to_le_bytes());
                for fill in fills {
                    for word in [fill.trade, fill.maker, fill.price, fill.quantity] {
                        out.extend_from_slice(&word.to_le_bytes());
                    }
                }
            }
            Self::Reduced { remaining } => {
                out.push(2);
                out.extend_from_slice(&remaining.to_le_bytes());
            }
            Self::Cancelled { quantity } => {
                out.push(3);
                out.extend_from_slice(&quantity.to_le_bytes());
            }
            Self::Deposited { free } => {
                out.push(4);
                out.extend_from_slice(&free.to_le_bytes());
            }
        }
    }
}

impl Decode for Outcome {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        const WHAT: &str = "outcome";
        match input.u8(WHAT)? {
            0 => {
                let code = input.u8("reason")?;
                let reason = Reject::from_code(code);
                let unknown = DecodeError::Unknown { what: "reason", found: code.into() };
                reason.map(Self::Rejected).ok_or(unknown)
            }
            1 => {
                let (remaining, dropped) = (input.u64(WHAT)?, input.u64(WHAT)?);
                let count = input.count(32, MAX_FILLS, "fills")?;
                let fills = (0..count)
                    .map(|_| {
                        let b = input.array::<32>("fill")?;
                        Ok(Fill {
                            trade: u64::from_le_bytes(word(&b, 0)),
                            maker: u64::from_le_bytes(word(&b, 8)),
                            price: u64::from_le_bytes(word(&b, 16)),
                            quantity: u64::from_le_bytes(word(&b, 24)),
                        })
                    })
                    .collect::<Result<_, DecodeError>>()?;
                Ok(Self::Placed { remaining, dropped, fills })
            }
            2 => Ok(Self::Reduced { remaining: input.u64(WHAT)? }),
            3 => Ok(Self::Cancelled { quantity: input.u64(WHAT)? }),
            4 => Ok(Self::Deposited { free: u128::from_le_bytes(input.array(WHAT)?) }),
            other => Err(DecodeError::Unknown { what: WHAT, found: other.into() }),
        }
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
