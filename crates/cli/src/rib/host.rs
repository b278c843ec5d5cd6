//! `fibula host`: host ports, each with a name of its own.

use crate::remote::{Client, PortOf, answer};
use crate::rib::name::addresses;
use crate::rib::{Verbs, answer_of_lines, fields, moment, print_changed, records};
use api::v1;
use command::order::natural;
use command::output::{Output, note};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::PathBuf;

/// The verbs of `fibula host`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Make a port of a switch a host port, under a name
    ///
    /// A host that is named after its port (s1.3), as those are that nobody declared, gets the new name.
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
    /// Give a host another name; what is attached to it stays so
    Rename {
        /// The host's name
        name: String,
        /// Its name from then on
        to: String,
    },
    /// Remove a host; refused while names are attached to it
    Del {
        /// The host's name
        name: String,
    },
    /// List all hosts, with how many names are learnt at each, and which of these came last and when
    ///
    /// `host seen` lists every name that is learnt, where, and since when.
    List,
    /// List what switches saw at ports that learn: names that are learnt, and those that are not
    Seen {
        /// Learnt names to list at most
        #[arg(long, default_value_t = 10_000)]
        limit: u32,
    },
    /// Remove all names that are learnt at a host
    ///
    /// Those that still send are learnt again.
    Forget {
        /// The host's name
        name: String,
    },
    /// Make names of what switches saw, where they saw it
    ///
    /// `host seen` shows them with the state `unknown`. Names that are given are learnt also where ports, or switches, have as many as
    /// they may.
    Accept {
        /// The names
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All of them that their ports and switches may have; who was seen first comes first
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

#[derive(Serialize)]
struct AcceptedRow {
    changed: u64,
    unchanged: u64,
    /// Names that stay unknown: their ports, or switches, have as many as they may.
    left: u64,
}

#[derive(Serialize)]
struct HostRow {
    host: String,
    switch: String,
    port: u32,
    /// Names that are learnt there.
    learnt: u32,
    /// Of these the one that came last.
    latest: String,
    /// Since when it is there.
    since: String,
}

#[derive(Serialize)]
struct SeenRow {
    name: String,
    ip: String,
    /// The port, as switch:port.
    at: String,
    tenant: u32,
    /// learnt; unknown: seen, and not learnt; frozen: learnt, and stays as it was since it changed too often; address: it says that it has
    /// an address of another name; elsewhere: it is seen where it was not declared to be, or at another tenant's port.
    state: String,
    /// Since when it is where it is, or is seen so.
    since: String,
    /// Why it is not learnt, or not as it says.
    why: String,
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add { name, port: PortOf { switch, port } } => {
                let changed =
                    answer(client.add_host(v1::Host { name, switch, port: port.into(), ..v1::Host::default() }).await)?;
                print_changed(out, changed, "host", "added")
            }
            Verb::Import { file } => {
                let (hosts, lines) = records(&file, &["name,port"], read)?;
                let asked = client.add_hosts(v1::HostList { hosts, ..v1::HostList::default() }).await;
                print_changed(out, answer_of_lines(asked, &file, &lines)?, "host", "added")
            }
            Verb::Rename { name, to } => {
                let changed = answer(client.rename_host(v1::RenameHostRequest { name, to }).await)?;
                print_changed(out, changed, "host", "renamed")
            }
            Verb::Del { name } => {
                let changed = answer(client.remove_host(v1::RemoveHostRequest { name }).await)?;
                print_changed(out, changed, "host", "removed")
            }
            Verb::List => {
                let v1::HostList { hosts, troubles, .. } = answer(client.list_hosts(v1::ListHostsRequest {}).await)?;
                let row = |v1::Host { name, switch, port, learnt, latest, latest_ms }| {
                    let since = if latest.is_empty() { String::new() } else { moment(latest_ms) };
                    HostRow { host: name, switch, port, learnt, latest, since }
                };
                let mut rows = hosts.into_iter().map(row).collect::<Vec<_>>();
                rows.sort_by(|a, b| natural(&a.host, &b.host));
                out.rows(&rows)?;
                troubles.iter().for_each(|trouble| note(format!("fibula: {trouble}")));
                Ok(())
            }
            Verb::Seen { limit } => seen(client, limit, out).await,
            Verb::Forget { name } => {
                let changed = answer(client.forget_host(v1::ForgetHostRequest { name }).await)?;
                print_changed(out, changed, "name", "removed")
            }
            Verb::Accept { names, .. } => {
                let changed = answer(client.accept_hosts(v1::AcceptHostsRequest { names }).await)?;
                let v1::Changed { changed, unchanged, left, .. } = changed;
                let text = accepted(changed, unchanged, left);
                out.done(&AcceptedRow { changed, unchanged, left }, text)
            }
        }
    }
}

/// What became of names that were to be learnt.
fn accepted(changed: u64, unchanged: u64, left: u64) -> String {
    let plural = if changed == 1 { "" } else { "s" };
    let mut text = format!("{changed} name{plural} learnt");
    if unchanged > 0 {
        let _ = write!(text, ", {unchanged} unchanged");
    }
    if left > 0 {
        let _ = write!(
            text,
            ", {left} left: their ports, or switches, have as many as they may; `fibula host seen` lists them, and \
             those that you name are learnt all the same"
        );
    }
    text
}

async fn seen(mut client: Client, limit: u32, out: &Output) -> anyhow::Result<()> {
    let v1::HostList { hosts, unknown, troubles, conflicts } =
        answer(client.list_hosts(v1::ListHostsRequest {}).await)?;
    let mut conflicts: BTreeMap<String, v1::HostConflict> =
        conflicts.into_iter().map(|conflict| (conflict.name.clone(), conflict)).collect();
    let at: HashMap<String, String> =
        hosts.into_iter().map(|host| (host.name, format!("{}:{}", host.switch, host.port))).collect();
    let (mut rows, mut after, mut more) = (Vec::new(), String::new(), true);
    while more && rows.len() < limit as usize {
        let left = (limit - rows.len() as u32).min(10_000);
        let request = v1::ListNamesRequest { after, limit: left, learnt: true, ..v1::ListNamesRequest::default() };
        let page = answer(client.list_names(request).await)?;
        (after, more) = (page.names.last().map(|last| last.name.clone()).unwrap_or_default(), page.more);
        rows.extend(page.names.into_iter().map(|record| {
            let ip = addresses(&record);
            let v1::NameRecord { name, host, tenant, learnt_ms, .. } = record;
            let conflict = conflicts.remove(&name);
            let (state, why) =
                conflict.map_or_else(|| ("learnt".to_owned(), String::new()), |one| (one.state, one.why));
            let at = at.get(&host).cloned().unwrap_or_default();
            SeenRow { name, ip, at, tenant, state, since: moment(learnt_ms), why }
        }));
    }
    // Those that are declared: where somebody else says that he is one of them.
    let place = |at: Option<v1::LinkEnd>| at.map(|end| format!("{}:{}", end.switch, end.port)).unwrap_or_default();
    let others = conflicts.into_values().filter(|conflict| !more || conflict.state == "elsewhere");
    rows.extend(others.map(|v1::HostConflict { name, at, state, why, first_ms, tenant, .. }| SeenRow {
        name,
        ip: String::new(),
        at: place(at),
        tenant,
        state,
        since: moment(first_ms),
        why,
    }));
    rows.extend(unknown.into_iter().map(|v1::UnknownHost { name, ip, at, tenant, first_ms, why, .. }| SeenRow {
        name,
        ip,
        at: place(at),
        tenant,
        state: "unknown".to_owned(),
        since: moment(first_ms),
        why,
    }));
    out.rows(&rows)?;
    if more {
        eprintln!("there are more learnt names; raise --limit, or see `fibula name list`");
    }
    troubles.iter().for_each(|trouble| note(format!("fibula: {trouble}")));
    Ok(())
}

/// The host of a line.
fn read(text: &str) -> Result<v1::Host, String> {
    let mut fields = fields(text, 2..=2, "name,switch:port")?.into_iter();
    let name = fields.next().unwrap_or_default();
    let PortOf { switch, port } = fields.next().unwrap_or_default().parse()?;
    Ok(v1::Host { name, switch, port: port.into(), ..v1::Host::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_left_are_told_apart_from_those_that_were_learnt_already() {
        assert_eq!(accepted(1, 0, 0), "1 name learnt");
        assert_eq!(accepted(0, 2, 0), "0 names learnt, 2 unchanged");
        let text = accepted(2, 1, 3);
        assert!(text.starts_with("2 names learnt, 1 unchanged, 3 left: their ports, or switches,"), "{text}");
    }
}
