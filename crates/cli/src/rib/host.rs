//! `fibula host`: host ports, each with a name.

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
    /// Make a port of a switch a host port, and name it
    ///
    /// An undeclared host, which is named after its port (s1.3), gets the new name.
    Add {
        /// The host's name
        name: String,
        /// The port, as switch:port
        port: PortOf,
    },
    /// Add hosts from a CSV file: name,switch:port (- for standard input)
    ///
    /// Checks the whole file, then adds all hosts in one transaction.
    Import {
        /// The file, or - for standard input
        file: PathBuf,
    },
    /// Rename a host; its names stay attached
    Rename {
        /// The host's name
        name: String,
        /// Its new name
        to: String,
    },
    /// Remove a host; refused while names are attached to it
    Del {
        /// The host's name
        name: String,
    },
    /// List all hosts, with the number of learnt names at each, and the latest of these and its time
    ///
    /// `host seen` lists every learnt name, with its port and time.
    List,
    /// List the names that switches saw at learning ports, learnt or not
    Seen {
        /// Maximum number of learnt names to list
        #[arg(long, default_value_t = 10_000)]
        limit: u32,
    },
    /// Remove all learnt names of a host
    ///
    /// Names that still send are learnt again.
    Forget {
        /// The host's name
        name: String,
    },
    /// Learn names that switches saw, at the ports where they saw them
    ///
    /// `host seen` shows them with the state `unknown`. Names given here are learnt even at ports, or switches, that
    /// have reached their limit.
    Accept {
        /// The names to learn
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All that the limits of ports and switches allow; earlier ones come first
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

#[derive(Serialize)]
struct AcceptedRow {
    changed: u64,
    unchanged: u64,
    /// Names that stay unknown because their ports, or switches, have reached their limit.
    left: u64,
}

#[derive(Serialize)]
struct HostRow {
    host: String,
    switch: String,
    port: u32,
    /// Number of learnt names there.
    learnt: u32,
    /// The most recently learnt of these.
    latest: String,
    /// When that one was learnt.
    since: String,
}

#[derive(Serialize)]
struct SeenRow {
    name: String,
    ip: String,
    /// The port, as switch:port.
    at: String,
    tenant: u32,
    /// One of: learnt; unknown (seen, but not learnt); frozen (learnt, and fixed because it moved too often); address
    /// (it claims an address of another name); elsewhere (seen at a port other than the declared one, or at a port of
    /// another tenant).
    state: String,
    /// Since when it has been at its place, or has been seen there.
    since: String,
    /// Why it is not learnt, or not as it claims.
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

/// The result of `accept`, as a sentence.
fn accepted(changed: u64, unchanged: u64, left: u64) -> String {
    let plural = if changed == 1 { "" } else { "s" };
    let mut text = format!("{changed} name{plural} learnt");
    if unchanged > 0 {
        let _ = write!(text, ", {unchanged} unchanged");
    }
    if left > 0 {
        let _ = write!(
            text,
            ", {left} left: their ports, or switches, are at their limit; `fibula host seen` lists them, and \
             names that you give are learnt regardless"
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
    // Declared names, where another sender claims to be one of them.
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

/// Parses the host of a line.
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
