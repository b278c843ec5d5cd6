//! Many switches at one controller: what each costs it in time and memory.
//!
//! ```text
//!   fibula controller, a process ◄── a Unix socket ──► this process: an agent for each switch, with its codec and its
//!        RIB in SQLite, a session a switch                          replica as in a switch, and no ports
//! ```
//! Switches are in a twisted torus: number i has links to i + 1 and to i + √n. Some, the gateways, have a host port each, over
//! which names are spread. One after the other: names are imported; all agents attach and are sent their tables; names are searched
//! for as one types; pages are open in browsers; single names move to other hosts; clients send changes as fast as they are answered; a link is cut; switches tell of hosts that they found; the
//! controller is killed and started again. A time ends when the last agent serves the change, or when the controller says that all are in step, which it asks
//! and answers for all of them at once.
//!
//! Both processes share the machine's processors, so times hold all work of all switches besides the controller's own: they are
//! upper bounds. Limits: addresses of 48 bits as names, values of 8 bits, or 16 for more than 255 switches; no certificates.

mod controller;
mod crowd;
mod pages;

use super::failed;
use crate::BenchError;
use api::v1::{Host, HostList, Link, LinkEnd, NameBatch, NameRecord, PutNamesRequest};
use controller::{Controller, resident_bytes};
use crowd::Crowd;
use fib::messages::ValueMode;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Names in one message of an import.
const BATCH: u64 = 10_000;
/// Names that a search shows, as the page in a browser does.
const FOUND: u32 = 50;
/// Pages that are open, and how long.
const PAGES: u32 = 10;
const LOOKED: Duration = Duration::from_secs(10);
/// The pause after each thing that happens meanwhile.
const EVENTS_EVERY: Duration = Duration::from_millis(100);
/// Clients that send changes at once.
const CLIENTS: u64 = 64;
/// Switches that tell of hosts at once.
const TELLERS: u16 = 16;
/// How long changes are sent.
const STREAM: Duration = Duration::from_secs(3);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of switches.
    pub switches: Vec<u16>,
    /// Numbers of names.
    pub names: Vec<u64>,
    /// Switches with a host port, at most; the others only forward.
    pub gateways: u16,
    /// What a value means.
    pub value_mode: ValueMode,
    /// Single changes whose time is taken.
    pub runs: u32,
    /// The program `fibula`.
    pub program: PathBuf,
}

/// One figure of a network.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Switches of the network.
    pub switches: u16,
    /// Those with a host port.
    pub gateways: u16,
    /// Names of the network.
    pub names: u64,
    /// What a value means.
    pub value_mode: String,
    /// What was measured.
    pub what: &'static str,
    /// The figure; of several the median.
    pub value: f64,
    /// The largest, of several.
    pub max: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
}

/// Runs the bench: the figures of one network after the other.
/// # Errors
/// [`BenchError`]; figures before the error have been handed to `tell`.
pub fn run(options: &Options, tell: &mut dyn FnMut(&[Figure]), say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let setting = |text: String| Err(BenchError::Setting(text));
    if let Some(n) = options.switches.iter().find(|n| !(5..=4000).contains(*n)) {
        return setting(format!("there are {n} switches; use 5 to 4000"));
    }
    if !(2..=255).contains(&options.gateways) {
        return setting(format!("there are {} gateways; use 2 to 255", options.gateways));
    }
    if let Some(n) = options.names.iter().find(|n| !(1000..=100 << 20).contains(*n)) {
        return setting(format!("there are {n} names; use 1000 to 100M"));
    }
    if options.runs == 0 {
        return setting("0 changes have no median; use --runs 1 or more".to_owned());
    }
    if !options.program.is_file() {
        let path = options.program.display();
        return setting(format!("there is no {path}, which is to run the controller; `make build` makes it"));
    }
    raise_descriptors().map_err(|error| failed("more open files (ulimit -n)", &error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| failed("starting threads", &error))?;
    for &n_names in &options.names {
        for &n_switches in &options.switches {
            let gateways = options.gateways.min(n_switches);
            let network = Network { n_switches, gateways, n_names };
            let mut bench = Bench { network, options, runtime: &runtime, figures: Vec::new() };
            let outcome = bench.run(say);
            tell(&bench.figures);
            outcome?;
        }
    }
    Ok(())
}

/// Each agent has a connection, and so has the controller, which inherits this.
fn raise_descriptors() -> std::io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Switches, links, hosts and names, all of which follow from three numbers.
#[derive(Clone, Copy)]
struct Network {
    n_switches: u16,
    gateways: u16,
    n_names: u64,
}

impl Network {
    const HOST_PORT: u32 = 5;

    fn switch(n: u16) -> String {
        format!("s{n}")
    }

    fn host(n: u64) -> String {
        format!("h{n}")
    }

    fn links(self) -> impl Iterator<Item = Link> {
        let n = self.n_switches;
        let far = n.isqrt();
        let end = |switch, port| Some(LinkEnd { switch: Self::switch(switch), port });
        let link =
            move |a, port, b, other| Link { a: end(a, port), b: end(b, other), cost: 1, up: true, ..Link::default() };
        (0..n).flat_map(move |i| [link(i, 1, (i + 1) % n, 2), link(i, 3, (i + far) % n, 4)])
    }

    fn hosts(self) -> HostList {
        let at = |i: u16| (u32::from(i) * u32::from(self.n_switches) / u32::from(self.gateways)) as u16;
        let host = |i: u16| {
            let (name, switch) = (Self::host(i.into()), Self::switch(at(i)));
            Host { name, switch, port: Self::HOST_PORT, ..Host::default() }
        };
        HostList { hosts: (0..self.gateways).map(host).collect(), ..HostList::default() }
    }

    /// The name of this number, which has moved so often.
    fn name(self, n: u64, moves: u64) -> NameRecord {
        let [.., a, b, c, d, e] = n.to_be_bytes();
        let name = format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}");
        let host = Self::host((n + moves) % u64::from(self.gateways));
        NameRecord { name, host, tenant: 0, ..NameRecord::default() }
    }
}

struct Bench<'a> {
    network: Network,
    options: &'a Options,
    runtime: &'a Runtime,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    fn tell(&mut self, what: &'static str, values: &mut [f64], unit: &'static str) {
        values.sort_by(f64::total_cmp);
        let Network { n_switches, gateways, n_names } = self.network;
        let several = values.len() > 1;
        let (Some(&value), Some(&max)) = (values.get(values.len() / 2), values.last()) else { return };
        let figure = Figure {
            switches: n_switches,
            gateways,
            names: n_names,
            value_mode: self.options.value_mode.to_string(),
            what,
            value,
            max: several.then_some(max),
            unit,
        };
        self.figures.push(figure);
    }

    fn run(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
        let (network, runtime) = (self.network, self.runtime);
        let Network { n_switches, n_names, .. } = network;
        say(&format!("{n_switches} switches, {n_names} names: the controller and its names"));
        let mut controller = Controller::start(runtime, self.options, network)?;
        let began = Instant::now();
        controller.register(runtime, network)?;
        self.tell("registering switches, hosts and links", &mut [began.elapsed().as_secs_f64()], "s");
        let began = Instant::now();
        controller.import(runtime, batches(network))?;
        self.tell("import of names", &mut [n_names as f64 / began.elapsed().as_secs_f64()], "names/s");
        let rib = controller.memory()?;
        self.tell("controller's memory with the RIB alone", &mut [rib as f64 / 1e6], "MB");

        say(&format!("{n_switches} switches, {n_names} names: switches attach"));
        let before = resident_bytes(std::process::id())?;
        let began = Instant::now();
        let crowd = Crowd::start(runtime, network, controller.url());
        controller.wait_in_step(runtime, network)?;
        let seconds = began.elapsed().as_secs_f64();
        self.tell("all switches attached and in step", &mut [seconds], "s");
        let bytes: u64 = crowd.statuses().map(|status| status.received_bytes).sum();
        self.tell("sent for that, a switch", &mut [bytes as f64 / f64::from(n_switches) / 1e3], "kB");
        self.tell(
            "controller's memory besides the RIB, at most",
            &mut [controller.peak()?.saturating_sub(rib) as f64 / 1e6],
            "MB",
        );
        self.tell(
            "controller's memory besides the RIB, afterwards",
            &mut [controller.memory()?.saturating_sub(rib) as f64 / 1e6],
            "MB",
        );
        let after = resident_bytes(std::process::id())?;
        self.tell(
            "memory of an agent with its replica",
            &mut [after.saturating_sub(before) as f64 / f64::from(n_switches) / 1e3],
            "kB",
        );

        say(&format!("{n_switches} switches, {n_names} names: changes"));
        self.searches(&mut controller)?;
        self.pages(&mut controller)?;
        self.single_changes(&mut controller, &crowd)?;
        self.streams(&mut controller)?;
        self.cut_link(&mut controller, &crowd)?;
        self.hosts_found(&mut controller, &crowd)?;

        say(&format!("{n_switches} switches, {n_names} names: the controller is killed and started again"));
        let bytes: u64 = crowd.statuses().map(|status| status.received_bytes).sum();
        controller.kill();
        let began = Instant::now();
        controller.start_again(runtime)?;
        self.tell("controller killed: serving again", &mut [began.elapsed().as_secs_f64()], "s");
        controller.wait_in_step(runtime, network)?;
        self.tell("controller killed: all switches in step again", &mut [began.elapsed().as_secs_f64()], "s");
        let more = crowd.statuses().map(|status| status.received_bytes).sum::<u64>() - bytes;
        self.tell("sent for that, a switch, of what it had", &mut [more as f64 / f64::from(n_switches) / 1e3], "kB");
        Ok(())
    }

    /// Names are searched for as they are typed, letter by letter.
    fn searches(&mut self, controller: &mut Controller) -> Result<(), BenchError> {
        let (mut letters, mut worst) = (Vec::new(), Vec::new());
        for i in 0..u64::from(self.options.runs) {
            let name = self.network.name(i * 7919 % self.network.n_names, 0).name;
            let mut slowest = 0.0_f64;
            for n_letters in 1..=name.len() {
                let began = Instant::now();
                let found = controller.search(self.runtime, &name[..n_letters], FOUND)?;
                let ms = began.elapsed().as_secs_f64() * 1e3;
                if found == 0 {
                    return Err(BenchError::Setting(format!("nothing begins with {}", &name[..n_letters])));
                }
                letters.push(ms);
                slowest = slowest.max(ms);
            }
            worst.push(slowest);
        }
        self.tell("a name is searched for as one types: an answer", &mut letters, "ms");
        self.tell("a name is searched for as one types: the slowest of its answers", &mut worst, "ms");
        Ok(())
    }

    /// Pages are open in browsers.
    fn pages(&mut self, controller: &mut Controller) -> Result<(), BenchError> {
        let socket = controller.pages();
        let (mut times, bytes) = pages::answers(&socket, self.options.runs)?;
        self.tell("a page asks for the network: answered", &mut times, "ms");
        self.tell("bytes of that answer", &mut [bytes as f64 / 1e3], "kB");
        type Looking<'a> = &'a (dyn Fn() -> Result<(), BenchError> + Sync);
        let nobody: Looking<'_> = &|| {
            pages::wait_until(Instant::now() + LOOKED);
            Ok(())
        };
        let idle: Looking<'_> = &|| pages::keep_open(&socket, PAGES, pages::EVERY, LOOKED);
        let hasty: Looking<'_> = &|| pages::keep_open(&socket, PAGES, pages::AT_MOST_EVERY, LOOKED);
        let guest = Host {
            name: "guest".to_owned(),
            switch: Network::switch(0),
            port: Network::HOST_PORT + 1,
            ..Host::default()
        };
        for (what, is_busy, open) in [
            ("controller's processor time, with nobody looking", false, nobody),
            ("controller's processor time, with ten pages open", false, idle),
            ("controller's processor time, ten hosts a second added and removed, nobody looking", true, nobody),
            ("controller's processor time, ten hosts a second added and removed, ten pages open", true, hasty),
        ] {
            let (began, before) = (Instant::now(), controller.processor_time()?);
            std::thread::scope(|scope| {
                let looks = scope.spawn(open);
                while is_busy && !looks.is_finished() {
                    controller.add_and_remove(self.runtime, guest.clone())?;
                    pages::wait_until(Instant::now() + EVENTS_EVERY);
                }
                looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
            let used = controller.processor_time()?.saturating_sub(before);
            let percent = 100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64();
            self.tell(what, &mut [percent], "%");
        }
        Ok(())
    }

    /// One name at a time moves to another host.
    fn single_changes(&mut self, controller: &mut Controller, crowd: &Crowd) -> Result<(), BenchError> {
        let (mut answered, mut served, mut in_step) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..u64::from(self.options.runs) {
            let record = self.network.name(i * 7919 % self.network.n_names, 1);
            let mark = crowd.mark();
            let began = Instant::now();
            controller.put(self.runtime, vec![record])?;
            answered.push(began.elapsed().as_secs_f64() * 1e3);
            controller.wait_in_step(self.runtime, self.network)?;
            in_step.push(began.elapsed().as_secs_f64() * 1e3);
            let (n, last) = crowd.changed_since(&mark);
            if n < usize::from(self.network.n_switches) {
                return Err(BenchError::Setting(format!("a name has moved, and only {n} switches were told")));
            }
            served.push(last.saturating_duration_since(began).as_secs_f64() * 1e3);
        }
        self.tell("one name moves: answered, durable", &mut answered, "ms");
        self.tell("one name moves: the last switch serves it", &mut served, "ms");
        self.tell("one name moves: acknowledged by all switches, by asking for all", &mut in_step, "ms");
        Ok(())
    }

    /// Changes as fast as they are answered, by one client and by many.
    fn streams(&mut self, controller: &mut Controller) -> Result<(), BenchError> {
        for (clients, size, what, lag) in [
            (1, 1000, "changes by one client, 1,000 a request", "all in step after these"),
            (CLIENTS, 1, "changes by 64 clients, one a request", "all in step after those"),
        ] {
            let network = self.network;
            let next = move |client: u64, turn: u64| {
                let names =
                    (0..size).map(|i| network.name((client * 1_000_003 + turn * size + i) % network.n_names, 2 + turn));
                PutNamesRequest { names: names.collect(), only_new: false }
            };
            let began = Instant::now();
            let n = controller.stream(self.runtime, clients, STREAM, next)?;
            self.tell(what, &mut [(n * size) as f64 / began.elapsed().as_secs_f64()], "changes/s");
            let began = Instant::now();
            controller.wait_in_step(self.runtime, network)?;
            self.tell(lag, &mut [began.elapsed().as_secs_f64() * 1e3], "ms");
        }
        Ok(())
    }

    /// Switches report undeclared hosts: one at a time, and as many as are learnt.
    fn hosts_found(&mut self, controller: &mut Controller, crowd: &Crowd) -> Result<(), BenchError> {
        let mut served = Vec::new();
        for i in 0..2 * self.options.runs + 8 {
            if served.len() == self.options.runs as usize {
                break;
            }
            let mark = crowd.mark();
            let began = Instant::now();
            controller.see(self.runtime, 0, &[controller::found_name(u16::MAX, i)])?;
            controller.wait_in_step(self.runtime, self.network)?;
            let (n, last) = crowd.changed_since(&mark);
            // Cells that give a new name its value by chance need no message: then this name shows nothing.
            if n == usize::from(self.network.n_switches) {
                served.push(last.saturating_duration_since(began).as_secs_f64() * 1e3);
            }
        }
        if served.len() < self.options.runs as usize {
            return Err(BenchError::Setting(format!("only {} hosts were told to all switches", served.len())));
        }
        self.tell("one host is found: the last switch serves it", &mut served, "ms");
        let began = Instant::now();
        let n = controller.see_streams(self.runtime, TELLERS.min(self.network.gateways), STREAM)?;
        self.tell(
            "hosts found by several switches at once, learnt and durable",
            &mut [n as f64 / began.elapsed().as_secs_f64()],
            "names/s",
        );
        let began = Instant::now();
        controller.wait_in_step(self.runtime, self.network)?;
        self.tell("all in step after these hosts", &mut [began.elapsed().as_secs_f64() * 1e3], "ms");
        Ok(())
    }

    /// A link goes down, and comes up again.
    fn cut_link(&mut self, controller: &mut Controller, crowd: &Crowd) -> Result<(), BenchError> {
        let (mut served, mut in_step, mut switches) = (Vec::new(), Vec::new(), Vec::new());
        let end = LinkEnd { switch: Network::switch(0), port: 1 };
        for _ in 0..self.options.runs.div_ceil(2).min(5) {
            for up in [false, true] {
                let mark = crowd.mark();
                let began = Instant::now();
                controller.set_link(self.runtime, end.clone(), up)?;
                controller.wait_in_step(self.runtime, self.network)?;
                if !up {
                    in_step.push(began.elapsed().as_secs_f64() * 1e3);
                    let (n, last) = crowd.changed_since(&mark);
                    switches.push(n as f64);
                    served.push(last.saturating_duration_since(began).as_secs_f64() * 1e3);
                }
            }
        }
        self.tell("a link is cut: switches with other routes", &mut switches, "");
        self.tell("a link is cut: the last switch serves its new routes", &mut served, "ms");
        self.tell("a link is cut: acknowledged by all switches, by asking for all", &mut in_step, "ms");
        Ok(())
    }
}

fn batches(network: Network) -> impl Iterator<Item = NameBatch> + Send + 'static {
    let n = network.n_names;
    (0..n.div_ceil(BATCH)).map(move |batch| {
        let names = batch * BATCH..n.min((batch + 1) * BATCH);
        NameBatch { names: names.map(|name| network.name(name, 0)).collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::Network;
    use std::collections::BTreeSet;

    #[test]
    fn each_port_has_one_link_or_host_and_names_are_distinct() {
        for n_switches in [5, 6, 8, 9, 10, 100, 1000] {
            let network = Network { n_switches, gateways: 5, n_names: 1000 };
            let ends = network.links().flat_map(|link| [link.a, link.b]).flatten().map(|end| (end.switch, end.port));
            let hosts = network.hosts().hosts.into_iter().map(|host| (host.switch, host.port));
            let ports: Vec<_> = ends.chain(hosts).collect();
            assert_eq!(ports.len(), 4 * usize::from(n_switches) + 5);
            assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len(), "{n_switches} switches");
            assert!(network.links().all(|link| link.a.map(|end| end.switch) != link.b.map(|end| end.switch)));
            let names: BTreeSet<_> = (0..1000).map(|n| network.name(n, 0).name).collect();
            assert_eq!(names.len(), 1000);
            assert!((0..1000).all(|n| network.name(n, 0).host != network.name(n, 1).host), "a name did not move");
        }
    }
}
