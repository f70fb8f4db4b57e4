//! SM2's arithmetic in AVX-512 IFMA.

mod curve;
mod field;
mod verify;

use crate::{Comb, Job, Outcome};

/// The right to use the instructions: there is a value only on a processor that has them.
#[derive(Clone, Copy, Debug)]
pub struct Ifma(());

impl Ifma {
    /// The right, where the processor has AVX-512 F, IFMA and VBMI2.
    #[must_use]
    pub fn detect() -> Option<Self> {
        let here = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("avx512vbmi2");
        here.then_some(Self(()))
    }

    /// Checks signatures, eight at a time; one outcome a job, in their order. All keys are points,
    /// or all are tables of one width: else this panics. `generator` has the odd multiples of the
    /// generator below `2^GENERATOR_WINDOW` for points ([`crate::GENERATOR_WINDOW`]), and is a
    /// whole comb for tables.
    #[must_use]
    pub fn check(self, generator: &Comb<'_>, jobs: &[Job<'_>]) -> Vec<Outcome> {
        // SAFETY: the function is safe but for the instructions that it uses, and a value of this
        // type exists only where the processor has them.
        #[allow(unsafe_code)]
        unsafe {
            verify::check(generator, jobs)
        }
    }

    /// Issues about `count` multiply-adds that do not wait for each other, and says how many: what
    /// a measurement holds the speed of everything else against.
    #[must_use]
    pub fn issue_multiplications(self, count: usize) -> usize {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            field::issue(count)
        }
    }
}
