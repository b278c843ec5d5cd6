//! The nouns of the routing table: `fibula name|host|link`, and `fibula switch add|del|list|show`.

pub(crate) mod host;
mod import;
pub(crate) mod link;
mod lookup;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod rekey;

use crate::remote::{Client, Remote};
use api::v1;
use command::output::Output;
use serde::Serialize;

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
    let v1::Changed { changed, unchanged } = changed;
    let plural = if changed == 1 { "" } else { ["s", "es"][usize::from(what.ends_with("ch"))] };
    let already = if unchanged == 0 { String::new() } else { format!(", {unchanged} as asked for already") };
    out.done(&ChangedRow { changed, unchanged }, format!("{changed} {what}{plural} {verb}{already}"))
}
