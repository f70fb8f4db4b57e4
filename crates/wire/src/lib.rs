//! Bytes on the wire and under hashes: message [`Frame`]s in the form header / key / value (Yang
//! et al.), the offset-indexed [`list`] (FISCO BCOS), and strict decoding.
//!
//! Every value has one encoding; a decoder refuses everything else: a gap, an overlap, a trailing
//! byte, an unknown number, a length beyond its limit. Integers are little-endian.
//! `docs/format.md` lists every byte.
//!
//! Architecture invariant: nothing here knows sockets, keys, or what a message means.

mod arena;
mod codec;
mod error;
mod frame;
mod key;
pub mod list;
mod message;
mod reader;
pub mod reject;
mod replies;
mod results;
mod system;

pub use arena::Arena;
pub use codec::{
    decode_authenticator, encode_authenticator, encode_package_content, package_content,
    package_from_content, package_len,
};
pub use error::DecodeError;
pub use frame::{FRAME_HEADER, Frame, FrameHeader, FrameWriter, MAX_FRAME, WIRE_VERSION};
pub use key::{
    AUTHENTICATED, CLIENT_SENDER, Key, Kind, approval_key, block_hash, certificate_claims,
    checkpoint_key, request_key,
};
pub use message::{Carries, EncodedBatch, Forward, Message, Received, Request, package_claim};
pub use reader::{Decode, Encode, Reader};
pub use replies::{Reply, decode_replies, encode_replies, replies_digest};
pub use results::{
    OpResult, ResultStatus, decode_result, decode_results, encode_results, result_head,
    results_digest,
};
