//! `fibula link`: links between switches.

use crate::remote::{Client, PortOf, answer};
use crate::rib::{Verbs, print_changed};
use api::v1;
use command::output::Output;
use serde::Serialize;

/// The verbs of `fibula link`.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Add a link between two ports
    Add {
        /// One end, as switch:port
        a: PortOf,
        /// The other end
        b: PortOf,
        /// Its length in the shortest paths
        #[arg(long, default_value_t = 1)]
        cost: u32,
        /// Add it as down
        #[arg(long)]
        down: bool,
    },
    /// Remove the link at a port
    Del {
        /// Either end, as switch:port
        end: PortOf,
    },
    /// Change cost or state of the link at a port
    #[command(group = clap::ArgGroup::new("what").args(["cost", "state"]).required(true).multiple(true))]
    Set {
        /// Either end, as switch:port
        end: PortOf,
        /// Its new cost
        #[arg(long)]
        cost: Option<u32>,
        /// Whether it carries frames
        #[arg(long)]
        state: Option<State>,
    },
    /// List all links
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
    up: bool,
}

impl Verbs for Verb {
    async fn run(self, mut client: Client, out: &Output) -> anyhow::Result<()> {
        match self {
            Verb::Add { a, b, cost, down } => {
                let link = v1::Link { a: Some(a.into()), b: Some(b.into()), cost, up: !down };
                print_changed(out, answer(client.add_link(link).await)?, "link", "added")
            }
            Verb::Del { end } => {
                let request = v1::RemoveLinkRequest { end: Some(end.into()) };
                print_changed(out, answer(client.remove_link(request).await)?, "link", "removed")
            }
            Verb::Set { end, cost, state } => {
                let up = state.map(|state| state == State::Up);
                let request = v1::SetLinkRequest { end: Some(end.into()), cost, up };
                print_changed(out, answer(client.set_link(request).await)?, "link", "set")
            }
            Verb::List => {
                let links = answer(client.list_links(v1::ListLinksRequest {}).await)?.links;
                let end =
                    |end: Option<v1::LinkEnd>| end.map(|e| format!("{}:{}", e.switch, e.port)).unwrap_or_default();
                let row = |v1::Link { a, b, cost, up }| LinkRow { a: end(a), b: end(b), cost, up };
                out.rows(&links.into_iter().map(row).collect::<Vec<_>>())
            }
        }
    }
}
