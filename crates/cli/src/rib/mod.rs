//! The nouns of the routing table: `fibula name|host|group|link`, and `fibula switch add|del|list|show`.

pub(crate) mod controllers;
mod delete;
pub(crate) mod group;
pub(crate) mod host;
pub(crate) mod import;
pub(crate) mod link;
mod lookup;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod rekey;
pub(crate) mod replace;
mod verify;

use crate::remote::{Client, Remote, refusal};
use api::v1;
use command::output::{Exit, Failure, Output};
use fib::name::clip;
use fib::text::{Dialect, Lines, Records, column_names};
use serde::Serialize;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Response, Status};

/// The verbs of a noun: each is one conversation with the controller.
pub(crate) trait Verbs: clap::Subcommand {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    async fn run(self, client: Client, out: &Output) -> anyhow::Result<()>;
}

/// Arguments of a noun: the controller and the verb.
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

/// Prints the effect of a change: `2 names added` or `1 name added, 1 unchanged`.
fn print_changed(out: &Output, changed: v1::Changed, what: &str, verb: &str) -> anyhow::Result<()> {
    let v1::Changed { changed, unchanged, .. } = changed;
    let plural = if changed == 1 { "" } else { ["s", "es"][usize::from(what.ends_with("ch"))] };
    let already = if unchanged == 0 { String::new() } else { format!(", {unchanged} unchanged") };
    out.done(&ChangedRow { changed, unchanged }, format!("{changed} {what}{plural} {verb}{already}"))
}

/// Maximum number of wrong lines reported for a file.
const MAX_ERRORS: usize = 10;

/// Parses the lines of a file (`-` is standard input) with `read`, and returns the results with their line numbers.
/// Lines follow [`fib::text`]; `headers` are the accepted headers.
/// # Errors
/// The first wrong lines, by number.
fn records<T>(
    file: &Path,
    headers: &[&str],
    read: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<(Vec<T>, Vec<u64>)> {
    let shown = file.display();
    let (mut made, mut lines, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    let all = Records::new(Lines::new(command::input(file)?), Dialect::Plain, &[]);
    for (place, line) in all.enumerate() {
        let one = match line {
            Ok(line) if place == 0 && headers.contains(&&column_names(&line.text)[..]) => continue,
            Ok(line) => read(&line.text).map(|one| (one, line.number)).map_err(|why| line.error(why)),
            Err(error) => Err(error),
        };
        match one {
            Ok((one, number)) => {
                made.push(one);
                lines.push(number);
            }
            Err(error) => wrong.push(format!("{shown}: {error}")),
        }
        if wrong.len() == MAX_ERRORS {
            wrong.push("later lines were not checked".to_owned());
            break;
        }
    }
    match wrong.len() {
        0 => Ok((made, lines)),
        1 => Err(Failure::new(Exit::BadInput, format!("{}; nothing imported", wrong[0]))),
        _ => Err(Failure::new(Exit::BadInput, format!("{shown}: nothing imported\n{}", wrong.join("\n")))),
    }
}

/// The controller's answer to the lines of a file, all or nothing; a refusal names the refused line.
/// # Errors
/// As [`answer`](crate::remote::answer).
fn answer_of_lines<T>(asked: Result<Response<T>, Status>, file: &Path, lines: &[u64]) -> anyhow::Result<T> {
    let status = match asked {
        Ok(answer) => return Ok(answer.into_inner()),
        Err(status) => status,
    };
    let line = api::lookup::refused_item(&status).and_then(|item| lines.get(item));
    let place = line.map(|line| format!(": line {line}")).unwrap_or_default();
    Err(refusal(&status).context(format!("{}{place}; nothing imported", file.display())))
}

/// The fields of a line; their number must be in `numbers`.
/// # Errors
/// The expected format.
fn fields(text: &str, numbers: RangeInclusive<usize>, written: &str) -> Result<Vec<String>, String> {
    let fields = Dialect::Plain.fields(text)?;
    if !numbers.contains(&fields.len()) {
        return Err(format!("{} fields in `{}`: write {written}", fields.len(), clip(text)));
    }
    Ok(fields.into_iter().map(Cow::into_owned).collect())
}

/// A time in UTC, to the second.
pub(crate) fn moment(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp((unix_ms / 1000) as i64).ok();
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_default()
}
