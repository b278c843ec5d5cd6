//! `fibula name import --replace` and `--dry-run`: the names become those of a file, in one transaction, or the
//! differences are reported.
//!
//! The file goes to the controller in requests of bounded size. The controller compares it with the names that exist at
//! the moment of the change, so no other change comes between.

use super::import::{self, Source};
use crate::remote::{Client, refusal};
use api::v1;
use command::output::{Exit, Failure, Output, write_out};
use command::visible::visible;
use fib::name::NameKind;
use serde::Serialize;
use tokio::sync::mpsc;
use tonic::Streaming;

/// Names per request, and bytes of text after which one is full.
const REQUEST_NAMES: usize = 5000;
const REQUEST_BYTES: usize = 1 << 20;

/// What to do with other names, and whether to change anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) dry_run: bool,
    pub(crate) keep_others: bool,
    pub(crate) remove_learnt: bool,
}

/// Counts of names by difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) removed: u64,
    pub(crate) unchanged: u64,
}

impl Counts {
    pub(crate) fn count(&mut self, difference: &v1::NameDifference) {
        match (&difference.before, &difference.after) {
            (None, _) => self.added += 1,
            (Some(_), None) => self.removed += 1,
            (Some(_), Some(_)) => self.changed += 1,
        }
    }

    /// Names that differ.
    pub(crate) fn n_differ(self) -> u64 {
        self.added + self.changed + self.removed
    }

    /// For example `3 to be added, 1 to be changed, 0 to be removed, 7 unchanged`.
    pub(crate) fn sentence(self) -> String {
        let Counts { added, changed, removed, unchanged } = self;
        format!("{added} to be added, {changed} to be changed, {removed} to be removed, {unchanged} unchanged")
    }
}

/// A name that differs, as a row of JSON.
#[derive(Serialize)]
struct DifferenceRow<'a> {
    change: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Side<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Side<'a>>,
}

/// The current or the wanted place of a name.
#[derive(Serialize)]
struct Side<'a> {
    host: &'a str,
    tenant: u32,
    ip: Option<&'a str>,
    learnt: bool,
}

fn side(record: &v1::NameRecord) -> Side<'_> {
    let v1::NameRecord { host, tenant, ip, learnt_ms, .. } = record;
    Side { host, tenant: *tenant, ip: (!ip.is_empty()).then_some(ip), learnt: *learnt_ms > 0 }
}

fn row(v1::NameDifference { before, after }: &v1::NameDifference) -> Option<DifferenceRow<'_>> {
    let (change, record) = match (before, after) {
        (None, Some(after)) => ("add", after),
        (Some(before), None) => ("remove", before),
        (Some(before), Some(_)) => ("change", before),
        (None, None) => return None,
    };
    Some(DifferenceRow {
        change,
        name: &record.name,
        before: before.as_ref().map(side),
        after: after.as_ref().map(side),
    })
}

/// Prints differences as lines: `+` to be added, `~` to be changed, `-` to be removed.
pub(crate) fn print(differences: &[v1::NameDifference], out: &Output) -> anyhow::Result<()> {
    if out.is_json() {
        return out.rows(&differences.iter().filter_map(row).collect::<Vec<_>>());
    }
    write_out(&differences.iter().map(|difference| line(difference) + "\n").collect::<String>())
}

/// One difference as a line.
pub(crate) fn line(v1::NameDifference { before, after }: &v1::NameDifference) -> String {
    let whole = |record: &v1::NameRecord| {
        let v1::NameRecord { name, host, tenant, ip, .. } = record;
        let tenant = if *tenant == 0 { String::new() } else { format!(", tenant {tenant}") };
        let ip = if ip.is_empty() { String::new() } else { format!(", address {ip}") };
        format!("name {} at {}{tenant}{ip}", visible(name), visible(host))
    };
    match (before, after) {
        (None, Some(after)) => format!("+ {}", whole(after)),
        (Some(before), None) => format!("- {}", whole(before)),
        (Some(before), Some(after)) => {
            let or_none = |ip: &str| if ip.is_empty() { "none".to_owned() } else { ip.to_owned() };
            let changes = [
                ("host", before.host.clone(), after.host.clone()),
                ("tenant", before.tenant.to_string(), after.tenant.to_string()),
                ("address", or_none(&before.ip), or_none(&after.ip)),
            ];
            let changed = changes.into_iter().filter(|(_, before, after)| before != after);
            let mut words: Vec<String> = changed
                .map(|(what, before, after)| format!("{what} {} -> {}", visible(&before), visible(&after)))
                .collect();
            if before.learnt_ms > 0 {
                words.push("declared, no longer learnt".to_owned());
            }
            format!("~ name {}: {}", visible(&before.name), words.join(", "))
        }
        (None, None) => String::new(),
    }
}

/// Sends the names of a checked file, and returns the controller's answers.
/// # Errors
/// Those of the controller, and of a file that changed since the check.
pub(crate) async fn ask(
    client: &mut Client,
    (source, kind): (Box<dyn Source>, NameKind),
    options: Options,
) -> anyhow::Result<Streaming<v1::NameDifferences>> {
    let (requests, stream) = mpsc::channel(2);
    // Ends when the controller has everything, or wants no more: the check has already found errors in the file.
    tokio::task::spawn_blocking(move || send(source, kind, options, &requests));
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    crate::remote::answer(client.replace_names(stream).await)
}

/// Sends all names and the end mark, which is left out if the file cannot be read to its end.
fn send(
    mut source: Box<dyn Source>,
    kind: NameKind,
    options: Options,
    requests: &mpsc::Sender<v1::ReplaceNamesRequest>,
) -> Option<()> {
    let Options { dry_run, keep_others, remove_learnt } = options;
    let first = v1::ReplaceNamesRequest { dry_run, keep_others, remove_learnt, ..v1::ReplaceNamesRequest::default() };
    let (mut request, mut n_bytes) = (first, 0);
    for record in import::records(&mut *source, kind) {
        let record = record.ok()?;
        request.names.push(import::parse(&record).ok()?);
        n_bytes += record.fields.iter().map(String::len).sum::<usize>();
        if request.names.len() == REQUEST_NAMES || n_bytes >= REQUEST_BYTES {
            n_bytes = 0;
            requests.blocking_send(std::mem::take(&mut request)).ok()?;
        }
    }
    request.end = true;
    requests.blocking_send(request).ok()
}

/// Reads the controller's answers to their end; passes on each page of differences, and returns the changes made.
/// # Errors
/// Those of the controller, and of `page`.
pub(crate) async fn read(
    mut answers: Streaming<v1::NameDifferences>,
    mut page: impl FnMut(&[v1::NameDifference]) -> anyhow::Result<()>,
) -> anyhow::Result<v1::Changed> {
    while let Some(v1::NameDifferences { names, changed }) = answers.message().await.map_err(|s| refusal(&s))? {
        page(&names)?;
        if let Some(changed) = changed {
            return Ok(changed);
        }
    }
    Err(Failure::new(Exit::NotFound, "the controller ended its answer early; try again"))
}

/// `fibula name import` with `--replace` or `--dry-run`.
/// # Errors
/// Those of the file and of the controller.
pub(crate) async fn run(
    mut client: Client,
    (source, kind): (Box<dyn Source>, NameKind),
    n_names: u64,
    (shown, options): (&str, Options),
    out: &Output,
) -> anyhow::Result<()> {
    if n_names == 0 && !options.keep_others {
        let why = format!(
            "{shown}: it contains no names, and all names would be removed; nothing changed. `fibula name del` removes names"
        );
        return Err(Failure::new(Exit::BadInput, why));
    }
    let answers = ask(&mut client, (source, kind), options).await?;
    let mut counts = Counts::default();
    let changed = read(answers, |differences| {
        differences.iter().for_each(|difference| counts.count(difference));
        print(differences, out)
    });
    let v1::Changed { changed, unchanged, .. } = changed.await?;
    if options.dry_run {
        counts.unchanged = unchanged;
        return out.done(&counts, format!("nothing changed: {}", counts.sentence()));
    }
    let row = serde_json::json!({ "names": n_names, "changed": changed, "unchanged": n_names.saturating_sub(changed) });
    out.done(&row, format!("the names are now those of {shown}: {n_names} names, {changed} changes made"))
}
