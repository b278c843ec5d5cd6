//! The one binary, `fibula`: noun, then verb.
//!
//! A subcommand is a module with a clap `Args` or `Subcommand` type that has `run(self, &Output) -> anyhow::Result<()>`,
//! one variant of [`Command`] and one arm of its `match`. Results go to standard output through [`Output`] (a table, or
//! one JSON object a row with `-j`); logs, progress and errors go to standard error. The exit code says what kind of
//! failure it was: see [`output::Exit`].

mod bench;
mod controller;
mod demo;
mod fib;
mod filter;
mod flow;
mod lines;
mod lpm;
mod output;
mod remote;
mod repro;
mod rib;
mod switch;
mod whole;

use clap::{CommandFactory, Parser, Subcommand};
use output::{Exit, Failure, Output};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Names, compact FIBs and the switches that forward by them.
#[derive(Parser)]
#[command(name = "fibula", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// Print one JSON object a row instead of a table
    #[arg(short = 'j', long, global = true)]
    json: bool,
    /// Log more (-v: debug, -vv: trace); FIBULA_LOG takes a full filter, for example `fibula_controller=debug`
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole network on this machine and see that every frame reaches the right host
    Demo(demo::Args),
    /// Run the controller
    Controller(controller::Args),
    /// Run a switch (--config), or tell the controller of switches
    Switch(switch::Args),
    /// Names and the hosts they hang off
    Name(rib::Noun<rib::name::Verb>),
    /// Hosts and the switch ports they hang at
    Host(rib::Noun<rib::host::Verb>),
    /// Links between switches
    Link(rib::Noun<rib::link::Verb>),
    /// Connections that a switch tracks, and servers of its virtual addresses
    Flow(flow::Args),
    /// FIBs offline: from a list of names to a file and back
    #[command(subcommand)]
    Fib(fib::FibCommand),
    /// Bloom filters offline: from a list of names to a file and back; tests of hash functions
    #[command(subcommand)]
    Filter(filter::FilterCommand),
    /// Tables of IP prefixes offline: from a list to a file, and the longest prefix of an address
    #[command(subcommand)]
    Lpm(lpm::LpmCommand),
    /// Measure structures side by side
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// The tables and figures of the papers, measured again on this machine
    #[command(subcommand)]
    Repro(repro::ReproCommand),
    /// Print the completion script of a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

impl Command {
    fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Command::Demo(args) => args.run(out),
            Command::Controller(args) => args.run(out),
            Command::Switch(args) => args.run(out),
            Command::Name(args) => args.run(out),
            Command::Host(args) => args.run(out),
            Command::Link(args) => args.run(out),
            Command::Flow(args) => args.run(out),
            Command::Fib(command) => command.run(out),
            Command::Filter(command) => command.run(out),
            Command::Lpm(command) => command.run(out),
            Command::Bench(command) => command.run(out),
            Command::Repro(command) => command.run(out),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "fibula", &mut script);
                output::write_out(&String::from_utf8_lossy(&script))
            }
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            let text = error.to_string();
            return Output::new(true)
                .failure(&Failure::new(Exit::Usage, text.trim_start_matches("error: ").trim_end()));
        }
        Err(error) => error.exit(),
    };
    start_log(cli.verbose);
    let out = Output::new(cli.json);
    match cli.command.run(&out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => out.failure(&error),
    }
}

/// Whether `-j` is among the arguments of a command line that does not parse.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
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
