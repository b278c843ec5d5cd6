//! The controllers as processes: the northbound service over gRPC, and the switches' own status over HTTP.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::identity::Kind;
use api::tls::{Files, Tls};
use api::v1::northbound_client::NorthboundClient;
use api::v1::{
    AcceptSwitchesRequest, AddSwitchRequest, DrainSwitchRequest, GetStatusRequest, Host, Link, LinkEnd, LinkList,
    ListLinksRequest, ListNamesRequest, ListSwitchesRequest, NameBatch, NameRecord, PutNamesRequest,
    RemoveNamesRequest, Switch, SwitchList,
};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::backend::{Control, Put, Stop, Tables, bytes_a_name};
use super::config::{controller_address, controller_name, controller_status, status_address};
use super::judge::mac_text;
use super::layout::{End, FAR_PORT, Layout, Mac};
use super::processes::Processes;

/// The controller opens its port within this.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The switches confirm a change within this, the first import of many names included.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// A switch answers a request for its status within this.
const STATUS_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between polls for confirmations.
const POLL: Duration = Duration::from_millis(1);
/// Names in one message of an import.
const BATCH: usize = 10_000;
/// Up to this many names go in one request, and so in one transaction.
const MAX_PUT: usize = 2000;

/// The network the controller controls.
pub(super) struct Site<'a> {
    pub(super) layout: &'a Layout,
    /// Directory of configuration files and logs.
    pub(super) directory: &'a Path,
    /// Configurations, in switch order.
    pub(super) switches: &'a [PathBuf],
    pub(super) n_controllers: usize,
    pub(super) processes: &'a mut Processes,
}

/// A client of the controllers.
pub(super) struct RemoteControl<'a> {
    pub(super) site: Site<'a>,
    runtime: Runtime,
    tls: Arc<Tls>,
    /// By controller; none where it does not answer.
    clients: Vec<Option<NorthboundClient<Channel>>>,
    /// The controller that leads.
    leader: usize,
    /// Names of the host ports, as the controller knows them.
    hosts: HashMap<(usize, u16), String>,
}

impl<'a> RemoteControl<'a> {
    /// Waits for the controllers to answer. `operator`: the certificate to show to them.
    pub(super) fn connect(site: Site<'a>, operator: &Path, stop: &Stop) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let tls = Tls::load(&Files::in_directory(operator))?;
        let mut hosts = HashMap::new();
        for (index, host) in site.layout.hosts.iter().enumerate() {
            hosts.insert((host.ends[0].switch, host.ends[0].port), format!("h{index}"));
            hosts.insert((host.ends[1].switch, host.ends[1].port), format!("h{index}-away"));
        }
        for (switch, name) in site.layout.topology.switches[..site.layout.n_gateways()].iter().enumerate() {
            hosts.insert((switch, FAR_PORT), format!("far-{name}"));
        }
        let clients = vec![None; site.n_controllers];
        let mut control = Self { site, runtime, tls, clients, leader: 0, hosts };
        control.find_leader(stop)?;
        Ok(control)
    }

    /// Waits for the controller that leads.
    fn find_leader(&mut self, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let mut failure = "no controller leads".to_owned();
            for i in 0..self.clients.len() {
                match self.follows(i) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.leader = i;
                        return Ok(());
                    }
                    Err(error) => failure = error.to_string(),
                }
            }
            self.check(stop)?;
            if Instant::now() > deadline {
                bail!(failure);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until every controller but the one that leads follows: switches that start before would all begin with that one.
    fn wait_for_followers(&mut self, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        for i in (0..self.clients.len()).filter(|i| *i != self.leader).collect::<Vec<_>>() {
            while !status(controller_status(i)).is_ok_and(|status| status["position"].is_u64()) {
                self.check(stop)?;
                if Instant::now() > deadline {
                    bail!("{} does not follow the controller that leads", controller_name(i));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Whether a controller follows another one.
    fn follows(&mut self, i: usize) -> Result<bool> {
        let mut client = self.client(i)?;
        match self.runtime.block_on(client.get_status(GetStatusRequest {})) {
            Ok(status) => Ok(!status.into_inner().leader.is_empty()),
            Err(status) => {
                self.clients[i] = None;
                Err(status.into())
            }
        }
    }

    fn kill(&mut self, i: usize) -> Result<Instant> {
        let now = Instant::now();
        self.site.processes.kill(&controller_name(i))?;
        self.clients[i] = None;
        Ok(now)
    }

    fn client(&mut self, i: usize) -> Result<NorthboundClient<Channel>> {
        if self.clients[i].is_none() {
            let url = format!("https://{}", controller_address(i));
            let connected = api::client::connect_to(Kind::Controller, &url, Some(&self.tls), Duration::from_secs(1));
            self.clients[i] = Some(api::client::northbound(self.runtime.block_on(connected)?));
        }
        self.clients[i].clone().context("it was just connected")
    }

    /// Asks the controller that leads, and again the next one that does when it is gone: `ask` may have been done twice.
    fn ask<T, F: Future<Output = Result<T, tonic::Status>>>(
        &mut self,
        ask: impl Fn(NorthboundClient<Channel>) -> F,
    ) -> Result<T> {
        loop {
            let client = self.client(self.leader)?;
            match self.runtime.block_on(ask(client)) {
                Ok(answer) => return Ok(answer),
                Err(status) if self.clients.len() == 1 => return Err(status.into()),
                Err(_) => {
                    self.clients[self.leader] = None;
                    self.find_leader(&Stop::new(false))?;
                }
            }
        }
    }

    /// Registers the switches, the host ports and the links with the controller.
    pub(super) fn register(&mut self) -> Result<()> {
        let mut client = self.client(self.leader)?;
        let Self { site, runtime, hosts, .. } = self;
        let topology = &site.layout.topology;
        runtime
            .block_on(async {
                for name in &topology.switches {
                    client.add_switch(AddSwitchRequest { name: name.clone(), ..AddSwitchRequest::default() }).await?;
                }
                for (&(switch, port), name) in hosts.iter() {
                    let switch = topology.switches[switch].clone();
                    let name = name.clone();
                    client.add_host(Host { name, switch, port: port.into(), ..Host::default() }).await?;
                }
                for (link, ends) in topology.links.iter().zip(&site.layout.trunks) {
                    let [a, b] = ends.map(|end| Some(link_end(site.layout, end)));
                    client.add_link(Link { a, b, cost: link.cost, up: true, ..Link::default() }).await?;
                }
                Ok::<_, tonic::Status>(())
            })
            .context("telling the controller of switches, hosts and links")
    }

    /// Accepts the switches that wait, once all of them do, as `fibula switch accept --all` does. Whether all are known.
    pub(super) fn accept_switches(&mut self) -> Result<bool> {
        let list = self.ask(list_switches).context("asking the controller for its switches")?;
        let n_switches = self.site.layout.n_switches();
        if list.switches.len() == n_switches {
            return Ok(true);
        }
        if list.switches.len() + list.pending.len() < n_switches {
            return Ok(false);
        }
        let accept = async |mut client: NorthboundClient<Channel>| {
            client.accept_switches(AcceptSwitchesRequest::default()).await.map(drop)
        };
        self.ask(accept).context("accepting switches")?;
        Ok(true)
    }

    /// The links that carry frames, as their ends.
    pub(super) fn links(&mut self) -> Result<Vec<[LinkEnd; 2]>> {
        let links = self.list_links()?.into_iter().filter(|link| link.up && !link.cut);
        Ok(links.filter_map(|link| Some([link.a?, link.b?])).collect())
    }

    /// The names that switches found, at most as many as the demo has hosts and one more.
    pub(super) fn learnt(&mut self) -> Result<Vec<NameRecord>> {
        let limit = self.site.layout.hosts.len() as u32 + 1;
        let list = async |mut client: NorthboundClient<Channel>| {
            let request = ListNamesRequest { limit, learnt: true, ..ListNamesRequest::default() };
            client.list_names(request).await.map(tonic::Response::into_inner)
        };
        Ok(self.ask(list).context("asking the controller for the names that were found")?.names)
    }

    /// The switches that have not confirmed all changes so far, be it that the controller does not know them.
    pub(super) fn behind(&mut self) -> Result<Vec<String>> {
        let switches = self.ask(list_switches).context("asking the controller for its switches")?.switches;
        // Each is served by one controller, and one that follows answers as of the last commit.
        let mut in_step: HashSet<String> = HashSet::new();
        let mut see = |switches: Vec<Switch>| {
            let are_in_step = switches.into_iter().filter(|switch| switch.connected && switch.in_step);
            in_step.extend(are_in_step.map(|switch| switch.name));
        };
        see(switches);
        let leader = self.leader;
        for i in (0..self.clients.len()).filter(|i| *i != leader) {
            let Ok(client) = self.client(i) else { continue };
            match self.runtime.block_on(list_switches(client)) {
                Ok(list) => see(list.switches),
                Err(_) => self.clients[i] = None,
            }
        }
        let switches = self.site.layout.topology.switches.iter();
        Ok(switches.filter(|name| !in_step.contains(*name)).cloned().collect())
    }

    /// Fails if a process has ended, or the demo is to end.
    pub(super) fn check(&mut self, stop: &Stop) -> Result<()> {
        self.site.processes.check()?;
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    fn list_links(&mut self) -> Result<Vec<Link>> {
        Ok(self.ask(list_links).context("asking the controller for its links")?.links)
    }

    fn record(&self, put: &Put) -> NameRecord {
        NameRecord {
            name: mac_text(&put.mac),
            host: self.hosts[&(put.at.switch, put.at.port)].clone(),
            ip: put.host.map_or(String::new(), |host| self.site.layout.hosts[host].ip.to_string()),
            ..NameRecord::default()
        }
    }
}

async fn list_switches(mut client: NorthboundClient<Channel>) -> Result<SwitchList, tonic::Status> {
    client.list_switches(ListSwitchesRequest {}).await.map(tonic::Response::into_inner)
}

async fn list_links(mut client: NorthboundClient<Channel>) -> Result<LinkList, tonic::Status> {
    client.list_links(ListLinksRequest {}).await.map(tonic::Response::into_inner)
}

pub(super) fn link_end(layout: &Layout, end: End) -> LinkEnd {
    LinkEnd { switch: layout.topology.switches[end.switch].clone(), port: end.port.into() }
}

impl Control for RemoteControl<'_> {
    fn start_switches(&mut self, stop: &Stop) -> Result<()> {
        self.wait_for_followers(stop)?;
        let Site { layout, directory, switches, processes, .. } = &mut self.site;
        for (name, file) in layout.topology.switches.iter().zip(*switches) {
            processes.start(directory, name, &["switch".as_ref(), "--config".as_ref(), file.as_os_str()])?;
        }
        Ok(())
    }

    fn put(&mut self, names: &[Put]) -> Result<()> {
        let records: Vec<NameRecord> = names.iter().map(|put| self.record(put)).collect();
        let put = async |mut client: NorthboundClient<Channel>| {
            if records.len() <= MAX_PUT {
                client.put_names(PutNamesRequest { names: records.clone(), only_new: false }).await?;
                return Ok(());
            }
            let batches: Vec<NameBatch> =
                records.chunks(BATCH).map(|names| NameBatch { names: names.to_vec() }).collect();
            let mut answers = client.import_names(tokio_stream::iter(batches)).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        };
        self.ask(put).context("giving names to the controller")
    }

    fn remove(&mut self, names: &[Mac]) -> Result<()> {
        let names: Vec<String> = names.iter().map(mac_text).collect();
        // One that was killed may have done it.
        let ignore_missing = self.clients.len() > 1;
        let remove = async |mut client: NorthboundClient<Channel>| {
            client.remove_names(RemoveNamesRequest { names: names.clone(), ignore_missing }).await.map(drop)
        };
        self.ask(remove).context("removing names at the controller")
    }

    fn drain(&mut self, switch: usize, undo: bool, _: &Stop) -> Result<Option<u32>> {
        let name = self.site.layout.topology.switches[switch].clone();
        let request = DrainSwitchRequest { name, undo };
        let mut client = self.client(self.leader)?;
        match self.runtime.block_on(client.drain_switch(request)) {
            Ok(drained) => Ok(Some(drained.into_inner().steps)),
            Err(status) if status.code() == tonic::Code::FailedPrecondition => Ok(None),
            Err(status) => Err(status).context("draining a switch"),
        }
    }

    fn link_changed(&mut self, link: usize, up: bool, stop: &Stop) -> Result<()> {
        let ends = self.site.layout.trunks[link].map(|end| Some(link_end(self.site.layout, end)));
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let links = self.list_links()?;
            let Some(known) = links.iter().find(|known| ends.contains(&known.a)) else {
                let [a, b] = self.site.layout.trunks[link].map(|end| link_end(self.site.layout, end));
                bail!("the controller does not know the link {}:{} - {}:{}", a.switch, a.port, b.switch, b.port);
            };
            if known.cut != up {
                return Ok(());
            }
            self.check(stop)?;
            if Instant::now() > deadline {
                let (what, seconds) = (if up { "plugged in" } else { "pulled" }, STEP_TIMEOUT.as_secs());
                bail!("{seconds} s after a cable was {what}, the controller does not know");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn lose_follower(&mut self) -> Result<Option<Instant>> {
        if self.clients.len() < 3 {
            return Ok(None);
        }
        for i in (0..self.clients.len()).filter(|i| *i != self.leader) {
            let status = status(controller_status(i)).context("asking a controller for its status")?;
            if status["connected"].as_array().is_some_and(|switches| !switches.is_empty()) {
                return self.kill(i).map(Some);
            }
        }
        Ok(None)
    }

    fn lose_leader(&mut self, names: &[Put], stop: &Stop) -> Result<Option<Duration>> {
        if self.clients.len() == 1 {
            return Ok(None);
        }
        let killed = self.kill(self.leader)?;
        self.find_leader(stop)?;
        self.put(names)?;
        Ok(Some(killed.elapsed()))
    }

    fn wait_in_step(&mut self, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let behind = self.behind()?;
            if behind.is_empty() {
                return Ok(());
            }
            self.check(stop)?;
            if Instant::now() > deadline {
                bail!(
                    "after {} s these switches have not confirmed all changes: {}",
                    STEP_TIMEOUT.as_secs(),
                    behind.join(", ")
                );
            }
            std::thread::sleep(POLL);
        }
    }

    fn tables(&mut self) -> Result<Tables> {
        let mut tables = Tables::default();
        for (switch, name) in self.site.layout.topology.switches.iter().enumerate() {
            let status = status(status_address(switch)).with_context(|| format!("asking {name} for its status"))?;
            let number = |key: &str| status[key].as_u64().with_context(|| format!("the status of {name} has no {key}"));
            tables.names = tables.names.max(number("valid_names")?);
            tables.image_bytes.push(number("fib_bytes")?);
            for (reason, n) in status["drops"].as_object().into_iter().flatten() {
                *tables.drops.entry(reason.clone()).or_default() += n.as_u64().unwrap_or_default();
            }
            let ports = status["ports"].as_array().into_iter().flatten();
            tables.overrun += ports.filter_map(|port| port["counters"]["rx_overrun"].as_u64()).sum::<u64>();
            if let Some(kernel) = status.get("kernel") {
                *tables.in_kernel.get_or_insert_default() += kernel["forwarded"].as_u64().unwrap_or_default();
                if kernel["table"].is_null() {
                    let why = kernel["error"].as_str().unwrap_or("it has no table");
                    tables.not_in_kernel.get_or_insert_with(|| format!("{name}: {why}"));
                }
            }
            let memory = bytes_a_name(&status);
            if memory.get("total") > tables.switch_memory.get("total") {
                tables.switch_memory = memory;
            }
        }
        let status = status(controller_status(self.leader)).context("asking the controller for its status")?;
        tables.controller_memory = bytes_a_name(&status);
        Ok(tables)
    }
}

/// The status of a daemon, as it serves it.
fn status(address: SocketAddr) -> Result<serde_json::Value> {
    let mut stream = TcpStream::connect_timeout(&address, STATUS_TIMEOUT)?;
    stream.set_read_timeout(Some(STATUS_TIMEOUT))?;
    stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an HTTP answer without a body")?;
    Ok(serde_json::from_str(body)?)
}
