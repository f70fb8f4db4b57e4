//! `tercio completions`, `tercio man`: what shells and `man` want to know of the command line.

use crate::Cli;
use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// A directory that exists, to write a page for each command to; without it the program's own
    /// page is printed
    dir: Option<PathBuf>,
}

/// Prints the completion script, for the name by which the program was called.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut command = Cli::command();
    let called = std::env::args_os().next().map(PathBuf::from);
    let called = called.as_deref().and_then(|path| path.file_name()?.to_str());
    let name = called.unwrap_or(command.get_name()).to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    print(script)
}

/// Prints the manual page, or writes all of them.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    if let Some(dir) = &args.dir {
        return clap_mangen::generate_to(Cli::command(), dir)
            .map_err(|error| Failure::at(dir, error));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::new)?;
    print(page)
}

fn print(text: Vec<u8>) -> Result<(), Failure> {
    output::text(&String::from_utf8(text).map_err(Failure::new)?);
    Ok(())
}
