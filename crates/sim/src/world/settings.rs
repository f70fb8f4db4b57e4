//! How a simulated network is set up.

use crate::Pace;
use crate::customer::Workload;
use crate::network::Quality;
use std::time::Duration;
use tercio_client::ClientAuth;
use tercio_consensus::Settings;

/// How a simulated network is set up.
#[derive(Clone, Debug)]
pub struct WorldSettings {
    /// Chooses everything that is left to chance.
    pub seed: u64,
    /// The replicas' settings.
    pub consensus: Settings,
    /// By how many heights headers carry results and state late.
    pub lag: u16,
    /// Whether replicas let blocks go as soon as snapshots cover them, so that only state helps one
    /// that missed them.
    pub forgetful: bool,
    /// How long promises gather before they are made durable together; without, each is at once.
    pub group: Option<Duration>,
    /// How disks keep pace; without, everything is durable at once.
    pub pace: Option<Pace>,
    /// The links in the beginning.
    pub quality: Quality,
    /// The clients, from id 1 on.
    pub clients: Vec<(ClientAuth, Workload)>,
    /// Whether to keep a text of all events.
    pub text: bool,
}

impl Default for WorldSettings {
    /// Small windows and short timers, so that little virtual time shows much; steady links and
    /// one client that a script drives.
    fn default() -> Self {
        Self {
            seed: 0,
            consensus: small_settings(),
            lag: 0,
            forgetful: false,
            group: None,
            pace: None,
            quality: Quality::STEADY,
            clients: vec![(ClientAuth::Mac, Workload::NONE)],
            text: false,
        }
    }
}

/// Settings of consensus for simulation: small windows, short timers.
#[must_use]
pub fn small_settings() -> Settings {
    Settings {
        checkpoint_interval: 8,
        window: 16,
        batch_ops: 4,
        pipeline: 4,
        view_timeout: Duration::from_millis(300),
        view_timeout_max: Duration::from_secs(3),
        status_interval: Duration::from_millis(40),
        idle_interval: Duration::from_millis(200),
        checkpoint_idle: Duration::from_millis(300),
        ..Settings::default()
    }
}
