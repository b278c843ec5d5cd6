//! Frames a second through a switch on DPDK from another process, as in the papers' tests with two nodes.
//!
//! ```text
//!    node 1, one processor                                      node 2, one processor
//!    makes frames ─► port ─ shared memory ─► port 1 ─► the switch, or testpmd ─► port 2 ─┐
//!    checks them  ◄─ port ─────────────────────────────────────────────────────────────◄┘   and the other way round
//! ```
//! Names enter by the port before their own, so that both ports carry both ways, as testpmd's pairs do. Every frame that comes
//! out is checked: its name, its port, its shim and its place in the list that it was sent from. A wrong one ends the bench.
//! Frames are sent as fast as the wire takes them, and the rate is of those that come out.
//!
//! Contestants are processes of their own with wires of their own. They take turns: those that are not measured are stopped.
//! Both nodes poll and take a processor each, so this takes two. A wire is [`Wires`]; the papers' had network cards, or a
//! virtual machine and TAPs. Frames have a shim: 68 bytes for those of 64.
//!
//! DPDK's own `dpdk-testpmd` moves the same frames between the same devices: `io` touches no frame, `macswap` exchanges the
//! addresses of each. `empty` is the switch's own loop without a lookup.

mod plan;
#[cfg(feature = "dpdk")]
mod switch;
#[cfg(feature = "dpdk")]
mod traffic;

use super::{Listener, Options, failed};
use crate::BenchError;
use crate::report::{Row, Setting};
use dataplane::shim;
use plan::{Answer, Counts, Frames, Names, Plan, Request, Role};
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a sample takes, in microseconds.
const SAMPLE_US: u64 = 400_000;
/// How long a process may take until it is ready: tables are built meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory on huge pages that a process takes at most, in MiB.
const HUGE_MIB: u64 = 96;

/// What connects the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wires {
    /// The switch has `net_vhost` ports, as a host has; the traffic has `net_virtio_user`, as a guest.
    Vhost,
    /// The other way round: the switch is the guest.
    Virtio,
    /// `net_memif` at both.
    Memif,
}

impl Wires {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Vhost, Self::Virtio, Self::Memif];

    fn as_str(self) -> &'static str {
        match self {
            Self::Vhost => "vhost",
            Self::Virtio => "virtio",
            Self::Memif => "memif",
        }
    }

    /// Whether the switch makes the sockets, and so has to be there first.
    fn has_switch_first(self) -> bool {
        self != Self::Virtio
    }

    /// The devices of both ends of a wire, the switch's first. `number` is one that no other wire of either process has.
    fn ends(self, socket: &Path, number: usize) -> [String; 2] {
        let socket = socket.display();
        let vhost = format!("net_vhost{number},iface={socket},queues=1");
        let virtio = format!("net_virtio_user{number},path={socket},queues=1,queue_size=1024");
        let memif =
            |role| format!("net_memif{number},role={role},id={number},socket={socket},socket-abstract=no,rsize=10");
        match self {
            Self::Vhost => [vhost, virtio],
            Self::Virtio => [virtio, vhost],
            Self::Memif => [memif("server"), memif("client")],
        }
    }
}

impl std::fmt::Display for Wires {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Wires {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|wires| wires.as_str() == s)
            .ok_or_else(|| format!("no such wires: `{s}`; there are {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// The contestant of an error that concerns both nodes.
pub(crate) const ALL: &str = "two nodes on DPDK";
const IO: &str = "testpmd-io";
const MACSWAP: &str = "testpmd-macswap";
const EMPTY: &str = "empty";

/// The contestants; by default the first three, concise and line.
pub fn contestants() -> Vec<(&'static str, &'static str)> {
    let beside = [
        (IO, "dpdk-testpmd, which touches no frame"),
        (MACSWAP, "dpdk-testpmd, which exchanges the addresses of each frame"),
        (EMPTY, "the same loop without digest and lookup: names say by themselves where they lead"),
    ];
    beside.into_iter().chain(crate::designs().map(|design| (design.name, design.summary))).collect()
}

/// Runs the bench: a table for each n, kind of wires and number of bytes of a frame, without the shim. `program` is
/// `fibula-lab`, which has [`play`].
/// # Errors
/// [`BenchError`]; [`BenchError::Unavailable`] where there is no DPDK or but one processor. Tables completed before the error
/// have been handed to `listener`.
pub fn run(
    program: &Path,
    options: &Options,
    wires: &[Wires],
    frame_bytes: &[usize],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    check(options, frame_bytes)?;
    for &n in &options.n {
        for &wires in wires {
            measure(program, &Options { n: vec![n], ..options.clone() }, wires, frame_bytes, listener)?;
        }
    }
    Ok(())
}

/// Whether [`run`] accepts these options.
/// # Errors
/// [`BenchError::Setting`].
pub(crate) fn check(options: &Options, frame_bytes: &[usize]) -> Result<(), BenchError> {
    options.check()?;
    chosen(options)?;
    if options.names.name_len() != 6 {
        return Err(BenchError::Setting(format!(
            "frames carry MAC addresses and no {} names; use --names mac",
            options.names
        )));
    }
    match frame_bytes.iter().find(|bytes| !(60..=1500).contains(*bytes)) {
        Some(bytes) => Err(BenchError::Setting(format!("frames have {bytes} bytes; use 60 to 1500"))),
        None => Ok(()),
    }
}

fn chosen(options: &Options) -> Result<Vec<String>, BenchError> {
    if options.contestants.is_empty() {
        return Ok([IO, MACSWAP, EMPTY, "concise", "line"].map(str::to_owned).into());
    }
    options.chosen(&contestants())
}

fn unavailable(contestant: &'static str, reason: impl Into<String>) -> BenchError {
    BenchError::Unavailable { contestant, reason: reason.into() }
}

fn measure(
    program: &Path,
    options: &Options,
    wires: Wires,
    frame_bytes: &[usize],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let mut names = chosen(options)?;
    if names.iter().any(|name| name.starts_with("testpmd")) && !has_testpmd() {
        for name in [IO, MACSWAP] {
            let error = unavailable(name, "there is no dpdk-testpmd; `scripts/setup bench` installs it (dpdk-dev)");
            if names.iter().any(|chosen| chosen == name) && !listener.goes_without(name, &error) {
                listener.say(&error.to_string());
            }
        }
        names.retain(|name| !name.starts_with("testpmd"));
    }
    let n = options.n[0];
    listener.say(&format!("forward/{wires}, {n} names: tables and wires"));
    let mut nodes = Nodes::start(program, options, wires, &names, 2, None, listener)?;
    for &bytes in frame_bytes {
        let bench = format!("forward/{wires}, {bytes} bytes");
        let mut samples = vec![Vec::new(); names.len()];
        for _ in 0..options.runs {
            for ((at, name), samples) in names.iter().enumerate().zip(&mut samples) {
                let frames = frames_of(name, bytes);
                let counts = nodes.ask(at, Request::Measure { switch: at, frames, us: SAMPLE_US })?;
                judge(name, &counts)?;
                samples.push(counts.received as f64 / counts.ns.max(1) as f64 * 1e3);
            }
        }
        let setting = Setting {
            n,
            value_bits: options.value_bits,
            names: options.names.to_string(),
            threads: 1,
            batch: 32,
            in_flight: 1,
        };
        let rows = names.iter().zip(samples);
        let rows = rows.map(|(name, samples)| Row::new(&bench, name, &setting, "Mpkt/s", samples));
        listener.table(&rows.collect::<Vec<_>>());
    }
    Ok(())
}

/// The frames of a contestant, and what it makes of them.
fn frames_of(contestant: &str, bytes: usize) -> Frames {
    let is_ours = !contestant.starts_with("testpmd");
    Frames { bytes: bytes + shim::LEN, counts_hops: is_ours, swaps: contestant == MACSWAP }
}

fn judge(contestant: &str, counts: &Counts) -> Result<(), BenchError> {
    if counts.wrong > 0 {
        let Counts { wrong, received, first_wrong, .. } = counts;
        return Err(BenchError::Setting(format!(
            "{contestant}: {wrong} of {received} frames that came out were wrong, the first {first_wrong}"
        )));
    }
    if counts.received == 0 {
        return Err(BenchError::Setting(format!("{contestant}: no frame came out of {} that were sent", counts.sent)));
    }
    Ok(())
}

/// Sends a frame for each of `n` names through a switch with three ports, and checks every byte of what comes out. With
/// `astray`, one name is in the table with another port.
/// # Errors
/// [`BenchError`]: a frame came out of the wrong port, or with other bytes, or not at all; or as for [`run`].
pub fn check_each_name(
    program: &Path,
    options: &Options,
    wires: Wires,
    frame_bytes: &[usize],
    astray: bool,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    check(options, frame_bytes)?;
    let names = chosen(options)?;
    let mut words = options.names.generate(options.n[0] as usize, options.seed);
    let astray = astray.then(|| words.swap_remove(words.len() / 2));
    let mut nodes = Nodes::start(program, options, wires, &names, 3, astray, listener)?;
    for &bytes in frame_bytes {
        for (at, name) in names.iter().enumerate() {
            let counts = nodes.ask(at, Request::Check { switch: at, frames: frames_of(name, bytes) })?;
            judge(name, &counts)?;
            if counts.sent != options.n[0] || counts.received != counts.sent || counts.missing.is_some() {
                let Counts { sent, received, missing, .. } = counts;
                let missing = missing.map_or(String::new(), |name| format!("; none came for {name:012x}"));
                return Err(BenchError::Setting(format!(
                    "{name}: {received} of {sent} frames came out, for {} names{missing}",
                    options.n[0]
                )));
            }
        }
    }
    Ok(())
}

fn has_testpmd() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join("dpdk-testpmd").is_file())
}

/// The processes of a bench: a switch for each contestant, and the traffic of all.
struct Nodes {
    switches: Vec<Process>,
    traffic: Process,
    /// Where the sockets are.
    _dir: TempDir,
}

impl Nodes {
    fn start(
        program: &Path,
        options: &Options,
        wires: Wires,
        contestants: &[String],
        n_ports: usize,
        astray: Option<u64>,
        listener: &mut dyn Listener,
    ) -> Result<Self, BenchError> {
        if !cfg!(feature = "dpdk") {
            return Err(unavailable(ALL, "this fibula-lab was built without DPDK; `make bench` builds one with it"));
        }
        let cpus = rustix::thread::sched_getaffinity(None).map_err(|error| failed("reading the processors", &error))?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).take(2).collect();
        let [first, second] = cpus[..] else {
            return Err(unavailable(ALL, "two nodes that poll take two processors, and there is one"));
        };
        let dir = TempDir::new().map_err(|error| failed("making a folder for sockets", &error))?;
        let eal = memory(contestants.len() as u64 + 1, listener);
        let names = Names {
            n: options.n[0],
            set: options.names.to_string(),
            family: options.family.to_string(),
            seed: options.seed,
            value_bits: options.value_bits,
        };
        let numbers = 0..contestants.len() * n_ports;
        let sockets = numbers.map(|number| (dir.path().join(format!("{number}.sock")), number));
        let ends: Vec<[String; 2]> = sockets.map(|(socket, number)| wires.ends(&socket, number)).collect();
        let plan = |role, devices: Vec<String>, cpu| {
            let (names, eal) = (names.clone(), eal.clone());
            Plan { role, names, eal, devices, n_ports, cpu }
        };
        let of_traffic = ends.iter().map(|[_, end]| end.clone()).collect();
        let traffic = || Process::start(program, dir.path(), "traffic", &plan(Role::Traffic, of_traffic, first));
        let switches = || {
            let start = |(name, ends): (&String, &[[String; 2]])| {
                let role = match name.strip_prefix("testpmd-") {
                    Some(mode) => Role::Testpmd { mode: mode.to_owned() },
                    None => Role::Switch { design: (name != EMPTY).then(|| name.clone()), astray },
                };
                let is_testpmd = matches!(role, Role::Testpmd { .. });
                let devices = ends.iter().map(|[end, _]| end.clone()).collect();
                let mut process = Process::start(program, dir.path(), name, &plan(role, devices, second))?;
                if !is_testpmd {
                    process.read()?;
                }
                Ok(process)
            };
            contestants.iter().zip(ends.chunks(n_ports)).map(start).collect::<Result<Vec<_>, BenchError>>()
        };
        let (mut switches, mut traffic) = if wires.has_switch_first() {
            let switches = switches()?;
            for number in 0..ends.len() {
                switches[number / n_ports].wait_for(&dir.path().join(format!("{number}.sock")))?;
            }
            let mut traffic = traffic()?;
            traffic.read()?;
            (switches, traffic)
        } else {
            let mut traffic = traffic()?;
            traffic.read()?;
            (switches()?, traffic)
        };
        if let Err(error) = traffic.ask(&Request::Link) {
            // What keeps a link down is often what another process has said.
            let said: Vec<_> = switches.iter().map(Process::said).filter(|said| !said.is_empty()).collect();
            return Err(failed(&said.join("; "), &error));
        }
        switches.iter_mut().try_for_each(|switch| switch.signal(Signal::STOP))?;
        let mut nodes = Self { switches, traffic, _dir: dir };
        for (at, name) in contestants.iter().enumerate() {
            nodes.first_frames(at, name, n_ports)?;
        }
        Ok(nodes)
    }

    /// Waits until frames come out of every port: a switch tries one that had no link yet every second.
    fn first_frames(&mut self, switch: usize, name: &str, n_ports: usize) -> Result<(), BenchError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let counts = self.ask(switch, Request::Measure { switch, frames: frames_of(name, 64), us: 10_000 })?;
            let silent = (0..n_ports).find(|port| counts.heard >> port & 1 == 0);
            let Some(silent) = silent else { return Ok(()) };
            if Instant::now() > end {
                let said = self.switches[switch].said();
                return Err(failed(name, &format!("no frame comes out of port {}: {said}", silent + 1)));
            }
        }
    }

    /// Lets one switch run, and asks the traffic.
    fn ask(&mut self, switch: usize, request: Request) -> Result<Counts, BenchError> {
        self.switches[switch].signal(Signal::CONT)?;
        let answer = self.traffic.ask(&request);
        self.switches[switch].signal(Signal::STOP)?;
        match answer? {
            Answer::Counts(counts) => Ok(counts),
            other => Err(failed("the traffic", &format!("it answered {other:?}"))),
        }
    }
}

/// Arguments of EAL for the memory of so many processes, which their peers map.
fn memory(n_processes: u64, listener: &mut dyn Listener) -> Vec<String> {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u64 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let arguments: &[&str] = if 2 * free >= n_processes * HUGE_MIB {
        &["--in-memory", "--single-file-segments"]
    } else {
        let mib = n_processes * HUGE_MIB;
        listener.say(&format!(
            "DPDK's memory is on small pages: `scripts/with-huge-pages {mib} COMMAND` reserves huge ones"
        ));
        &["--no-huge", "-m", "256", "--single-file-segments"]
    };
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// A process, which is killed when dropped.
struct Process {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    said: PathBuf,
}

impl Process {
    fn start(program: &Path, dir: &Path, name: &str, plan: &Plan) -> Result<Self, BenchError> {
        let io = |error: std::io::Error| failed(&format!("starting the process for {name}"), &error);
        let said = dir.join(format!("{name}.log"));
        let log = std::fs::File::create(&said).map_err(io)?;
        let mut command = Command::new(program);
        command.arg("node").arg(serde_json::to_string(plan).map_err(|error| failed(name, &error))?);
        // EAL leaves a directory where it runs.
        command.env("RUNTIME_DIRECTORY", dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().map_err(io)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(name, &"it has no pipes"));
        };
        Ok(Self { name: name.to_owned(), child, input, output: BufReader::new(output), said })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, BenchError> {
        let line = serde_json::to_string(request).map_err(|error| failed(&self.name, &error))?;
        writeln!(self.input, "{line}").map_err(|error| failed(&self.name, &error))?;
        self.read()
    }

    fn read(&mut self) -> Result<Answer, BenchError> {
        let mut line = String::new();
        let n = self.output.read_line(&mut line).map_err(|error| failed(&self.name, &error))?;
        if n == 0 {
            return Err(failed(&self.name, &format!("the process ended: {}", self.said())));
        }
        match serde_json::from_str(&line).map_err(|error| failed(&self.name, &format!("{error}: {line}")))? {
            Answer::Failed(why) => Err(failed(&self.name, &why)),
            answer => Ok(answer),
        }
    }

    /// The last lines that it wrote to standard error.
    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.said).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    fn wait_for(&self, socket: &Path) -> Result<(), BenchError> {
        let end = Instant::now() + PATIENCE;
        while !socket.exists() {
            if Instant::now() > end {
                return Err(failed(&self.name, &format!("it made no {}: {}", socket.display(), self.said())));
            }
            #[expect(clippy::disallowed_methods, reason = "testpmd does not tell when it is ready")]
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Result<(), BenchError> {
        let pid = Pid::from_child(&self.child);
        let status = self.child.try_wait().map_err(|error| failed(&self.name, &error))?;
        if let Some(status) = status {
            return Err(failed(&self.name, &format!("the process ended ({status}): {}", self.said())));
        }
        rustix::process::kill_process(pid, signal).map_err(|error| failed(&self.name, &error))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process of the bench, as [`run`] starts it: the hidden command `node` of `fibula-lab`.
/// # Errors
/// [`BenchError`], which the process that started this one has been told, too.
#[cfg(feature = "dpdk")]
pub fn play(plan: &str) -> Result<(), BenchError> {
    // The end of the bench, however it comes, ends its nodes, even those that are stopped.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let played =
        serde_json::from_str(plan).map_err(|error| failed("the plan", &error)).and_then(|plan| play_role(&plan));
    if let Err(error) = &played {
        let _ = tell(&Answer::Failed(error.to_string()));
    }
    played
}

/// # Errors
/// Always.
#[cfg(not(feature = "dpdk"))]
pub fn play(_: &str) -> Result<(), BenchError> {
    Err(unavailable(ALL, "this fibula-lab was built without DPDK; `make bench` builds one with it"))
}

#[cfg(feature = "dpdk")]
fn play_role(plan: &Plan) -> Result<(), BenchError> {
    match &plan.role {
        Role::Switch { design, astray } => switch::run(plan, design.as_deref(), *astray, || tell(&Answer::Ready)),
        Role::Traffic => {
            let mut traffic = traffic::Traffic::new(plan)?;
            tell(&Answer::Ready)?;
            for line in std::io::stdin().lines() {
                let line = line.map_err(|error| failed("a request", &error))?;
                let request: Request = serde_json::from_str(&line).map_err(|error| failed("a request", &error))?;
                tell(&traffic.answer(&request)?)?;
            }
            Ok(())
        }
        Role::Testpmd { mode } => {
            let mut command = Command::new("dpdk-testpmd");
            let Plan { cpu, eal, devices, .. } = plan;
            command.args(["--no-pci", "--no-telemetry", "--no-shconf", "--log-level=error"]);
            command.arg(format!("--file-prefix=fibula-{}", std::process::id()));
            // Its main thread waits, and another one forwards.
            command.arg(format!("--lcores=0@{cpu},1@{cpu}"));
            command.args(eal).args(devices.iter().map(|device| format!("--vdev={device}"))).arg("--");
            command.arg(format!("--forward-mode={mode}")).args(["--nb-cores=1", "--rxd=512", "--txd=512"]);
            command.args(["--total-num-mbufs=8192", "--disable-link-check", "--burst=32"]);
            let error = std::os::unix::process::CommandExt::exec(&mut command);
            Err(failed("starting dpdk-testpmd", &error))
        }
    }
}

#[cfg(feature = "dpdk")]
fn tell(answer: &Answer) -> Result<(), BenchError> {
    let line = serde_json::to_string(answer).map_err(|error| failed("an answer", &error))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| failed("an answer", &error))
}

/// Binds this thread, and those that it starts, to a processor.
#[cfg(feature = "dpdk")]
fn bind(cpu: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| failed("binding a thread", &error))
}
