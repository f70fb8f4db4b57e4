//! What the paper's figures show, read off its vector drawings to about 3 %. Hardware that is not
//! here stands behind most of it (25 and 40 GbE RDMA cards, a BlueField, a model of an ASIC), so
//! these are put beside measured figures, never into one column with them.

use serde::Serialize;

/// A point of the paper.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PaperPoint {
    /// The series.
    pub series: &'static str,
    /// What is on the x axis: an operation, a distance, or millions of operations a second.
    pub x: &'static str,
    /// Microseconds.
    pub us: f64,
}

const fn point(series: &'static str, x: &'static str, us: f64) -> PaperPoint {
    PaperPoint { series, x, us }
}

/// Figure 1: operations of 512 bytes over a direct link.
pub const FIG1: [PaperPoint; 17] = [
    point("RDMA", "read", 2.5),
    point("PRISM software", "read", 5.3),
    point("PRISM BlueField", "read", 11.7),
    point("RDMA", "write", 1.9),
    point("PRISM software", "write", 5.0),
    point("PRISM BlueField", "write", 12.7),
    point("PRISM software", "indirect_read", 5.0),
    point("PRISM BlueField", "indirect_read", 14.9),
    point("PRISM ASIC (model)", "indirect_read", 3.1),
    point("PRISM software", "allocate", 5.3),
    point("PRISM BlueField", "allocate", 12.7),
    point("PRISM ASIC (model)", "allocate", 1.9),
    point("PRISM software", "cas", 5.0),
    point("PRISM BlueField", "cas", 14.6),
    point("PRISM ASIC (model)", "cas", 2.5),
    point("PRISM ASIC (model)", "read", 2.5),
    point("PRISM ASIC (model)", "write", 1.9),
];

/// Figure 2: one indirect READ against two READs; distances of 0.6, 3 and 24 us a round trip.
pub const FIG2: [PaperPoint; 12] = [
    point("2 x RDMA", "0.6", 6.1),
    point("PRISM software", "0.6", 5.8),
    point("PRISM BlueField", "0.6", 12.3),
    point("PRISM ASIC (model)", "0.6", 3.0),
    point("2 x RDMA", "3", 10.9),
    point("PRISM software", "3", 8.1),
    point("PRISM BlueField", "3", 14.6),
    point("PRISM ASIC (model)", "3", 5.3),
    point("2 x RDMA", "24", 53.0),
    point("PRISM software", "24", 29.2),
    point("PRISM BlueField", "24", 35.6),
    point("PRISM ASIC (model)", "24", 26.4),
];

/// Figure 3, YCSB-C: latency at low load, and the highest throughput in millions a second.
pub const FIG3: [PaperPoint; 3] = [
    point("PRISM-KV", "8.2", 6.4),
    point("Pilaf (RDMA)", "6.7", 9.4),
    point("Pilaf (software RDMA)", "6.65", 13.8),
];

/// Figure 4, YCSB-A: the same.
pub const FIG4: [PaperPoint; 3] = [
    point("PRISM-KV", "11.9", 9.4),
    point("Pilaf (RDMA)", "11.9", 8.9),
    point("Pilaf (software RDMA)", "9.2", 10.9),
];

/// Figure 6, half PUTs on three replicas: latency at low load, and the highest throughput in millions a
/// second.
pub const FIG6: [PaperPoint; 3] = [
    point("PRISM-RS", "12.1", 16.0),
    point("ABD with locks (RDMA)", "8.1", 18.0),
    point("ABD with locks (software RDMA)", "7.65", 34.0),
];

/// Figure 7: latency with 100 clients, against Zipf's exponent.
pub const FIG7: [PaperPoint; 10] = [
    point("PRISM-RS", "0.6", 18.0),
    point("PRISM-RS", "0.8", 18.0),
    point("PRISM-RS", "0.9", 18.0),
    point("PRISM-RS", "1.0", 18.0),
    point("PRISM-RS", "1.1", 18.0),
    point("ABD with locks (RDMA)", "0.6", 20.0),
    point("ABD with locks (RDMA)", "0.8", 20.0),
    point("ABD with locks (RDMA)", "0.9", 45.0),
    point("ABD with locks (RDMA)", "1.0", 106.0),
    point("ABD with locks (RDMA)", "1.1", 138.0),
];

/// Figure 9, YCSB-T on one shard: latency at low load, and the highest throughput in millions a second.
pub const FIG9: [PaperPoint; 3] = [
    point("PRISM-TX", "6.0", 24.3),
    point("FaRM (RDMA)", "4.98", 29.5),
    point("FaRM (software RDMA)", "4.97", 37.8),
];

/// A published throughput.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct PaperRate {
    /// What was measured.
    pub series: &'static str,
    /// Zipf's exponent.
    pub theta: f64,
    /// Transactions a second, in millions.
    pub million_per_s: f64,
}

const fn rate(series: &'static str, theta: f64, million_per_s: f64) -> PaperRate {
    PaperRate { series, theta, million_per_s }
}

/// Figure 10: the highest throughput, against Zipf's exponent.
pub const FIG10: [PaperRate; 6] = [
    rate("PRISM-TX", 1.0, 5.5),
    rate("PRISM-TX", 1.2, 3.6),
    rate("PRISM-TX", 1.5, 1.9),
    rate("FaRM", 1.0, 4.3),
    rate("FaRM", 1.2, 2.8),
    rate("FaRM", 1.5, 1.4),
];
