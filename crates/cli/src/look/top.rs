//! `fibula top`: the switches of a network, their rates and drops, and events, in a terminal.

mod columns;
mod details;
mod screen;

use super::rate;
use crate::look::top::screen::{Screen, Step};
use crate::remote::{Client, Remote, answer};
use api::v1;
use command::order::natural;
use command::output::{Output, to_stdout};
use ratatui::crossterm::event;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Status;

/// Interval between redraws when no key is pressed.
const EVERY: Duration = Duration::from_secs(1);

/// Arguments of `fibula top`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    /// Print the table of switches once, as if standard output were no terminal
    #[arg(long)]
    once: bool,
}

/// What the controller answers in one round.
#[derive(Debug, Default)]
struct Look {
    status: v1::Status,
    switches: Vec<v1::Switch>,
    pending: Vec<v1::PendingSwitch>,
    links: v1::LinkList,
    /// The switch whose details are shown.
    details: Option<v1::SwitchDetails>,
    at: Option<Instant>,
}

/// A switch as a row.
#[derive(Serialize)]
struct SwitchRow<'a> {
    switch: &'a str,
    state: &'static str,
    hosts: u64,
    frames_in_per_second: Option<f64>,
    frames_out_per_second: Option<f64>,
    bits_in_per_second: Option<f64>,
    bits_out_per_second: Option<f64>,
    drops_per_second: Option<f64>,
    waiting_messages: u64,
    resident_bytes: Option<u64>,
}

impl SwitchRow<'_> {
    fn of(switch: &v1::Switch) -> SwitchRow<'_> {
        let v1::Switch { name, hosts, rates, memory, .. } = switch;
        let of = |value: fn(&v1::Rates) -> f64| rates.as_ref().map(|rates| (value(rates) * 10.0).round() / 10.0);
        SwitchRow {
            switch: name,
            state: state(switch),
            hosts: *hosts,
            frames_in_per_second: of(|r| r.frames_in),
            frames_out_per_second: of(|r| r.frames_out),
            bits_in_per_second: of(|r| 8.0 * r.bytes_in),
            bits_out_per_second: of(|r| 8.0 * r.bytes_out),
            drops_per_second: of(|r| r.drops),
            waiting_messages: waiting(switch),
            resident_bytes: memory.as_ref().map(|memory| memory.resident_bytes),
        }
    }
}

/// A switch in the table.
#[derive(Serialize)]
struct ShownSwitch<'a> {
    switch: &'a str,
    state: &'static str,
    hosts: u64,
    #[serde(rename = "in/s")]
    frames_in: Option<String>,
    #[serde(rename = "out/s")]
    frames_out: Option<String>,
    #[serde(rename = "bit/s in")]
    bits_in: Option<String>,
    #[serde(rename = "bit/s out")]
    bits_out: Option<String>,
    #[serde(rename = "drops/s")]
    drops: Option<String>,
    waiting: String,
    memory: Option<String>,
}

impl<'a> ShownSwitch<'a> {
    fn of(row: &SwitchRow<'a>) -> ShownSwitch<'a> {
        ShownSwitch {
            switch: row.switch,
            state: row.state,
            hosts: row.hosts,
            frames_in: row.frames_in_per_second.map(rate),
            frames_out: row.frames_out_per_second.map(rate),
            bits_in: row.bits_in_per_second.map(rate),
            bits_out: row.bits_out_per_second.map(rate),
            drops: row.drops_per_second.map(rate),
            waiting: rate(row.waiting_messages as f64),
            memory: row.resident_bytes.map(command::units::bytes),
        }
    }
}

/// The state of a switch in a word.
fn state(switch: &v1::Switch) -> &'static str {
    match switch {
        v1::Switch { connected: false, .. } => "away",
        v1::Switch { cannot_follow, .. } if !cannot_follow.is_empty() => "full",
        v1::Switch { in_step: false, .. } => "behind",
        _ => "in step",
    }
}

fn waiting(switch: &v1::Switch) -> u64 {
    switch.sent_messages.saturating_sub(switch.acknowledged_messages)
}

impl Args {
    /// # Errors
    /// Those of the controller, with the exit code for their kind.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Args { remote, once } = self;
        remote.run(|client| async move {
            if once || out.is_json() || !std::io::stdout().is_terminal() {
                print(client, out).await
            } else {
                show(client).await
            }
        })
    }
}

async fn print(mut client: Client, out: &Output) -> anyhow::Result<()> {
    let mut look = answer(look(&mut client, None).await.map(tonic::Response::new))?;
    look.switches.sort_by(|a, b| natural(&a.name, &b.name));
    out.rows_as(&look.switches.iter().map(SwitchRow::of).collect::<Vec<_>>(), ShownSwitch::of)
}

async fn look(client: &mut Client, details_of: Option<&str>) -> Result<Look, Status> {
    let status = client.get_status(v1::GetStatusRequest {}).await?.into_inner();
    let v1::SwitchList { switches, pending, troubles } =
        client.list_switches(v1::ListSwitchesRequest {}).await?.into_inner();
    let mut links = client.list_links(v1::ListLinksRequest {}).await?.into_inner();
    links.troubles.splice(..0, troubles);
    let details = match details_of {
        // The switch may have been removed meanwhile.
        Some(name) => client.get_switch(v1::GetSwitchRequest { name: name.to_owned() }).await.ok(),
        None => None,
    };
    let details = details.map(tonic::Response::into_inner);
    Ok(Look { status, switches, pending, links, details, at: Some(Instant::now()) })
}

/// Keys and changes of size, until the process ends.
fn keys() -> mpsc::Receiver<event::Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Draws until the user quits.
async fn show(mut client: Client) -> anyhow::Result<()> {
    let first = answer(look(&mut client, None).await.map(tonic::Response::new))?;
    let mut screen = Screen::new(first);
    let mut terminal = ratatui::try_init().map_err(to_stdout)?;
    let done = draw(&mut terminal, &mut client, &mut screen).await;
    ratatui::restore();
    done
}

async fn draw(terminal: &mut ratatui::DefaultTerminal, client: &mut Client, screen: &mut Screen) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(EVERY);
    let mut keys = keys();
    let mut events = None;
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(to_stdout)?;
        if events.is_none() {
            let ask = v1::WatchRequest { after: screen.last_event(), ..v1::WatchRequest::default() };
            events = client.watch(ask).await.ok().map(tonic::Response::into_inner);
        }
        let next_event = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = next_event => match event {
                Some(Ok(event)) => screen.heard(event),
                _ => events = None,
            },
            _ = tick.tick() => match look(client, screen.details_of()).await {
                Ok(look) => screen.look(look),
                Err(status) => {
                    events = None;
                    screen.lost(api::client::reason(&status));
                }
            },
            key = keys.recv() => match key.map(|event| screen.key(&event)) {
                Some(Step::Go) => {}
                Some(Step::Look) => if let Ok(look) = look(client, screen.details_of()).await {
                    screen.look(look);
                },
                // Without a keyboard, the user could not quit.
                Some(Step::End) | None => return Ok(()),
            },
        }
    }
}
