//! `fibula store`: the controller's store.

use ::controller::store::{Repaired, SqliteStore, StoreError, put_back, repair};
use command::output::{Exit, Failure, OrExit, Output};
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything and say what is damaged
    Check {
        /// The store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
    },
    /// Write a verified copy, in one file
    Backup {
        /// The store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
        /// The copy; must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Write a new store from what is left of a damaged one, which is only read
    Repair {
        /// The damaged store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
        /// The new store; must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Put a copy in the place of the store, whose files are renamed to FILE.replaced
    Restore {
        /// The copy
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
    },
}

impl StoreCommand {
    /// # Errors
    /// A controller runs on the store; it is damaged ([`Exit::CheckFailed`] if it can be checked nevertheless).
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            StoreCommand::Check { store } => {
                let checked = open(&store)?.check();
                let checked = checked.map_err(|error| refused(error, "the store cannot be checked"))?;
                let sentence = format!(
                    "{} rows of {} committed in {} transactions",
                    checked.rows, checked.committed_rows, checked.transactions
                );
                out.done(&checked, &sentence)?;
                if checked.is_sound() {
                    return Ok(());
                }
                let mut what: Vec<String> = checked.damaged_rows.iter().map(|row| format!("row of {row}")).collect();
                what.extend(checked.file);
                if what.is_empty() {
                    what.push("rows are missing, or older than they were".to_owned());
                }
                let what = what.join("; ");
                Err(Failure::new(
                    Exit::CheckFailed,
                    format!(
                        "{} is damaged: {what}; restore a backup, or see what `fibula store repair` saves",
                        store.display()
                    ),
                ))
            }
            StoreCommand::Backup { store, to } => {
                let rows = open(&store)?.copy_to(&to).map_err(|error| refused(error, "there is no copy"))?;
                let row = serde_json::json!({"rows": rows, "to": to});
                out.done(&row, format!("{rows} rows are in {}", to.display()))
            }
            StoreCommand::Repair { store, to } => {
                let repaired = repair(&store, &to).map_err(|error| refused(error, "there is no new store"))?;
                out.done(&repaired, told(&repaired, &to))?;
                if repaired.whole {
                    return Ok(());
                }
                let what = format!("{} has less than was acknowledged: see what is lost", to.display());
                Err(Failure::new(Exit::CheckFailed, what))
            }
            StoreCommand::Restore { from, store } => {
                let rows = put_back(&from, &store).map_err(|error| refused(error, "the copy is not put back"))?;
                let row = serde_json::json!({"rows": rows, "store": store});
                out.done(&row, format!("{} has the {rows} rows of {}", store.display(), from.display()))
            }
        }
    }
}

/// What a repair did, in lines.
fn told(repaired: &Repaired, to: &std::path::Path) -> String {
    let counts = |counts: &std::collections::BTreeMap<&'static str, u64>| -> String {
        let counts: Vec<String> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    };
    let mut lines = vec![format!("{} has {}", to.display(), counts(&repaired.saved))];
    lines.extend(repaired.notes.iter().cloned());
    if repaired.whole {
        lines.push("nothing is lost: it has every acknowledged change".to_owned());
        return lines.join("\n");
    }
    match repaired.missing_rows {
        Some(0) => {}
        Some(n) => lines.push(format!("{n} rows are missing; what follows from others is made again")),
        None => lines.push("how many rows are missing is not known".to_owned()),
    }
    match repaired.missing_transactions {
        0 if repaired.may_be_older => lines.push("acknowledged changes may be missing: rows may be older".to_owned()),
        0 => {}
        n => lines.push(format!("{n} acknowledged transactions are missing: what they changed is older, or missing")),
    }
    lines.extend(repaired.gaps.iter().map(|gap| format!("missing rows were {gap}")));
    if !repaired.lost.is_empty() {
        lines.push(format!("known to be lost: {}", counts(&repaired.lost_by_kind)));
    }
    lines.extend(repaired.lost.iter().map(|lost| format!("lost: {lost}")));
    lines.join("\n")
}

fn open(path: &std::path::Path) -> anyhow::Result<SqliteStore> {
    SqliteStore::open_existing(path).map_err(|error| refused(error, "the store cannot be opened"))
}

fn refused(error: StoreError, message: &str) -> anyhow::Error {
    let exit = match &error {
        StoreError::InUse { .. } | StoreError::Exists { .. } => Exit::Refused,
        error => crate::controller::exit_of_store(error),
    };
    Err::<(), _>(error).or_exit(exit, message).err().unwrap_or_else(|| Failure::new(exit, message))
}
