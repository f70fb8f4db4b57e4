//! The write-ahead log that operators begin anew when more replicas lost theirs than may fail
//! (decision 0045).
//!
//! Every replica then begins from one chain that its operators agreed on, with one log: as if, in a
//! view above all that anybody was in, everything behind the chain's last certificate had prepared
//! everywhere, and nothing else had been promised. The next view begins with that by the rules of a
//! view change (V3, condition A), and what was promised in lower views binds nobody. So nothing that was
//! said in them counts: votes that somebody kept would decide what those who cast them have forgotten,
//! and states that we signed, or views that we left for, would show that our log went back (L8).

use super::record::{Promises, Record};
use super::view_change::ViewPromises;
use super::{Bytes, Digest, Floor, SeqNum, View};
use tercio_wire::Encode;

/// A batch that the agreed chain has.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Its number.
    pub seq: SeqNum,
    /// Its digest.
    pub digest: Digest,
    /// Its encoding.
    pub body: Bytes,
}

/// How far above the agreed chain a replica may have signed states that are lost. Up to there its own
/// signature shows no log that went back, an older copy of the rebuilt one either.
const LOST: u64 = 1_000_000;

/// The records of such a log, each with its tag. `reach` is the last number of the agreed chain, and
/// `decided` what lies behind the certificate that it comes with.
pub fn agreed_records(
    view: View,
    reach: SeqNum,
    decided: impl IntoIterator<Item = Decided>,
) -> Vec<(SeqNum, Bytes)> {
    let state = Promises {
        stable: None,
        view: ViewPromises { view, changing: false, leave: None, enter: None },
        must_sign: Vec::new(),
        slots: Vec::new(),
        learning: None,
        agreed: Some(Floor { seq: SeqNum(reach.0.saturating_add(LOST)), view }),
    };
    let mut records = vec![Record::State(state)];
    for Decided { seq, digest, body } in decided {
        records.push(Record::Accepted { view, seq, digest, body: Some(body) });
        records.push(Record::Prepared { view, seq, digest });
    }
    records.iter().map(|record| (record.tag(), record.to_bytes())).collect()
}
