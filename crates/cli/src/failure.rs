//! How commands fail.

use crate::output;
use clap::error::ErrorKind;
use std::fmt::{self, Display};
use std::path::Path;
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked makes no sense: exit status 2.
    Usage(String),
    /// It could not be done: exit status 1.
    Failed(String),
    /// It was asked for, and whether it was done is not known: exit status 3.
    Unknown(String),
    /// What was printed as the result says so: exit status 1, and nothing more.
    Shown,
}

impl Failure {
    /// A failure in one line.
    pub(crate) fn new(what: impl Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// A failure that has to do with a file or directory.
    pub(crate) fn at(path: &Path, what: impl Display) -> Self {
        Self::Failed(format!("{}: {what}", path.display()))
    }

    fn text(&self) -> &str {
        match self {
            Self::Usage(text) | Self::Failed(text) | Self::Unknown(text) => text,
            Self::Shown => "",
        }
    }

    /// Prints the line and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let code = match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::Unknown(_) => 3,
            Self::Shown => return ExitCode::from(1),
        };
        // An error of another crate may have line breaks; the promise is one line.
        let line = self.text().split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        // What other crates and this one advise are commands of this very program.
        let program = output::program();
        let line = line.replace("`tercio ", &format!("`{program} "));
        output::error(&format!("{program}: {line}"));
        ExitCode::from(code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Answers a command line that clap does not take: help and version as they are, an error in one
/// line.
pub(crate) fn usage(error: &clap::Error, command: &clap::Command) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::text(&error.render().to_string());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let given = std::env::args().skip(1);
            let parent = given.fold(command, |c, arg| c.find_subcommand(arg).unwrap_or(c));
            let names: Vec<_> = parent.get_subcommands().map(clap::Command::get_name).collect();
            let what = format!("a command is missing ({}); see --help", names.join(", "));
            Failure::Usage(what).report()
        }
        _ => {
            let text = error.render().to_string();
            // The message may take several lines and ends at the first empty one.
            let message: Vec<_> =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let message = message.join(" ");
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            Failure::Usage(format!("{message}; see --help")).report()
        }
    }
}
