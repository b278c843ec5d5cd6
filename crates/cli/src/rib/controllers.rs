//! `fibula controller list|drain|resume`: several controllers of one store; `log`: what one of them logs.

use crate::log;
use crate::remote::{Remote, answer};
use api::v1;
use command::output::Output;
use serde::Serialize;

/// What to do with controllers that run.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Show each controller that --controller names: who leads, who follows how far, and how many switches it serves
    List {
        #[command(flatten)]
        remote: Remote,
    },
    /// Show what a controller logs, or change it while it runs
    ///
    /// A change takes the role admin, is in the audit trail, and lasts until the controller starts again.
    Log {
        /// What it is to log: a level, and TARGET=LEVEL for parts of the program, with commas between: info,fibula_controller=debug
        filter: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
    /// Send the switches of one controller on to others, and keep them away until `resume`, or until it starts again
    ///
    /// No switch stops forwarding, and none is sent what it has. Ends as soon as their streams do.
    Drain {
        #[command(flatten)]
        remote: Remote,
    },
    /// Let a drained controller serve switches again; those that prefer it come back within some minutes
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
                .one("each controller has a log of its own: give the URL of one")?
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
            format!("{switches} switches go on to other controllers; `fibula controller list` shows where they are")
        } else {
            "switches are served again".to_owned()
        };
        out.done(&DrainedRow { drained, switches }, sentence)
    })
}
