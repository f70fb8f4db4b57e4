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
