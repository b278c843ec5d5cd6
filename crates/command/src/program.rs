//! What a binary does around its commands: it parses the flags that all commands have, logs, and ends with an exit
//! code.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::output::{Exit, Failure, Output};

/// A command line: the flags that all commands have, and the command.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub struct CommandLine<C: Subcommand> {
    /// Print one JSON object per row instead of a table
    #[arg(short = 'j', long, global = true)]
    json: bool,
    /// Log more (-v: debug, -vv: trace); FIBULA_LOG takes a full filter, for example `fibula_controller=debug`
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
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
    start_log(line.verbose);
    let out = Output::new(line.json);
    match run(line.command, &out) {
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

/// Logs to standard error, so that standard output stays a clean table or clean JSON.
fn start_log(verbose: u8) {
    let default = ["info", "debug", "trace"][usize::from(verbose.min(2))];
    let filter = EnvFilter::try_from_env("FIBULA_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal).init();
}
