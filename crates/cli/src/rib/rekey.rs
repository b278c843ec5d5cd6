//! `fibula rekey`: a new hash key for the whole network.

use crate::remote::{Remote, answer};
use api::v1;
use command::output::{Exit, Failure, Output};
use serde::Serialize;

/// Chooses another hash key, and sends every switch a new table.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Carry out the rekey: every switch is sent a new table
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
                           no frames are lost, and switches keep forwarding meanwhile. Add --yes to carry it out";
            return Err(Failure::new(Exit::Usage, message.to_owned()));
        }
        self.remote.run(|mut client| async move {
            let names = answer(client.rekey(v1::RekeyRequest {}).await)?.changed;
            out.done(
                &Row { names },
                format!("{names} names have digests under a new hash key; switches are being sent new tables"),
            )
        })
    }
}
