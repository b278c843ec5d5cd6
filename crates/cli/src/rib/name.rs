//! `fibula name`: the names of the network and the hosts they are attached to.

use crate::atomic_file::{AtomicFile, cannot_write};
use crate::remote::{Client, answer};
use crate::rib::{Verbs, delete, import, print_changed, replace};
use api::v1;
use command::output::{Output, note, to_stdout};
use command::visible::{shell_word, visible};
use serde::Serialize;
use std::net::IpAddr;
use std::path::PathBuf;

/// The verbs of `fibula name`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Add a name that does not exist yet
    Add(Put),
    /// Add a name, or move it to another host
    Set(Put),
    /// Remove names
    Del {
        /// The names
        #[arg(required_unless_present = "file")]
        names: Vec<String>,
        /// Remove the names in the first column of a CSV file, as `export` writes it (- for standard input), in
        /// transactions of 100,000
        #[arg(long, conflicts_with = "names")]
        file: Option<PathBuf>,
        /// Ignore names that do not exist
        #[arg(long)]
        ignore_missing: bool,
    },
    /// Show where a name is attached
    Show {
        /// The name, or its IP address
        name: String,
    },
    /// List names in order, a page at a time
    List {
        /// Start after this name
        #[arg(long, default_value = "")]
        after: String,
        /// Maximum number of names
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Only those whose text begins with this
        #[arg(long, default_value = "", hide_default_value = true, conflicts_with_all = ["after", "host", "ip"])]
        prefix: String,
        /// Only those with this IP address, or an address in this prefix: 10.0.0.7, 10.1.0.0/16
        #[arg(long, default_value = "", hide_default_value = true)]
        ip: String,
        /// Only those at this host
        #[arg(long, default_value = "", hide_default_value = true)]
        host: String,
    },
    /// Show how many names there are, and the maximum
    Count,
    /// Add or move names from a CSV file with the columns name, host, and optionally tenant and ip
    ///
    /// Checks the whole file before sending anything. Names of earlier imports that the file lacks stay, unless
    /// --replace is given.
    Import {
        /// The file, or - for standard input
        file: PathBuf,
        /// Names per transaction. A batch changes most shards of the table, so few big ones are fastest; the controller
        /// needs about 600 bytes of memory for each name of the batch in progress [default: a fortieth of the file,
        /// 20000 to 100000]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        batch: Option<u32>,
        /// Remove declared names that the file lacks: the names become exactly those of the file, in one transaction.
        /// The controller needs about 600 bytes of memory for each name that differs
        #[arg(long, conflicts_with = "batch")]
        replace: bool,
        /// With --replace: also remove learnt names. Those that still send are learnt again
        #[arg(long, requires = "replace")]
        learnt: bool,
        /// Change nothing, and print the differences
        #[arg(long, conflicts_with = "batch")]
        dry_run: bool,
    },
    /// Write all names as a CSV that import reads
    Export {
        /// The file; standard output if absent or -. It is complete or not there: it is first written under another
        /// name
        file: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
pub(crate) struct Put {
    /// The name, of the kind that the controller is configured for
    name: String,
    /// The host it is attached to
    host: String,
    /// Its tenant
    #[arg(long, default_value_t = 0)]
    tenant: u32,
    /// The address for which ARP or neighbour discovery answers with this name
    #[arg(long)]
    ip: Option<IpAddr>,
}

/// The addresses of a name, for people to read.
pub(super) fn addresses(record: &v1::NameRecord) -> String {
    [&record.ip]
        .into_iter()
        .chain(&record.more_ips)
        .map(String::as_str)
        .filter(|ip| !ip.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A name as a row.
#[derive(Serialize)]
pub(crate) struct NameRow {
    name: String,
    host: String,
    tenant: u32,
    ip: Option<String>,
}

impl From<v1::NameRecord> for NameRow {
    fn from(record: v1::NameRecord) -> Self {
        let ip = Some(addresses(&record)).filter(|ip| !ip.is_empty());
        NameRow { name: record.name, host: record.host, tenant: record.tenant, ip }
    }
}

#[derive(Serialize)]
struct CountRow {
    names: u64,
    max_names: u64,
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add(put) => {
                let changed = answer(client.put_names(put.request(true)).await)?;
                print_changed(out, changed, "name", "added")
            }
            Verb::Set(put) => {
                let changed = answer(client.put_names(put.request(false)).await)?;
                print_changed(out, changed, "name", "set")
            }
            Verb::Del { file: Some(file), ignore_missing, .. } => delete::run(client, &file, ignore_missing, out).await,
            Verb::Del { names, ignore_missing, .. } => {
                let changed = answer(client.remove_names(v1::RemoveNamesRequest { names, ignore_missing }).await)?;
                print_changed(out, changed, "name", "removed")
            }
            Verb::Show { name } => {
                let record =
                    answer(client.get_name(v1::GetNameRequest { name, ..v1::GetNameRequest::default() }).await)?;
                out.rows(&[NameRow::from(record)])
            }
            Verb::List { after, limit, prefix, ip, host } => {
                let goes_on = prefix.is_empty();
                let asked = asked(&prefix, &ip, &host);
                let may_be_address = prefix.contains('.') && prefix.chars().all(|c| c == '.' || c.is_ascii_digit());
                let ask = v1::ListNamesRequest { after, limit, learnt: false, prefix, host, ip };
                let page = answer(client.list_names(ask).await)?;
                if page.names.is_empty() && !asked.is_empty() {
                    // The beginning of an address may begin a name, too: 10.1 does, of a MAC address.
                    let hint = if may_be_address { "; --ip finds names by their IP addresses" } else { "" };
                    eprintln!("fibula: no name {asked}{hint}");
                }
                let next = page.names.last().filter(|_| page.more).map(|last| last.name.clone());
                out.rows(&page.names.into_iter().map(NameRow::from).collect::<Vec<_>>())?;
                if page.more && !goes_on {
                    eprintln!("there may be more names; give a longer --prefix");
                } else if let Some(next) = next {
                    note(format!("there are more names; continue with --after {}", shell_word(&next)));
                }
                Ok(())
            }
            Verb::Count => {
                let v1::Status { names, max_names, .. } = answer(client.get_status(v1::GetStatusRequest {}).await)?;
                out.done(&CountRow { names, max_names }, format!("{names} names of at most {max_names}"))
            }
            Verb::Import { file, batch, replace, learnt, dry_run } => {
                let options = replace::Options { dry_run, keep_others: !replace, remove_learnt: learnt };
                import::run(client, &file, batch, (replace || dry_run).then_some(options), out).await
            }
            Verb::Export { file } => export(client, file, out).await,
        }
    }
}

/// The conditions of a list in words; empty if all names are listed.
fn asked(prefix: &str, ip: &str, host: &str) -> String {
    let word = |what: &str, of: &str| (!of.is_empty()).then(|| format!("{what} `{}`", visible(of)));
    let address = if ip.contains('/') { "has an address of" } else { "has the address" };
    let words = [word("begins with", prefix), word(address, ip), word("is at host", host)];
    words.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

impl Put {
    fn request(self, only_new: bool) -> v1::PutNamesRequest {
        let Put { name, host, tenant, ip } = self;
        let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
        v1::PutNamesRequest {
            names: vec![v1::NameRecord { name, host, tenant, ip, ..v1::NameRecord::default() }],
            only_new,
        }
    }
}

#[derive(Serialize)]
struct ExportRow {
    exported: u64,
    file: PathBuf,
}

async fn export(mut client: Client, file: Option<PathBuf>, out: &Output) -> anyhow::Result<()> {
    let mut batches = answer(client.export_names(v1::ExportNamesRequest {}).await)?;
    let Some(file) = file.filter(|file| !AtomicFile::is_stdout(file)) else {
        let mut writer = import::writer(std::io::stdout().lock());
        if !out.is_json() {
            writer.write_record(import::HEADER).map_err(csv_to_stdout)?;
        }
        while let Some(batch) = batches.message().await.map_err(|s| crate::remote::refusal(&s))? {
            if out.is_json() {
                out.rows(&batch.names.into_iter().map(NameRow::from).collect::<Vec<_>>())?;
            } else {
                write_batch(&mut writer, &batch).map_err(csv_to_stdout)?;
                writer.flush().map_err(to_stdout)?;
            }
        }
        return Ok(());
    };
    let target = AtomicFile::create(&file, 0o666)?;
    let mut writer = import::writer(std::io::BufWriter::new(target));
    writer.write_record(import::HEADER)?;
    let total = answer(client.get_status(v1::GetStatusRequest {}).await)?.names;
    let bar = import::progress_bar(total, "exported");
    while let Some(batch) = batches.message().await.map_err(|s| crate::remote::refusal(&s))? {
        write_batch(&mut writer, &batch)?;
        bar.inc(batch.names.len() as u64);
    }
    let written = writer.into_inner().map_err(|e| cannot_write(&file, e.error()))?;
    written.into_inner().map_err(|e| cannot_write(&file, e.error()))?.finish()?;
    bar.finish_and_clear();
    let exported = bar.position();
    let sentence = format!("{exported} names written to {}", file.display());
    out.done(&ExportRow { exported, file }, sentence)
}

fn csv_to_stdout(error: csv::Error) -> anyhow::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => to_stdout(error),
        other => anyhow::anyhow!("{other:?}"),
    }
}

fn write_batch<W: std::io::Write>(writer: &mut csv::Writer<W>, batch: &v1::NameBatch) -> csv::Result<()> {
    for v1::NameRecord { name, host, tenant, ip, .. } in &batch.names {
        writer.write_record([name, host, &tenant.to_string(), ip])?;
    }
    Ok(())
}
