//! Supervision: starts the replicas of a network as processes, watches them, and starts those again
//! that end by themselves.
//!
//! - They are settled once each of them is ready, has ended, or says nothing for half a minute. One
//!   that replays its log has time for that as long as it gets on. What keeps one from running stops
//!   none of the others; whether enough run for the network to go on is told each time that it
//!   changes.
//! - One that ends by itself, at its start or later, is started again after a second, and each time
//!   that it ends within ten seconds of its start after twice as long, up to half a minute. The fifth
//!   time in a row it is left alone: what ends it does not pass by itself (a damaged disk, say).

use crate::now;
use crate::process::{PATIENCE, ProcessError, ReplicaProcess};
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
        /// Its home.
        home: PathBuf,
    },
    /// It neither is ready nor ends.
    Late(ProcessError),
    /// Enough of them run now for the network to go on, or not any more.
    Enough {
        /// Whether they are enough.
        enough: bool,
        /// How many of those here run.
        running: usize,
        /// How many the network has.
        needs: Needs,
    },
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
            Self::Ended { how, then: Then::Again(pause), .. } => {
                write!(f, "{how}; it is started again in {} s", pause.as_secs())
            }
            Self::Ended { how, then: Then::LeftAlone, .. } => {
                write!(f, "{how}; it is left alone")
            }
            Self::Ended { how, then: Then::GivenUp, home } => write!(
                f,
                "{how}; it is left alone after {SHORT_LIVES} short lives in a row: when it is \
                 mended, `tercio start --dir {}` runs it",
                home.display()
            ),
            Self::Late(how) => how.fmt(f),
            Self::Enough { enough: true, running, needs } => {
                write!(f, "{running} of {} replicas run here: the network can go on", needs.n)
            }
            Self::Enough { enough: false, running, needs } => write!(
                f,
                "{running} of {} replicas run here: the network cannot go on, it takes {}",
                needs.n, needs.quorum
            ),
            Self::View { view, primary } => {
                write!(f, "view {view}: replica {primary} is the primary")
            }
        }
    }
}

/// How many replicas a network has, and how many of them must run for it to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// All of them, here and elsewhere.
    pub n: usize,
    /// A quorum.
    pub quorum: usize,
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
    /// Whether it was ready once, has ended, or says nothing.
    settled: bool,
    /// Why it does not run.
    why: Option<String>,
    /// Why its process could not be started, until that is told.
    failed: Option<ProcessError>,
    /// How far it was when it got on last, and when that was.
    progress: (Option<Starting>, Instant),
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
    needs: Needs,
    all: Vec<Watched>,
    view: u64,
    /// Whether enough of them run, as was told last; from when they are settled on.
    enough: Option<bool>,
}

impl Supervisor {
    /// Starts `program start` for every home of a network that needs so many. With `restarts`, those
    /// that end by themselves are started again.
    #[must_use]
    pub fn start(program: &Path, homes: Vec<(u16, PathBuf)>, restarts: bool, needs: Needs) -> Self {
        let start = |(id, home): (u16, PathBuf)| {
            let mut watched = Watched {
                id,
                home,
                process: None,
                ready: false,
                settled: false,
                why: None,
                failed: None,
                progress: (None, now()),
                said_starting: None,
                again_at: None,
                lives: Lives::default(),
                last: None,
            };
            watched.spawn(program);
            watched
        };
        let all = homes.into_iter().map(start).collect();
        Self { program: program.to_owned(), restarts, needs, all, view: 0, enough: None }
    }

    /// Looks at all of them: to be called about ten times a second, and more often until they are
    /// [settled](Self::is_settled).
    pub fn look(&mut self, tell: Tell<'_>) {
        for watched in &mut self.all {
            watched.look(&self.program, self.restarts, tell);
        }
        if !self.is_settled() {
            return;
        }
        let (enough, running) = (self.is_enough(), self.running().count());
        match self.enough.replace(enough) {
            None => self.view = self.all.iter().filter_map(Watched::view).max().unwrap_or(0),
            Some(before) if before != enough => {
                tell(Happened::Enough { enough, running, needs: self.needs });
            }
            Some(_) => {}
        }
        let newer = |watched: &&Watched| watched.view() > Some(self.view);
        let latest = self.all.iter().filter(newer).max_by_key(|watched| watched.view());
        if let Some(report) = latest.and_then(|watched| watched.last.as_ref()) {
            self.view = report.view;
            tell(Happened::View { view: report.view, primary: report.primary });
        }
    }

    /// Whether it is known of each what became of its start.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.all.iter().all(|watched| watched.settled)
    }

    /// Whether enough run for the network to go on, if all run that are elsewhere.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let elsewhere = self.needs.n.saturating_sub(self.all.len());
        self.running().count() > 0 && self.running().count() + elsewhere >= self.needs.quorum
    }

    /// What those that run said last.
    pub fn running(&self) -> impl Iterator<Item = &ReplicaReport> {
        self.all.iter().filter(|watched| watched.ready).filter_map(|w| w.last.as_ref())
    }

    /// Those that do not run, and why, as far as is known.
    pub fn down(&self) -> impl Iterator<Item = (u16, Option<&str>)> {
        let down = self.all.iter().filter(|watched| !watched.ready);
        down.map(|watched| (watched.id, watched.why.as_deref()))
    }

    /// Whether none runs, and none will be started again.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = |w: &Watched| w.process.is_none() && w.again_at.is_none() && w.failed.is_none();
        self.all.iter().all(over)
    }

    /// Puts logs aside that have grown long. One that cannot be will be looked at again.
    pub fn bound_logs(&mut self) {
        let running = self.all.iter_mut().filter_map(|watched| watched.process.as_mut());
        running.for_each(|process| drop(process.bound_log()));
    }

    /// Stops those that run in an orderly way, all at a time; how many they were.
    ///
    /// # Errors
    /// When one that was ready does not stop, or stops with a failure.
    pub fn stop(mut self) -> Result<usize, ProcessError> {
        let running = (self.all.iter_mut())
            .filter_map(|watched| Some((watched.ready, watched.process.take()?)));
        let mut running: Vec<_> = running.collect();
        running.iter_mut().for_each(|(_, process)| process.ask_to_stop());
        let count = running.len();
        let ended: Vec<_> =
            running.into_iter().map(|(ready, process)| (ready, process.stop())).collect();
        let mut of_ready = ended.into_iter().filter(|(ready, _)| *ready);
        of_ready.try_for_each(|(_, ended)| ended)?;
        Ok(count)
    }
}

impl Watched {
    /// Starts its process; why that failed is looked at as an end.
    fn spawn(&mut self, program: &Path) {
        self.progress = (None, now());
        match ReplicaProcess::spawn(program, self.id, &self.home) {
            Ok(process) => self.process = Some(process),
            Err(error) => self.failed = Some(error),
        }
    }

    fn is_ready(&mut self, report: ReplicaReport, tell: Tell<'_>) {
        let again = self.last.is_some();
        tell(Happened::Ready { again, report: Box::new(report.clone()) });
        (self.ready, self.settled, self.why) = (true, true, None);
        self.last = Some(report);
    }

    /// It ended after `life`, or could not be started.
    fn ended(&mut self, how: ProcessError, life: Duration, restarts: bool, tell: Tell<'_>) {
        (self.process, self.ready, self.said_starting) = (None, false, None);
        let then = self.lives.ended(life, restarts);
        if let Then::Again(pause) = then {
            self.again_at = Some(now() + pause);
        }
        self.settled = true;
        self.why = Some(how.to_string());
        tell(Happened::Ended { how, then, home: self.home.clone() });
    }

    /// It replays its log, or says nothing.
    fn starting(&mut self, starting: Option<Starting>, tell: Tell<'_>) {
        if let Some(starting) = starting {
            starts(self.id, starting, &mut self.said_starting, tell);
        }
        if starting != self.progress.0 {
            self.progress = (starting, now());
        } else if !self.settled && self.progress.1.elapsed() >= PATIENCE {
            let Some(process) = &self.process else { return };
            let how = process.silent("start");
            self.settled = true;
            self.why = Some(how.to_string());
            tell(Happened::Late(how));
        }
    }

    /// The view that it is in; `None` while it is in none.
    fn view(&self) -> Option<u64> {
        self.last.as_ref().filter(|report| !report.changing).map(|report| report.view)
    }

    fn look(&mut self, program: &Path, restarts: bool, tell: Tell<'_>) {
        if self.again_at.is_some_and(|at| at <= now()) {
            self.again_at = None;
            self.spawn(program);
        }
        if let Some(how) = self.failed.take() {
            return self.ended(how, Duration::ZERO, restarts, tell);
        }
        let Some(process) = &mut self.process else { return };
        let since = process.since();
        if let Err(how) = process.check() {
            return self.ended(how, since.elapsed(), restarts, tell);
        }
        let Some(report) = process.report() else {
            let starting = process.starting();
            return self.starting(starting, tell);
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
        let needs = Needs { n: 4, quorum: 3 };
        let mut all = Supervisor::start(Path::new("sh"), homes, true, needs);
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
