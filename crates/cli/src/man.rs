//! `fibula man`: the manual page of every command, generated from its `--help`. A hidden command for packagers.

use clap_mangen::Man;
use command::output::{Exit, OrExit, Output};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The end of every page. The codes are those of [`Exit`].
const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
.B 0
done
.TP
.B 1
an unexpected failure
.TP
.B 2
the command line or a configuration file is wrong
.TP
.B 3
malformed input
.TP
.B 4
not found, or no controller at this address
.TP
.B 5
refused: it exists, it is still in use, a limit, not for this role
.TP
.B 6
a check did not hold
.TP
.B 130
interrupted
";

/// Arguments of `fibula man`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(serde::Serialize)]
struct WrittenRow {
    pages: usize,
    directory: PathBuf,
}

impl Args {
    /// Writes a page for each command of `syntax` that the help shows.
    /// # Errors
    /// [`Exit::Internal`] when the directory cannot be written.
    pub(crate) fn run(self, syntax: clap::Command, out: &Output) -> anyhow::Result<()> {
        let directory = self.directory;
        let cannot = format!("cannot write pages to {}", directory.display());
        let pages = write(syntax, &directory).or_exit(Exit::Internal, cannot)?;
        let sentence = format!("{pages} pages are in {}", directory.display());
        out.done(&WrittenRow { pages, directory }, sentence)
    }
}

fn write(syntax: clap::Command, directory: &Path) -> io::Result<usize> {
    fs::create_dir_all(directory)?;
    let mut root = syntax.disable_help_subcommand(true);
    // Gives each command the name by which its page is found.
    root.build();
    let mut n_pages = 0;
    let mut left = vec![(root, None)];
    while let Some((command, parent)) = left.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        left.extend(below.map(|below| (below.clone(), Some(name.clone()))));
        let mut page = Vec::new();
        Man::new(command).manual("fibula").render(&mut page)?;
        page.extend_from_slice(EXIT_STATUS.as_bytes());
        page.extend_from_slice(see_also(parent.as_deref()).as_bytes());
        fs::write(directory.join(format!("{name}.1")), page)?;
        n_pages += 1;
    }
    Ok(n_pages)
}

fn see_also(parent: Option<&str>) -> String {
    let parent = parent.map(|name| format!(".BR {} (1),\n", name.replace('-', "\\-"))).unwrap_or_default();
    format!(".SH \"SEE ALSO\"\n{parent}.BR controller.toml (5),\n.BR switch.toml (5),\n.BR fibula (7)\n")
}
