//! `fibula switch lookup`: the port of a name, queried from a switch directly.

use crate::answers::questions;
use crate::remote::{Credentials, exit_of, refusal};
use api::client::ConnectError;
use api::identity::Kind;
use api::v1::lookup_client::LookupClient;
use api::{lookup, v1};
use command::output::{Exit, Failure, OrExit, Output, to_stdout};
use fib::text::{Dialect, Line, quote};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use tonic::Status;
use tonic::transport::Channel;

/// The switch to ask, and the questions.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of the switch's look-up service: `lookup` in its switch.toml
    #[arg(long, env = "FIBULA_LOOKUP", default_value = "127.0.0.1:4603", value_name = "ADDRESS")]
    at: String,
    #[command(flatten)]
    credentials: Credentials,
    /// Names; if none are given, they are read from standard input, one per line
    names: Vec<String>,
    /// Number of names from standard input to send in one request
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=lookup::MAX_LOOKUP_NAMES as i64))]
    batch: u32,
}

#[derive(Serialize)]
struct AnswerRow {
    name: String,
    outcome: &'static str,
    port: Option<u32>,
}

impl Args {
    /// # Errors
    /// Exit code 3 for a text that is not a name, 4 if the switch does not answer.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Args { at, credentials, names, batch } = self;
        let mut client = runtime.block_on(connect(&at, &credentials))?;
        if !names.is_empty() {
            return out.rows(&runtime.block_on(ask(&mut client, names)).map_err(|status| refusal(&status))?);
        }
        let is_terminal = std::io::stdin().is_terminal();
        if is_terminal {
            eprintln!("type names, one per line; end with Ctrl-D");
        }
        let batch = if is_terminal { 1 } else { batch as usize };
        // The switch's kind of names is unknown here.
        let mut questions = questions(Dialect::Literal);
        let mut stdout = std::io::stdout().lock();
        loop {
            let asked = questions.by_ref().take(batch).collect::<Result<Vec<Line>, _>>();
            let asked = asked.or_exit(Exit::BadInput, "standard input")?;
            if asked.is_empty() {
                return Ok(());
            }
            let lines: Vec<u64> = asked.iter().map(|line| line.number).collect();
            let names = asked.into_iter().map(|line| line.text).collect();
            let rows = runtime.block_on(ask(&mut client, names)).map_err(|status| refused(&status, &lines))?;
            for row in rows {
                let AnswerRow { name, outcome, port } = &row;
                let port = port.map(|port| port.to_string()).unwrap_or_default();
                if out.is_json() {
                    writeln!(stdout, "{}", command::output::json(&row)?).map_err(to_stdout)?;
                } else {
                    writeln!(stdout, "{},{outcome},{port}", quote(name)).map_err(to_stdout)?;
                }
            }
            stdout.flush().map_err(to_stdout)?;
        }
    }
}

async fn connect(at: &str, credentials: &Credentials) -> anyhow::Result<LookupClient<Channel>> {
    let channel = credentials.connect(Kind::Switch, at).await?.map_err(|error| match error {
        ConnectError::Unreachable { reason, .. } => Failure::new(
            Exit::NotFound,
            format!(
                "no switch answers at {at} ({reason}); set --at or FIBULA_LOOKUP to the address of `lookup` in its \
                 switch.toml"
            ),
        ),
        ConnectError::BadUrl { .. } => {
            Failure::new(Exit::Usage, format!("`{at}` is not an address with a port; write it like 10.0.0.2:4603"))
        }
        error => Failure::new(exit_of(&error), error),
    })?;
    Ok(api::client::lookup(channel))
}

/// A refusal with the line of the refused name.
fn refused(status: &Status, lines: &[u64]) -> anyhow::Error {
    match lookup::refused_item(status).and_then(|item| lines.get(item)) {
        Some(line) => refusal(status).context(format!("standard input: line {line}")),
        None => refusal(status),
    }
}

async fn ask(client: &mut LookupClient<Channel>, names: Vec<String>) -> Result<Vec<AnswerRow>, Status> {
    let request = v1::LookupRequest { names: names.clone() };
    let answers = client.lookup(request).await?.into_inner().answers;
    let row = |(name, answer): (String, v1::LookupAnswer)| AnswerRow {
        name,
        outcome: lookup::word(answer.outcome()),
        port: lookup::port(&answer),
    };
    Ok(names.into_iter().zip(answers).map(row).collect())
}
