//! A few hostile bytes cannot make a decoder reserve memory for what they only promise. Alone in
//! its file, so that the process is its own and its address space can be measured.
#![cfg(target_os = "linux")]

mod common;

use bytes::Bytes;
use common::DECODERS;

/// The most address space that the process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).expect("VmPeak");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn promised_lengths_reserve_nothing() {
    let decode_all = |bytes: &Bytes| {
        for (_, recode) in DECODERS {
            let _ = recode(bytes);
        }
    };
    let samples = common::samples();
    // What decoding needs at all, honest bytes only.
    for (name, bytes) in &samples {
        let (_, recode) = DECODERS.into_iter().find(|(n, _)| n == name).expect("a decoder");
        assert!(recode(bytes).is_ok(), "{name}");
    }
    let before = peak_kib();
    // Every place of a short message holds every suspicious 16- and 32-bit length in turn.
    let lengths = [u32::MAX, u32::MAX - 3, 1 << 31, 1 << 28, 1 << 24, 1 << 20, 1 << 16, 0xffff];
    for fill in [0, 1, 2, 3] {
        for length in lengths {
            for at in 0..260 {
                for tail in [0, 4, 60] {
                    let mut bytes = vec![fill; at];
                    bytes.extend_from_slice(&length.to_le_bytes());
                    bytes.resize(at + 4 + tail, 0xff);
                    decode_all(&bytes.into());
                }
            }
        }
    }
    for (_, sample) in samples {
        for length in lengths {
            for at in 0..sample.len() - 1 {
                let mut bytes = sample.to_vec();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&length.to_le_bytes()[..end - at]);
                decode_all(&bytes.into());
            }
        }
    }
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "decoding short messages took {grown} KiB of address space");
}
