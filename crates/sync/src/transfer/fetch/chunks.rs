//! Chunks that came: each is checked, and the rest of a long one is asked of the same source.

use super::{Transfer, Wanted};
use crate::transfer::pieces::Piece;
use bytes::Bytes;
use tercio_crypto::hash;
use tercio_execution::{MAX_CHUNK, engine_chunk_holds};
use tercio_types::ReplicaId;
use tercio_types::zoo::{Defence, stands};

impl Transfer {
    pub(super) fn take_chunks(
        &mut self,
        from: ReplicaId,
        asked: Vec<Wanted>,
        found: Vec<(bool, Bytes)>,
    ) -> Result<(), &'static str> {
        let mut outcome = if found.is_empty() { Err("state_none") } else { Ok(()) };
        let mut found = found.into_iter();
        let mut begun = Vec::new();
        let checkpoint = &self.target.as_ref().expect("chunks of it were asked for").certificate;
        for mut wanted in asked {
            let Some((more, part)) = found.next().filter(|_| outcome.is_ok()) else {
                self.chunks.push_front(wanted);
                continue;
            };
            let long = wanted.begun.len() + part.len() > MAX_CHUNK || more && part.is_empty();
            wanted.begun.extend_from_slice(&part);
            if more && !long {
                begun.push(wanted);
                continue;
            }
            let chunk = Bytes::from(std::mem::take(&mut wanted.begun));
            let digest = hash(self.suite, &[&chunk]);
            let holds = match wanted.digest {
                Some(wanted) => wanted == digest || !stands(Defence::F23PieceByDigest),
                None => engine_chunk_holds(self.suite, self.lag, &checkpoint.checkpoint, &chunk),
            };
            if long || !holds {
                outcome = Err("state_wrong_chunk");
                self.chunks.push_front(wanted);
                continue;
            }
            self.status.chunks += 1;
            match wanted.digest {
                Some(digest) => {
                    self.staged.push(Piece::Chunk(chunk.clone()));
                    self.pieces.put_chunk(digest, chunk);
                }
                None => self.engine = Some(chunk),
            }
        }
        if !begun.is_empty() {
            // The rest comes from the same source, so that one is to blame if it is wrong.
            self.ask_chunks(from, begun);
        }
        outcome
    }
}
