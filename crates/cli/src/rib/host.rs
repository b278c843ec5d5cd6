//! `fibula host`: host ports, each with a name of its own.

use crate::remote::{Client, PortOf, answer};
use crate::rib::{Verbs, print_changed};
use api::v1;
use command::output::{Exit, Failure, Output};
use command::text::TextReader;
use serde::Serialize;
use std::path::{Path, PathBuf};

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
                let hosts = read(&file)?;
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

/// The hosts of a file; a first line `name,port` is a header.
fn read(file: &Path) -> anyhow::Result<Vec<v1::Host>> {
    let shown = file.display();
    let source: Box<dyn std::io::Read> =
        if file.as_os_str() == "-" { Box::new(std::io::stdin()) } else { Box::new(command::open(file)?) };
    let mut hosts = Vec::new();
    for (line, text) in (1u64..).zip(TextReader::new(source).lines()) {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::new(Exit::BadInput, format!("{shown}: line {line}: {why}; nothing imported"))
        };
        let text = text.map_err(|error| wrong(&error))?;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') || line == 1 && text == "name,port" {
            continue;
        }
        let (name, port) = text.split_once(',').ok_or_else(|| wrong(&"no `,`: write name,switch:port"))?;
        let PortOf { switch, port } = port.trim().parse().map_err(|error: String| wrong(&error))?;
        hosts.push(v1::Host { name: name.trim().to_owned(), switch, port: port.into() });
    }
    Ok(hosts)
}
