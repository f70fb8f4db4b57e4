//! What a replica's process says on standard error: events with levels, as lines or as JSON.

use crate::clock;
use crate::failure::Failure;
use std::fmt;
use std::io;
use tracing::Subscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;

/// The environment variable that says which levels are written.
const LEVELS: &str = "TERCIO_LOG";

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Which messages to write: error, warn, info, debug, trace or off, for all or by crate, as in
    /// `warn,tercio_replica=debug` [default: the variable TERCIO_LOG, or info]
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
    /// Write each message as a JSON object on a line
    #[arg(long)]
    log_json: bool,
}

/// When a message was written.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        to.write_str(&clock::utc(clock::unix_ms()))
    }
}

/// Writes messages to standard error from now on, of this process as a whole.
pub(crate) fn begin(args: &LogArgs) -> Result<(), Failure> {
    let variable = std::env::var(LEVELS).ok();
    let levels = levels(args.log.as_deref(), variable.as_deref())?;
    let set = match args.log_json {
        true => tracing::subscriber::set_global_default(json(levels, io::stderr)),
        false => tracing::subscriber::set_global_default(text(levels, io::stderr)),
    };
    set.map_err(Failure::new)
}

/// The levels that are asked for: by the flag, or else by the variable.
fn levels(flag: Option<&str>, variable: Option<&str>) -> Result<Targets, Failure> {
    let (from, text) = match (flag, variable) {
        (Some(flag), _) => ("--log", flag),
        (None, Some(variable)) => (LEVELS, variable),
        (None, None) => ("", "info"),
    };
    let parsed: Result<Targets, _> = text.parse();
    parsed.map_err(|error| {
        let what = "write error, warn, info, debug, trace or off, as in warn,tercio_replica=debug";
        Failure::Usage(format!("{from}: '{text}' are no levels ({error}); {what}"))
    })
}

/// Lines for people: the time, the level, and the message, which has all of it.
fn text<W>(levels: Targets, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let message = debug_fn(|to, field, value| match field.name() {
        "message" => write!(to, "{value:?}"),
        _ => Ok(()),
    });
    let lines = lines::layer().with_writer(to).with_timer(Utc).with_target(false);
    let lines = lines.fmt_fields(message).log_internal_errors(false);
    tracing_subscriber::registry().with(levels).with(lines)
}

/// Objects for programs: the same, and what the message names as fields of their own.
fn json<W>(levels: Targets, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let objects = lines::layer().json().flatten_event(true).with_writer(to).with_timer(Utc);
    tracing_subscriber::registry().with(levels).with(objects.log_internal_errors(false))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written of what `say` says, as lines, without the times, and as objects.
    pub(crate) fn said(level: &str, say: impl Fn()) -> (Vec<String>, Vec<serde_json::Value>) {
        let written = |subscriber: fn(Targets, Kept) -> Box<dyn Subscriber + Send + Sync>| {
            let kept = Kept::default();
            let subscriber = subscriber(level.parse().unwrap(), kept.clone());
            tracing::subscriber::with_default(subscriber, &say);
            String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
        };
        let lines = written(|levels, to| Box::new(text(levels, move || to.clone())));
        let objects = written(|levels, to| Box::new(json(levels, move || to.clone())));
        let lines = lines.lines().map(|line| line.split_once("Z ").unwrap().1.trim().to_owned());
        let objects = objects.lines().map(|line| serde_json::from_str(line).unwrap());
        (lines.collect(), objects.collect())
    }

    #[test]
    fn a_line_has_the_message_and_an_object_its_fields() {
        let say = || {
            tracing::warn!(view = 3, cause = "request_waits", "left view 3");
            tracing::debug!("details");
        };
        let (lines, objects) = said("info", say);
        assert_eq!(lines, ["WARN left view 3"]);
        assert_eq!(objects.len(), 1);
        let object = &objects[0];
        assert_eq!((&object["level"], &object["view"]), (&"WARN".into(), &3.into()));
        assert_eq!(
            (&object["message"], &object["cause"]),
            (&"left view 3".into(), &"request_waits".into())
        );
        assert!(object["timestamp"].as_str().unwrap().ends_with('Z'), "{object}");
        assert_eq!(said("debug", say).0.len(), 2);
        assert_eq!(said("off", say).0.len(), 0);
        assert_eq!(said("warn,tercio_cli=debug", say).0.len(), 2);
    }

    #[test]
    fn the_flag_is_above_the_variable() {
        let level = |flag, variable| levels(flag, variable).unwrap().to_string();
        assert_eq!(level(None, None), "info");
        assert_eq!(level(None, Some("debug")), "debug");
        assert_eq!(level(Some("error"), Some("debug")), "error");
        let Err(Failure::Usage(why)) = levels(None, Some("a=b=c")) else { panic!("it is taken") };
        assert!(why.starts_with("TERCIO_LOG: 'a=b=c' are no levels"), "{why}");
    }
}
