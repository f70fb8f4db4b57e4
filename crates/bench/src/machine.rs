//! The machine that a figure was measured on.

use serde::Serialize;
use std::fs;

/// What a reader must know of a machine to place a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The processors that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub cpu_model: String,
    /// The kernel's release.
    pub kernel: String,
    /// How many tasks wanted a processor during the last minute, on average, ours included.
    pub load_1min: f64,
}

impl Machine {
    /// This machine, now. What the system does not tell is `"unknown"` or zero.
    #[must_use]
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model =
            cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let kernel = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg");
        let known = |text: &str| match text.trim() {
            "" => "unknown".to_owned(),
            text => text.to_owned(),
        };
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: known(model.unwrap_or_default()),
            kernel: known(&kernel),
            load_1min: load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
        }
    }
}
