//! The demo with root: processes, namespaces and veth pairs.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use command::output::{Exit, Failure};
use fib::designs::Design;
use switch::daemon::config::Driver;

use super::backend::{Backend, Fault, SetOnDrop, Stop};
use super::config;
use super::controller::{RemoteControl, Site};
use super::hosts::{Bulk, Hosts, Pings, across};
use super::judge::Judge;
use super::layout::Layout;
use super::netns;
use super::phases::{Findings, Run};
use super::processes::{Processes, Program};
use super::undeclared;
use super::wire::{RawSenders, Wires};

/// Pings are given up when none was answered for this long.
const PING_PATIENCE: Duration = Duration::from_secs(30);

/// Results of a run with privileges.
pub(super) struct Outcome {
    pub(super) findings: Findings,
    pub(super) tables: super::backend::Tables,
    /// Frames that did not fit the sniffers' socket buffers.
    pub(super) missed_by_sniffers: u64,
    /// Largest resident memory of a switch, and that of the controller, in bytes.
    pub(super) switch_memory_bytes: u64,
    pub(super) controller_memory_bytes: u64,
}

/// Sizes of a run.
pub(super) struct Sizes<'a> {
    pub(super) value_mode: &'a str,
    /// Designs of gateways and of the core.
    pub(super) designs: [&'static Design; 2],
    /// How the switches' ports take frames.
    pub(super) driver: Driver,
    pub(super) n_names: u64,
    pub(super) n_controllers: usize,
    /// Nothing is declared but the controller and the ports of the switches.
    pub(super) undeclared: bool,
    pub(super) seconds: f64,
}

/// Whether all of these interfaces have an XDP program: a switch that cannot attach one uses packet sockets instead.
fn check_xdp(devices: &[&str]) -> Result<()> {
    let listed = netns::ip(&["-o", "link"])?;
    let has_program = |device: &str| {
        // The ends of veth pairs are listed as NAME@PEER.
        let name = format!(": {device}@");
        listed.lines().any(|line| line.contains(" xdp") && line.contains(&name))
    };
    let without: Vec<_> = devices.iter().copied().filter(|device| !has_program(device)).collect();
    if let [first, ..] = without[..] {
        bail!(
            "{} of {} ports cannot use af_xdp, {first} among them: the switches' logs (--keep) say why",
            without.len(),
            devices.len()
        );
    }
    Ok(())
}

/// Builds everything, runs all phases, and removes everything again, also after a failure.
///
/// The calling thread is left in the namespace of the switches.
pub(super) fn run(
    layout: &Layout,
    sizes: &Sizes<'_>,
    directory: &Path,
    judge: &Judge,
    stop: &Stop,
    progress: &dyn Fn(String),
) -> Result<Outcome> {
    let max_names = (sizes.n_names as usize * 2).max(100_000);
    let files =
        config::write(directory, layout, sizes, max_names).context("writing configuration files and certificates")?;
    let silent = layout.topology.redundant_links().get(1).copied().filter(|_| sizes.undeclared);
    let wires = Wires::build(layout, silent, sizes.driver == Driver::Xdp)?;
    // From here on, processes and sockets of this thread belong to the switches' namespace.
    netns::enter(&wires.fabric())?;
    let n_pairs = n_pairs(layout) + usize::from(silent.is_some());
    progress(format!("{n_pairs} interface pairs between {} namespaces", layout.hosts.len() + 2));

    let mut processes = Processes::default();
    if sizes.n_controllers > 1 {
        start_etcd(directory, &mut processes)?;
    }
    for (i, file) in files.controllers.iter().enumerate() {
        let name = config::controller_name(i);
        processes.start(directory, &name, &["controller".as_ref(), "--config".as_ref(), file.as_os_str()])?;
    }
    let n_controllers = files.controllers.len();
    let site = Site { layout, directory, switches: &files.switches, n_controllers, processes: &mut processes };
    let mut control = RemoteControl::connect(site, &files.operator, stop)?;

    let sniffers = wires.sniffers(layout)?;
    let watched = AtomicBool::new(false);
    let (findings, missed) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| sniffers.watch(judge, &watched));
        let done = SetOnDrop(&watched);
        let seconds = sizes.seconds;
        let findings = if sizes.undeclared {
            let parts = undeclared::Parts { directory, wires: &wires, judge, stop, seconds, progress };
            undeclared::run(layout, &mut control, &parts)
        } else {
            declared(layout, &wires, &mut control).and_then(|backend| {
                let (backend, control, n_names) = (&backend, &mut control, sizes.n_names);
                Run { layout, backend, control, judge, stop, n_names, seconds, progress }.all()
            })
        };
        drop(done);
        (findings, watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let findings = findings?;
    if sizes.driver != Driver::AfPacket {
        check_xdp(&layout.ports.iter().flatten().map(|port| &*port.device).collect::<Vec<_>>())?;
    }
    let tables = super::backend::Control::tables(&mut control)?;
    if let Some(why) = &tables.not_in_kernel {
        bail!("the kernel does not forward for every switch: {why}");
    }
    let memory = control.site.processes.resident_bytes();
    let of = |wanted: &dyn Fn(&str) -> bool| {
        memory.iter().filter(|(name, _)| wanted(name)).map(|&(_, bytes)| bytes).max().unwrap_or_default()
    };
    Ok(Outcome {
        findings,
        tables,
        missed_by_sniffers: missed.context("watching the hosts")?,
        switch_memory_bytes: of(&|name| layout.topology.switches.iter().any(|switch| switch == name)),
        controller_memory_bytes: of(&|name| name.starts_with("controller")),
    })
}

/// Tells the controller of switches, ports and links, and gives the hosts their addresses.
fn declared<'a>(layout: &'a Layout, wires: &'a Wires, control: &mut RemoteControl<'_>) -> Result<Namespaced<'a>> {
    control.register()?;
    for (index, host) in layout.hosts.iter().enumerate() {
        wires.set_address(index, host.ip)?;
    }
    Namespaced::new(layout, wires)
}

/// One member of etcd, in the switches' namespace.
fn start_etcd(directory: &Path, processes: &mut Processes) -> Result<()> {
    let [clients, peers] = config::ETCD.map(|address| format!("http://{address}"));
    let data = directory.join("etcd");
    let arguments = [
        "--name",
        "demo",
        "--initial-cluster",
        &format!("demo={peers}"),
        "--listen-client-urls",
        &clients,
        "--advertise-client-urls",
        &clients,
        "--listen-peer-urls",
        &peers,
        "--initial-advertise-peer-urls",
        &peers,
        "--data-dir",
    ];
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([data.as_os_str()]).collect();
    let program = "etcd".as_ref();
    let etcd = Program { name: "etcd", program, arguments: &arguments, namespace: None, may_end: false };
    processes.start_program(directory, &etcd).map_err(|error| {
        let why = format!(
            "several controllers need etcd, which cannot be started ({error}): install it (Debian: etcd-server)"
        );
        Failure::new(Exit::Refused, why)
    })
}

fn n_pairs(layout: &Layout) -> usize {
    layout.trunks.len() + 2 * layout.hosts.len() + layout.n_gateways()
}

/// Hosts in namespaces, joined by veth.
pub(super) struct Namespaced<'a> {
    layout: &'a Layout,
    wires: &'a Wires,
    hosts: Hosts<'a>,
    raw: RawSenders,
    /// Which of its two cables each host uses.
    cable: Vec<AtomicUsize>,
}

impl<'a> Namespaced<'a> {
    pub(super) fn new(layout: &'a Layout, wires: &'a Wires) -> Result<Self> {
        Ok(Self {
            layout,
            wires,
            hosts: Hosts::new(layout, wires)?,
            raw: RawSenders::open(wires, layout)?,
            cable: layout.hosts.iter().map(|_| AtomicUsize::new(0)).collect(),
        })
    }
}

impl Backend for Namespaced<'_> {
    fn send_datagram(&self, from: usize, to: usize, payload: &[u8]) {
        self.hosts.send_probe(from, to, payload);
    }

    fn send_frame(&self, from: usize, frame: &[u8]) {
        // A frame that the kernel refuses counts as sent and lost.
        let _ = self.raw.send(from, self.cable[from].load(Ordering::Relaxed), frame);
    }

    fn ping_all(&self, stop: &Stop) -> Result<Pings> {
        Ok(self.hosts.ping_all(PING_PATIENCE, stop)?)
    }

    fn has_tcp(&self) -> bool {
        true
    }

    fn tcp(&self, n_flows: usize, bytes_a_second: Option<u64>, until: Instant, stop: &Stop) -> Result<Bulk> {
        let flows = across(self.layout.hosts.len(), n_flows);
        Ok(self.hosts.tcp(&flows, bytes_a_second, until, stop)?)
    }

    fn udp(&self, n_flows: usize, judge: &Judge, until: Instant, stop: &Stop) -> Result<Bulk> {
        let flows = across(self.layout.hosts.len(), n_flows);
        Ok(self.hosts.udp(&flows, judge, until, stop)?)
    }

    fn plug_other(&self, host: usize) -> Result<usize> {
        let other = 1 - self.cable[host].load(Ordering::Relaxed);
        self.wires.plug(self.layout, host, other)?;
        self.cable[host].store(other, Ordering::Relaxed);
        Ok(other)
    }

    fn unplug_other(&self, host: usize) -> Result<()> {
        Ok(self.wires.unplug(host, 1 - self.cable[host].load(Ordering::Relaxed))?)
    }

    fn carry_over(&self, host: usize) -> Result<usize> {
        let cable = self.cable[host].load(Ordering::Relaxed);
        self.wires.unplug(host, cable)?;
        // What is sent from here on goes nowhere until the other one is plugged in.
        self.cable[host].store(1 - cable, Ordering::Relaxed);
        self.wires.plug(self.layout, host, 1 - cable)?;
        Ok(1 - cable)
    }

    fn set_trunk(&self, link: usize, fault: Fault, up: bool) -> Result<()> {
        Ok(self.wires.set_trunk(self.layout, link, fault, up)?)
    }
}
