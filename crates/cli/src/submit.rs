//! `tercio submit` and `tercio query`: an application's operations and questions, in its own words
//! or as bytes.

use crate::failure::Failure;
use crate::output;
use crate::session::{Session, Who};
use crate::words::Words;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use tercio_bench::figures::round;
use tercio_genesis::Shown;
use tercio_network::now;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 when every operation was executed and none was refused, 1 \
                        when the application refused one or the network gave no result, 2 for words that make no operation.")]
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
    /// Operations are bytes (hexadecimal digits, or @FILE), and so are results
    #[arg(long)]
    raw: bool,
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
    /// Whether the application refused it.
    refused: bool,
    view: u64,
    latency_us: f64,
}

/// One operation after the other, each when the one before has its result.
pub(crate) fn submit(args: &SubmitArgs) -> Result<(), Failure> {
    let words = Words::of(&args.who, args.raw)?;
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
        words.operation(line)?;
    }
    let lines: Box<dyn Iterator<Item = Result<String, Failure>>> = match named {
        Some(named) => Box::new(named.into_iter().map(Ok)),
        None => Box::new(lines("standard input", stdin().lock())),
    };
    let mut session = Session::open(&args.who)?;
    session.resume()?;
    let (mut count, mut refused) = (0_u64, 0_u64);
    for line in lines {
        count += 1;
        refused += u64::from(one(&mut session, &words, &line?, args.json)?);
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::new(format!("{refused} of {count} operation(s) were refused"))),
    }
}

/// Submits an operation and prints its result; gives whether the application refused it.
pub(crate) fn one(
    session: &mut Session,
    words: &Words,
    line: &str,
    json: bool,
) -> Result<bool, Failure> {
    let op = words.operation(line)?;
    let sent = now();
    let (number, result) = session.call(op)?;
    let Shown { text, value, refused } = words.result(&result);
    let submitted = Submitted {
        client: session.id.0,
        number: number.0,
        operation: line.trim(),
        result: value,
        refused,
        view: session.view(),
        latency_us: round(sent.elapsed().as_secs_f64() * 1e6, 1),
    };
    output::report(json, &submitted, |s| {
        output::line(&format!(
            "{text}   ({:.1} ms, number {} of client {})",
            s.latency_us / 1e3,
            s.number,
            s.client
        ));
    })?;
    Ok(refused)
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

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 for an answer, 1 when the application refused the question \
                        or the network gave no answer, 2 for words that make no question."
)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    who: Who,
    /// The question, as the application writes it
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Do not order it: take f+1 equal answers of replicas as they stand
    #[arg(long)]
    stale: bool,
    /// The question is bytes (hexadecimal digits, or @FILE), and so is the answer
    #[arg(long)]
    raw: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answered<'a> {
    question: &'a str,
    answer: Value,
    /// Whether the application refused the question.
    refused: bool,
    ordered: bool,
    height: u64,
    latency_us: f64,
}

pub(crate) fn query(args: &QueryArgs) -> Result<(), Failure> {
    let words = Words::of(&args.who, args.raw)?;
    words.question(&args.question)?;
    let mut session = Session::open(&args.who)?;
    if !args.stale {
        session.resume()?;
    }
    match ask(&mut session, &words, &args.question, args.stale, args.json)? {
        true => Err(Failure::new("the question was refused")),
        false => Ok(()),
    }
}

/// Asks a question and prints the answer; gives whether the application refused it.
pub(crate) fn ask(
    session: &mut Session,
    words: &Words,
    text: &str,
    stale: bool,
    json: bool,
) -> Result<bool, Failure> {
    let question = words.question(text)?;
    let sent = now();
    let read = if stale { session.stale_read(question)? } else { session.read(question)? };
    let shown = words.answer(&read.answer);
    let answered = Answered {
        question: text,
        answer: shown.value,
        refused: shown.refused,
        ordered: !stale,
        height: read.height.0,
        latency_us: round(sent.elapsed().as_secs_f64() * 1e6, 1),
    };
    output::report(json, &answered, |a| {
        let at = if a.ordered { "at" } else { "no older than" };
        let ms = a.latency_us / 1e3;
        output::line(&format!("{}   ({at} height {}, {ms:.1} ms)", shown.text, a.height));
    })?;
    Ok(shown.refused)
}
