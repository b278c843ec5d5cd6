//! `fibula switch add|del|list|show`: the controller's view of switches; `lookup` asks a switch directly.

use crate::log;
use crate::remote::{Client, Remote, answer};
use crate::rib::{answer_of_lines, fields, lookup, moment, print_changed, records, verify};
use api::words::counted;
use api::{memory, v1};
use command::order::natural;
use command::output::{Exit, Failure, Output, note};
use command::units::{bytes, short};
use command::visible::visible;
use serde::Serialize;
use std::path::PathBuf;

/// Verbs for the controller's table of switches.
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
    /// Add switches that hold all names from a file, one name per line (- for standard input)
    ///
    /// Checks the whole file, then adds all switches in one transaction.
    Import {
        /// The file, or - for standard input
        file: PathBuf,
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
    /// List all switches, and whether each is connected and in step
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Ask a switch for the ports of names
    Lookup(lookup::Args),
    /// Make switches recompute their digests from memory, and compare these with the controller's
    ///
    /// Each switch is asked by the controller that serves it. Exit code 6 if something differs, or a switch was not
    /// checked.
    Verify {
        /// Names of the switches; all if none are given
        names: Vec<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// List switches that have attached but were not added
    Pending {
        #[command(flatten)]
        remote: Remote,
    },
    /// Add switches that have attached
    Accept {
        /// Their names
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "names")]
        all: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Keep paths of other switches away from a switch, without losing a frame; refused if there is no other path
    ///
    /// Names at its own hosts stay reachable.
    Drain {
        /// Its name
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Let paths of other switches lead through a switch again, without losing a frame
    Undrain {
        /// Its name
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show or change what a running switch logs
    ///
    /// The controller asks the switch, so it must be connected. A change takes the role admin, is recorded in the audit
    /// trail of the controller, and lasts until the switch restarts.
    Log {
        /// Its name
        #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: String,
        /// New filter: a level, and TARGET=LEVEL for parts of the program, separated by commas:
        /// info,fibula_switch=debug
        filter: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
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
    /// No path of other switches leads through it, because it was drained.
    drained: bool,
    sent_messages: u64,
    acknowledged: u64,
    sent_bytes: u64,
    /// Destinations that share a value there (port mode).
    sharing: u64,
    cannot_follow: String,
    /// The controller that serves it, if it is not the one asked.
    served_by: String,
}

/// A switch in the table.
#[derive(Serialize)]
struct ShownSwitch {
    switch: String,
    id: u32,
    state: &'static str,
    hosts: u64,
    transit: bool,
    drained: bool,
    /// Messages that it has not acknowledged yet.
    waiting: String,
    sent: String,
    sharing: u64,
}

impl From<&SwitchRow> for ShownSwitch {
    fn from(row: &SwitchRow) -> Self {
        ShownSwitch {
            switch: row.switch.clone(),
            id: row.id,
            state: match row {
                SwitchRow { connected: false, .. } => "away",
                SwitchRow { cannot_follow, .. } if !cannot_follow.is_empty() => "full",
                SwitchRow { in_step: false, .. } => "behind",
                _ => "in step",
            },
            hosts: row.hosts,
            transit: row.transit,
            drained: row.drained,
            waiting: short(row.sent_messages.saturating_sub(row.acknowledged) as f64),
            sent: bytes(row.sent_bytes),
            sharing: row.sharing,
        }
    }
}

/// Prints the problems of switches below their table.
fn say_what_is_wrong(rows: &[SwitchRow], out: &Output) {
    for SwitchRow { switch, cannot_follow, .. } in
        rows.iter().filter(|row| !row.cannot_follow.is_empty() && !out.is_json())
    {
        eprintln!("fibula: {switch} cannot follow: {cannot_follow}");
    }
}

#[derive(Serialize)]
struct PendingRow {
    switch: String,
    version: String,
    address: String,
    since: String,
    last: String,
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
            drained: s.drained,
            sent_messages: s.sent_messages,
            acknowledged: s.acknowledged_messages,
            sent_bytes: s.sent_bytes,
            sharing: s.sharing,
            cannot_follow: s.cannot_follow,
            served_by: s.served_by,
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
            Verb::Import { file, remote } => remote.run(|mut client| async move {
                let (names, lines) = records(&file, &["name"], |text| Ok(fields(text, 1..=1, "one name")?.remove(0)))?;
                let asked = client.add_switches(v1::AddSwitchesRequest { names }).await;
                print_changed(out, answer_of_lines(asked, &file, &lines)?, "switch", "added")
            }),
            Verb::Del { name, remote } => remote.run(|mut client| async move {
                let request = v1::RemoveSwitchRequest { name };
                print_changed(out, answer(client.remove_switch(request).await)?, "switch", "removed")
            }),
            Verb::Lookup(args) => args.run(out),
            Verb::List { remote } => remote.run(|client| async move {
                let v1::SwitchList { switches, pending, troubles } = list(client).await?;
                let mut rows = switches.into_iter().map(SwitchRow::from).collect::<Vec<_>>();
                rows.sort_by(|a, b| natural(&a.switch, &b.switch));
                out.rows_as(&rows, |row| ShownSwitch::from(row))?;
                say_what_is_wrong(&rows, out);
                troubles.iter().for_each(|trouble| note(format!("fibula: {trouble}")));
                if !pending.is_empty() {
                    let n = pending.len();
                    eprintln!("fibula: {n} more are waiting to be accepted; `fibula switch pending` lists them");
                }
                Ok(())
            }),
            Verb::Pending { remote } => remote.run(|client| async move {
                let row = |v1::PendingSwitch { name, version, address, first_ms, last_ms }| PendingRow {
                    switch: name,
                    version,
                    address,
                    since: moment(first_ms),
                    last: moment(last_ms),
                };
                let mut rows = list(client).await?.pending.into_iter().map(row).collect::<Vec<_>>();
                rows.sort_by(|a, b| natural(&a.switch, &b.switch));
                out.rows(&rows)
            }),
            Verb::Accept { names, remote, .. } => remote.run(|mut client| async move {
                let changed = answer(client.accept_switches(v1::AcceptSwitchesRequest { names }).await)?;
                print_changed(out, changed, "switch", "added")
            }),
            Verb::Verify { names, remote } => {
                let others = remote.clone();
                remote.run(|client| verify::run(client, &others, names, out))
            }
            Verb::Drain { name, remote } => remote.run(|client| drain(client, name, false, out)),
            Verb::Undrain { name, remote } => remote.run(|client| drain(client, name, true, out)),
            Verb::Log { name, filter, remote } => remote.run(|client| log::run(client, name, filter, out)),
            Verb::Show { name, remote } => remote.run(|client| async move {
                let v1::SwitchList { switches, pending, .. } = list(client).await?;
                let found = switches.into_iter().find(|switch| switch.name == name);
                let switch = found.ok_or_else(|| {
                    let waits = pending.iter().any(|switch| switch.name == name);
                    let message = if waits {
                        format!("switch `{name}` is waiting to be accepted; run `fibula switch accept {name}`")
                    } else {
                        format!("there is no switch `{}`; `fibula switch list` lists all", visible(&name))
                    };
                    Failure::new(Exit::NotFound, message)
                })?;
                show(switch, out)
            }),
        }
    }
}

/// Prints the row of the list, and the memory of the switch: as part of the row in JSON, otherwise as a table below.
fn show(mut switch: v1::Switch, out: &Output) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Shown {
        #[serde(flatten)]
        row: SwitchRow,
        memory: Option<serde_json::Value>,
    }
    let memory = switch.memory.take();
    let row = SwitchRow::from(switch);
    if out.is_json() {
        return out.rows(&[Shown { row, memory: memory.as_ref().map(memory::json) }]);
    }
    let row = [row];
    out.rows_as(&row, |row| ShownSwitch::from(row))?;
    say_what_is_wrong(&row, out);
    let Some(memory) = memory else { return Ok(()) };
    let (now, peak) = (bytes(memory.resident_bytes), bytes(memory.peak_bytes));
    out.done(&(), format!("\nmemory of the switch: {now} resident, {peak} at most so far\n"))?;
    out.rows(&memory::rows(&memory))
}

async fn list(mut client: Client) -> anyhow::Result<v1::SwitchList> {
    answer(client.list_switches(v1::ListSwitchesRequest {}).await)
}

#[derive(Serialize)]
struct DrainRow {
    steps: u32,
    hosts: u64,
}

async fn drain(mut client: Client, name: String, undo: bool, out: &Output) -> anyhow::Result<()> {
    let request = v1::DrainSwitchRequest { name: name.clone(), undo };
    let v1::Drained { steps, hosts } = answer(client.drain_switch(request).await)?;
    let what = match (undo, hosts) {
        (true, _) => "paths of other switches may lead through it again".to_owned(),
        (false, 0) => "no path leads through it, and it has no hosts".to_owned(),
        (false, n) => {
            let ports = counted(n, "host port", "host ports");
            format!("no path of other switches leads through it; hosts at its own {ports} stay reachable")
        }
    };
    let changes = counted(steps.into(), "change", "changes");
    out.done(&DrainRow { steps, hosts }, format!("switch {name}: {what}, after {changes} of paths"))
}
