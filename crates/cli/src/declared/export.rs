//! `fibula export`: the network as lists that `fibula apply` reads.

use super::files::{HOSTS, LINKS, List, NAMES, SWITCHES};
use super::plan::{found_name, port_of};
use crate::atomic_file::{AtomicFile, cannot_write};
use crate::remote::{Client, Remote, answer, refusal};
use crate::rib::import;
use api::v1;
use command::output::{Exit, OrExit, Output};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Arguments of `fibula export`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory for switches.csv, hosts.csv, links.csv and names.csv; created if it does not exist. Each existing
    /// list is replaced as a whole
    #[arg(short, long, value_name = "DIR")]
    directory: PathBuf,
    /// Also write names and hosts that were learnt and links that were found: applying the lists declares them
    #[arg(long)]
    learnt: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Default, Serialize)]
struct Exported {
    switches: usize,
    hosts: usize,
    links: usize,
    names: u64,
}

impl Args {
    /// # Errors
    /// Those of the controller and of the disk.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Args { directory, learnt, remote } = self;
        remote.run(|client| async move {
            std::fs::create_dir_all(&directory)
                .or_exit(Exit::Refused, format!("{} cannot be made", directory.display()))?;
            let exported = export(client, &directory, learnt).await?;
            let Exported { switches, hosts, links, names } = &exported;
            let sentence = format!(
                "{switches} switches, {hosts} hosts, {links} links and {names} names written to {}",
                directory.display()
            );
            out.done(&exported, sentence)
        })
    }
}

async fn export(mut client: Client, directory: &Path, learnt: bool) -> anyhow::Result<Exported> {
    let mut exported = Exported::default();
    let switches = answer(client.list_switches(v1::ListSwitchesRequest {}).await)?.switches;
    let rows = switches.into_iter().map(|switch| {
        let tenants: Vec<String> = switch.tenants.iter().map(u32::to_string).collect();
        vec![switch.name, tenants.join(" ")]
    });
    exported.switches = write(SWITCHES, directory, rows)?;
    let links = answer(client.list_links(v1::ListLinksRequest {}).await)?.links;
    let end = |end: Option<v1::LinkEnd>| end.map(|end| format!("{}:{}", end.switch, end.port)).unwrap_or_default();
    let rows = links.into_iter().filter(|link| learnt || !link.found).map(|link| {
        // A drain is temporary.
        let state = match (link.up, link.drained) {
            (_, true) => "",
            (true, false) => "up",
            (false, false) => "down",
        };
        vec![end(link.a), end(link.b), link.cost.to_string(), link.weight.unwrap_or(1).to_string(), state.to_owned()]
    });
    exported.links = write(LINKS, directory, rows)?;

    let path = directory.join(NAMES.file);
    let mut writer = import::writer(std::io::BufWriter::new(AtomicFile::create(&path, 0o666)?));
    writer.write_record(NAMES.columns)?;
    let mut used = HashSet::new();
    let mut batches = answer(client.export_names(v1::ExportNamesRequest {}).await)?;
    while let Some(batch) = batches.message().await.map_err(|status| refusal(&status))? {
        for v1::NameRecord { name, host, tenant, ip, learnt_ms, .. } in batch.names {
            if learnt_ms == 0 || learnt {
                exported.names += 1;
                writer.write_record([&*name, &host, &tenant.to_string(), &ip])?;
                used.insert(host);
            }
        }
    }
    let written = writer.into_inner().map_err(|error| cannot_write(&path, error.error()))?;
    written.into_inner().map_err(|error| cannot_write(&path, error.error()))?.finish()?;

    // After the names: an undeclared host is in the list if a declared name is attached to it.
    let hosts = answer(client.list_hosts(v1::ListHostsRequest {}).await)?.hosts;
    let rows = hosts.into_iter().filter_map(|host| {
        let port = port_of(&host);
        let is_found = host.name == found_name(&port);
        (learnt || !is_found || used.contains(&host.name)).then(|| vec![host.name, port.to_string()])
    });
    exported.hosts = write(HOSTS, directory, rows)?;
    Ok(exported)
}

/// Writes a list, and returns how many objects it has.
fn write(list: List, directory: &Path, rows: impl Iterator<Item = Vec<String>>) -> anyhow::Result<usize> {
    let mut writer = import::writer(Vec::new());
    writer.write_record(list.columns)?;
    let mut n_rows = 0;
    for row in rows {
        writer.write_record(&row)?;
        n_rows += 1;
    }
    AtomicFile::write(&directory.join(list.file), 0o666, &writer.into_inner()?)?;
    Ok(n_rows)
}
