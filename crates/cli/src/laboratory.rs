//! The laboratory: commands that `fibula` passes on to a second binary, `fibula-lab`, and those that name a design which
//! only that one has.
//!
//! The product links no plots, no statistics and no peer data structures. It looks for `fibula-lab` in the directory of
//! this binary, then in PATH. The arguments are passed on unchanged, so options, output and exit codes are those of
//! `fibula-lab`.

use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use command::output::{Exit, Failure};
use command::tree::Tree;
use fib::designs::{Design, UnknownDesign};

const PROGRAM: &str = "fibula-lab";

/// The commands that are passed on.
fn commands() -> [Tree; 3] {
    let hash_test = "Test hash functions by chi-squared: those of the papers, and fibula's own";
    let filter = Tree { commands: vec![Tree::leaf("hash-test", hash_test)], ..Tree::leaf("filter", "") };
    [
        Tree::leaf("bench", "Measure structures side by side"),
        Tree::leaf("repro", "Measure the tables and figures of the papers again on this machine"),
        filter,
    ]
}

/// Adds the commands that are passed on, without their subcommands.
pub(crate) fn add_to(product: clap::Command) -> clap::Command {
    commands().into_iter().fold(product, |command, tree| tree.graft(command))
}

/// Adds the commands that are passed on, with all their options if the laboratory is installed and can list them.
pub(crate) fn add_in_full_to(product: clap::Command) -> clap::Command {
    let described = Command::new(path()).arg("describe").stderr(Stdio::null()).output();
    let trees = described.ok().and_then(|output| serde_json::from_slice::<Vec<Tree>>(&output.stdout).ok());
    match trees {
        Some(trees) => trees.into_iter().fold(product, |command, tree| tree.graft(command)),
        None => add_to(product),
    }
}

/// Whether the arguments of this process run, or ask for help on, a command of the laboratory.
pub(crate) fn is_asked_for() -> bool {
    let arguments = env::args_os().skip(1).take_while(|argument| argument != "--");
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    // The options that all commands have take no values.
    let mut words: Vec<String> = arguments.filter(|argument| !argument.starts_with('-')).collect();
    if words.first().is_some_and(|word| word == "help") {
        words.remove(0);
    }
    commands().iter().any(|tree| tree.leads(&words))
}

/// Replaces this process with the laboratory, which gets its arguments. Returns only if that fails.
fn replace_this() -> std::io::Error {
    Command::new(path()).args(env::args_os().skip(1)).exec()
}

/// The design of this name. If only the laboratory has it, and is installed, the laboratory runs the whole command instead.
/// # Errors
/// [`UnknownDesign`].
pub(crate) fn design(name: &str) -> Result<&'static Design, UnknownDesign> {
    Design::by_name(name).inspect_err(|error| hand_over_if(error.is_in_laboratory()))
}

/// Replaces this process with the laboratory if it is needed and installed. Nothing must have been printed, and nothing read
/// from standard input.
pub(crate) fn hand_over_if(is_needed: bool) {
    if is_needed {
        // Where it cannot be run, the error at hand says which package has it.
        let _ = replace_this();
    }
}

/// Lets the laboratory run a controller whose configuration names one of its designs, or a command that reads it.
pub(crate) fn hand_over_if_named_in(configuration: &Path) {
    let text = std::fs::read_to_string(configuration).unwrap_or_default();
    hand_over_if(controller::config::names_laboratory(&text));
}

/// Replaces this process with the laboratory. Returns only if that fails.
pub(crate) fn hand_over() -> anyhow::Error {
    let path = path();
    let error = replace_this();
    if error.kind() != ErrorKind::NotFound {
        return Failure::new(Exit::Internal, format!("{} cannot be run: {error}", path.display()));
    }
    let text = format!(
        "this command is part of the laboratory, a second binary, and there is no `{PROGRAM}` beside this binary or in PATH: \
         build it in the source tree with `make build-lab`, or `cargo build --release -p fibula-repro`"
    );
    Failure::new(Exit::NotFound, text)
}

/// The laboratory in the directory of this binary; otherwise its bare name, which is looked for in PATH.
fn path() -> PathBuf {
    let beside = env::current_exe().map(|binary| binary.with_file_name(PROGRAM));
    beside.ok().filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}
