//! `fibula rekey`: another hash key for the whole network.

use crate::remote::{Remote, answer};
use api::v1;
use command::output::{Exit, Failure, Output};
use serde::Serialize;

/// Choose another hash key, and send every switch a new table.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do it: every switch is sent a new table
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Serialize)]
struct Row {
    names: u64,
}

impl Args {
    /// # Errors
    /// Without `--yes`; those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        if !self.yes {
            let message = "a rekey sends every switch a new table, which takes as long as an import of all names; \
                           nothing is lost, and switches forward on meanwhile. Add --yes to do it";
            return Err(Failure::new(Exit::Usage, message.to_owned()));
        }
        self.remote.run(|mut client| async move {
            let names = answer(client.rekey(v1::RekeyRequest {}).await)?.changed;
            out.done(
                &Row { names },
                format!("{names} names have digests under another hash key; switches are sent new tables"),
            )
        })
    }
}
