use std::ffi::c_void;
use std::ptr::NonNull;

/// What the bench's inputs are in a cycle (`rtl/sim/bench.sv` says what each means). 0 and 1 stand
/// for wires; data is read only while its `valid` is 1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the bench's ports")]
pub struct Inputs {
    pub config_data: u32,
    pub hash_seed: u32,
    pub sha_chain: [u32; 8],
    pub sha_block: [u32; 16],
    pub mac_inner: [u32; 8],
    pub mac_outer: [u32; 8],
    pub in_data: [u8; 64],
    pub mac_said: [u8; 52],
    pub hash_key: [u8; 20],
    pub reset: u8,
    pub config_valid: u8,
    pub config_address: u8,
    pub counter_which: u8,
    pub in_valid: u8,
    pub in_bytes: u8,
    pub in_last: u8,
    pub write_ready: u8,
    pub up_ready: u8,
    pub sha_valid: u8,
    pub mac_valid: u8,
    pub hash_valid: u8,
}

impl Default for Inputs {
    /// Everything idle.
    fn default() -> Self {
        Self {
            config_data: 0,
            hash_seed: 0,
            sha_chain: [0; 8],
            sha_block: [0; 16],
            mac_inner: [0; 8],
            mac_outer: [0; 8],
            in_data: [0; 64],
            mac_said: [0; 52],
            hash_key: [0; 20],
            reset: 0,
            config_valid: 0,
            config_address: 0,
            counter_which: 0,
            in_valid: 0,
            in_bytes: 0,
            in_last: 0,
            write_ready: 0,
            up_ready: 0,
            sha_valid: 0,
            mac_valid: 0,
            hash_valid: 0,
        }
    }
}

/// What the bench gives in a cycle, before the clock's edge. Data means something only while
/// its `valid` or `done` is 1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the bench's ports")]
pub struct Outputs {
    pub write_address: u64,
    pub counter_value: u32,
    pub hash_value: u32,
    pub sha_digest: [u32; 8],
    pub write_data: [u8; 64],
    pub up_data: [u8; 64],
    pub mac_tag: [u8; 16],
    pub config_ready: u8,
    pub in_ready: u8,
    pub write_valid: u8,
    pub up_valid: u8,
    pub up_bytes: u8,
    pub up_last: u8,
    pub up_verdict: u8,
    pub verdict_valid: u8,
    pub verdict: u8,
    pub sha_ready: u8,
    pub sha_done: u8,
    pub mac_ready: u8,
    pub mac_done: u8,
    pub hash_ready: u8,
    pub hash_done: u8,
}

impl Default for Outputs {
    /// All zeros.
    fn default() -> Self {
        Self {
            write_address: 0,
            counter_value: 0,
            hash_value: 0,
            sha_digest: [0; 8],
            write_data: [0; 64],
            up_data: [0; 64],
            mac_tag: [0; 16],
            config_ready: 0,
            in_ready: 0,
            write_valid: 0,
            up_valid: 0,
            up_bytes: 0,
            up_last: 0,
            up_verdict: 0,
            verdict_valid: 0,
            verdict: 0,
            sha_ready: 0,
            sha_done: 0,
            mac_ready: 0,
            mac_done: 0,
            hash_ready: 0,
            hash_done: 0,
        }
    }
}

mod foreign {
    use super::{Inputs, Outputs, c_void};

    #[allow(unsafe_code)]
    // SAFETY: these are the signatures in `shim.cpp`; `Inputs` and `Outputs` are its structs, with
    // the same fields of the same types in the same order, under C's rules on both sides.
    unsafe extern "C" {
        pub(super) fn tercio_bench_new() -> *mut c_void;
        pub(super) fn tercio_bench_free(sim: *mut c_void);
        pub(super) fn tercio_bench_cycle(
            sim: *mut c_void,
            inputs: *const Inputs,
            out: *mut Outputs,
        );
    }
}

/// A bench: the card, and single units beside it. The memory on the card begins as zeros; what else
/// it begins with is settled by a cycle with `reset`.
#[derive(Debug)]
pub struct Bench(NonNull<c_void>);

impl Bench {
    /// A new bench.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: takes nothing, and gives a new object that is ours until `drop`.
        #[allow(unsafe_code)]
        let sim = unsafe { foreign::tercio_bench_new() };
        Self(NonNull::new(sim).expect("C++'s new gives an object or ends the process"))
    }

    /// One clock cycle: sets the inputs, reads the outputs that follow from them and from what is
    /// in the registers, and gives the clock's edge.
    pub fn cycle(&mut self, inputs: &Inputs, outputs: &mut Outputs) {
        // SAFETY: the object lives until `drop`, nobody else has it (`&mut self`, and it does not
        // leave its thread), and both structs are valid for the time of the call.
        #[allow(unsafe_code)]
        unsafe {
            foreign::tercio_bench_cycle(self.0.as_ptr(), inputs, outputs);
        }
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: made by `tercio_bench_new`, and freed only here.
        #[allow(unsafe_code)]
        unsafe {
            foreign::tercio_bench_free(self.0.as_ptr());
        }
    }
}
