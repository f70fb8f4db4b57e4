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
use tercio_client::OpResult;
use tercio_genesis::Shown;
use tercio_network::now;
use tercio_types::RequestSeq;

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 when every operation was executed and none was refused, 1 \
                        when one was refused or could not be sent, 2 for words that make no \
                        operation, 3 when one has no result in time and may have been executed: \
                        ask for its number with --ask before anything else is submitted. With --ask: \
                        0 when the number was executed and not refused, 1 otherwise, 3 while it is \
                        open.")]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    who: Who,
    /// Operations, one an argument, as the application writes them; without any, the lines of
    /// standard input
    #[arg(value_name = "OPERATION", conflicts_with = "file")]
    operations: Vec<String>,
    /// Submit nothing: say what became of this number of the client, which had no result in time
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["file", "operations"],
          value_parser = clap::value_parser!(u64).range(1..))]
    ask: Option<u64>,
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
    /// Whether it had no result in time, and may have been executed.
    unknown: bool,
    view: u64,
    latency_us: f64,
}

/// What became of a number.
#[derive(Serialize)]
struct Asked {
    client: u64,
    number: u64,
    /// `executed`, `open` (not so far), `void` (used up without effect), or `forgotten` (used, and
    /// what it gave is not kept any more).
    state: &'static str,
    result: Value,
    /// Whether it was refused.
    refused: bool,
}

/// What became of a number of the client, and what that means for an operation under it.
fn ask_number(args: &SubmitArgs, words: &Words, number: u64) -> Result<(), Failure> {
    let mut session = Session::open(&args.who)?;
    let (result, unused) = (session.ask_number(RequestSeq(number))?, session.unused());
    let mut asked = Asked {
        client: session.id.0,
        number,
        state: "executed",
        result: Value::Null,
        refused: false,
    };
    let mut say = |state, text: String| {
        asked.state = state;
        text
    };
    let text = match result {
        Some(OpResult::Executed(bytes)) => {
            let Shown { text, value, refused } = words.result(&bytes);
            (asked.result, asked.refused) = (value, refused);
            format!("{text}   (number {number} was executed)")
        }
        Some(OpResult::NoLongerKept) => say(
            "forgotten",
            format!("number {number} was used, and what it gave is not kept any more"),
        ),
        Some(OpResult::Unsupported) => say(
            "void",
            format!(
                "number {number} was used up without effect: what was under it is never executed"
            ),
        ),
        Some(OpResult::Declined(why)) => {
            asked.refused = true;
            format!("refused: {}   (number {number})", String::from_utf8_lossy(&why))
        }
        Some(_) => {
            asked.refused = true;
            format!("number {number} was executed and aborted: it changed nothing")
        }
        None if number >= unused.0 => {
            say("open", format!("number {number} was not used so far; the next is {unused}"))
        }
        None => say(
            "open",
            format!(
                "number {number} is not executed so far, and may be yet; the client's next operation \
                 uses it up first, and what was under it is never executed then"
            ),
        ),
    };
    output::report(args.json, &asked, |_| output::line(&text))?;
    match asked.state {
        "executed" if !asked.refused => Ok(()),
        "open" => Err(Failure::Unknown(format!("number {number} is open"))),
        _ => Err(Failure::Shown),
    }
}

/// One operation after the other, each when the one before has its result.
pub(crate) fn submit(args: &SubmitArgs) -> Result<(), Failure> {
    let words = Words::of(&args.who, args.raw)?;
    if let Some(number) = args.ask {
        return ask_number(args, &words, number);
    }
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
    let (number, result) = session.call(op);
    let mut submitted = Submitted {
        client: session.id.0,
        number: number.0,
        operation: line.trim(),
        result: Value::Null,
        refused: false,
        unknown: false,
        view: session.view(),
        latency_us: round(sent.elapsed().as_secs_f64() * 1e6, 1),
    };
    let Shown { text, value, refused } = match result {
        Ok(result) => words.result(&result),
        Err(failure) => {
            submitted.unknown = matches!(failure, Failure::Unknown(_));
            if json && submitted.unknown {
                output::report(json, &submitted, |_| ())?;
            }
            return Err(failure);
        }
    };
    (submitted.result, submitted.refused) = (value, refused);
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
