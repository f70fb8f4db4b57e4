/// A point as tables keep it: one cache line with the four limbs of x and then those of y, least
/// significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct Row(pub [u64; 8]);
