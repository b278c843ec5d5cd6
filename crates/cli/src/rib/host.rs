//! `fibula host`: host ports, each with a name of its own.

use crate::remote::{Client, PortOf, answer};
use crate::rib::{Verbs, print_changed, records};
use api::v1;
use command::output::Output;
use serde::Serialize;
use std::path::PathBuf;

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
    /// Add hosts from a CSV file: name,switch:port (- for standard input)
    ///
    /// The whole file is checked, then all are added in one transaction.
    Import {
        /// The file, or - for standard input
        file: PathBuf,
    },
    /// Remove a host; refused while names are attached to it
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
            Verb::Import { file } => {
                let hosts = records(&file, "name,port", read)?;
                print_changed(out, answer(client.add_hosts(v1::HostList { hosts }).await)?, "host", "added")
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

/// The host of a line.
fn read(text: &str) -> Result<v1::Host, String> {
    let (name, port) = text.split_once(',').ok_or("no `,`: write name,switch:port")?;
    let PortOf { switch, port } = port.trim().parse()?;
    Ok(v1::Host { name: name.trim().to_owned(), switch, port: port.into() })
}
