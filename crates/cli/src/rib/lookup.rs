//! `fibula switch lookup`: which port a name is at, queried from a switch itself.

use crate::remote::{Credentials, answer, exit_of};
use api::client::ConnectError;
use api::identity::Kind;
use api::v1::lookup_client::LookupClient;
use api::{lookup, v1};
use command::output::{Exit, Failure, OrExit, Output, to_stdout};
use command::text::TextReader;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use tonic::transport::Channel;

/// Which switch to ask, and for what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of the switch's look-up service: `lookup` in its switch.toml
    #[arg(long, env = "FIBULA_LOOKUP", default_value = "127.0.0.1:4603", value_name = "ADDRESS")]
    at: String,
    #[command(flatten)]
    credentials: Credentials,
    /// Names; without any, they are read from standard input, one a line
    names: Vec<String>,
    /// Names from standard input that are asked for together
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
            return out.rows(&runtime.block_on(ask(&mut client, names))?);
        }
        let is_terminal = std::io::stdin().is_terminal();
        if is_terminal {
            eprintln!("type names, one a line, and end with Ctrl-D");
        }
        let batch = if is_terminal { 1 } else { batch as usize };
        let mut lines = TextReader::new(std::io::stdin().lock()).lines();
        let mut stdout = std::io::stdout().lock();
        loop {
            let names = lines.by_ref().filter(|line| !line.as_ref().is_ok_and(|line| line.trim().is_empty()));
            let names = names.take(batch).collect::<Result<Vec<String>, _>>();
            let names = names.or_exit(Exit::BadInput, "standard input")?;
            if names.is_empty() {
                return Ok(());
            }
            for row in runtime.block_on(ask(&mut client, names))? {
                let AnswerRow { name, outcome, port } = &row;
                let port = port.map(|port| port.to_string()).unwrap_or_default();
                if out.is_json() {
                    writeln!(stdout, "{}", command::output::json(&row)?).map_err(to_stdout)?;
                } else {
                    writeln!(stdout, "{},{outcome},{port}", fib::list::quote(name)).map_err(to_stdout)?;
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
                "no switch answers at {at} ({reason}); give --at or FIBULA_LOOKUP the address that is `lookup` in its \
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

async fn ask(client: &mut LookupClient<Channel>, names: Vec<String>) -> anyhow::Result<Vec<AnswerRow>> {
    let request = v1::LookupRequest { names: names.clone() };
    let answers = answer(client.lookup(request).await)?.answers;
    let row = |(name, answer): (String, v1::LookupAnswer)| AnswerRow {
        name,
        outcome: lookup::word(answer.outcome()),
        port: lookup::port(&answer),
    };
    Ok(names.into_iter().zip(answers).map(row).collect())
}
