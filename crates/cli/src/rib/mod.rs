//! The nouns of the routing table: `fibula name|host|group|link`, and `fibula switch add|del|list|show`.

pub(crate) mod controllers;
pub(crate) mod group;
pub(crate) mod host;
mod import;
pub(crate) mod link;
mod lookup;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod rekey;

use crate::remote::{Client, Remote};
use api::v1;
use command::output::{Exit, Failure, Output};
use fib::name::clip;
use fib::text::{Dialect, LineError, Lines, Records, column_names};
use serde::Serialize;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What can be done with the objects of a noun: each verb is one conversation with the controller.
pub(crate) trait Verbs: clap::Subcommand {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    async fn run(self, client: Client, out: &Output) -> anyhow::Result<()>;
}

/// Arguments of a noun: where the controller is, and what to do there.
#[derive(clap::Args)]
pub(crate) struct Noun<V: Verbs> {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    verb: V,
}

impl<V: Verbs> Noun<V> {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        self.remote.run(|client| self.verb.run(client, out))
    }
}

/// The effect of a change, as a row.
#[derive(Serialize)]
struct ChangedRow {
    changed: u64,
    unchanged: u64,
}

/// Prints the effect of a change: `2 names added` or `1 name added, 1 as asked for already`.
fn print_changed(out: &Output, changed: v1::Changed, what: &str, verb: &str) -> anyhow::Result<()> {
    let v1::Changed { changed, unchanged, .. } = changed;
    let plural = if changed == 1 { "" } else { ["s", "es"][usize::from(what.ends_with("ch"))] };
    let already = if unchanged == 0 { String::new() } else { format!(", {unchanged} as asked for already") };
    out.done(&ChangedRow { changed, unchanged }, format!("{changed} {what}{plural} {verb}{already}"))
}

/// What `read` makes of the lines of a file, or of standard input for `-`, which are those of [`fib::text`]. A header is one of
/// `headers`.
/// # Errors
/// The first line that is wrong, by its number.
fn records<T>(file: &Path, headers: &[&str], read: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<Vec<T>> {
    let wrong =
        |error: LineError| Failure::new(Exit::BadInput, format!("{}: {error}; nothing imported", file.display()));
    let mut made = Vec::new();
    let lines = Records::new(Lines::new(command::input(file)?), Dialect::Plain, &[]);
    for (place, line) in lines.enumerate() {
        let line = line.map_err(wrong)?;
        if place > 0 || !headers.contains(&&column_names(&line.text)[..]) {
            made.push(read(&line.text).map_err(|why| wrong(line.error(why)))?);
        }
    }
    Ok(made)
}

/// The fields of a line, for what takes a certain number of them.
/// # Errors
/// What to write.
fn fields(text: &str, numbers: RangeInclusive<usize>, written: &str) -> Result<Vec<String>, String> {
    let fields = Dialect::Plain.fields(text)?;
    if !numbers.contains(&fields.len()) {
        return Err(format!("{} fields in `{}`: write {written}", fields.len(), clip(text)));
    }
    Ok(fields.into_iter().map(Cow::into_owned).collect())
}

/// A moment in UTC, to the second.
pub(crate) fn moment(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp((unix_ms / 1000) as i64).ok();
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_default()
}
