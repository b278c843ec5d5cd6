//! The operator's binary, `fibula`: noun, then verb.
//!
//! A subcommand is a module with a clap `Args` or `Subcommand` type (see the crate `command`), one variant of
//! [`Command`], one arm of its `match`, and one word of [`GROUPS`]. Code that only the laboratory needs belongs to
//! `fibula-lab` in the crate `repro`; [`laboratory`] passes its commands on. That binary runs the commands of this one,
//! too, with all designs: [`main_of_laboratory`].

mod answers;
mod atomic_file;
mod audit;
mod capture;
mod choices;
mod controller;
mod declared;
mod demo;
mod doctor;
mod fib;
mod filter;
mod fish;
mod flow;
mod init;
mod laboratory;
mod live;
mod log;
mod look;
mod lpm;
mod machine;
mod man;
mod pki;
mod reload;
mod remote;
mod rib;
mod rules;
mod store;
mod supervisor;
mod switch;
mod table_file;

use clap::{CommandFactory, Subcommand};
use command::output::{Output, write_out};
use command::program::{self, CommandLine};
use std::fmt::Write as _;
use std::process::ExitCode;

#[derive(Subcommand)]
enum Command {
    /// Run a whole network on this machine and see that every frame reaches the right host
    Demo(demo::Args),
    /// Run a controller (--config), or list and drain several of one store
    Controller(controller::Args),
    /// Run a switch (--config), or add and list switches at the controller
    Switch(switch::Args),
    /// Write the configuration of a controller or a switch, from flags or by asking
    ///
    /// Exit codes: 0 if the file is written, 2 if an answer is missing or wrong and there is no terminal to ask on, 4
    /// if the directory does not exist, 5 if the file exists already or may not be written, 130 if the input ends
    /// before the questions do.
    #[command(subcommand)]
    Init(init::Verb),
    /// Find out what a controller or a switch lacks on this machine, and say what to do
    ///
    /// Each line is ok (it was tried), a warning, bad (it keeps a daemon from working) or untried (with the reason).
    /// Exit codes: 0 if nothing is bad, 6 if something is, 4 if there is no configuration to check, 2 if the command
    /// line is wrong.
    Doctor(doctor::Args),
    /// Check, back up, restore or repair the store of a stopped controller
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Names, and the hosts they are attached to
    Name(rib::Noun<rib::name::Verb>),
    /// Hosts, and the switch ports they are attached to
    Host(rib::Noun<rib::host::Verb>),
    /// Multicast groups, and the names that want them
    Group(rib::Noun<rib::group::Verb>),
    /// Links between switches
    Link(rib::Noun<rib::link::Verb>),
    /// Make the network match the lists in a directory: switches, hosts, links, names; shows the plan first
    ///
    /// Exit codes: 0 if it matches now, 2 if the plan is not confirmed, 3 if a list is wrong, 5 if something cannot be
    /// done.
    Apply(declared::ApplyArgs),
    /// Show how the network differs from the lists in a directory
    ///
    /// Exit codes: 0 if nothing differs, 6 if something does, 3 if a list is wrong.
    Diff(declared::DiffArgs),
    /// Write switches, hosts, links and names as lists that `apply` reads
    Export(declared::ExportArgs),
    /// Certificates: who may reach a controller and its switches, and what they may do
    Pki(pki::Args),
    /// Choose another hash key, and send every switch a new table
    Rekey(rib::rekey::Args),
    /// Who changed what, and who was turned away
    Audit(audit::Args),
    /// Switches, their rates and drops, and events, live in a terminal
    Top(look::top::Args),
    /// Events as they happen: links, switches, hosts, changes of names
    Monitor(look::monitor::Args),
    /// Show which switches a frame to a name passes, what each does with it, and where it ends
    Trace(look::trace::Args),
    /// Connections that a switch tracks, and servers of its virtual addresses
    Flow(flow::Args),
    /// Frames at the ports of a running switch, with the reason for each drop, as lines or as pcapng
    Capture(capture::Args),
    /// FIBs offline: from a list of names to a file and back
    #[command(subcommand)]
    Fib(fib::FibCommand),
    /// Bloom filters offline: from a list of names to a file and back; tests of hash functions
    #[command(subcommand)]
    Filter(filter::FilterCommand),
    /// Tables of IP prefixes offline: from a list to a file, and the longest prefix of an address
    #[command(subcommand)]
    Lpm(lpm::LpmCommand),
    /// Rules over five-tuples offline: from a list to a file, and the rule that answers for a flow
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Print the completion script of a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// List what completions offer
    #[command(hide = true)]
    Live(live::Args),
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man(man::Args),
}

/// The commands as `fibula --help` lists them, grouped by user.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["demo", "init", "doctor", "controller", "switch", "store"]),
    ("Network", &["name", "host", "group", "link", "flow", "apply", "diff", "export"]),
    ("See", &["top", "monitor", "trace", "capture"]),
    ("Trust", &["pki", "rekey", "audit"]),
    ("Offline tables", &["fib", "filter", "lpm", "rules"]),
    ("Laboratory", &["bench", "repro"]),
    ("Other", &["completions", "help"]),
];

/// The command line of the product, without the laboratory's commands.
fn product() -> clap::Command {
    CommandLine::<Command>::command()
        .name("fibula")
        .about("Compact tables of flat names, and the controller and switches that forward by them")
}

/// The command line with all commands, and help that lists them in groups.
fn syntax() -> clap::Command {
    let mut syntax = laboratory::add_to(product());
    // Adds the `help` command.
    syntax.build();
    let heading = *syntax.get_styles().get_header();
    let mut list = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(list, "{heading}{group}:{heading:#}");
        for command in names.iter().filter_map(|name| syntax.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {:<11}  {about}", command.get_name());
        }
        list.push('\n');
    }
    syntax.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{heading}Global options:{heading:#}\n{{options}}"
    ))
}

fn run(command: Command, out: &Output) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => args.run(out),
        Command::Init(verb) => verb.run(out),
        Command::Doctor(args) => args.run(out),
        Command::Controller(args) => args.run(out),
        Command::Switch(args) => args.run(out),
        Command::Store(command) => command.run(out),
        Command::Name(args) => args.run(out),
        Command::Host(args) => args.run(out),
        Command::Group(args) => args.run(out),
        Command::Link(args) => args.run(out),
        Command::Flow(args) => args.run(out),
        Command::Apply(args) => args.run(out),
        Command::Diff(args) => args.run(out),
        Command::Export(args) => args.run(out),
        Command::Top(args) => args.run(out),
        Command::Monitor(args) => args.run(out),
        Command::Trace(args) => args.run(out),
        Command::Capture(args) => args.run(out),
        Command::Pki(args) => args.run(out),
        Command::Rekey(args) => args.run(out),
        Command::Audit(args) => args.run(out),
        Command::Fib(command) => command.run(out),
        Command::Filter(command) => command.run(out),
        Command::Lpm(command) => command.run(out),
        Command::Rules(command) => command.run(out),
        Command::Completions { shell } => {
            let (mut script, mut syntax) = (Vec::new(), laboratory::add_in_full_to(product()));
            clap_complete::generate(shell, &mut syntax, "fibula", &mut script);
            let script = String::from_utf8_lossy(&script);
            let is_fish = shell == clap_complete::Shell::Fish;
            let script = if is_fish { fish::mended(&script, &syntax) } else { script.into_owned() };
            write_out(&live::with_offers(&script, shell))
        }
        Command::Live(args) => args.run(),
        Command::Man(args) => args.run(laboratory::add_in_full_to(product()), out),
    }
}

/// Runs the command that the arguments of this process name, and returns the exit code of `fibula`.
pub fn main() -> ExitCode {
    if laboratory::is_asked_for() {
        let out = Output::new(program::asks_for_json(std::env::args_os()));
        return out.failure(&laboratory::hand_over());
    }
    program::run(syntax(), run)
}

/// As [`main`], in `fibula-lab`, for the commands that are not the laboratory's own.
pub fn main_of_laboratory() -> ExitCode {
    program::run(syntax(), run)
}

/// Whether the arguments of this process run, or ask for help on, a command that `fibula` passes on.
pub fn asks_for_laboratory() -> bool {
    laboratory::is_asked_for()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let syntax = syntax();
        let shown = syntax.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }
}
