//! The laboratory, `fibula-lab`: the commands that `fibula` passes on, with the same arguments, and all other commands of
//! `fibula`, with the designs of the papers besides those of the product.
//!
//! It is a separate binary so that the libraries it links (plots, statistics, the peers' tables) and those designs are not
//! part of the product. `fibula` looks for it in its own directory, then in PATH.

mod bench;
mod capture;
mod figures;
mod hash_test;

use std::process::ExitCode;

use clap::{CommandFactory, Subcommand};
use command::output::{Output, write_out};
use command::program::{self, CommandLine};
use command::tree::Tree;

#[derive(Subcommand)]
enum Command {
    /// Measure structures side by side
    Bench(bench::Bench),
    /// Measure the tables and figures of the papers again on this machine
    #[command(subcommand)]
    Repro(figures::ReproCommand),
    /// Test hash functions
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Process of `bench forward --driver dpdk`, which starts it
    #[command(hide = true)]
    Node {
        /// The role of the process, as JSON
        plan: String,
    },
    /// Print the commands as JSON, for the completions of `fibula`
    #[command(hide = true)]
    Describe,
}

#[derive(Subcommand)]
enum FilterCommand {
    /// Test hash functions by chi-squared: those of the papers, and fibula's own
    HashTest(hash_test::HashTestArgs),
}

/// The command line. Usage texts say `fibula`, which is what the user typed.
fn syntax() -> clap::Command {
    CommandLine::<Command>::command().name("fibula-lab").bin_name("fibula").about("The laboratory of fibula.")
}

fn run(command: Command, out: &Output) -> anyhow::Result<()> {
    match command {
        Command::Bench(command) => command.run(out),
        Command::Repro(command) => command.run(out),
        Command::Filter(FilterCommand::HashTest(args)) => args.run(out),
        Command::Node { plan } => Ok(fibula_repro::bench::nodes::play(&plan)?),
        Command::Describe => write_out(&serde_json::to_string(&Tree::from(&syntax()).commands)?),
    }
}

/// Whether the arguments of this process run a command that only this binary has.
fn is_own(syntax: &clap::Command) -> bool {
    let first = std::env::args().nth(1);
    let hidden = syntax.get_subcommands().filter(|command| command.is_hide_set()).map(clap::Command::get_name);
    cli::asks_for_laboratory() || hidden.into_iter().any(|name| first.as_deref() == Some(name))
}

fn main() -> ExitCode {
    papers::add();
    let syntax = syntax();
    if is_own(&syntax) { program::run(syntax, run) } else { cli::main_of_laboratory() }
}
