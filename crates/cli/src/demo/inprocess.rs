//! The demo without root: the same RIB, network, update messages, replicas and forwarding code in one process, over
//! in-memory ports. No namespaces, no Linux stack, no TCP, no controller process; see [`super::engine`].

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dataplane::assembly::{self, PortSpec};
use dataplane::port::Role;
use dataplane::source::CheckSource;
use fib::action::PortId;
use fib::durable::Tenants;
use fib::messages::{Report, ValueMode};
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, Settings};
use fib::replica::{Limits, Replica};
use fib::rib::Attachment;
use fib::topology::{End as NetworkEnd, Goal, NodeId};
use lookup::hash::SecretKey;
use netio::backend::loopback;

use super::backend::{Backend, Control, Fault, Put, SetOnDrop, Stop, Tables};
use super::engine::{Cable, Engine, Input, Outlet, Shared, Unit};
use super::frames::{PROBE_PORT, arp_request, echo_request, probe_payload, udp};
use super::hosts::{Bulk, Pings, across};
use super::judge::{Judge, Phase};
use super::layout::{End, FAR_PORT, Layout, Mac};
use super::phases::{Findings, Run};
use super::privileged::Sizes;

/// Longest frame: 1500 bytes behind an Ethernet header, and the shim.
const MAX_FRAME: usize = 1518;
/// Bytes of [`MAX_FRAME`] that the shim takes.
const SHIM_LEN: usize = dataplane::shim::LEN;
/// Bulk UDP frames in flight at once: fewer than a cable holds, so that none overflows.
const WINDOW: u64 = 64;
/// Payload of a datagram of bulk UDP.
const DATAGRAM_LEN: usize = 1472;
/// Nothing is lost in memory: an answer arrives within this on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The switches confirm a change within this, the first import of many names included.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between polls.
const POLL: Duration = Duration::from_micros(50);

/// Builds the network and runs all phases.
pub(super) fn run(
    layout: &Layout,
    sizes: &Sizes<'_>,
    judge: &Judge,
    stop: &Stop,
    progress: &dyn Fn(String),
) -> Result<(Findings, Tables)> {
    let shared = Shared::new(layout);
    let engine = build(layout, &shared, judge)?;
    let mut control = LocalControl::new(layout, &shared, sizes)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| engine.run(&done));
        let _done = SetOnDrop(&done);
        let run = Run {
            layout,
            backend: &Memory { layout, shared: &shared },
            control: &mut control,
            judge,
            stop,
            n_names: sizes.n_names,
            seconds: sizes.seconds,
            progress,
        };
        run.all().and_then(|findings| Ok((findings, control.tables()?)))
    })
}

/// Joins all ports with in-memory cables.
fn build<'a>(layout: &'a Layout, shared: &'a Shared, judge: &'a Judge) -> Result<Engine<'a>> {
    let settings = loopback::Settings { max_frame: MAX_FRAME, ..loopback::Settings::default() };
    let mut ports: Vec<Vec<PortSpec>> = layout.ports.iter().map(|_| Vec::new()).collect();
    let mut add = |end: End, port: PortSpec| ports[end.switch].push(port);
    for (&[a, b], whole) in layout.trunks.iter().zip(&shared.whole) {
        let (end_a, end_b) = loopback::pair(&label(a), &label(b), &settings)?;
        add(a, PortSpec::new(a.port, Role::Trunk, Cable { end: end_a, whole: whole.clone() }));
        add(b, PortSpec::new(b.port, Role::Trunk, Cable { end: end_b, whole: whole.clone() }));
    }
    let mut outlets = Vec::new();
    let hosts =
        layout.hosts.iter().enumerate().flat_map(|(station, host)| {
            host.ends.iter().enumerate().map(move |(cable, &end)| (station, Some(cable), end))
        });
    let far = (0..layout.n_gateways()).map(|switch| (layout.far(switch), None, End { switch, port: FAR_PORT }));
    for (station, cable, at) in hosts.chain(far) {
        let (inner, end) = loopback::pair(&label(at), &layout.station_name(station), &settings)?;
        add(at, PortSpec { check_source: CheckSource::Mac, ..PortSpec::new(at.port, Role::Host, inner) });
        outlets.push(Outlet { station, cable, end });
    }
    let plane = assembly::Settings { max_frame: MAX_FRAME - SHIM_LEN, ..assembly::Settings::default() };
    let units = ports
        .into_iter()
        .map(|ports| {
            let (mut workers, monitor, writer) = assembly::build(&plane, ports)?;
            let worker = workers.pop().expect("one worker was asked for");
            Ok(Unit { replica: Replica::new(Limits::default(), writer), worker, monitor })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Engine { layout, shared, judge, units, outlets })
}

fn label(end: End) -> String {
    super::layout::device(end.switch, end.port)
}

/// Hosts over in-memory cables.
struct Memory<'a> {
    layout: &'a Layout,
    shared: &'a Shared,
}

impl Memory<'_> {
    fn post(&self, host: usize, frame: Vec<u8>) {
        self.shared.post(Input::Frame { host, frame });
    }

    /// Waits until `satisfied`, at most [`PATIENCE`]. Stops early when the engine has ended.
    fn wait(&self, stop: &Stop, satisfied: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !satisfied() {
            if Instant::now() > deadline || stop.load(Ordering::Relaxed) || self.shared.fault().is_some() {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

impl Backend for Memory<'_> {
    fn send_datagram(&self, from: usize, to: usize, payload: &[u8]) {
        let (source, target) = (&self.layout.hosts[from], &self.layout.hosts[to]);
        // Without an answer to its ARP request a host cannot send; the judge counts the probe as lost.
        let neighbour = self.shared.stacks()[from].neighbours.get(&target.ip).copied();
        if let Some(mac) = neighbour {
            self.post(from, udp((source.mac, source.ip), (mac, target.ip), PROBE_PORT, payload));
        }
    }

    fn send_frame(&self, from: usize, frame: &[u8]) {
        self.post(from, frame.to_vec());
    }

    fn ping_all(&self, stop: &Stop) -> Result<Pings> {
        let hosts = &self.layout.hosts;
        let n = hosts.len();
        let mut rtts_us = Vec::new();
        // One ping per host at a time, so that no cable overflows, however many hosts there are.
        for distance in 1..n {
            let pairs: Vec<(usize, usize)> = (0..n).map(|from| (from, (from + distance) % n)).collect();
            for &(from, to) in &pairs {
                self.post(from, arp_request((hosts[from].mac, hosts[from].ip), hosts[to].ip));
            }
            self.wait(stop, || {
                let stacks = self.shared.stacks();
                pairs.iter().all(|&(from, to)| stacks[from].neighbours.contains_key(&hosts[to].ip))
            });
            let begun = Instant::now();
            for &(from, to) in &pairs {
                let neighbour = self.shared.stacks()[from].neighbours.get(&hosts[to].ip).copied();
                if let Some(mac) = neighbour {
                    self.post(from, echo_request((hosts[from].mac, hosts[from].ip), (mac, hosts[to].ip), to as u16));
                }
            }
            self.wait(stop, || {
                let stacks = self.shared.stacks();
                pairs.iter().all(|&(from, to)| stacks[from].echoed.contains_key(&(to as u16)))
            });
            let stacks = self.shared.stacks();
            let replies = pairs.iter().filter_map(|&(from, to)| stacks[from].echoed.get(&(to as u16)));
            rtts_us.extend(replies.map(|at| at.duration_since(begun).as_secs_f64() * 1e6));
        }
        Ok(Pings::new((n * (n - 1)) as u64, rtts_us.len() as u64, rtts_us))
    }

    fn has_tcp(&self) -> bool {
        false
    }

    fn tcp(&self, _: usize, _: Option<u64>, _: Instant, _: &Stop) -> Result<Bulk> {
        bail!("hosts without a Linux stack have no TCP")
    }

    fn udp(&self, n_flows: usize, judge: &Judge, until: Instant, stop: &Stop) -> Result<Bulk> {
        let flows = across(self.layout.hosts.len(), n_flows);
        let begun = Instant::now();
        let mut lost = judge.outstanding();
        let mut progress = (lost, Instant::now());
        let mut begins = true;
        while (begins || Instant::now() < until) && !stop.load(Ordering::Relaxed) {
            let outstanding = judge.outstanding();
            if outstanding != progress.0 {
                progress = (outstanding, Instant::now());
            } else if progress.1.elapsed() > PATIENCE {
                lost = outstanding;
            }
            let room = (lost + WINDOW).saturating_sub(outstanding);
            if room < WINDOW / 2 {
                std::thread::sleep(POLL);
                continue;
            }
            begins = false;
            for i in 0..room as usize {
                let (from, to) = flows[i % flows.len()];
                self.send_datagram(from, to, &probe_payload(judge.send(1), DATAGRAM_LEN));
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.wait(stop, || judge.outstanding() <= lost);
        let counts = judge.counts(Phase::Udp);
        Ok(Bulk {
            flows: flows.len() as u64,
            bytes: counts.delivered * DATAGRAM_LEN as u64,
            seconds,
            datagrams_sent: counts.sent,
            datagrams_received: counts.delivered,
            ..Bulk::default()
        })
    }

    fn plug_other(&self, host: usize) -> Result<usize> {
        let other = 1 - self.shared.cable[host].load(Ordering::Relaxed);
        self.shared.plugged[host][other].store(true, Ordering::Relaxed);
        self.shared.cable[host].store(other, Ordering::Relaxed);
        Ok(other)
    }

    fn unplug_other(&self, host: usize) -> Result<()> {
        let other = 1 - self.shared.cable[host].load(Ordering::Relaxed);
        self.shared.plugged[host][other].store(false, Ordering::Relaxed);
        Ok(())
    }

    fn carry_over(&self, host: usize) -> Result<usize> {
        let cable = self.shared.cable[host].load(Ordering::Relaxed);
        self.shared.plugged[host][cable].store(false, Ordering::Relaxed);
        self.plug_other(host)
    }

    fn set_trunk(&self, link: usize, fault: Fault, up: bool) -> Result<()> {
        if fault == Fault::Silent {
            bail!("cables in memory have no carriers, so none fails without a sign");
        }
        self.shared.whole[link].store(up, Ordering::Relaxed);
        Ok(())
    }
}

/// The network itself instead of a controller.
struct LocalControl<'a> {
    layout: &'a Layout,
    shared: &'a Shared,
    network: Network,
    /// In switch order.
    nodes: Vec<NodeId>,
}

impl<'a> LocalControl<'a> {
    fn new(layout: &'a Layout, shared: &'a Shared, sizes: &Sizes<'_>) -> Result<Self> {
        let mode: ValueMode = sizes.value_mode.parse()?;
        let [gateway, core] = sizes.designs;
        let settings = Settings { mode, gateway, core, threads: 2, ..Settings::new(1, SecretKey::random()) };
        let mut network = Network::new(settings, 1)?;
        let mut nodes = Vec::with_capacity(layout.n_switches());
        for name in &layout.topology.switches {
            nodes.push(network.add_switch(name, Tenants::All)?.0);
        }
        let mut this = Self { layout, shared, network, nodes };
        for (switch, ports) in layout.ports.iter().enumerate() {
            for port in ports.iter().filter(|port| !port.trunk) {
                this.network.add_host_port(this.end(End { switch, port: port.id }))?;
            }
        }
        for (link, &[a, b]) in layout.topology.links.iter().zip(&layout.trunks) {
            this.network.add_link(this.end(a), this.end(b), link.cost)?;
        }
        Ok(this)
    }

    fn end(&self, end: End) -> NetworkEnd {
        NetworkEnd { node: self.nodes[end.switch], port: PortId(end.port) }
    }

    fn post(&self, node: NodeId, message: fib::messages::Message) {
        let switch = self.nodes.iter().position(|&n| n == node).expect("messages go to our switches");
        self.shared.post(Input::Message { switch, message: Box::new(message) });
    }

    /// One thread applies the messages one by one, so keeping their order keeps the phases.
    fn deliver(&self, effects: Effects) {
        for (node, message) in effects.phases.into_iter().flatten() {
            self.post(node, message);
        }
    }
}

fn name(mac: &Mac) -> Name {
    Name::from_bytes(NameKind::Mac, mac).expect("six bytes are a MAC")
}

impl Control for LocalControl<'_> {
    fn start_switches(&mut self, _: &Stop) -> Result<()> {
        for switch in 0..self.nodes.len() {
            for message in self.network.attach(self.nodes[switch], &Report::default())? {
                self.post(self.nodes[switch], message);
            }
        }
        Ok(())
    }

    fn put(&mut self, names: &[Put]) -> Result<()> {
        let names: Vec<(Name, Attachment)> = names
            .iter()
            .map(|put| {
                let end = self.end(put.at);
                let ip = put.host.map(|host| IpAddr::V4(self.layout.hosts[host].ip));
                (name(&put.mac), Attachment { ip, ..Attachment::new(end.node, end.port) })
            })
            .collect();
        let effects = self.network.put_names(&names)?;
        self.deliver(effects);
        Ok(())
    }

    fn remove(&mut self, names: &[Mac]) -> Result<()> {
        let names: Vec<Name> = names.iter().map(name).collect();
        let effects = self.network.remove_names(&names)?;
        self.deliver(effects);
        Ok(())
    }

    fn drain(&mut self, switch: usize, undo: bool, stop: &Stop) -> Result<Option<u32>> {
        let goal = Goal::Switch(self.end(End { switch, port: 0 }).node);
        let mut steps = 0;
        loop {
            let topology = self.network.topology();
            let next = if undo { Ok(topology.next_lower(goal)) } else { topology.next_raise(goal) };
            let Ok(next) = next else { return Ok(None) };
            let Some((end, raised)) = next else { return Ok(Some(steps)) };
            let effects = self.network.set_link_raised(end, raised)?;
            self.deliver(effects);
            self.wait_in_step(stop)?;
            steps += 1;
        }
    }

    fn link_changed(&mut self, link: usize, up: bool, _: &Stop) -> Result<()> {
        let effects = self.network.set_link_up(self.end(self.layout.trunks[link][0]), up)?;
        self.deliver(effects);
        Ok(())
    }

    fn wait_in_step(&mut self, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !self.shared.in_step() {
            if let Some(fault) = self.shared.fault() {
                bail!(fault);
            }
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                bail!("the switches have not applied all messages after {} s", STEP_TIMEOUT.as_secs());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn tables(&mut self) -> Result<Tables> {
        let (answer, tables) = mpsc::channel();
        self.shared.post(Input::Tables(answer));
        tables.recv_timeout(STEP_TIMEOUT).context("asking the switches for their tables")
    }
}
