//! `fibula host`: host ports, each under a name of its own.

use crate::output::Output;
use crate::remote::{Client, PortOf, answer};
use crate::rib::{Verbs, print_changed};
use api::v1;
use serde::Serialize;

/// The verbs of `fibula host`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Make a port of a switch a host port, under a name
    Add {
        /// The host's name
        name: String,
        /// The port, as switch:port
        port: PortOf,
    },
    /// Remove a host; refused while names hang off it
    Del {
        /// The host's name
        name: String,
    },
    /// List all hosts
    List,
}

#[derive(Serialize)]
struct HostRow {
    host: String,
    switch: String,
    port: u32,
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add { name, port: PortOf { switch, port } } => {
                let changed = answer(client.add_host(v1::Host { name, switch, port: port.into() }).await)?;
                print_changed(out, changed, "host", "added")
            }
            Verb::Del { name } => {
                let changed = answer(client.remove_host(v1::RemoveHostRequest { name }).await)?;
                print_changed(out, changed, "host", "removed")
            }
            Verb::List => {
                let hosts = answer(client.list_hosts(v1::ListHostsRequest {}).await)?.hosts;
                let row = |v1::Host { name, switch, port }| HostRow { host: name, switch, port };
                out.rows(&hosts.into_iter().map(row).collect::<Vec<_>>())
            }
        }
    }
}
