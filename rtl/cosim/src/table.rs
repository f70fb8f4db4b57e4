//! The table: buckets of four slots of 128 bytes, a bitmap beside it. `docs/nic-table.md`.

use crate::Settings;

/// S_N: the slots of a bucket.
pub const SLOTS: usize = 4;
/// S_w: the bytes of a slot.
pub const SLOT_BYTES: usize = 128;
/// How many tags of a vote's vector a slot keeps.
const KEPT_TAGS: usize = 4;
/// Where the commit word stands in a slot.
const COMMIT_AT: usize = 120;

/// How large a table is; both are powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// How many buckets.
    pub buckets: u32,
    /// The numbers of senders are below it.
    pub senders: u16,
}

impl Size {
    /// That of `rtl/sim/bench.sv`.
    pub const BENCH: Self = Self { buckets: 1024, senders: 16 };

    /// The bytes of its slots.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.buckets as usize * SLOTS * SLOT_BYTES
    }

    /// The bucket of a key.
    #[must_use]
    pub fn bucket(self, settings: &Settings, key: &[u8; 20]) -> u32 {
        if !settings.direct {
            return murmur3(settings.seed, key) & (self.buckets - 1);
        }
        let sender = u32::from(u16::from_le_bytes([key[2], key[3]])) & u32::from(self.senders - 1);
        let numbers = self.buckets / (2 * u32::from(self.senders));
        let number = u32::from_le_bytes([key[12], key[13], key[14], key[15]]) & (numbers - 1);
        (number * 2 + u32::from(key[0] & 1)) * u32::from(self.senders) + sender
    }
}

/// MurmurHash3 (x86, 32 bits) of bytes whose number is a multiple of four.
///
/// # Panics
/// When it is not; keys have 20.
#[must_use]
pub fn murmur3(seed: u32, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    assert!(tail.is_empty(), "whole words only");
    let mut hash = seed;
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(0xcc9e_2d51).rotate_left(15);
        hash ^= mixed.wrapping_mul(0x1b87_3593);
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Where a vote goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Into this slot of its bucket.
    Free(usize),
    /// Nowhere: the same 52 bytes are there.
    Same,
    /// Nowhere: another vote of the same key is there.
    SameKey,
    /// Nowhere: no slot is free.
    Full,
}

/// A table and its bitmap.
#[derive(Clone, Debug)]
pub struct Table {
    bitmap: Vec<u8>,
    memory: Vec<u8>,
    stored: u64,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self { bitmap: vec![0; size.buckets as usize], memory: vec![0; size.bytes()], stored: 0 }
    }

    /// The slots.
    #[must_use]
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    fn slot(&mut self, bucket: u32, slot: usize) -> &mut [u8; SLOT_BYTES] {
        let at = SLOT_BYTES * (bucket as usize * SLOTS + slot);
        self.memory[at..].first_chunk_mut().expect("slots lie within the table")
    }

    /// Where a vote with these 52 bytes may go in its bucket.
    #[must_use]
    pub fn place(&mut self, bucket: u32, said: &[u8; 52]) -> Place {
        let occupied = self.bitmap[bucket as usize];
        let taken = |slot: &usize| occupied & (1 << slot) != 0;
        let mut same_key = false;
        for slot in (0..SLOTS).filter(taken) {
            let there = self.slot(bucket, slot);
            if there[..52] == said[..] {
                return Place::Same;
            }
            same_key |= there[..20] == said[..20];
        }
        if same_key {
            return Place::SameKey;
        }
        (0..SLOTS).find(|slot| !taken(slot)).map_or(Place::Full, Place::Free)
    }

    /// Writes a vote into a slot.
    pub fn store(&mut self, bucket: u32, slot: usize, said: &[u8; 52], vector: &[u8]) {
        self.bitmap[bucket as usize] |= 1 << slot;
        self.stored += 1;
        let serial = self.stored;
        let kept = vector.len().min(16 * KEPT_TAGS);
        let bytes = self.slot(bucket, slot);
        bytes.fill(0);
        bytes[..52].copy_from_slice(said);
        bytes[52] = (vector.len() / 16) as u8;
        bytes[56..56 + kept].copy_from_slice(&vector[..kept]);
        bytes[COMMIT_AT..].copy_from_slice(&serial.to_le_bytes());
    }

    /// Makes slots free: their commit words become 0, and then their bits.
    pub fn free(&mut self, bucket: u32, slots: u8) {
        for slot in (0..SLOTS).filter(|slot| slots & (1 << slot) != 0) {
            self.slot(bucket, slot)[COMMIT_AT..].fill(0);
        }
        self.bitmap[bucket as usize] &= !slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that are published for MurmurHash3_x86_32.
    #[test]
    fn murmur3_has_the_published_values() {
        assert_eq!(murmur3(0, b""), 0);
        assert_eq!(murmur3(1, b""), 0x514e_28b7);
        assert_eq!(murmur3(0x9747_b28c, b"aaaa"), 0x5a97_808a);
        assert_eq!(murmur3(0x9747_b28c, b"test"), 0x704b_81dc);
        assert_eq!(murmur3(0, b"test"), 0xba6b_d213);
    }

    #[test]
    fn a_slot_is_as_the_document_says() {
        let mut table = Table::new(Size { buckets: 2, senders: 1 });
        let said = std::array::from_fn(|i| i as u8);
        let vector: Vec<u8> = (100..180).collect();
        table.store(1, 2, &said, &vector);
        table.store(1, 3, &said, &vector[..16]);
        let at = 128 * (4 + 2);
        let slot = &table.memory()[at..at + 128];
        assert_eq!(slot[..52], said);
        assert_eq!(slot[52..56], [5, 0, 0, 0]);
        assert_eq!(slot[56..120], vector[..64]);
        assert_eq!(slot[120..], [1, 0, 0, 0, 0, 0, 0, 0]);
        let next = &table.memory()[at + 128..];
        assert_eq!((next[52], &next[56..72], &next[72..120]), (1, &vector[..16], &[0; 48][..]));
        assert_eq!(next[120..], [2, 0, 0, 0, 0, 0, 0, 0]);
        table.free(1, 0b0100);
        assert_eq!(table.place(1, &said), Place::Same, "the other is there");
        table.free(1, 0b1000);
        assert_eq!(table.place(1, &said), Place::Free(0));
    }
}
