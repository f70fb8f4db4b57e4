//! The encodings of system operations and of what they hold.
//!
//! ```text
//! operation  1: u8 (add a client) | client | list of approvals
//! client     identity: key | scheme: u8 (0: signs with its identity) | signing key: key, if any
//! key        length: u16 | bytes
//! approvals  count: u32 | of each replica: u16 | signature (length: u16 | bytes), ascending
//! ```
//! Whether a key is a key of its scheme is not looked at here.

use crate::{Decode, DecodeError, Encode, Reader, codec};
use tercio_types::{ClientInfo, PublicKey, Scheme, SigningKey, SystemOp};

const ADD_CLIENT: u8 = 1;

fn put_key(key: &PublicKey, out: &mut Vec<u8>) {
    out.extend_from_slice(&(key.as_slice().len() as u16).to_le_bytes());
    out.extend_from_slice(key.as_slice());
}

fn take_key(input: &mut Reader) -> Result<PublicKey, DecodeError> {
    const WHAT: &str = "public key";
    let len = input.u16(WHAT)?;
    let bytes = input.take(len.into(), WHAT)?;
    let (found, limit) = (u64::from(len), PublicKey::MAX as u64);
    PublicKey::new(&bytes).ok_or(DecodeError::TooLong { what: WHAT, found, limit })
}

impl Encode for ClientInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        put_key(&self.key, out);
        out.push(self.signing.map_or(0, |signing| signing.scheme.number()));
        if let Some(signing) = &self.signing {
            put_key(&signing.key, out);
        }
    }
}

impl Decode for ClientInfo {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let key = take_key(input)?;
        let signing = match input.u8("signature scheme")? {
            0 => None,
            number => {
                let unknown =
                    DecodeError::Unknown { what: "signature scheme", found: number.into() };
                let scheme = Scheme::from_number(number).ok_or(unknown)?;
                Some(SigningKey { scheme, key: take_key(input)? })
            }
        };
        Ok(Self { key, signing })
    }
}

impl Encode for SystemOp {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::AddClient { info, approvals } => {
                out.push(ADD_CLIENT);
                info.encode(out);
                codec::put_signatures(approvals, out);
            }
        }
    }
}

impl Decode for SystemOp {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u8("system operation")? {
            ADD_CLIENT => {
                let info = ClientInfo::decode(input)?;
                let approvals = codec::take_signatures(input, "approvals")?;
                Ok(Self::AddClient { info, approvals })
            }
            other => Err(DecodeError::Unknown { what: "system operation", found: other.into() }),
        }
    }
}
