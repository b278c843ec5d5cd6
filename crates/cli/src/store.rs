//! `fibula store`: the controller's store.

use crate::remote::{Client, Remote, answer, refusal};
use ::controller::config::Place;
use ::controller::store::{Copy, EtcdTls, Repaired, RowChange, SqliteStore, StoreError, Sum, copy, put_back, repair};
use api::v1;
use command::output::{Exit, Failure, OrExit, Output, exit_of};
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum StoreCommand {
    /// Read the whole store and report damage
    Check {
        /// The store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
    },
    /// Write a verified copy in one file: of a running controller's store, while changes go on, or of a stopped one's
    Backup {
        /// The store of a stopped controller, as in controller.toml; without it, the running controller sends its own
        /// store
        #[arg(long, value_name = "FILE")]
        store: Option<PathBuf>,
        /// The file to write; must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        #[command(flatten)]
        remote: Remote,
    },
    /// Write a new store with what can be saved from a damaged one, which is only read
    Repair {
        /// The damaged store, as in controller.toml
        #[arg(long, value_name = "FILE")]
        store: PathBuf,
        /// The new store; must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Copy the store of stopped controllers to an empty place: from a file to etcd, or back
    Copy {
        /// sqlite:FILE, or etcd://HOST:PORT,HOST:PORT/PREFIX
        #[arg(value_name = "FROM")]
        from: Place,
        /// As FROM; must not contain a store yet
        #[arg(value_name = "TO")]
        to: Place,
        /// The authority that signed the certificates of etcd's members; without it, connections are unencrypted
        #[arg(long, value_name = "FILE")]
        etcd_ca: Option<PathBuf>,
        /// Our certificate for etcd
        #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
        etcd_cert: Option<PathBuf>,
        /// Its private key
        #[arg(long, value_name = "FILE", requires = "etcd_cert")]
        etcd_key: Option<PathBuf>,
    },
    /// Replace the store by a copy; the old files are renamed to FILE.replaced
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
    /// A controller is using the store, or it is damaged ([`Exit::CheckFailed`] if it can be checked nevertheless).
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
                    what.push("rows are missing or outdated".to_owned());
                }
                let what = what.join("; ");
                Err(Failure::new(
                    Exit::CheckFailed,
                    format!(
                        "{} is damaged: {what}; restore a backup, or see what `fibula store repair` can save",
                        store.display()
                    ),
                ))
            }
            StoreCommand::Backup { store, to, remote } => {
                let no_copy = |error| refused(error, "no copy was made");
                let rows = match store {
                    Some(store) => {
                        let opened = SqliteStore::open_existing(&store);
                        let message = match &opened {
                            Err(StoreError::InUse { .. }) => {
                                "leave out --store to let the running controller make the backup (--controller)"
                            }
                            _ => "the store cannot be opened",
                        };
                        opened.map_err(|error| refused(error, message))?.copy_to(&to).map_err(no_copy)?
                    }
                    None => {
                        let copy = Copy::begin(&to).map_err(no_copy)?;
                        remote.run(|client| receive(client, copy))?
                    }
                };
                let row = serde_json::json!({"rows": rows, "to": to});
                out.done(&row, format!("{rows} rows are in {}", to.display()))
            }
            StoreCommand::Repair { store, to } => {
                let repaired = repair(&store, &to).map_err(|error| refused(error, "no new store was made"))?;
                out.done(&repaired, told(&repaired, &to))?;
                if repaired.whole {
                    return Ok(());
                }
                let what = format!("{} has less than was acknowledged: the losses are listed above", to.display());
                Err(Failure::new(Exit::CheckFailed, what))
            }
            StoreCommand::Copy { from, to, etcd_ca, etcd_cert, etcd_key } => {
                let tls = etcd_ca.map(|ca| EtcdTls { ca, cert: etcd_cert, key: etcd_key });
                let rows = copy(&from, &to, tls.as_ref()).map_err(|error| refused(error, "no copy was made"))?;
                let row = serde_json::json!({"rows": rows, "from": from.to_string(), "to": to.to_string()});
                out.done(&row, format!("{rows} rows are in {to}"))
            }
            StoreCommand::Restore { from, store } => {
                let rows = put_back(&from, &store).map_err(|error| refused(error, "the store was not replaced"))?;
                let row = serde_json::json!({"rows": rows, "store": store});
                out.done(&row, format!("{} has the {rows} rows of {}", store.display(), from.display()))
            }
        }
    }
}

/// Writes what the controller sends. If dropped before its end, nothing is left behind.
async fn receive(mut client: Client, mut copy: Copy) -> anyhow::Result<u64> {
    let no_copy = |error| refused(error, "no copy was made");
    let mut parts = answer(client.backup(v1::BackupRequest {}).await)?;
    let ended = "the controller stopped before the copy was complete, so none was made; try again";
    let broken = |status| {
        let error = refusal(&status);
        if exit_of(&error) == Exit::NotFound { Err(error).or_exit(Exit::NotFound, ended) } else { Err(error) }
    };
    while let Some(part) = parts.message().await.or_else(broken)? {
        for v1::BackupRow { kind, key, value } in part.rows {
            let kind = u8::try_from(kind).or_exit(Exit::BadInput, "the controller sent a row of an unknown kind")?;
            let row = RowChange { kind, key: key.into(), value: value.map(Into::into) };
            copy.put(row).map_err(no_copy)?;
        }
        if let Some(v1::BackupEnd { term, rows, digest }) = part.end {
            let digest = digest.as_ref().try_into().map(u128::from_le_bytes).map_err(|_| {
                Failure::new(
                    Exit::BadInput,
                    "the controller sent a checksum of another kind; use the same version of fibula",
                )
            })?;
            return copy.finish(term, Sum { n_rows: rows, digest }).map_err(no_copy);
        }
    }
    Err(Failure::new(Exit::NotFound, ended))
}

/// The effects of a repair, as lines.
fn told(repaired: &Repaired, to: &std::path::Path) -> String {
    let counts = |counts: &std::collections::BTreeMap<&'static str, u64>| -> String {
        let counts: Vec<String> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
    };
    let mut lines = vec![format!("{} has {}", to.display(), counts(&repaired.saved))];
    lines.extend(repaired.notes.iter().cloned());
    if repaired.whole {
        lines.push("nothing is lost: every acknowledged change is there".to_owned());
        return lines.join("\n");
    }
    match repaired.missing_rows {
        Some(0) => {}
        Some(n) => lines.push(format!("{n} rows are missing; rows that follow from others are rebuilt")),
        None => lines.push("the number of missing rows is unknown".to_owned()),
    }
    match repaired.missing_transactions {
        0 if repaired.may_be_older => {
            lines.push("acknowledged changes may be missing: rows may be outdated".to_owned());
        }
        0 => {}
        n => lines.push(format!(
            "{n} acknowledged transactions are missing: the rows that they changed are outdated or missing"
        )),
    }
    lines.extend(repaired.gaps.iter().map(|gap| format!("missing rows: {gap}")));
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
