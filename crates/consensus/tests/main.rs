//! The crate's integration tests, one program; a file here that is no module of it is listed in
//! Cargo.toml as a program of its own.

mod bytes;
mod byzantine;
mod causes;
mod clock;
mod common;
mod doubts;
mod full;
mod laggard;
mod learner;
mod normal;
mod overtaken;
mod promises;
mod selection;
mod timers;
mod view_change;
