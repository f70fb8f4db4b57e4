//! What replicas say to each other about blocks, and the answer from a block log.
//!
//! ```text
//! FETCH_BLOCKS   key: sequence = first height; body = last height: u64
//! BLOCKS         key: sequence = the first height that was asked for
//!                body = list (tercio_wire::list) of blocks, each header | encoded batch
//!                     | certificate flag: u8 | certificate of the last of them, if the flag is 1
//! ```

use bytes::Bytes;
use tercio_ledger::{Block, BlockLog, LedgerError};
use tercio_types::{BlockHeader, CertifiedCheckpoint, Height, Suite};
use tercio_wire::{Decode, DecodeError, Encode, Reader, list};

/// About how many bytes of blocks one answer has; a single block may be longer.
pub const BLOCKS_ANSWER_BYTES: usize = 1 << 20;

/// The most blocks in an answer.
pub(crate) const ANSWER_BLOCKS: usize = 1 << 14;

/// Which blocks somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchBlocks {
    /// The first.
    pub from: Height,
    /// The last.
    pub to: Height,
}

impl FetchBlocks {
    /// The body of the message; the first height goes into the key.
    #[must_use]
    pub fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&self.to.0.to_le_bytes())
    }

    /// Reads what [`Self::body`] wrote.
    ///
    /// # Errors
    /// When the bytes are no height.
    pub fn decode(from: u64, body: &Bytes, suite: Suite) -> Result<Self, DecodeError> {
        let mut input = Reader::new(body.clone(), suite);
        let to = Height(input.u64("fetch blocks")?);
        input.finish()?;
        Ok(Self { from: Height(from), to })
    }
}

/// The body of a BLOCKS message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Consecutive blocks.
    pub blocks: Vec<Block>,
    /// The certificate of the last of them.
    pub certificate: Option<CertifiedCheckpoint>,
}

impl Encode for Blocks {
    fn encode(&self, out: &mut Vec<u8>) {
        list::encode(out, self.blocks.len(), |i, out| {
            self.blocks[i].header.encode(out);
            out.extend_from_slice(&self.blocks[i].body);
        });
        out.push(self.certificate.is_some().into());
        if let Some(certificate) = &self.certificate {
            certificate.encode(out);
        }
    }
}

impl Decode for Blocks {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let suite = input.suite();
        let items = list::List::decode(input, ANSWER_BLOCKS, "blocks")?;
        let block = |item: Bytes| {
            let mut input = Reader::new(item, suite);
            let header = BlockHeader::decode(&mut input)?;
            Ok(Block { header, body: input.take_rest() })
        };
        let blocks = items.iter().map(block).collect::<Result<_, _>>()?;
        let certificate = match input.flag("certificate flag")? {
            true => Some(CertifiedCheckpoint::decode(input)?),
            false => None,
        };
        Ok(Self { blocks, certificate })
    }
}

/// The answer to a request for blocks: as many as fit, up to the next certified height, with that
/// certificate when its block is the last. Empty when the log does not hold the first.
///
/// # Errors
/// When the log cannot be read.
pub fn read_blocks(log: &BlockLog, request: FetchBlocks) -> Result<Bytes, LedgerError> {
    let certificate = log.certificate_at_or_after(request.from)?;
    let certified = certificate.as_ref().map(|c| c.checkpoint.height);
    let end = certified.map_or(request.to, |height| height.min(request.to));
    let (mut blocks, mut bytes, mut height) = (Vec::new(), 0, request.from);
    while height <= end && bytes < BLOCKS_ANSWER_BYTES && blocks.len() < ANSWER_BLOCKS {
        let Some(block) = log.read(height)? else { break };
        if !blocks.is_empty() && bytes + block.body.len() > BLOCKS_ANSWER_BYTES {
            break;
        }
        bytes += block.body.len();
        blocks.push(block);
        height = height.next();
    }
    let last = blocks.last().map(|block| block.header.height);
    let certificate = certificate.filter(|_| last.is_some() && last == certified);
    Ok(Blocks { blocks, certificate }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{Checkpoint, Digest, Epoch, ReplicaId, SeqNum, SignatureBytes, Timestamp};

    fn block(height: u64) -> Block {
        let body = Bytes::from(vec![height as u8; height as usize * 3]);
        let header = BlockHeader {
            suite: Suite::default(),
            epoch: Epoch(1),
            height: Height(height),
            seq: SeqNum(height + 5),
            parent: Digest([1; 32]),
            body: Digest([2; 32]),
            time: Timestamp(9),
            ops: 4,
            lag: 0,
            results: Digest::NULL,
            state: Digest::NULL,
        };
        Block { header, body }
    }

    /// The longest block there can be fits a frame, with a certificate of many.
    #[test]
    fn the_longest_block_fits_a_frame() {
        let body = Bytes::from(vec![0; tercio_consensus::MAX_BATCH]);
        let block = Block { body, ..block(1) };
        let room = block.body.len() + (1 << 20);
        let answer = Blocks { blocks: vec![block], certificate: None }.to_bytes();
        let signatures = 1000 * (size_of::<ReplicaId>() + size_of::<SignatureBytes>());
        assert!(answer.len() + size_of::<Checkpoint>() + signatures < room);
        assert_eq!(room, tercio_wire::MAX_FRAME);
    }

    #[test]
    fn answers_have_one_encoding() {
        let checkpoint = Checkpoint {
            seq: SeqNum(9),
            height: Height(3),
            block: Digest([3; 32]),
            results: Digest([4; 32]),
            state: Digest([5; 32]),
            clients: Digest([6; 32]),
            membership: Digest([7; 32]),
            epoch: Epoch(1),
            time: Timestamp(8),
        };
        let signature = SignatureBytes::new(&[9; 64]).unwrap();
        let signatures = vec![(ReplicaId(0), signature), (ReplicaId(2), signature)];
        let certificate = Some(CertifiedCheckpoint { checkpoint, signatures });
        let suite = Suite::default();
        for blocks in [vec![], vec![block(0)], vec![block(1), block(2), block(3)]] {
            for certificate in [None, certificate.clone()] {
                let answer = Blocks { blocks: blocks.clone(), certificate };
                let bytes = answer.to_bytes();
                assert_eq!(Blocks::from_bytes(&bytes, suite), Ok(answer));
                for at in 0..bytes.len() {
                    assert!(Blocks::from_bytes(&bytes.slice(..at), suite).is_err());
                }
                let longer = [&bytes[..], &[0]].concat();
                assert!(Blocks::from_bytes(&longer.into(), suite).is_err());
            }
        }
    }
}
