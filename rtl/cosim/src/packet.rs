//! Packets as they come from the wire.

use crate::Network;
use tercio_wire::WIRE_VERSION;

/// The address that packets are sent to here.
pub const ADDRESS: [u8; 4] = [10, 0, 0, 2];
/// The port that votes are sent to here.
pub const PORT: u16 = 7654;

/// Ethernet, IPv4 and UDP around a payload, to [`ADDRESS`] and [`PORT`]. The IP header has its
/// checksum; UDP has none, which is allowed on IPv4.
///
/// # Panics
/// When the payload does not fit a datagram.
#[must_use]
pub fn datagram(payload: &[u8]) -> Vec<u8> {
    let udp = u16::try_from(payload.len() + 8).expect("it fits a datagram");
    let total = udp.checked_add(20).expect("it fits a datagram");
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[6] = 0x40; // must not be fragmented
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&[10, 0, 0, 1]);
    ip[16..20].copy_from_slice(&ADDRESS);
    let (words, _) = ip.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());

    let mut packet = Vec::with_capacity(42 + payload.len());
    packet.extend_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    packet.extend_from_slice(&ip);
    packet.extend_from_slice(&7000u16.to_be_bytes());
    packet.extend_from_slice(&PORT.to_be_bytes());
    packet.extend_from_slice(&udp.to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    packet
}

/// A frame with these 52 bytes and this vector, and no body.
pub(crate) fn frame(said: &[u8; 52], vector: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + vector.len());
    out.extend_from_slice(&(60 + vector.len() as u32).to_le_bytes());
    out.extend_from_slice(&[WIRE_VERSION, 2]);
    out.extend_from_slice(&(vector.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(said);
    out.extend_from_slice(vector);
    out
}

/// The packet of a good vote: what the replica `said[2]` says, with its tags.
///
/// # Panics
/// When there is no such replica.
#[must_use]
pub fn vote(network: &Network, said: &[u8; 52]) -> Vec<u8> {
    datagram(&frame(said, &network.vector(said[2], said)))
}
