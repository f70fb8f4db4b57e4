//! The write-ahead log that operators begin anew when more replicas lost theirs than may fail
//! (decision 0045).
//!
//! Every replica then begins from one chain that its operators agreed on, with one log: as if, in a
//! view above all that anybody was in, everything behind the chain's last certificate had prepared
//! everywhere, and nothing else had been promised. The next view begins with that by the rules of a
//! view change (V3, condition A), and what was promised in lower views binds nobody.

use super::record::{Promises, Record};
use super::view_change::ViewPromises;
use super::{Bytes, Digest, SeqNum, View};
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

/// The records of such a log, each with its tag. `decided` is what lies behind the certificate that
/// the chain comes with.
pub fn agreed_records(
    view: View,
    decided: impl IntoIterator<Item = Decided>,
) -> Vec<(SeqNum, Bytes)> {
    let state = Promises {
        stable: None,
        view: ViewPromises { view, changing: false, leave: None, enter: None },
        must_sign: Vec::new(),
        slots: Vec::new(),
        learning: None,
    };
    let mut records = vec![Record::State(state)];
    for Decided { seq, digest, body } in decided {
        records.push(Record::Accepted { view, seq, digest, body: Some(body) });
        records.push(Record::Prepared { view, seq, digest });
    }
    records.iter().map(|record| (record.tag(), record.to_bytes())).collect()
}
