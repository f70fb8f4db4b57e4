//! What lies between live allocations comes back, which the allocator does not do by itself.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs;

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 256;

/// Resident memory of this process, in bytes.
fn resident() -> i64 {
    let status = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<i64>().ok()).expect("VmRSS") << 10
}

#[test]
fn what_lies_between_live_allocations_comes_back() {
    // Each block is followed by a live allocation, and the last one by that, too.
    let pairs: Vec<_> = (0..BLOCKS).map(|_| (vec![1u8; BLOCK], Box::new([1u8; 64]))).collect();
    let full = resident();
    let live: Vec<_> = pairs.into_iter().map(|(_, live)| live).collect();
    let most = (BLOCK * BLOCKS / 4 * 3) as i64;
    assert!(full - resident() < most / 8, "the allocator keeps them");
    assert!(tercio_unsafe_sys::release_heap());
    let came_back = full - resident();
    assert!(came_back > most, "{came_back} of {} bytes", BLOCK * BLOCKS);
    assert!(live.iter().all(|live| live[63] == 1));
}
