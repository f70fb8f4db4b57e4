//! Supervision: starts the replicas of a network as processes, watches them, and starts those again
//! that end by themselves.
//!
//! - All must become ready at first. One that replays its log has time for that as long as it gets
//!   on.
//! - One that ends by itself later is started again after a second, and each time that it ends
//!   within ten seconds of its start after twice as long, up to half a minute. The fifth time in a
//!   row it is left alone: what ends it does not pass by itself (a damaged disk, say).

use crate::now;
use crate::process::{ProcessError, ReplicaProcess};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tercio_replica::report::{ReplicaReport, Starting};

/// The first pause before one is started again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What ends sooner after its start than this has failed to start.
const SHORT: Duration = Duration::from_secs(10);
/// How many short lives in a row are enough.
const SHORT_LIVES: u32 = 5;
/// How often it is said how far one is that replays its log.
const SAY_STARTING: Duration = Duration::from_secs(5);

/// What became of a replica that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is started again after this time.
    Again(Duration),
    /// It is left alone, as was asked for.
    LeftAlone,
    /// It is left alone after too many short lives in a row.
    GivenUp,
}

/// Something that happened to a replica, or to the network.
#[derive(Debug)]
#[non_exhaustive]
pub enum Happened {
    /// It replays its log.
    Starts {
        /// The replica.
        id: u16,
        /// How far it is.
        starting: Starting,
    },
    /// It can take requests.
    Ready {
        /// Whether it could before.
        again: bool,
        /// What it says of itself.
        report: Box<ReplicaReport>,
    },
    /// It fetches what it missed.
    CatchingUp {
        /// The replica.
        id: u16,
        /// From this height on.
        height: u64,
    },
    /// It has it.
    CaughtUp {
        /// The replica.
        id: u16,
        /// Up to this height.
        height: u64,
    },
    /// It ended by itself.
    Ended {
        /// How.
        how: ProcessError,
        /// What follows.
        then: Then,
    },
    /// It could not be started again.
    NotStarted(ProcessError),
    /// A view began.
    View {
        /// The view.
        view: u64,
        /// Its primary.
        primary: u16,
    },
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts { id, starting } => write!(f, "replica {id}: {starting}"),
            Self::Ready { again, report } => {
                let (id, height, pid) = (report.id, report.start_height, report.pid);
                let again = if *again { " again" } else { "" };
                write!(f, "replica {id}: ready{again} at height {height}, process {pid}")
            }
            Self::CatchingUp { id, height } => {
                write!(f, "replica {id}: catching up from height {height}")
            }
            Self::CaughtUp { id, height } => {
                write!(f, "replica {id}: caught up at height {height}")
            }
            Self::Ended { how, then: Then::Again(pause) } => {
                write!(f, "{how}; it is started again in {} s", pause.as_secs())
            }
            Self::Ended { how, then: Then::LeftAlone } => write!(f, "{how}; it is left alone"),
            Self::Ended { how, then: Then::GivenUp } => {
                write!(f, "{how}; it is left alone after {SHORT_LIVES} short lives in a row")
            }
            Self::NotStarted(error) => error.fmt(f),
            Self::View { view, primary } => {
                write!(f, "view {view}: replica {primary} is the primary")
            }
        }
    }
}

/// Who is told of what happens.
pub type Tell<'a> = &'a mut dyn FnMut(Happened);

/// How long the lives of a replica were.
#[derive(Debug, Default)]
struct Lives {
    short: u32,
}

impl Lives {
    /// One ended that had lasted for `life`.
    fn ended(&mut self, life: Duration, restarts: bool) -> Then {
        self.short = if life < SHORT { self.short + 1 } else { 0 };
        if !restarts {
            Then::LeftAlone
        } else if self.short >= SHORT_LIVES {
            Then::GivenUp
        } else {
            let pause = PAUSE * 2u32.pow(self.short.saturating_sub(1));
            Then::Again(pause.min(LONGEST_PAUSE))
        }
    }
}

/// A replica and what is known of it.
#[derive(Debug)]
struct Watched {
    id: u16,
    home: PathBuf,
    process: Option<ReplicaProcess>,
    /// Whether this life was told to be ready.
    ready: bool,
    /// When it was told last that it starts.
    said_starting: Option<Instant>,
    /// When to start it again; `None` while it runs, or for ever.
    again_at: Option<Instant>,
    lives: Lives,
    last: Option<ReplicaReport>,
}

/// The replicas of a network as processes. They end with this value.
#[derive(Debug)]
pub struct Supervisor {
    program: PathBuf,
    restarts: bool,
    all: Vec<Watched>,
    view: u64,
}

impl Supervisor {
    /// Starts `program start` for every home. With `restarts`, those that end by themselves later
    /// are started again.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn start(
        program: &Path,
        homes: Vec<(u16, PathBuf)>,
        restarts: bool,
    ) -> Result<Self, ProcessError> {
        let start = |(id, home): (u16, PathBuf)| {
            let process = Some(ReplicaProcess::spawn(program, id, &home)?);
            let (ready, said_starting, again_at, last) = (false, None, None, None);
            let lives = Lives::default();
            Ok(Watched { id, home, process, ready, said_starting, again_at, lives, last })
        };
        let all = homes.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { program: program.to_owned(), restarts, all, view: 0 })
    }

    /// Waits until all are ready.
    ///
    /// # Errors
    /// When one is not.
    pub fn wait_ready(&mut self, tell: Tell<'_>) -> Result<(), ProcessError> {
        for watched in &mut self.all {
            watched.wait_ready(tell)?;
        }
        self.view = self.all.iter().filter_map(Watched::view).max().unwrap_or(0);
        Ok(())
    }

    /// Looks at all of them: to be called about ten times a second.
    pub fn look(&mut self, tell: Tell<'_>) {
        for watched in &mut self.all {
            watched.look(&self.program, self.restarts, tell);
        }
        let newer = |watched: &&Watched| watched.view() > Some(self.view);
        let latest = self.all.iter().filter(newer).max_by_key(|watched| watched.view());
        if let Some(report) = latest.and_then(|watched| watched.last.as_ref()) {
            self.view = report.view;
            tell(Happened::View { view: report.view, primary: report.primary });
        }
    }

    /// What those that run said last.
    pub fn reports(&self) -> impl Iterator<Item = &ReplicaReport> {
        self.all.iter().filter(|watched| watched.process.is_some()).filter_map(|w| w.last.as_ref())
    }

    /// Whether none runs, and none will be started again.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.all.iter().all(|watched| watched.process.is_none() && watched.again_at.is_none())
    }

    /// Puts logs aside that have grown long. One that cannot be will be looked at again.
    pub fn bound_logs(&mut self) {
        let running = self.all.iter_mut().filter_map(|watched| watched.process.as_mut());
        running.for_each(|process| drop(process.bound_log()));
    }

    /// Stops those that run in an orderly way, all at a time; how many they were.
    ///
    /// # Errors
    /// When one does not stop, or stops with a failure.
    pub fn stop(mut self) -> Result<usize, ProcessError> {
        let running = self.all.iter_mut().filter_map(|watched| watched.process.take());
        let mut running: Vec<_> = running.collect();
        running.iter_mut().for_each(ReplicaProcess::ask_to_stop);
        let count = running.len();
        let ended: Vec<_> = running.into_iter().map(ReplicaProcess::stop).collect();
        ended.into_iter().collect::<Result<(), _>>()?;
        Ok(count)
    }
}

impl Watched {
    fn wait_ready(&mut self, tell: Tell<'_>) -> Result<(), ProcessError> {
        let (id, said) = (self.id, &mut self.said_starting);
        let process = self.process.as_mut().expect("it was just started");
        let report =
            process.wait_ready_telling(&mut |starting| starts(id, starting, said, tell))?;
        self.is_ready(report, tell);
        Ok(())
    }

    fn is_ready(&mut self, report: ReplicaReport, tell: Tell<'_>) {
        let again = self.last.is_some();
        tell(Happened::Ready { again, report: Box::new(report.clone()) });
        self.ready = true;
        self.last = Some(report);
    }

    /// The view that it is in; `None` while it is in none.
    fn view(&self) -> Option<u64> {
        self.last.as_ref().filter(|report| !report.changing).map(|report| report.view)
    }

    fn look(&mut self, program: &Path, restarts: bool, tell: Tell<'_>) {
        let Some(process) = &mut self.process else {
            if self.again_at.is_some_and(|at| at <= now()) {
                self.start_again(program, tell);
            }
            return;
        };
        let since = process.since();
        if let Err(how) = process.check() {
            (self.process, self.ready, self.said_starting) = (None, false, None);
            let then = self.lives.ended(since.elapsed(), restarts);
            if let Then::Again(pause) = then {
                self.again_at = Some(now() + pause);
            }
            return tell(Happened::Ended { how, then });
        }
        let Some(report) = process.report() else {
            if let Some(starting) = process.starting() {
                starts(self.id, starting, &mut self.said_starting, tell);
            }
            return;
        };
        if !self.ready {
            return self.is_ready(report, tell);
        }
        let (id, height, is) = (self.id, report.height, report.catching_up);
        let was = self.last.replace(report).is_some_and(|was| was.catching_up);
        match (was, is) {
            (false, true) => tell(Happened::CatchingUp { id, height }),
            (true, false) => tell(Happened::CaughtUp { id, height }),
            _ => {}
        }
    }

    fn start_again(&mut self, program: &Path, tell: Tell<'_>) {
        self.again_at = None;
        match ReplicaProcess::spawn(program, self.id, &self.home) {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                tell(Happened::NotStarted(error));
                self.again_at = Some(now() + LONGEST_PAUSE);
            }
        }
    }
}

/// Tells how far a replica is that starts, if that was not told just now.
fn starts(id: u16, starting: Starting, said: &mut Option<Instant>, tell: Tell<'_>) {
    if said.is_none_or(|at| at.elapsed() >= SAY_STARTING) {
        *said = Some(now());
        tell(Happened::Starts { id, starting });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_in_a_row_are_followed_by_longer_pauses_and_then_by_none() {
        let (short, long) = (Duration::from_secs(1), SHORT);
        let seconds = |s| Then::Again(Duration::from_secs(s));
        let mut lives = Lives::default();
        let ends: Vec<_> = (0..6).map(|_| lives.ended(short, true)).collect();
        let given_up = Then::GivenUp;
        assert_eq!(ends, [seconds(1), seconds(2), seconds(4), seconds(8), given_up, given_up]);
        assert_eq!(lives.ended(long, true), seconds(1), "a long one makes up for them");
        assert_eq!(lives.ended(short, true), seconds(1));
        assert_eq!(lives.ended(long, false), Then::LeftAlone);
    }

    #[test]
    fn a_replica_that_ends_at_once_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        // A shell finds no script named `start`, says so and ends.
        let homes = vec![(3, folder.path().to_owned())];
        let mut all = Supervisor::start(Path::new("sh"), homes, true).unwrap();
        let mut told = vec![];
        let again = crate::poll_until(Duration::from_secs(60), || {
            all.look(&mut |what| told.push(what.to_string()));
            (told.len() == 2).then_some(())
        });
        assert!(again.is_some(), "{told:?}");
        assert!(told[0].contains("it is started again in 1 s"), "{told:?}");
        assert!(told[1].contains("it is started again in 2 s"), "{told:?}");
        assert!(!all.is_over());
        assert_eq!(all.stop().unwrap(), 0);
    }
}
