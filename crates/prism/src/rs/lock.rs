//! x
pub(crate) const HEADER: u64 = 64;
