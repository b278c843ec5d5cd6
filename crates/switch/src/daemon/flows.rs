//! Connection tracking in the daemon: time that passes without frames, flows that are written out as they end, and what
//! operators ask for and change.

use api::audit::Audit;
use api::flow::PAGE_FLOWS;
use api::gate::Peer;
use api::v1::change_server_request::Change as WireChange;
use api::v1::flows_server::Flows as Service;
use api::v1::{self};
use dataplane::flow::balance::{Server, endpoint_text};
use dataplane::flow::config::{mac, service_protocol};
use dataplane::flow::control::{Change, ChangeError, Cursor, Flows};
use dataplane::flow::export::{Export, FlowText, Writer};
use dataplane::flow::packet::{Endpoint, ICMP, ICMPV6, Tuple};
use dataplane::flow::rules::Prefix;
use dataplane::flow::state::protocol_name;
use dataplane::flow::{FlowView, balance::ServerError};
use dataplane::maglev::MAX_WEIGHT;
use fib::rules::{Protocols, protocols};
use fib::text::address::is_any;
use fib::unicast::check_unicast;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::{Request, Response, Status};

/// Interval at which the time is updated and a part of every table is swept.
const KEEP_EVERY: Duration = Duration::from_millis(100);
/// Number of such parts of a table: the whole table is swept in a second.
const PARTS: usize = 10;

/// At the end, how long to wait until the ended flows are taken, and then until they are written.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the tables of a switch, and writes out what ends.
#[derive(Clone)]
pub(super) struct Keeper {
    flows: Flows,
    export: Arc<Mutex<Option<Writer>>>,
}

impl Keeper {
    /// # Errors
    /// No thread to write on.
    pub(super) fn new(flows: Flows, export: Option<Export>) -> std::io::Result<Self> {
        let writer = export.map(Writer::start).transpose()?;
        Ok(Self { flows, export: Arc::new(Mutex::new(writer)) })
    }

    /// Keeps them for ever.
    pub(super) async fn run(self, switch: String) {
        let mut tick = tokio::time::interval(KEEP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let this = self.clone();
            let kept = tokio::task::spawn_blocking(move || this.keep(PARTS, Duration::ZERO)).await;
            if let Ok(Some(error)) = kept {
                tracing::error!(switch, %error, "ended flows can no longer be written; remove the cause and reload the switch (SIGHUP)");
            }
        }
    }

    /// Goes on in the file that has this name now, also after a failure. Nothing to do for what is no file, such as a pipe.
    pub(super) fn reopen(&self, path: &Path) -> std::io::Result<()> {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) || path == Path::new("-") {
            return Ok(());
        }
        let writer = Writer::start(Export::open(path)?)?;
        let before = self.export.lock().unwrap_or_else(PoisonError::into_inner).replace(writer);
        // What waits goes into the file before.
        before.map_or(Ok(()), |before| before.finish(PATIENCE)).or_else(|error| {
            tracing::error!(%error, "the last flows cannot be written to the previous file");
            Ok(())
        })
    }

    /// At the end: the present flows are written out as they are, if a program takes them.
    pub(super) fn finish(&self) -> std::io::Result<()> {
        if self.flows.settings().export {
            self.flows.flush(|_| true);
        }
        let failure = self.keep(1, PATIENCE);
        let writer = self.export.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (failure, writer) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.finish(PATIENCE),
            (None, None) => Ok(()),
        }
    }

    /// Answers why the export has ended, if it has since this was asked last.
    fn keep(&self, parts: usize, patience: Duration) -> Option<std::io::Error> {
        let export = self.export.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + patience;
        self.flows.keep(parts, |ended| {
            if let Some(writer) = &*export {
                self.flows.count_blocked(writer.offer(ended, until.saturating_duration_since(Instant::now())));
            }
        });
        export.as_ref().and_then(Writer::failure)
    }
}

/// Answers operators.
pub(super) struct Control {
    pub(super) flows: Flows,
    pub(super) audit: Arc<Audit>,
}

impl Control {
    /// Runs what takes locks where it holds up no other task.
    async fn blocking<R: Send + 'static>(&self, work: impl FnOnce(Flows) -> R + Send + 'static) -> Result<R, Status> {
        let flows = self.flows.clone();
        tokio::task::spawn_blocking(move || work(flows)).await.map_err(|error| Status::internal(error.to_string()))
    }
}

#[tonic::async_trait]
impl Service for Control {
    async fn show(&self, request: Request<v1::ShowFlowsRequest>) -> Result<Response<v1::ShowFlowsReply>, Status> {
        let v1::ShowFlowsRequest { filter, from, .. } = request.into_inner();
        let (filter, from) = (Filter::new(filter.unwrap_or_default())?, from.unwrap_or_default());
        let reply = self.blocking(move |flows| {
            let mut page = vec![];
            let next = flows.show(Cursor { stage: from.stage, place: from.place }, |flow| {
                if filter.matches(&flow.original, &flow.reply) {
                    page.push(to_wire(&flow));
                }
                page.len() < PAGE_FLOWS
            });
            let next = next.map(|Cursor { stage, place }| v1::FlowCursor { stage, place });
            v1::ShowFlowsReply { flows: page, next }
        });
        Ok(Response::new(reply.await?))
    }

    async fn count(&self, request: Request<v1::CountFlowsRequest>) -> Result<Response<v1::CountFlowsReply>, Status> {
        let filter = Filter::new(request.into_inner().filter.unwrap_or_default())?;
        let counts = self.blocking(move |flows| {
            let mut counts: BTreeMap<(u8, u8), (&str, u64)> = BTreeMap::new();
            flows.show(Cursor::default(), |flow| {
                if filter.matches(&flow.original, &flow.reply) {
                    let key = (flow.original.protocol, flow.state as u8);
                    counts.entry(key).or_insert((flow.state.name(), 0)).1 += 1;
                }
                true
            });
            counts
        });
        let row = |((protocol, _), (state, flows)): ((u8, u8), (&str, u64))| v1::FlowsOfState {
            protocol: protocol_name(protocol),
            state: state.to_owned(),
            flows,
        };
        Ok(Response::new(v1::CountFlowsReply { counts: counts.await?.into_iter().map(row).collect() }))
    }

    async fn flush(&self, request: Request<v1::FlushFlowsRequest>) -> Result<Response<v1::FlushFlowsReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let detail = api::flow::describe(request.filter.as_ref());
        let reply = self.flushed(request).await?;
        self.audit.change(&peer, "flush_flows", &detail, Ok((reply.flushed, 0)));
        Ok(Response::new(reply))
    }

    async fn stats(&self, _request: Request<v1::FlowStatsRequest>) -> Result<Response<v1::FlowStatsReply>, Status> {
        let stats = stats(&self.flows).into_iter();
        let stats = stats.map(|(name, value)| v1::FlowStat { name: name.to_owned(), value }).collect();
        Ok(Response::new(v1::FlowStatsReply { stats }))
    }

    async fn list_servers(
        &self,
        _request: Request<v1::ListServersRequest>,
    ) -> Result<Response<v1::ListServersReply>, Status> {
        let mut servers = vec![];
        for (service, protocol, members) in self.flows.servers() {
            servers.extend(members.into_iter().map(|member| v1::FlowServer {
                service: endpoint_text(service),
                protocol: protocol_name(protocol),
                server: endpoint_text(member.server.endpoint),
                weight: member.server.weight.into(),
                state: member.state_name().to_owned(),
                flows: member.flows,
                total: member.total,
            }));
        }
        Ok(Response::new(v1::ListServersReply { servers }))
    }

    async fn change_server(
        &self,
        request: Request<v1::ChangeServerRequest>,
    ) -> Result<Response<v1::ChangeServerReply>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.into_inner();
        let what = match &request.change {
            Some(WireChange::Add(_)) => "add_server",
            Some(WireChange::Drain(_)) => "drain_server",
            Some(WireChange::Remove(_)) => "remove_server",
            None => "change_server",
        };
        let detail = format!("{} of {}", request.server, request.service);
        let changed = self.change_of(request).await;
        let end = changed.as_ref().map(|()| (1, 0)).map_err(|status| status.message());
        self.audit.change(&peer, what, &detail, end);
        changed.map(|()| Response::new(v1::ChangeServerReply {}))
    }
}

impl Control {
    /// Ends flows. The caller records it.
    pub(super) async fn flushed(&self, request: v1::FlushFlowsRequest) -> Result<v1::FlushFlowsReply, Status> {
        let filter = Filter::new(request.filter.unwrap_or_default())?;
        let flushed = self.blocking(move |flows| flows.flush(|ends| filter.matches(&ends.original, &ends.reply)));
        Ok(v1::FlushFlowsReply { flushed: flushed.await? })
    }

    /// Changes the servers of a virtual address. The caller records it.
    pub(super) async fn change_of(&self, request: v1::ChangeServerRequest) -> Result<(), Status> {
        let v1::ChangeServerRequest { service, protocol, server, change, .. } = request;
        let (service, server) = (endpoint(&service)?, endpoint(&server)?);
        let protocol = if protocol.is_empty() { "tcp" } else { &protocol };
        let protocol = service_protocol(protocol).map_err(Status::invalid_argument)?;
        let change = match change {
            Some(WireChange::Add(v1::AddServer { weight, mac: text })) => Change::Add(Server {
                endpoint: check_unicast(IpAddr::from(server.address))
                    .map(|()| server)
                    .map_err(|error| Status::invalid_argument(error.to_string()))?,
                weight: weight.try_into().map_err(|_| {
                    Status::invalid_argument(format!("weight {weight} is too large; give at most {MAX_WEIGHT}"))
                })?,
                mac: (!text.is_empty()).then(|| mac(&text)).transpose().map_err(Status::invalid_argument)?,
            }),
            Some(WireChange::Drain(_)) => Change::Drain(server),
            Some(WireChange::Remove(v1::RemoveServer { keep })) => Change::Remove { server, keep },
            None => return Err(Status::invalid_argument("the request has no change; set add, drain or remove")),
        };
        let changed = self.blocking(move |flows| flows.change(service, protocol, change)).await?;
        changed.map_err(|error| match &error {
            ChangeError::Virtual(_) | ChangeError::Server(ServerError::Unknown(_)) => {
                Status::not_found(error.to_string())
            }
            ChangeError::Server(ServerError::TooMany) => Status::failed_precondition(error.to_string()),
            _ => Status::invalid_argument(error.to_string()),
        })
    }
}

/// Everything that is counted, with how full the tables are.
pub(super) fn stats(flows: &Flows) -> Vec<(&'static str, u64)> {
    let all = flows.occupancy();
    let now = [("flows", all.flows), ("entries", all.entries), ("slots", all.slots), ("nat_ports", all.nat_ports)];
    now.into_iter().chain(flows.counts().fields()).collect()
}

fn endpoint(text: &str) -> Result<Endpoint, Status> {
    let wrong =
        || Status::invalid_argument(format!("`{text}` is not an address with a port; write it like 10.0.0.11:80"));
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok(Endpoint { address: address.ip().into(), port: address.port() })
}

/// Which flows are meant.
struct Filter {
    protocol: Protocols,
    address: Option<Prefix>,
    port: Option<u16>,
}

impl Filter {
    fn new(filter: v1::FlowFilter) -> Result<Self, Status> {
        let v1::FlowFilter { protocol, address, port } = filter;
        let protocol = match Some(&protocol[..]).filter(|name| !name.is_empty()).map(protocols) {
            None => Protocols::Any,
            Some(named) => named.map_err(|error| Status::invalid_argument(format!("protocol: {error}")))?,
        };
        let port =
            port.map(|port| u16::try_from(port).map_err(|_| format!("port {port} is too large; give at most 65535")));
        Ok(Self {
            protocol,
            address: Some(address)
                .filter(|text| !text.is_empty() && !is_any(text))
                .map(|text| text.parse())
                .transpose()
                .map_err(Status::invalid_argument)?,
            port: port.transpose().map_err(Status::invalid_argument)?,
        })
    }

    /// Whether a flow is meant, by any address or port that its packets have before or after translation.
    fn matches(&self, original: &Tuple, reply: &Tuple) -> bool {
        let ends = [original.source, original.destination, reply.source, reply.destination];
        let is_of = match self.protocol {
            Protocols::Any => true,
            Protocols::Icmp => matches!(original.protocol, ICMP | ICMPV6),
            Protocols::Icmpv6 => original.protocol == ICMPV6,
            Protocols::One(number) => original.protocol == number,
        };
        is_of
            && self.address.is_none_or(|prefix| ends.iter().any(|end| prefix.contains(end.address)))
            && self.port.is_none_or(|port| ends.iter().any(|end| end.port == port))
    }
}

fn to_wire(flow: &FlowView) -> v1::Flow {
    let FlowText { protocol, source, destination, reply_source, reply_destination, vlan, state } = FlowText::new(flow);
    v1::Flow {
        protocol,
        source,
        destination,
        reply_source: reply_source.unwrap_or_default(),
        reply_destination: reply_destination.unwrap_or_default(),
        vlan: vlan.unwrap_or_default().into(),
        state: state.to_owned(),
        packets: flow.packets[0],
        reply_packets: flow.packets[1],
        bytes: flow.bytes[0],
        reply_bytes: flow.bytes[1],
        age_seconds: flow.age_s,
        remaining_seconds: flow.remaining_s,
    }
}
