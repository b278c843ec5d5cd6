//! `fibula switch add|del|list|show`: the switches as the controller knows them; `lookup` asks one of them itself.

use crate::remote::{Client, Remote, answer};
use crate::rib::{lookup, print_changed};
use api::v1;
use command::output::{Exit, Failure, Output};
use serde::Serialize;

/// What to do with the controller's table of switches.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Add a switch to the controller
    Add {
        /// Its name, as in its switch.toml
        name: String,
        /// Hold the names of these tenants only, and carry no frames of others
        #[arg(long, value_delimiter = ',')]
        tenants: Vec<u32>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Remove a switch; refused while it has links or hosts
    Del {
        /// Its name
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// List all switches, and whether they are connected and in step
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Ask a switch which port names are at
    Lookup(lookup::Args),
    /// Show one switch
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Serialize)]
struct SwitchRow {
    switch: String,
    id: u32,
    connected: bool,
    in_step: bool,
    hosts: u64,
    transit: bool,
    sent_messages: u64,
    acknowledged: u64,
    sent_bytes: u64,
}

impl From<v1::Switch> for SwitchRow {
    fn from(s: v1::Switch) -> Self {
        SwitchRow {
            switch: s.name,
            id: s.id,
            connected: s.connected,
            in_step: s.in_step,
            hosts: s.hosts,
            transit: s.transit,
            sent_messages: s.sent_messages,
            acknowledged: s.acknowledged_messages,
            sent_bytes: s.sent_bytes,
        }
    }
}

impl Verb {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add { name, tenants, remote } => remote.run(|mut client| async move {
                let request = v1::AddSwitchRequest { name, tenants };
                print_changed(out, answer(client.add_switch(request).await)?, "switch", "added")
            }),
            Verb::Del { name, remote } => remote.run(|mut client| async move {
                let request = v1::RemoveSwitchRequest { name };
                print_changed(out, answer(client.remove_switch(request).await)?, "switch", "removed")
            }),
            Verb::Lookup(args) => args.run(out),
            Verb::List { remote } => remote.run(|client| async move { out.rows(&list(client).await?) }),
            Verb::Show { name, remote } => remote.run(|client| async move {
                let mut rows = list(client).await?;
                rows.retain(|row| row.switch == name);
                if rows.is_empty() {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("there is no switch `{name}`; `fibula switch list` lists all"),
                    ));
                }
                out.rows(&rows)
            }),
        }
    }
}

async fn list(mut client: Client) -> anyhow::Result<Vec<SwitchRow>> {
    let switches = answer(client.list_switches(v1::ListSwitchesRequest {}).await)?.switches;
    Ok(switches.into_iter().map(SwitchRow::from).collect())
}
