//! The frame around the commands of a binary: it parses the global flags, starts the log, and ends with an exit
//! code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

use crate::log::{self, Format};
use crate::output::{Exit, Failure, Output};

/// The heading of the options that all commands have.
pub const GLOBAL: &str = "Global options";

/// A command line: the flags that all commands have, and the command.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub struct CommandLine<C: Subcommand> {
    /// Print one JSON object per row instead of a table
    #[arg(short = 'j', long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Log more (-v: debug, -vv: trace); FIBULA_LOG takes a full filter, for example `info,fibula_controller=debug`
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    /// Format of the log: for people, as JSON, or for the systemd journal
    #[arg(long, global = true, env = "FIBULA_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT", help_heading = GLOBAL)]
    log_format: Format,
    #[command(subcommand)]
    command: C,
}

/// Runs the command that the arguments of this process name, and returns the exit code. `syntax` is
/// [`CommandLine::command`](clap::CommandFactory::command), with changes.
pub fn run<C: Subcommand>(syntax: clap::Command, run: impl FnOnce(C, &Output) -> anyhow::Result<()>) -> ExitCode {
    let parsed = syntax.try_get_matches().and_then(|matches| CommandLine::<C>::from_arg_matches(&matches));
    let line = match parsed {
        Ok(line) => line,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            let text = error.to_string();
            return Output::new(true)
                .failure(&Failure::new(Exit::Usage, text.trim_start_matches("error: ").trim_end()));
        }
        Err(error) => error.exit(),
    };
    let out = Output::new(line.json);
    let result = log::start(line.verbose, line.log_format).and_then(|()| run(line.command, &out));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => out.failure(&error),
    }
}

/// Whether `-j` is among the arguments of a command line that does not parse.
pub fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let is_json =
        |text: &str| text == "--json" || text.starts_with('-') && !text.starts_with("--") && text.contains('j');
    arguments.skip(1).take_while(|argument| argument != "--").any(|argument| argument.to_str().is_some_and(is_json))
}
