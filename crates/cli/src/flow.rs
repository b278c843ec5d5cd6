//! `fibula flow`: the connections that a switch tracks and the servers of its virtual addresses, queried from the
//! switch directly, or through the controller.

use crate::remote::{Remote, answer, exit_of};
use api::client::ConnectError;
use api::identity::Kind;
use api::v1;
use api::v1::change_server_request::Change;
use api::v1::flows_client::FlowsClient;
use command::output::{Exit, Failure, Output};
use serde::Serialize;
use tonic::transport::Channel;

/// Which switch to ask.
#[derive(clap::Args)]
pub(crate) struct At {
    /// The switch to ask through the controller; otherwise the one at --at is asked directly
    #[arg(long, global = true, value_name = "SWITCH", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    switch: Option<String>,
    /// Address of the switch to ask directly: `control` in the section "flow" of its switch.toml; by default the variable
    /// FIBULA_FLOW, or 127.0.0.1:4604. Refused with --switch
    #[arg(long, global = true, value_name = "ADDRESS")]
    at: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// The flows to select.
#[derive(clap::Args, Clone)]
pub(crate) struct Filter {
    /// tcp, udp, icmp, icmpv6 or a number
    #[arg(long)]
    protocol: Option<String>,
    /// Address or prefix of either end, before or after translation: a server's address finds its flows
    #[arg(long)]
    address: Option<String>,
    /// Port of either end, before or after translation
    #[arg(long)]
    port: Option<u16>,
}

impl From<Filter> for v1::FlowFilter {
    fn from(Filter { protocol, address, port }: Filter) -> Self {
        v1::FlowFilter {
            protocol: protocol.unwrap_or_default(),
            address: address.unwrap_or_default(),
            port: port.map(u32::from),
        }
    }
}

/// Arguments of `fibula flow`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show flows: both ends, state, packets and bytes each way
    Show {
        #[command(flatten)]
        filter: Filter,
        /// Show at most this many flows
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
    /// Count flows by protocol and state
    Count {
        #[command(flatten)]
        filter: Filter,
    },
    /// End flows: their packets are dropped from then on, unless a rule lets the flow start again
    Flush {
        #[command(flatten)]
        filter: Filter,
        /// Select all flows
        #[arg(long, conflicts_with_all = ["protocol", "address", "port"])]
        all: bool,
    },
    /// Show counters: flows begun and ended, packets and flows refused, each by reason
    Stats,
    /// Servers of virtual addresses
    #[command(subcommand)]
    Server(ServerVerb),
}

/// A server of a virtual address.
#[derive(clap::Args)]
struct ServerArgs {
    /// The virtual address and its port: 10.0.0.100:80
    service: String,
    /// The server's address and port: 10.0.0.11:80
    server: String,
    /// Protocol of the virtual address: tcp or udp
    #[arg(long, default_value = "tcp")]
    protocol: String,
}

#[derive(clap::Subcommand)]
enum ServerVerb {
    /// List servers, with the flows they have
    List,
    /// Send new flows to a server: a new one, or one that was drained
    Add {
        #[command(flatten)]
        server: ServerArgs,
        /// Its share of new flows, relative to the others
        #[arg(long, default_value_t = 1)]
        weight: u32,
        /// Its MAC address, if the network does not know it
        #[arg(long)]
        mac: Option<String>,
    },
    /// Send no new flows to a server; it keeps the ones it has
    Drain(ServerArgs),
    /// Like drain, but forget the server when its last flow ends; its UDP flows end at once
    Remove {
        #[command(flatten)]
        server: ServerArgs,
        /// Also keep its UDP flows until they end
        #[arg(long)]
        drain: bool,
    },
}

#[derive(Serialize)]
struct FlowRow {
    protocol: String,
    source: String,
    destination: String,
    reply_source: Option<String>,
    reply_destination: Option<String>,
    vlan: u32,
    state: String,
    packets: u64,
    reply_packets: u64,
    bytes: u64,
    reply_bytes: u64,
    age_s: u64,
    remaining_s: u64,
}

impl From<v1::Flow> for FlowRow {
    fn from(flow: v1::Flow) -> Self {
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        FlowRow {
            protocol: flow.protocol,
            source: flow.source,
            destination: flow.destination,
            reply_source: text(flow.reply_source),
            reply_destination: text(flow.reply_destination),
            vlan: flow.vlan,
            state: flow.state,
            packets: flow.packets,
            reply_packets: flow.reply_packets,
            bytes: flow.bytes,
            reply_bytes: flow.reply_bytes,
            age_s: flow.age_seconds,
            remaining_s: flow.remaining_seconds,
        }
    }
}

#[derive(Serialize)]
struct CountRow {
    protocol: String,
    state: String,
    flows: u64,
}

#[derive(Serialize)]
struct StatRow {
    name: String,
    value: u64,
}

#[derive(Serialize)]
struct ServerRow {
    service: String,
    protocol: String,
    server: String,
    weight: u32,
    state: String,
    flows: u64,
    total: u64,
}

type Client = FlowsClient<Channel>;

impl Args {
    /// # Errors
    /// Exit code 2 for an invalid address, 3 for an invalid filter or server, 4 if the switch does not answer or the
    /// server does not exist.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let Args { at, verb } = self;
        if let Verb::Flush { filter, all: false } = &verb
            && filter.protocol.is_none()
            && filter.address.is_none()
            && filter.port.is_none()
        {
            return Err(Failure::new(Exit::Usage, "select flows with --protocol, --address, --port, or --all"));
        }
        crate::remote::block_on(async {
            let mut client = connect(&at).await?;
            let switch = at.switch.unwrap_or_default();
            match verb {
                Verb::Show { filter, limit } => show(&mut client, switch, filter, limit, out).await,
                Verb::Count { filter } => {
                    let request = v1::CountFlowsRequest { filter: Some(filter.into()), switch };
                    let counts = answer(client.count(request).await)?.counts.into_iter();
                    let row = |v1::FlowsOfState { protocol, state, flows }| CountRow { protocol, state, flows };
                    out.rows(&counts.map(row).collect::<Vec<_>>())
                }
                Verb::Flush { filter, .. } => {
                    let request = v1::FlushFlowsRequest { filter: Some(filter.into()), switch };
                    let flushed = answer(client.flush(request).await)?.flushed;
                    out.done(&serde_json::json!({ "flushed": flushed }), format!("{flushed} flows flushed"))
                }
                Verb::Stats => {
                    let stats = answer(client.stats(v1::FlowStatsRequest { switch }).await)?.stats.into_iter();
                    let row = |v1::FlowStat { name, value }| StatRow { name, value };
                    out.rows(&stats.map(row).collect::<Vec<_>>())
                }
                Verb::Server(verb) => servers(&mut client, switch, verb, out).await,
            }
        })
    }
}

async fn show(client: &mut Client, switch: String, filter: Filter, limit: u64, out: &Output) -> anyhow::Result<()> {
    let (mut rows, mut from): (Vec<FlowRow>, _) = (vec![], None);
    loop {
        let request = v1::ShowFlowsRequest { filter: Some(filter.clone().into()), from, switch: switch.clone() };
        let reply = answer(client.show(request).await)?;
        let room = (limit as usize).saturating_sub(rows.len());
        let more = reply.flows.len() > room;
        rows.extend(reply.flows.into_iter().take(room).map(FlowRow::from));
        from = reply.next;
        if more || from.is_some() && rows.len() as u64 >= limit {
            out.rows(&rows)?;
            eprintln!("more than {limit} flows: raise --limit, or select with --protocol, --address, --port");
            return Ok(());
        }
        if from.is_none() {
            return out.rows(&rows);
        }
    }
}

async fn servers(client: &mut Client, switch: String, verb: ServerVerb, out: &Output) -> anyhow::Result<()> {
    let (ServerArgs { service, server, protocol }, change, done) = match verb {
        ServerVerb::List => {
            let servers = answer(client.list_servers(v1::ListServersRequest { switch }).await)?.servers.into_iter();
            let row = |server: v1::FlowServer| ServerRow {
                service: server.service,
                protocol: server.protocol,
                server: server.server,
                weight: server.weight,
                state: server.state,
                flows: server.flows,
                total: server.total,
            };
            return out.rows(&servers.map(row).collect::<Vec<_>>());
        }
        ServerVerb::Add { server, weight, mac } => {
            (server, Change::Add(v1::AddServer { weight, mac: mac.unwrap_or_default() }), "takes new flows")
        }
        ServerVerb::Drain(server) => (server, Change::Drain(v1::DrainServer {}), "takes no new flows"),
        ServerVerb::Remove { server, drain } => (
            server,
            Change::Remove(v1::RemoveServer { keep: drain }),
            "takes no new flows, and is forgotten with its last one",
        ),
    };
    let sentence = format!("{server} {done}");
    let request = v1::ChangeServerRequest { service, protocol, server, change: Some(change), switch };
    answer(client.change_server(request).await)?;
    out.done(&serde_json::json!({ "ok": true }), sentence)
}

async fn connect(At { switch, at, remote }: &At) -> anyhow::Result<Client> {
    if let Some(switch) = switch {
        if let Some(at) = at {
            let why =
                format!("the controller asks switch `{switch}`, so --at {at} cannot be used; leave one of them out");
            return Err(Failure::new(Exit::Usage, why));
        }
        return Ok(api::client::flows(remote.channel().await?));
    }
    let of_environment = || std::env::var("FIBULA_FLOW").ok().filter(|at| !at.is_empty());
    let at = &at.clone().or_else(of_environment).unwrap_or_else(|| "127.0.0.1:4604".to_owned());
    let channel = remote.credentials().connect(Kind::Switch, at).await?.map_err(|error| match error {
        ConnectError::Unreachable { reason, .. } => Failure::new(
            Exit::NotFound,
            format!(
                "no switch answers at {at} ({reason}); set --at or FIBULA_FLOW to the address of `control` in [flow] \
                 of its switch.toml"
            ),
        ),
        ConnectError::BadUrl { .. } => {
            Failure::new(Exit::Usage, format!("`{at}` is not an address; write it like 10.0.0.2:4604"))
        }
        error => Failure::new(exit_of(&error), error),
    })?;
    Ok(api::client::flows(channel))
}
