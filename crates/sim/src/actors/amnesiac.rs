//! Amnesiac: honest, but starts from an empty disk after every crash, so that it may contradict
//! all that it said before. A replica that lost its log counts among the f.

use super::Actor;

/// Forgets at every restart.
#[derive(Clone, Copy, Debug)]
pub struct Amnesiac;

impl Actor for Amnesiac {
    fn name(&self) -> &'static str {
        "amnesiac"
    }

    fn forgets(&self) -> bool {
        true
    }
}
