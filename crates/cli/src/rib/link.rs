//! `fibula link`: links between switches.

use crate::remote::{Client, PortOf, answer};
use crate::rib::{Verbs, answer_of_lines, fields, print_changed, records};
use api::v1;
use api::words::counted;
use command::order::natural;
use command::output::{Output, note};
use fib::text::address::digits;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time within which a refused switch attaches again, and again reports what it sees.
const COME_WITHIN: Duration = Duration::from_secs(8);
const SEE_WITHIN: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The verbs of `fibula link`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Add a link between two ports
    Add {
        /// One end, as switch:port
        a: PortOf,
        /// The other end
        b: PortOf,
        /// Its length in shortest paths
        #[arg(long, default_value_t = 1)]
        cost: u32,
        /// Its share of flows relative to other paths of the same length: 1 to 64
        #[arg(long, default_value_t = 1)]
        weight: u32,
        /// Add it as down
        #[arg(long)]
        down: bool,
    },
    /// Add links from a CSV file: switch:port,switch:port[,cost[,weight]] (- for standard input)
    ///
    /// Checks the whole file, then adds all links in one transaction.
    Import {
        /// The file, or - for standard input
        file: PathBuf,
    },
    /// Remove the link at a port
    Del {
        /// Either end, as switch:port
        end: PortOf,
    },
    /// Change the cost, weight or state of the link at a port
    ///
    /// A found link becomes a declared one: it stays where it is when its cable is moved.
    #[command(group = clap::ArgGroup::new("what").args(["cost", "weight", "state"]).required(true).multiple(true))]
    Set {
        /// Either end, as switch:port
        end: PortOf,
        /// Its new cost
        #[arg(long)]
        cost: Option<u32>,
        /// Its share of flows relative to other paths of the same length: 1 to 64
        #[arg(long)]
        weight: Option<u32>,
        /// Whether it carries frames
        #[arg(long)]
        state: Option<State>,
    },
    /// Take a link out of use without losing a frame; refused if some switches have no other path
    Drain {
        /// Either end, as switch:port
        end: PortOf,
    },
    /// Put a link back into use without losing a frame
    Undrain {
        /// Either end, as switch:port
        end: PortOf,
    },
    /// Add all links that switches found and that are not declared
    ///
    /// `link list` shows them with the state `found`. If one needs the port of an earlier found link that is now cut,
    /// the earlier link is removed: its cable was moved.
    Accept {
        /// Their length in shortest paths
        #[arg(long, default_value_t = 1)]
        cost: u32,
        /// Share of flows of each, relative to other paths of the same length: 1 to 64
        #[arg(long, default_value_t = 1)]
        weight: u32,
    },
    /// List all links, including those that switches found
    List,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum State {
    Up,
    Down,
}

#[derive(Serialize)]
struct LinkRow {
    a: String,
    b: String,
    cost: u32,
    weight: u32,
    /// Whether it carries frames.
    up: bool,
    /// One of: up; down (by an operator); cut (as switches report); drained (avoided where possible, or down because of
    /// the drain); found (by switches, and not declared).
    state: &'static str,
    /// Whether it, or one of its switches, is drained, in any state.
    drained: bool,
    /// Whether switches found it, and no operator has declared or changed it since.
    found: bool,
}

/// Declares links that switches found. Newly accepted switches connect within seconds and then report what they see, so
/// this waits for them if there is nothing yet.
async fn accept(client: &mut Client, request: v1::AcceptLinksRequest) -> anyhow::Result<v1::Changed> {
    let mut until = None;
    loop {
        let changed = answer(client.accept_links(request).await)?;
        let v1::SwitchList { switches, .. } = answer(client.list_switches(v1::ListSwitchesRequest {}).await)?;
        let n_away = switches.iter().filter(|switch| !switch.connected).count();
        let now = Instant::now();
        let until = match until {
            None if n_away == 0 => now,
            None => {
                if changed.changed == 0 {
                    eprintln!(
                        "fibula: no links found yet, and {} not connected: waiting",
                        counted(n_away as u64, "switch is", "switches are")
                    );
                }
                *until.insert(now + COME_WITHIN)
            }
            Some(at) if n_away == 0 => *until.insert(at.min(now + SEE_WITHIN)),
            Some(at) => at,
        };
        if changed.changed > 0 || now >= until {
            return Ok(changed);
        }
        #[expect(clippy::disallowed_methods, reason = "the pause before the next question")]
        tokio::time::sleep(ASK_EVERY).await;
    }
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add { a, b, cost, weight, down } => {
                let link = v1::Link { weight: Some(weight), up: !down, ..link(a, b, cost) };
                print_changed(out, answer(client.add_link(link).await)?, "link", "added")
            }
            Verb::Import { file } => {
                let (links, lines) = records(&file, &["a,b,cost,weight", "a,b,cost", "a,b"], read)?;
                let asked = client.add_links(v1::LinkList { links, ..v1::LinkList::default() }).await;
                print_changed(out, answer_of_lines(asked, &file, &lines)?, "link", "added")
            }
            Verb::Del { end } => {
                let request = v1::RemoveLinkRequest { end: Some(end.into()) };
                print_changed(out, answer(client.remove_link(request).await)?, "link", "removed")
            }
            Verb::Set { end, cost, weight, state } => {
                let up = state.map(|state| state == State::Up);
                let request = v1::SetLinkRequest { end: Some(end.clone().into()), cost, raised: None, up, weight };
                let changed = answer(client.set_link(request).await)?;
                print_changed(out, changed, "link", "set")?;
                if changed.declared > 0 {
                    eprintln!(
                        "fibula: this link was found by switches, and is now declared: it stays as it is when its cable is moved, \
                         until `fibula link del {end}`"
                    );
                }
                Ok(())
            }
            Verb::Drain { end } => drain(client, end, false, out).await,
            Verb::Undrain { end } => drain(client, end, true, out).await,
            Verb::Accept { cost, weight } => {
                let request = v1::AcceptLinksRequest { cost, weight: Some(weight) };
                let changed = accept(&mut client, request).await?;
                print_changed(out, changed, "link", "added")
            }
            Verb::List => {
                let v1::LinkList { links, found, troubles } = answer(client.list_links(v1::ListLinksRequest {}).await)?;
                let end =
                    |end: Option<v1::LinkEnd>| end.map(|e| format!("{}:{}", e.switch, e.port)).unwrap_or_default();
                let row = |(state, link): (&'static str, v1::Link)| {
                    let v1::Link { a, b, cost, up, cut, weight, raised, drained, found, .. } = link;
                    let (weight, drained) = (weight.unwrap_or(1), drained || raised > 0);
                    let mut ends = [end(a), end(b)];
                    ends.sort_by(|a, b| natural(a, b));
                    let [a, b] = ends;
                    LinkRow { a, b, cost, weight, up: up && !cut, state, drained, found }
                };
                let state = |link: &v1::Link| match (link.up, link.cut) {
                    (true, false) if link.raised > 0 => "drained",
                    // A link that is itself down is longer only if its switch is drained.
                    (false, _) if link.drained && link.raised == 0 => "drained",
                    (false, _) => "down",
                    (true, true) => "cut",
                    (true, false) => "up",
                };
                let declared = links.into_iter().map(|link| (state(&link), link));
                let all = declared.chain(found.into_iter().map(|link| ("found", link)));
                let mut rows = all.map(row).collect::<Vec<_>>();
                rows.sort_by(|a, b| natural(&a.a, &b.a).then_with(|| natural(&a.b, &b.b)));
                out.rows(&rows)?;
                troubles.iter().for_each(|trouble| note(format!("fibula: {trouble}")));
                Ok(())
            }
        }
    }
}

#[derive(Serialize)]
struct DrainRow {
    steps: u32,
}

async fn drain(mut client: Client, end: PortOf, undo: bool, out: &Output) -> anyhow::Result<()> {
    let what = format!("{}:{}", end.switch, end.port);
    let request = v1::DrainLinkRequest { end: Some(end.into()), undo };
    let v1::Drained { steps, .. } = answer(client.drain_link(request).await)?;
    let is = if undo { "in use again" } else { "down, and no path leads over it" };
    let changes = counted(steps.into(), "change", "changes");
    out.done(&DrainRow { steps }, format!("the link at {what} is {is}, after {changes} of paths"))
}

/// The format of a line.
const LINE: &str = "switch:port,switch:port[,cost[,weight]]";

/// Parses the link of a line.
fn read(text: &str) -> Result<v1::Link, String> {
    let fields = fields(text, 2..=4, LINE)?;
    let (a, b) = (fields[0].parse()?, fields[1].parse()?);
    let number = |at: usize, what: &str| match fields.get(at).map_or("", |field| &field[..]) {
        "" => Ok(1),
        number => digits(number).ok_or_else(|| format!("{what} `{number}` is not a number")),
    };
    let (cost, weight) = (number(2, "cost")?, number(3, "weight")?);
    Ok(v1::Link { weight: Some(weight), up: true, ..link(a, b, cost) })
}

fn link(a: PortOf, b: PortOf, cost: u32) -> v1::Link {
    v1::Link { a: Some(a.into()), b: Some(b.into()), cost, ..v1::Link::default() }
}
