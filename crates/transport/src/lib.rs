//! Authenticated TCP links that carry frames. The entry is [`Transport`]: one object an event loop
//! thread, over epoll, without an async runtime. What comes out of [`Transport::poll`] are
//! [`TransportEvent`]s; what [`Transport::send`] takes leaves with one vectored write per peer and
//! turn.
//!
//! Architecture invariant: nothing here knows what a frame means. It is delimited by its header and
//! handed on.
//!
//! # Who dials
//! A replica dials every replica with a lower id, so that a pair has one link; a client dials every
//! replica. A link that is lost is dialled again, for ever: after 20 ms, then twice as long each
//! time up to [`Limits::redial_max`], with jitter. An attempt that has not come through after
//! [`Limits::dial_timeout`] goes on, and another is made beside it. Links lose frames whenever they
//! break or a queue is full; the protocol above counts loss as normal and retransmits.
//!
//! # Handshake
//! ```text
//! dialler  -> hello (96 B)
//! listener -> answer (8 B) | challenge: 16 random bytes   a refusal is an answer alone, with the
//!                                                         listener's protocol (24 B) when that is why
//! dialler  -> proof (16 B) | Noise message 1              an ephemeral key and a tag:
//! listener -> answer (8 B) | Noise message 2              32 (sm3-sm2: 33) + 16 B
//! dialler  -> confirmation (16 B)
//! hello    magic 'TRCO' | wire version: u8 | protocol version: u8 | role of the dialler: u8
//!          | role of the listener: u8 | epoch: u64 | dialler's id: u64 | listener's id: u64
//!          | chain id: 32 B | ordering protocol: its name in 24 B, zeros behind it
//!          | fault model: u8 | records of epochs: u16, zero | 5 B of zeros
//! answer   magic 'TRCO' | wire version: u8 | protocol version: u8 | status: u8 | zero: u8
//! ```
//! Noise is `Noise_KK_25519_ChaChaPoly_SHA256` with the X25519 forms of the members' Ed25519
//! identities, or `Noise_KK_SM2_ChaChaPoly_SM3` with their SM2 keys, as the suite says; the
//! membership tells both sides the keys beforehand. The prologue is the hello, which
//! names both parties, and the challenge: versions, chain, epoch and identities are therefore proven
//! on both sides or the handshake fails. The listener believes the dialler only after the
//! confirmation, an empty message under the session's keys, which nobody can make who did not just
//! receive message 2. A newer authenticated link replaces an older one of the same peer.
//!
//! The proof is a MAC over hello, challenge and Noise message 1, under a key that both derive from
//! their static identities. It is there so that a stranger cannot have a listener compute on the curve:
//! noise and what was recorded are refused for the price of a MAC, and each identity is granted a
//! bounded rate of handshakes.
//!
//! # Heartbeats
//! A replica that sent another nothing for a quarter of [`Limits::link_timeout`] sends a frame's header
//! that announces nothing (12 B). A link between replicas on which nothing came for all of it is
//! taken down: a cut is noticed without TCP. Clients send and expect none.
//!
//! # After the handshake frames travel in the clear
//! Each frame carries its own authenticator, under keys that both sides derive from their static
//! identities (`tercio_crypto::Keyring`), independent of the Noise session. That is on purpose: a
//! network card that counts votes must read and check them without a session; a vote is worth the
//! same on whatever link or datagram it came; and a frame can be forwarded. What the handshake adds
//! is that a stranger holds no link, no memory and no place in a queue. Whether a frame's sender is
//! the link's peer is for the receiver of the frame to check.
//!
//! # Busy-polling
//! With [`Limits::poll`] a thread does not block as soon as there is nothing to read: for that long
//! after a frame it polls for more, and yields the processor between two polls.
//!
//! # Bounds
//! Everything that a peer can make grow is bounded by [`Limits`]: a frame's length, a queue's bytes,
//! links of clients, handshakes under way and their time, bytes read from a peer in a turn. Strangers
//! get a part of each turn only, and evict each other (`transport/strangers.rs`). An identity has one
//! link, so whoever holds one key takes one place; when all places of clients are taken, the one that
//! has been idle the longest gives way if that is [`Limits::client_idle`], and otherwise the newest is
//! refused. What is dropped is counted by reason in [`Transport::counters`].

mod agreement;
mod dial;
mod error;
mod handshake;
mod inbox;
mod link;
mod look;
mod outbox;
mod proof;
mod settings;
mod transport;

pub use dial::DialError;
pub use error::{BindError, Disconnect, FrameError, ProtocolName, Refusal, SendError};
pub use handshake::PROTOCOL_VERSION;
pub use settings::{Limits, Listen, Settings};
pub use transport::{Transport, TransportEvent, Waker};
