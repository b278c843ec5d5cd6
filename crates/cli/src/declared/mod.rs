//! `fibula apply`, `diff` and `export`: the network as declared by the lists in a directory.
//!
//! | file | columns |
//! |---|---|
//! | `switches.csv` | `name`, and `tenants` with spaces between, if it holds the names of these only |
//! | `hosts.csv` | `name`, and `port` as switch:port |
//! | `links.csv` | `a` and `b` as switch:port; `cost`, `weight`, `state` (up, down, or as it is) |
//! | `names.csv` | `name`, `host`, `tenant`, `ip` |
//!
//! A missing list says nothing, and leaves its objects alone. Objects that a list lacks stay, too, unless `--prune` is
//! given; those that switches found by themselves stay even then, unless `--learnt` is given.
//!
//! **Steps.** Whatever is in the way goes first: links whose ports are needed, hosts that move. Then come switches and
//! hosts, names in one transaction, and links; pruning comes last. Each step is a transaction, and can be repeated:
//! after an interruption, applying again does only what is left.
//!
//! **A host that moves** leaves its old port under the name of that port, as an undeclared host, and is added at the
//! new port. Its names follow by their list, so that list must contain all declared names of the host.

mod export;
mod files;
mod names;
mod plan;
mod steps;

use crate::remote::Remote;
use command::output::{Exit, Failure, Output, write_out};
use files::Lists;
use plan::{Pruning, There};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

pub(crate) use export::Args as ExportArgs;

/// Differing names that a plan lists one by one.
const NAMES_SHOWN: usize = 20;

/// Which lists to use, and what to do with everything else.
#[derive(clap::Args)]
struct What {
    /// The directory with switches.csv, hosts.csv, links.csv and names.csv; a missing list leaves its objects alone
    #[arg(short, long, value_name = "DIR")]
    files: PathBuf,
    /// Remove what the lists lack, except what switches found by themselves
    #[arg(long)]
    prune: bool,
    /// With --prune: also remove names and hosts that were learnt and links that were found
    #[arg(long, requires = "prune")]
    learnt: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Arguments of `fibula apply`.
#[derive(clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    what: What,
    /// Carry out the plan without asking
    #[arg(long)]
    yes: bool,
}

/// Arguments of `fibula diff`.
#[derive(clap::Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    what: What,
}

impl What {
    fn pruning(&self) -> Pruning {
        Pruning { others: self.prune, learnt: self.learnt }
    }
}

impl ApplyArgs {
    /// # Errors
    /// Those of the lists and of the controller; [`Exit::Usage`] if the plan is not confirmed.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let lists = Lists::read(&self.what.files)?;
        let pruning = self.what.pruning();
        self.what.remote.run(|mut client| async move {
            let there = There::ask(&mut client).await?;
            let plan = plan::plan(&lists, &there, pruning)?;
            let shown = if out.is_json() { usize::MAX } else { NAMES_SHOWN };
            plan.print(out)?;
            let counts = names::differences(&mut client, &lists, &plan, pruning, shown, out).await?;
            if plan.is_empty() && counts.n_differ() == 0 {
                return out.done(&serde_json::json!({ "changed": 0 }), "nothing to change");
            }
            let sentence = plan.sentence(counts);
            if !self.yes && !is_wanted(&sentence)? {
                return Err(Failure::new(
                    Exit::Usage,
                    format!("{sentence}; nothing changed. Add --yes to carry out the plan"),
                ));
            }
            let changed = steps::carry_out(&mut client, &lists, plan, counts, pruning).await?;
            out.done(&serde_json::json!({ "changed": changed }), format!("{changed} changes made"))
        })
    }
}

impl DiffArgs {
    /// # Errors
    /// Those of the lists and of the controller; [`Exit::CheckFailed`] if something differs.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let lists = Lists::read(&self.what.files)?;
        let pruning = self.what.pruning();
        self.what.remote.run(|mut client| async move {
            let there = There::ask(&mut client).await?;
            let plan = plan::plan(&lists, &there, pruning)?;
            plan.print(out)?;
            let counts = names::differences(&mut client, &lists, &plan, pruning, usize::MAX, out).await?;
            if plan.is_empty() && counts.n_differ() == 0 {
                return out.done(&serde_json::json!({ "differ": 0 }), "nothing differs");
            }
            // Scripts rely on the exit code.
            Err(Failure::new(Exit::CheckFailed, plan.sentence(counts)))
        })
    }
}

/// Asks for confirmation if a terminal is there.
fn is_wanted(sentence: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    write_out("")?;
    let mut stderr = io::stderr().lock();
    write!(stderr, "{sentence}. Carry out the plan? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
