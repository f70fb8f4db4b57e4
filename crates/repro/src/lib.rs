//! Published figures, made again and graded.
//!
//! A [`Figure`] is a TOML file: what was published, which runs of a program give its points, and what
//! it claims. A [`Runner`] has a [`Program`] make its runs, in turns (A B A B), keeps what each printed
//! in a [`Journal`], and goes on from there when it was interrupted. [`grade()`] turns what was
//! [`Measured`] into medians with bootstrap intervals, and each [`Claim`] into a [`Verdict`] with its
//! reason. [`write()`] puts that into files: CSV, a [`Picture`] as SVG, one HTML page and a table.
//!
//! A verdict says what the interval of the claim's value shows, never less than that:
//!
//! | verdict | of `value >= bound` (`<=` is its mirror image) |
//! |---|---|
//! | REPRODUCED | the whole interval is above the bound less its tolerance |
//! | TREND-ONLY | it is above the trend line; where a claim has none, the median is above the bound |
//! | NOT-REPRODUCED | neither |
//! | NOT-TESTABLE-HERE | there is nothing to grade: the claim waits for something, the machine is too small, or a run failed |
//!
//! A figure's verdict is the worst of its claims that can be tested.
//!
//! Architecture invariant: nothing here knows the product. It has a program's path, command lines,
//! and the JSON object that the program prints as its last line.

mod claim;
mod environment;
mod expression;
mod figure;
mod figures;
mod files;
mod grade;
mod journal;
mod picture;
mod points;
mod program;
mod report;
mod runner;

pub use claim::{Claim, Verdict};
pub use environment::{Environment, EnvironmentError, Host};
pub use expression::{EvalError, Expression, ParseError};
pub use figure::{Axis, Effort, Figure, FigureError, Needs, Published, Runs, Series};
pub use figures::{built_in, from_dir};
pub use files::{FilesError, write};
pub use grade::{ClaimOutcome, Outcome, Point, State, grade, state};
pub use journal::{Journal, JournalError, Key, Record};
pub use picture::{Mark, Picture, PictureError, Trace};
pub use points::{Measured, Points, PointsError, X};
pub use program::{Launch, Program, RunError};
pub use report::{html, markdown};
pub use runner::{Done, Progress, Runner, StopError, cost_s};
