//! ViewJumper: now and then demands a view far ahead, or one that is long gone, properly signed
//! and with nothing prepared in it.

use super::{Actor, Stage};
use crate::trace::peek_key;
use bytes::Bytes;
use tercio_consensus::pbft::ViewChange;
use tercio_types::{Principal, View};

/// Demands absurd views.
#[derive(Clone, Copy, Debug)]
pub struct ViewJumper;

impl Actor for ViewJumper {
    fn name(&self) -> &'static str {
        "view jumper"
    }

    fn send(&mut self, to: Principal, bytes: Bytes, stage: &mut Stage<'_>) {
        let view = peek_key(&bytes).map_or(0, |key| key.view);
        stage.send(to, bytes);
        if !stage.rng.chance(20) {
            return;
        }
        let view = match stage.rng.below(4) {
            0 => u64::MAX - 1,
            1 => view + stage.rng.below(1000),
            2 => view.saturating_sub(1),
            _ => view + 1,
        };
        let content = ViewChange {
            view: View(view),
            stable: None,
            prepared: vec![],
            preprepared: vec![],
            blamed: vec![],
        };
        let frame = stage.forger.view_change(content);
        stage.broadcast(&frame);
    }
}
