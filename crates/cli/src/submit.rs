//! `tercio submit` and `tercio query`: an application's operations and questions in its own words.

use crate::failure::Failure;
use crate::output;
use crate::session::{Session, Who};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use tercio_bench::figures::round;
use tercio_genesis::App;
use tercio_network::now;

#[derive(Debug, clap::Args)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    who: Who,
    /// Operations, one an argument, as the application writes them; without any, the lines of
    /// standard input
    #[arg(value_name = "OPERATION", conflicts_with = "file")]
    operations: Vec<String>,
    /// Submit the lines of this file; empty ones and those that begin with # are passed over
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object an operation
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Submitted<'a> {
    client: u64,
    number: u64,
    operation: &'a str,
    result: Value,
    view: u64,
    latency_us: f64,
}

/// One operation after the other, each when the one before has its result.
pub(crate) fn submit(args: &SubmitArgs) -> Result<(), Failure> {
    let mut session = Session::open(&args.who)?;
    // What is named is read before anything is sent; a stream is read as it comes.
    let named = match (&args.operations[..], &args.file) {
        ([], None) => None,
        ([], Some(file)) => {
            let opened = File::open(file).map_err(|error| Failure::at(file, error))?;
            let name = file.display().to_string();
            Some(lines(&name, BufReader::new(opened)).collect::<Result<Vec<_>, _>>()?)
        }
        (given, _) => Some(given.to_vec()),
    };
    for line in named.iter().flatten() {
        operation(&session.app, line)?;
    }
    let lines: Box<dyn Iterator<Item = Result<String, Failure>>> = match named {
        Some(named) => Box::new(named.into_iter().map(Ok)),
        None => Box::new(lines("standard input", stdin().lock())),
    };
    session.resume()?;
    for line in lines {
        let line = line?;
        let op = operation(&session.app, &line)?;
        let sent = now();
        let (number, result) = session.call(op)?;
        let submitted = Submitted {
            client: session.id.0,
            number: number.0,
            operation: line.trim(),
            result: session.app.result(&result),
            view: session.view(),
            latency_us: round(sent.elapsed().as_secs_f64() * 1e6, 1),
        };
        output::report(args.json, &submitted, |s| {
            output::line(&format!(
                "{}   ({:.1} ms, number {} of client {})",
                plain(&s.result),
                s.latency_us / 1e3,
                s.number,
                s.client
            ));
        })?;
    }
    Ok(())
}

/// The lines that hold something, with the place of those that cannot be read.
fn lines(name: &str, input: impl BufRead) -> impl Iterator<Item = Result<String, Failure>> {
    let numbered = input.lines().zip(1..).map(move |(line, number): (_, u64)| {
        line.map_err(|error| Failure::new(format!("{name}, line {number}: {error}")))
    });
    numbered.filter(|line| {
        line.as_ref().is_ok_and(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#'))
            || line.is_err()
    })
}

fn operation(app: &App, line: &str) -> Result<Bytes, Failure> {
    app.operation(line).map_err(Failure::Usage)
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    who: Who,
    /// The question, as the application writes it
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Do not order it: take f+1 equal answers of replicas as they stand
    #[arg(long)]
    stale: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answered<'a> {
    question: &'a str,
    answer: Value,
    ordered: bool,
    height: u64,
    latency_us: f64,
}

pub(crate) fn query(args: &QueryArgs) -> Result<(), Failure> {
    let mut session = Session::open(&args.who)?;
    let question = session.app.question(&args.question).map_err(Failure::Usage)?;
    if !args.stale {
        session.resume()?;
    }
    let sent = now();
    let read = if args.stale { session.stale_read(question)? } else { session.read(question)? };
    let answered = Answered {
        question: &args.question,
        answer: session.app.answer(&read.answer),
        ordered: !args.stale,
        height: read.height.0,
        latency_us: round(sent.elapsed().as_secs_f64() * 1e6, 1),
    };
    output::report(args.json, &answered, |a| {
        let at = if a.ordered { "at" } else { "no older than" };
        let ms = a.latency_us / 1e3;
        let answer = plain(&a.answer);
        output::line(&format!("{answer}   ({at} height {}, {ms:.1} ms)", a.height));
    })
}

/// A text without its quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
