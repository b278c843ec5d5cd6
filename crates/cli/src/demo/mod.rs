//! `fibula demo`: the main job on one machine, with nothing configured.
//!
//! With root, the controller and every switch are processes, started from configuration files that an operator would
//! write. Hosts are network namespaces with the Linux network stack, veth pairs are the cables, and promiscuous sockets
//! at every host are the judges. Without root, the same network runs in one process over in-memory ports. Both run the
//! same phases and print the same table, and not one frame may come out at the wrong host.
//!
//! [`topology`] and [`layout`] define the network; [`wire`], [`processes`] and [`config`] build it; [`hosts`] and
//! [`prober`] generate the traffic; [`judge`] counts; [`phases`] is the script, and [`undeclared`] that of a network which finds
//! itself, with [`dhcp`]; [`report`] prints the table.

#![expect(clippy::disallowed_methods, reason = "it sends at set rates, and processes can only be polled")]

mod backend;
mod config;
mod controller;
mod dhcp;
mod engine;
mod frames;
mod hosts;
mod inprocess;
mod judge;
mod layout;
mod netns;
mod phases;
mod privileged;
mod prober;
mod processes;
mod report;
#[cfg(test)]
mod stand_in;
mod state;
mod sys;
mod topology;
mod undeclared;
mod wire;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::fib::designs;
use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use command::output::{Exit, Failure, OrExit, Output};
use fib::designs::Design;
use judge::Judge;
use report::{Outside, Report};
use state::StateDirectory;
use switch::daemon::config::Driver;
use topology::Topology;

use layout::Layout;

/// Run a whole network on this machine and see that every frame reaches the right host
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// abilene, line, ring, star, mesh, fabric (two spines, the rest leaves), or a TOML file (the format is in docs/how-to/demo.md)
    #[arg(long, default_value = "abilene")]
    topology: String,
    /// Number of switches of a line, ring, star, mesh or fabric [default: 4]
    #[arg(long, value_name = "N")]
    switches: Option<usize>,
    /// Number of hosts at each switch that has hosts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=layout::MAX_HOSTS_PER_SWITCH as i64))]
    hosts_per_switch: u8,
    /// Synthetic names, spread over the switches, in addition to those of the hosts
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=16_000_000))]
    names: u64,
    /// Total seconds of traffic
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Result of a lookup: the port to send by, or the switch where the frame leaves the network
    #[arg(long, value_enum, default_value_t = ValueMode::Port)]
    value_mode: ValueMode,
    /// FIB design of all switches
    #[arg(long, default_value = "concise", hide_possible_values = true, value_parser = designs())]
    design: &'static Design,
    /// FIB design of the switches with hosts [default: that of all switches]
    #[arg(long, value_name = "DESIGN", hide_possible_values = true, value_parser = designs())]
    gateway_design: Option<&'static Design>,
    /// Driver of the switches' ports: packet sockets, AF_XDP sockets before the kernel's stack, these plus forwarding of
    /// frames from trunks in the kernel, or DPDK over AF_XDP sockets
    #[arg(long, value_parser = driver(), default_value_t, conflicts_with = "in_process")]
    driver: Driver,
    /// Number of controllers, on one etcd; if there are several, a follower and the leader are killed while names change
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "in_process", value_parser = clap::value_parser!(u16).range(1..=config::MAX_CONTROLLERS as i64))]
    controllers: u16,
    /// Declare only the controller and the ports of the switches: switches, links and hosts are found, and hosts get their
    /// addresses by DHCP (needs root, dnsmasq and udhcpc)
    #[arg(long, conflicts_with_all = ["names", "controllers", "in_process"])]
    undeclared: bool,
    /// Run in one process over in-memory ports even if namespaces are available
    #[arg(long)]
    in_process: bool,
    /// Put configuration files, logs and databases in this directory, and keep them
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ValueMode {
    Port,
    Egress,
}

impl ValueMode {
    fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Egress => "egress",
        }
    }
}

fn driver() -> impl TypedValueParser<Value = Driver> {
    PossibleValuesParser::new(Driver::ALL.map(Driver::name)).try_map(|name| name.parse::<Driver>())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.5..=86_400.0).contains(&s) => Ok(s),
        _ => Err("0.5 to 86400 seconds".to_owned()),
    }
}

impl Args {
    /// Runs the demo and prints its table. Call it outside any tokio runtime: it creates its own inside a namespace.
    pub(crate) fn run(self, out: &Output) -> Result<()> {
        let topology = Topology::choose(&self.topology, self.switches).map_err(|e| {
            let exit = if e.is_in_file() { Exit::BadInput } else { Exit::Usage };
            Failure::new(exit, e)
        })?;
        let layout = Layout::new(topology, self.hosts_per_switch.into());
        if layout.hosts.len() < 2 {
            return Err(Failure::new(
                Exit::Usage,
                "one switch with one host: there is no other host to talk to; raise --hosts-per-switch",
            ));
        }
        if self.driver == Driver::Dpdk {
            switch::daemon::dpdk::check_built().map_err(|why| Failure::new(Exit::Usage, why))?;
        }
        if self.undeclared && netns::privileged().is_ok() {
            dhcp::check_installed()?;
        }
        allow_many_files()?;
        let stop = stop_on_signals()?;
        // On a separate thread, so that its namespace ends with it.
        let report = std::thread::scope(|scope| {
            let demo = scope.spawn(|| self.demonstrate(&layout, stop));
            demo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "interrupted; everything was cleaned up"));
        }
        let report = report?;
        out.done(&report, report.table().trim_end())?;
        report.failure().map_or(Ok(()), |reason| Err(Failure::new(Exit::CheckFailed, reason)))
    }

    fn demonstrate(&self, layout: &Layout, stop: &AtomicBool) -> Result<Report> {
        let begun = Instant::now();
        let progress = |text: String| {
            // Standard error may be closed; that is no reason to end.
            let _ = writeln!(std::io::stderr(), "{:7.2} s  {text}", begun.elapsed().as_secs_f64());
        };
        let judge = Judge::new((0..layout.n_stations()).map(|station| layout.station_name(station)).collect());
        let designs = [self.gateway_design.unwrap_or(self.design), self.design];
        let (value_mode, n_names) = (self.value_mode.name(), if self.undeclared { 0 } else { self.names });
        let (driver, seconds, n_controllers) = (self.driver, self.seconds, self.controllers.into());
        let undeclared = self.undeclared;
        let sizes = privileged::Sizes { value_mode, designs, driver, n_names, n_controllers, undeclared, seconds };
        let obstacle = if self.in_process { Err("as requested".to_owned()) } else { netns::privileged() };
        let (network, findings, tables, outside) = match obstacle {
            Ok(()) => {
                netns::check_neighbours(layout.hosts.len()).map_err(|e| Failure::new(Exit::Refused, e))?;
                let directory = StateDirectory::create(self.keep.as_deref())
                    .or_exit(Exit::Usage, "no place for the demo's files")?;
                let outcome = privileged::run(layout, &sizes, directory.path(), &judge, stop, &progress)?;
                let outside = Outside {
                    missed_by_sniffers: outcome.missed_by_sniffers,
                    switch_memory_bytes: Some(outcome.switch_memory_bytes),
                    controller_memory_bytes: Some(outcome.controller_memory_bytes),
                };
                ("namespaces", outcome.findings, outcome.tables, outside)
            }
            Err(reason) if n_controllers > 1 || undeclared => {
                let what = if undeclared {
                    "links and hosts are found at interfaces"
                } else {
                    "several controllers are processes"
                };
                let why = format!(
                    "{what}, and namespaces cannot be created: {reason}; run it as root, or leave out that option"
                );
                return Err(Failure::new(Exit::Refused, why));
            }
            Err(reason) => {
                progress(format!("the whole network in one process over in-memory ports: {reason}"));
                let (findings, tables) = inprocess::run(layout, &sizes, &judge, stop, &progress)?;
                ("in-process", findings, tables, Outside::default())
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let how = report::How {
            network,
            driver: if network == "namespaces" { self.driver.name() } else { "memory" },
            value_mode,
            designs,
        };
        Ok(Report::new(layout, &how, &judge, &findings, &tables, outside, seconds))
    }
}

/// Raises the limit of open files to its maximum: a host has six sockets.
fn allow_many_files() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the limit of open files")
}

/// A flag that Ctrl-C, SIGTERM and a closed terminal set, so that the demo ends in order.
fn stop_on_signals() -> Result<&'static AtomicBool> {
    use tokio::signal::unix::{SignalKind, signal};
    static STOP: AtomicBool = AtomicBool::new(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [mut interrupt, mut terminate, mut hangup] = {
        let _inside = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        STOP.store(true, Ordering::Relaxed);
    });
    Ok(&STOP)
}
