//! Optional attestations: a quorum's signatures on each block, off the critical path (rule C4).

use super::context::Config;
use super::outbox::Outbox;
use super::{Digest, Effect, Height, PbftMessage, ReplicaId, SignatureBytes};
use std::collections::BTreeMap;
use tercio_wire::{Key, Kind};

/// How many blocks may wait for a quorum of attestations.
const MAX_ATTESTING: usize = 1024;

/// Who signed which block.
#[derive(Clone, Debug, Default)]
pub(super) struct Attestations {
    /// All heights up to here are done with.
    done: Height,
    said: BTreeMap<Height, BTreeMap<ReplicaId, (Digest, SignatureBytes)>>,
}

impl Attestations {
    /// We made a block.
    pub(super) fn on_block(
        &mut self,
        config: &Config,
        height: Height,
        block: Digest,
        out: &mut Outbox,
    ) {
        if !config.settings.attest {
            return;
        }
        let key = Key::of_replica(Kind::ATTEST, config.me, 0, height.0, block);
        let signature = config.signer.sign(&key.to_array());
        out.broadcast(PbftMessage::Attest { height, block, signature: signature.into() });
        self.on_attest(config, config.me, height, block, signature, out);
    }

    /// Rule C4: a quorum's signatures on a block.
    pub(super) fn on_attest(
        &mut self,
        config: &Config,
        from: ReplicaId,
        height: Height,
        block: Digest,
        signature: SignatureBytes,
        out: &mut Outbox,
    ) {
        if !config.settings.attest || height <= self.done {
            return;
        }
        let reach = self.done.0 + MAX_ATTESTING as u64;
        if from == config.me && height.0 > reach {
            // After a restart: what lies far below is nobody's to attest any more.
            self.done = Height(height.0 - MAX_ATTESTING as u64 / 2);
            self.said = self.said.split_off(&self.done.next());
        } else if height.0 > reach {
            return out.drop_message("attestation_too_far");
        }
        let said = self.said.entry(height).or_default();
        said.entry(from).or_insert((block, signature));
        let agreed: Vec<_> =
            said.iter().filter(|(_, (b, _))| *b == block).map(|(r, (_, s))| (*r, *s)).collect();
        if agreed.len() == config.membership.quorum() {
            out.push(Effect::Attested { height, block, signatures: agreed });
        }
        // Heights are done in any order; the lowest is given up when too many wait behind it.
        // A liar's word is no reason: it counts for its own block only.
        let quorum = config.membership.quorum();
        let is_done = |said: &BTreeMap<ReplicaId, (Digest, SignatureBytes)>| {
            let equal = |block| said.values().filter(|(b, _)| *b == block).count();
            said.len() >= quorum && said.values().any(|(block, _)| equal(*block) >= quorum)
        };
        while let Some((height, said)) = self.said.first_key_value() {
            if !is_done(said) && self.said.len() <= MAX_ATTESTING {
                break;
            }
            self.done = *height;
            self.said.pop_first();
        }
    }
}
