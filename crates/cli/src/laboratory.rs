//! The laboratory: commands that `fibula` hands over to a second binary, `fibula-lab`.
//!
//! The product links no plots, no statistics and no peer data structures. `fibula-lab` is looked for beside this binary,
//! then in PATH, and gets the arguments as they are; so options, output and exit codes are its own.

use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use command::output::{Exit, Failure};
use command::tree::Tree;

const PROGRAM: &str = "fibula-lab";

/// The commands that are handed over.
fn commands() -> [Tree; 3] {
    let hash_test = "Test hash functions by chi-squared: those of the papers, and fibula's own";
    let filter = Tree { commands: vec![Tree::leaf("hash-test", hash_test)], ..Tree::leaf("filter", "") };
    [
        Tree::leaf("bench", "Measure structures side by side"),
        Tree::leaf("repro", "The tables and figures of the papers, measured again on this machine"),
        filter,
    ]
}

/// Adds the commands that are handed over, without what is below them.
pub(crate) fn add_to(product: clap::Command) -> clap::Command {
    commands().into_iter().fold(product, |command, tree| tree.graft(command))
}

/// Adds the commands that are handed over, with all their options where the laboratory is there to tell them.
pub(crate) fn add_in_full_to(product: clap::Command) -> clap::Command {
    let described = Command::new(path()).arg("describe").stderr(Stdio::null()).output();
    let trees = described.ok().and_then(|output| serde_json::from_slice::<Vec<Tree>>(&output.stdout).ok());
    match trees {
        Some(trees) => trees.into_iter().fold(product, |command, tree| tree.graft(command)),
        None => add_to(product),
    }
}

/// Whether the arguments of this process, or what they ask help for, are a command of the laboratory.
pub(crate) fn is_asked_for() -> bool {
    let arguments = env::args_os().skip(1).take_while(|argument| argument != "--");
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    // The options of all commands take no values.
    let mut words: Vec<String> = arguments.filter(|argument| !argument.starts_with('-')).collect();
    if words.first().is_some_and(|word| word == "help") {
        words.remove(0);
    }
    commands().iter().any(|tree| tree.leads(&words))
}

/// Becomes the laboratory. Returns only when that fails.
pub(crate) fn hand_over() -> anyhow::Error {
    let path = path();
    let error = Command::new(&path).args(env::args_os().skip(1)).exec();
    if error.kind() != ErrorKind::NotFound {
        return Failure::new(Exit::Internal, format!("{} cannot be run: {error}", path.display()));
    }
    let text = format!(
        "this command is part of the laboratory, a second binary, and there is no `{PROGRAM}` beside this binary or in PATH: \
         build it in the source tree with `make build-lab`, or `cargo build --release -p fibula-repro`"
    );
    Failure::new(Exit::NotFound, text)
}

/// The laboratory beside this binary; otherwise its name, which is looked for in PATH.
fn path() -> PathBuf {
    let beside = env::current_exe().map(|binary| binary.with_file_name(PROGRAM));
    beside.ok().filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}
