//! Who has what: everybody is asked for an offer, and the checkpoint that most offer is fetched.

use super::{Peer, Phase, Question, Standing, Transfer, TransferStep};
use crate::transfer::message::{FetchState, Offer, bounded_chain_bytes};
use std::collections::BTreeMap;
use tercio_consensus::Instant;
use tercio_ledger::verify;
use tercio_types::zoo::{Defence, stands};
use tercio_types::{ReplicaId, SeqNum};

/// In how many places there may be pieces already: our own state, and on disk.
pub(super) const OWN: u8 = 2;

/// The lower median of what offers say, so that one liar of two raises nothing.
fn median(offers: &[&Offer], number: fn(&Offer) -> u64) -> u64 {
    let mut numbers: Vec<u64> = offers.iter().map(|offer| number(offer)).collect();
    numbers.sort_unstable();
    let last = numbers.len().saturating_sub(1);
    numbers.get(last / 2).copied().unwrap_or(u64::MAX)
}

impl Transfer {
    pub(super) fn ask_all(&mut self, now: Instant) {
        self.set_phase(Phase::Asking(now + self.settings.timeout));
        let others = self.membership.replicas().filter(|replica| *replica != self.me);
        self.peers = others
            .map(|replica| {
                let peer = Peer {
                    standing: Standing::Asked,
                    offer: None,
                    out: BTreeMap::new(),
                    heard: now,
                    bytes: 0,
                };
                (replica, peer)
            })
            .collect();
        let replicas: Vec<_> = self.peers.keys().copied().collect();
        replicas.into_iter().for_each(|replica| self.ask_offer(replica));
    }

    pub(super) fn ask_offer(&mut self, to: ReplicaId) {
        let request = FetchState::Offer { height: self.height };
        self.ask(to, Question::Offer, request);
    }

    /// What a replica has: at most once it may be less than it was.
    pub(super) fn take_offer(
        &mut self,
        from: ReplicaId,
        offer: Option<Box<Offer>>,
    ) -> Result<(), &'static str> {
        let seq = |offer: &Offer| offer.certificate.checkpoint.seq;
        if let Some(offer) = &offer
            && stands(Defence::F25FullCertificate)
        {
            verify(&self.membership, &offer.certificate).map_err(|_| "offer_wrong_certificate")?;
        }
        if let Some(offer) = &offer {
            let height = offer.certificate.checkpoint.height;
            if bounded_chain_bytes(height, offer.chain_bytes) != offer.chain_bytes {
                return Err("offer_absurd");
            }
        }
        let target = self.target.as_deref().map(seq);
        let peer = self.peers.get_mut(&from).expect("a peer");
        let (before, now) = (peer.offer.as_deref().map(seq), offer.as_deref().map(seq));
        if before > now && stands(Defence::F22NeverLower) {
            return Err("offer_lowered");
        }
        if before.is_some() && before == now && peer.standing == Standing::Source {
            // It was asked for pieces of what it says it has, and gave none.
            return Err("offer_instead_of_pieces");
        }
        peer.standing = match now {
            Some(_) if now == target => Standing::Source,
            _ => Standing::Elsewhere,
        };
        peer.offer = offer;
        Ok(())
    }

    /// Takes the checkpoint that most offer, the latest of those.
    pub(super) fn choose(&mut self, now: Instant) {
        let offers = self.peers.values().filter(|peer| peer.standing != Standing::Dropped);
        let offers: Vec<&Offer> = offers.filter_map(|peer| peer.offer.as_deref()).collect();
        let mut by_seq: BTreeMap<SeqNum, Vec<&Offer>> = BTreeMap::new();
        for offer in &offers {
            let seq = offer.certificate.checkpoint.seq;
            if seq > self.seq {
                by_seq.entry(seq).or_default().push(offer);
            }
        }
        let blocks = median(&offers, |offer| offer.block_bytes);
        let best = by_seq.iter().max_by_key(|(seq, offers)| (offers.len(), **seq));
        let Some((_, offers)) = best else {
            return match self.undecided {
                true => self.end("blocks", Some(TransferStep::Blocks)),
                false => self.pause(now),
            };
        };
        let state = median(offers, |offer| offer.state_bytes);
        if self.undecided && blocks / 2 <= state {
            return self.end("blocks", Some(TransferStep::Blocks));
        }
        let mut target = offers[0].clone();
        target.chain_bytes = median(offers, |offer| offer.chain_bytes);
        target.state_bytes = state;
        self.status.state_bytes = state;
        let first = self.target.replace(Box::new(target)).is_none();
        self.undecided = false;
        if first {
            self.set_phase(Phase::Own(OWN));
            self.steps.push_back(TransferStep::Own);
        } else {
            self.start(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tercio_types::{CertifiedCheckpoint, Checkpoint, Digest, Epoch, Height, Timestamp};

    fn offer(state_bytes: u64) -> Offer {
        let checkpoint = Checkpoint {
            seq: SeqNum(1),
            height: Height(1),
            block: Digest::NULL,
            results: Digest::NULL,
            state: Digest::NULL,
            clients: Digest::NULL,
            membership: Digest::NULL,
            epoch: Epoch(0),
            time: Timestamp(0),
        };
        let certificate = CertifiedCheckpoint { checkpoint, signatures: vec![] };
        Offer { certificate, state_bytes, chain_bytes: 0, block_bytes: 0 }
    }

    /// Fewer than half of those who offer something raise none of its numbers.
    #[test]
    fn the_lower_of_two_counts() {
        for (said, counts) in [
            (&[][..], u64::MAX),
            (&[7], 7),
            (&[u64::MAX, 7], 7),
            (&[8, u64::MAX, 7], 8),
            (&[u64::MAX, 8, u64::MAX, 7], 8),
        ] {
            let offers: Vec<_> = said.iter().map(|number| offer(*number)).collect();
            let offers: Vec<_> = offers.iter().collect();
            assert_eq!(median(&offers, |offer| offer.state_bytes), counts, "{said:?}");
        }
    }
}
