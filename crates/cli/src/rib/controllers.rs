//! `fibula controller list|drain|resume` for several controllers of one store; `log` shows what one of them logs.

use crate::log;
use crate::remote::{Remote, answer};
use api::v1;
use command::output::Output;
use serde::Serialize;

/// Verbs for running controllers.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Show each controller that --controller names: which one leads, how far the others follow, and how many switches
    /// each serves
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Show or change what a running controller logs
    ///
    /// A change takes the role admin, is recorded in the audit trail, and lasts until the controller restarts.
    Log {
        /// New filter: a level, and TARGET=LEVEL for parts of the program, separated by commas:
        /// info,fibula_controller=debug
        filter: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Move the switches of one controller to others, until `resume` or until it restarts
    ///
    /// Every switch keeps forwarding, and none is sent what it already has. Returns as soon as their streams have
    /// ended.
    Drain {
        #[command(flatten)]
        remote: Remote,
    },
    /// Let a drained controller serve switches again; those that prefer it return within minutes
    Resume {
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Serialize)]
struct ControllerRow {
    controller: String,
    state: String,
    leader: String,
    switches: Option<u64>,
    names: Option<u64>,
    position: Option<u64>,
}

#[derive(Serialize)]
struct DrainedRow {
    drained: bool,
    switches: u64,
}

impl Verb {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::List { remote } => list(&remote, out),
            Verb::Log { filter, remote } => remote
                .one("each controller has its own log: give the URL of one")?
                .run(|client| log::run(client, String::new(), filter, out)),
            Verb::Drain { remote } => set_drained(&remote, true, out),
            Verb::Resume { remote } => set_drained(&remote, false, out),
        }
    }
}

fn list(remote: &Remote, out: &Output) -> anyhow::Result<()> {
    let rows = remote.run_each(|at, client| async move {
        let none = |state: String| ControllerRow {
            controller: at.clone(),
            state,
            leader: String::new(),
            switches: None,
            names: None,
            position: None,
        };
        let mut client = match client {
            Ok(client) => client,
            Err(error) => return Ok(none(format!("does not answer: {error}"))),
        };
        let status = answer(client.get_status(v1::GetStatusRequest {}).await)?;
        let state = if status.leader.is_empty() { "leads" } else { "follows" };
        let drained = if status.drained { ", drained" } else { "" };
        Ok(ControllerRow {
            state: format!("{state}{drained}"),
            leader: status.leader,
            switches: Some(status.connected),
            names: Some(status.names),
            position: status.position,
            ..none(String::new())
        })
    })?;
    out.rows(&rows)
}

fn set_drained(remote: &Remote, drained: bool, out: &Output) -> anyhow::Result<()> {
    remote.one("drain and resume are for one controller: give its URL alone")?.run(|mut client| async move {
        let switches = answer(client.set_drained(v1::SetDrainedRequest { drained }).await)?.switches;
        let sentence = if drained {
            format!(
                "{switches} switches are moving to other controllers; `fibula controller list` shows where they are"
            )
        } else {
            "it serves switches again".to_owned()
        };
        out.done(&DrainedRow { drained, switches }, sentence)
    })
}
