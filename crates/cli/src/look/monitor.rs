//! `fibula monitor`: events as they happen.

use super::{plain, time_of_day};
use crate::choices::choices;
use crate::remote::{Client, Remote, answer, refusal};
use api::v1;
use clap::builder::StringValueParser;
use command::output::{Output, write_out};
use serde::Serialize;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::Code;

/// Pause before asking a controller again that went away.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `fibula monitor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    /// Only events of these kinds: link, switch, host, names, controller
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KIND",
        hide_possible_values = true,
        value_parser = choices(StringValueParser::new(), ::controller::EVENT_KINDS)
    )]
    kind: Vec<String>,
    /// Only new events, without the last 1,000
    #[arg(long)]
    new: bool,
    /// Print the events so far, and exit
    #[arg(long, conflicts_with = "new")]
    once: bool,
}

/// An event as a row.
#[derive(Serialize)]
struct EventRow<'a> {
    sequence: u64,
    at_ms: u64,
    kind: &'a str,
    level: &'a str,
    subject: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    missed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Args {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Args { remote, kind, new, once } = self;
        remote.run(|client| watch(client, kind, new, once, out))
    }
}

async fn watch(mut client: Client, kinds: Vec<String>, new: bool, once: bool, out: &Output) -> anyhow::Result<()> {
    let mut after = if new { last_event(&mut client).await? } else { 0 };
    loop {
        let ask = v1::WatchRequest { after, kinds: kinds.clone(), once };
        let asked = client.watch(ask).await;
        // A controller that went away comes back, or says that it cannot do this.
        if let Err(status) = &asked
            && status.code() == Code::Unavailable
            && after > 0
        {
            pause().await;
            continue;
        }
        let mut events = answer(asked)?;
        let mut why = "it was stopped".to_owned();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let line = line(&event, out.is_json())?;
                    // The reader of the output may pause; the connection must stay alive meanwhile.
                    tokio::task::spawn_blocking(move || write_out(&line)).await??;
                    after = event.sequence;
                }
                Err(status) if once || status.code() == Code::PermissionDenied => return Err(refusal(&status)),
                Err(status) => {
                    why = api::client::reason(&status);
                    break;
                }
            }
        }
        if once {
            return Ok(());
        }
        eprintln!(
            "fibula: the controller ended the stream of events ({}); continuing after event {after}",
            plain(&why)
        );
        pause().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the controller is to have time to come back")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// The number of the last event so far.
async fn last_event(client: &mut Client) -> anyhow::Result<u64> {
    Ok(answer(client.get_status(v1::GetStatusRequest {}).await)?.last_event)
}

fn line(event: &v1::Event, json: bool) -> anyhow::Result<String> {
    let v1::Event { sequence, at_ms, kind, level, subject, text, missed } = event;
    if json {
        let row = EventRow { sequence: *sequence, at_ms: *at_ms, kind, level, subject, text, missed: *missed };
        return Ok(command::output::json(&row)? + "\n");
    }
    if *missed > 0 {
        return Ok(format!("{text}\n"));
    }
    let (subject, text) = (plain(subject), plain(text));
    Ok(format!("{}  {level:<7}  {kind:<10}  {subject}: {text}\n", time_of_day(*at_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = v1::Event {
            sequence: 7,
            at_ms: 1_790_000_000_123,
            kind: "link".to_owned(),
            level: "bad".to_owned(),
            subject: "s1:2 – s2:1".to_owned(),
            text: "cut\n\u{1b}[31m".to_owned(),
            missed: 0,
        };
        let text = line(&event, false).unwrap();
        assert_eq!(text, "14:13:20.123  bad      link        s1:2 – s2:1: cut\\u000a\\u001b[31m\n");
        let json: serde_json::Value = serde_json::from_str(&line(&event, true).unwrap()).unwrap();
        assert_eq!((&json["sequence"], &json["missed"]), (&7.into(), &serde_json::Value::Null));
    }
}
