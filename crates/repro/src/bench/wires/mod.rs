//! Frames a second through one switch over wires, by each driver, against the same path without a lookup.
//!
//! ```text
//!   live frames ─► veth ─► the switch's port 1 ─► lookup ─► port 2 or 3 ─► veth ─► sink: counted, dropped
//! ```
//! The kernel makes the frames itself, from one thread on one processor: as many as the wire takes. What comes out is
//! counted, by exit, and a frame at the wrong one ends the bench. Names lead to both exits in equal parts. All contestants
//! have wires of their own in one network namespace, and take turns. A switch in the kernel runs on the processor of the
//! frames; one with workers has the other processors, too.
//!
//! Figures are of frames with a shim, 68 bytes, from trunk to trunk, or to hosts, where they leave without it: a switch with
//! hosts has some of the names, and frames are to these. Needs root, `ip` and `bridge`.

pub mod streams;

use super::{Listener, Options, failed, millions_per_second};
use crate::BenchError;
use crate::contestants::Input;
use crate::report::{Row, Setting};
use dataplane::assembly::{Dataplane, PortSpec, Settings};
use dataplane::kernel::{Kernel, Memory};
use dataplane::plane::ShownTo;
use dataplane::port::Role;
use dataplane::table::FibTable;
use fib::action::{Action, PortId};
use fib::designs::{self, Spec, Table};
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use lookup::hash::Hasher;
use netio::backend::af_packet::{self, AfPacket};
use netio::backend::af_xdp::{self, AfXdp, Ahead};
use netio::bpf::{Link, Map, Program, Words};
use netio::{Device, NetError};
use rustix::thread::CpuSet;
use std::any::Any;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The contestants, all of which run when none are named.
pub const CONTESTANTS: [(&str, &str); 11] = [
    ("drop", "no switch: frames are dropped at the end of the first wire"),
    ("redirect", "in the kernel without a lookup: frames say by themselves where they leave"),
    ("xdp", "a switch with driver = \"xdp\", design concise"),
    ("xdp-line", "the same, design line"),
    ("bpf-hash", "in the kernel, names in a BPF hash map"),
    ("af_xdp", "a switch with driver = \"af_xdp\", design concise"),
    ("af_packet", "a switch with driver = \"af_packet\", design concise"),
    ("bridge", "a Linux bridge with the names as static entries; up to 1M"),
    ("xdp-hosts", "driver = \"xdp\", to 4,096 hosts at its own ports"),
    ("af_xdp-hosts", "driver = \"af_xdp\", to the same"),
    ("af_packet-hosts", "driver = \"af_packet\", to the same"),
];

/// How contestants end whose switch has hosts.
const TO_HOSTS: &str = "-hosts";
/// Exits of a switch.
const EXITS: u64 = 2;
/// Frames that the kernel makes in one call.
const FRAMES: u32 = 1 << 16;
/// How long a sample takes.
const SAMPLE: Duration = Duration::from_millis(500);
/// Names with hosts at a switch that has hosts.
const LOCAL: usize = 4096;
/// A bridge takes its entries one by one, and seconds for a million.
const MOST_IN_BRIDGE: usize = 1 << 20;

const SOURCE: &[u8] = include_bytes!("traffic-source.bpf");
const REDIRECT: &[u8] = include_bytes!("traffic-redirect.bpf");
const HASH: &[u8] = include_bytes!("traffic-hash.bpf");
const DROP: &[u8] = include_bytes!("traffic-drop.bpf");
const PASS: &[u8] = include_bytes!("traffic-pass.bpf");
const SINK: &[u8] = include_bytes!("traffic-sink.bpf");

/// Runs the bench: a table for each n. This thread is in another network namespace afterwards.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    if options.names.name_len() != 6 {
        return Err(BenchError::Setting(format!(
            "frames carry MAC addresses and no {} names; use --names mac",
            options.names
        )));
    }
    let chosen = options.chosen(&CONTESTANTS)?;
    netio::namespace::enter().map_err(|error| failed("making a network namespace (it takes root)", &error))?;
    options.n.iter().try_for_each(|&n| run_size(options, n, &chosen, listener))
}

fn run_size(options: &Options, n: u64, chosen: &[String], listener: &mut dyn Listener) -> Result<(), BenchError> {
    if !n.is_power_of_two() {
        return Err(BenchError::Setting(format!("n is {n}; over wires it is a power of two, such as 64K or 1M")));
    }
    let words = options.names.generate(n as usize, options.seed);
    let names = Names::new(options, &words);
    let (mut contestants, mut samples) = (Vec::new(), Vec::new());
    for (at, name) in chosen.iter().enumerate() {
        if name == "bridge" && names.words.len() > MOST_IN_BRIDGE {
            listener.say("bridge: takes its entries one by one; left out beyond 1M names");
            continue;
        }
        listener.say(&format!("{name}: wires and tables"));
        contestants.push((name, Wires::new(at, name, &names)?));
        samples.push(Vec::new());
    }
    for _ in 0..options.runs {
        for ((name, wires), samples) in contestants.iter().zip(&mut samples) {
            samples.push(wires.measure(name)?);
        }
    }
    let setting = Setting {
        n,
        value_bits: options.value_bits,
        names: options.names.to_string(),
        threads: 1,
        batch: 1,
        in_flight: 1,
    };
    let row =
        |((name, _), samples): (&(&String, Wires), Vec<f64>)| Row::new("forward/wires", name, &setting, "M/s", samples);
    listener.table(&contestants.iter().zip(samples).map(row).collect::<Vec<_>>());
    ip(&(0..chosen.len()).fold(String::new(), |mut script, at| {
        for wire in ["i", "a", "b"] {
            let _ = writeln!(script, "link del w{at}{wire}0");
        }
        script
    }))
}

/// The names, and tables of them.
struct Names<'a> {
    options: &'a Options,
    input: Input<'a>,
    words: &'a [u64],
    exits: Vec<u16>,
}

impl<'a> Names<'a> {
    fn new(options: &'a Options, words: &'a [u64]) -> Self {
        let exits = words.iter().map(|&name| 1 + (lookup::hash::mix64(name) % EXITS) as u16);
        Self::with_exits(options, words, exits.collect())
    }

    fn with_exits(options: &'a Options, words: &'a [u64], exits: Vec<u16>) -> Self {
        let input = Input {
            names: words,
            name_len: 6,
            value_bits: options.value_bits,
            family: options.family,
            seed: options.seed,
            build_threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            floor_bytes: 0,
        };
        Self { options, input, words, exits }
    }

    /// The table of a design.
    fn table(&self, design: &str) -> Result<(Spec, Box<dyn Table>, Hasher), BenchError> {
        let design = crate::design(design).map_err(|error| failed("a design", &error))?;
        let (key, hasher) = (self.input.secret_key(), self.input.hasher());
        let spec =
            Spec::new(design, NameKind::Mac, self.options.family, key, self.options.value_bits, self.words.len());
        let macs = self.words.iter().map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]));
        let macs = macs.collect::<Result<Vec<_>, _>>().map_err(|error| failed("a name", &error))?;
        let keys = designs::keys(&hasher, macs.iter()).into_iter();
        let entries: Vec<_> = keys.zip(&self.exits).map(|(key, &exit)| (key, exit)).collect();
        let table = spec.build(&entries, self.input.build_threads);
        let table = table.map_err(|error| self.input.build_error(design.name, error))?;
        Ok((spec, table, hasher))
    }
}

/// A contestant with its wires.
struct Wires {
    source: Program,
    counts: Map,
    /// What must live as long.
    _kept: Vec<Box<dyn Any>>,
}

impl Wires {
    fn new(at: usize, contestant: &str, names: &Names<'_>) -> Result<Self, BenchError> {
        let io = |what: &'static str| move |error: io::Error| failed(what, &error);
        let end = |wire: &str, which: u8| format!("w{at}{wire}{which}");
        let mut script = String::new();
        for wire in ["i", "a", "b"] {
            let [near, far] = [end(wire, 0), end(wire, 1)];
            let _ = writeln!(script, "link add {near} type veth peer name {far}");
            for name in [near, far] {
                let _ = writeln!(script, "link set {name} addrgenmode none\nlink set {name} up");
            }
        }
        ip(&script)?;
        let n = names.words.len() as u32;
        let needs_hash = contestant == "bpf-hash";
        let maps = || -> io::Result<[Map; 5]> {
            let hash = Map::hash(4, if needs_hash { n } else { 1 })?;
            Ok([Map::array(8, n)?, hash, Map::per_cpu(16, 3)?, Map::interfaces(3)?, Map::per_cpu(8, 1)?])
        };
        let [words, hash, counts, devices, state] = maps().map_err(io("making maps for frames"))?;
        let mapped: Words = words.words().map_err(io("mapping names"))?;
        for ((word, name), exit) in mapped.iter().zip(names.words).zip(&names.exits) {
            word.store(name & 0xFFFF_FFFF_FFFF | u64::from(*exit) << 48, Ordering::Relaxed);
        }
        for (slot, name) in [(0, end("i", 0)), (1, end("a", 0)), (2, end("b", 0))] {
            devices.set(slot, &index(&name)?.to_ne_bytes()).map_err(io("naming an interface"))?;
        }
        let to_hosts = contestant.ends_with(TO_HOSTS);
        let (n_met, taken) = if to_hosts { (n.min(LOCAL as u32), dataplane::shim::LEN as u32) } else { (n, 0) };
        let load = |program: &[u8], exit: u32| -> Result<Program, BenchError> {
            let settings: Vec<u8> = [n_met - 1, exit, taken].into_iter().flat_map(u32::to_ne_bytes).collect();
            let settings = Map::constant(&settings).map_err(io("making maps for frames"))?;
            let maps = [&words, &hash, &counts, &devices, &state, &settings];
            Program::load(program, &maps.map(|map| map.as_fd())).map_err(|error| failed("loading a program", &error))
        };
        let attach = |name: &str, program: &Program| {
            Link::attach(index(name)?, program)
                .map_err(|error| failed(&format!("attaching a program to {name}"), &error))
        };
        let mut kept: Vec<Box<dyn Any>> = Vec::new();
        for (exit, name) in [(1, end("a", 1)), (2, end("b", 1))] {
            kept.push(Box::new(attach(&name, &load(SINK, exit)?)?));
        }
        let ports = [end("i", 1), end("a", 0), end("b", 0)];
        let alone = match contestant {
            "drop" => Some(DROP),
            "redirect" => Some(REDIRECT),
            "bpf-hash" => Some(HASH),
            // A veth takes no redirected frames without a program.
            "af_packet" | "af_packet-hosts" | "bridge" => Some(PASS),
            _ => None,
        };
        if let Some(program) = alone {
            kept.push(Box::new(attach(&ports[0], &load(program, 0)?)?));
        }
        match contestant {
            "bpf-hash" => {
                for (name, exit) in names.words.iter().zip(&names.exits) {
                    let (name, exit) = (name & 0xFFFF_FFFF_FFFF, u32::from(*exit).to_ne_bytes());
                    hash.set_hashed(name, &exit).map_err(io("filling a hash map"))?;
                }
            }
            "bridge" => bridge(at, &ports, names)?,
            "drop" | "redirect" => {}
            _ => kept.push(switch(contestant, &ports, names)?),
        }
        let source = load(SOURCE, 0)?;
        Ok(Self { source, counts, _kept: kept })
    }

    /// Frames that came out, and how many where they should not have.
    fn came_out(&self) -> Result<(u64, u64), BenchError> {
        let mut sums = (0, 0);
        for exit in 1..=EXITS as u32 {
            let words = self.counts.words_of_cpus(exit).map_err(|error| failed("reading counts", &error))?;
            for count in words.chunks_exact(2) {
                sums = (sums.0 + count[0], sums.1 + count[1]);
            }
        }
        Ok(sums)
    }

    /// Millions of frames a second, as they come out.
    fn measure(&self, contestant: &str) -> Result<f64, BenchError> {
        // The source writes what is in it.
        let frame = [0; 68];
        let live = || self.source.run_live(&frame, FRAMES).map_err(|error| failed("making live frames", &error));
        let all = rustix::thread::sched_getaffinity(None).map_err(|error| failed("reading the processors", &error))?;
        let mut first = CpuSet::new();
        first.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap_or(0));
        let bind = |set: &CpuSet| {
            rustix::thread::sched_setaffinity(None, set).map_err(|error| failed("binding a thread", &error))
        };
        bind(&first)?;
        live()?;
        let (before, began) = (self.came_out()?, Instant::now());
        while began.elapsed() < SAMPLE {
            live()?;
        }
        let (after, took) = (self.came_out()?, began.elapsed());
        bind(&all)?;
        if after.1 > before.1 {
            return Err(BenchError::Setting(format!(
                "{contestant}: {} frames left by the wrong exit",
                after.1 - before.1
            )));
        }
        if after.0 == before.0 {
            return Err(BenchError::Setting(format!(
                "{contestant}: no frame came out; is another program on the wires, or an interface down?"
            )));
        }
        Ok(millions_per_second(after.0 - before.0, took))
    }
}

/// A switch with these ports.
fn switch(contestant: &str, ports: &[String; 3], names: &Names<'_>) -> Result<Box<dyn Any>, BenchError> {
    let (driver, to_hosts) = match contestant.strip_suffix(TO_HOSTS) {
        Some(driver) => (driver, true),
        None => (contestant, false),
    };
    let (driver, design) = driver.split_once('-').unwrap_or((driver, "concise"));
    let (spec, mut table, hasher) = names.table(design)?;
    let ids = [1, 2, 3].map(PortId);
    let actions: Vec<Action> =
        std::iter::once(Action::Drop).chain(ids[1..].iter().copied().map(Action::Port)).collect();
    let opened = |error: NetError| failed("opening a port", &error);
    let kernel = match driver {
        "xdp" => {
            let (trunks, hosts) = ids.split_at(if to_hosts { 1 } else { ids.len() });
            Some(Kernel::new(trunks, hosts, Memory::Best).map_err(|error| failed("xdp", &error))?)
        }
        _ => None,
    };
    let mut specs = Vec::new();
    for (id, name) in ids.into_iter().zip(ports) {
        let device: Box<dyn Device> = if driver == "af_packet" {
            Box::new(AfPacket::open(name, &af_packet::Options::default()).map_err(opened)?)
        } else {
            let ahead = kernel.as_ref().and_then(|kernel| kernel.place(id)).map(|place| place as Arc<dyn Ahead>);
            Box::new(AfXdp::open(name, &af_xdp::Options { ahead, ..af_xdp::Options::default() }).map_err(opened)?)
        };
        let role = if to_hosts && id != ids[0] { Role::Host } else { Role::Trunk };
        specs.push(PortSpec::with(id, role, device));
    }
    let shown_to = kernel.clone().map_or(ShownTo::Nobody, ShownTo::Kernel);
    let settings = Settings { shown_to, ..Settings::default() };
    let (plane, mut writer) =
        Dataplane::start(&settings, specs).map_err(|error| failed("starting a switch", &error))?;
    writer.set_actions(&actions);
    if let Some(kernel) = kernel {
        kernel.show(&spec, &actions, &mut *table);
        if let Some(error) = kernel.status().error {
            return Err(failed("xdp", &error));
        }
    }
    if to_hosts {
        for (name, &exit) in names.words.iter().zip(&names.exits).take(LOCAL) {
            let name =
                Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]).map_err(|error| failed("a name", &error))?;
            writer.local().put(name, ids[usize::from(exit)]);
        }
    }
    writer.set_table(NameKind::Mac, &hasher, || FibTable::new(NameKind::Mac, hasher.clone(), table.reader()));
    Ok(Box::new((plane, writer, table)))
}

/// A bridge with these ports and the names as static entries.
fn bridge(at: usize, ports: &[String; 3], names: &Names<'_>) -> Result<(), BenchError> {
    let mut script = format!("link add w{at}br type bridge\nlink set w{at}br addrgenmode none\nlink set w{at}br up\n");
    for port in ports {
        let _ = writeln!(script, "link set {port} master w{at}br");
    }
    ip(&script)?;
    let mut entries = String::new();
    for (name, &exit) in names.words.iter().zip(&names.exits) {
        let [a, b, c, d, e, f, ..] = name.to_le_bytes();
        let port = &ports[usize::from(exit)];
        let _ = writeln!(entries, "fdb add {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} dev {port} master static");
    }
    batch("bridge", &entries)
}

fn ip(script: &str) -> Result<(), BenchError> {
    batch("ip", script)
}

fn batch(program: &str, script: &str) -> Result<(), BenchError> {
    use std::io::Write as _;
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| failed(&format!("starting {program}, which is part of iproute2"), &error))?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(program, &error))?;
    if !output.status.success() || !matches!(written, Some(Ok(()))) {
        return Err(failed(program, &String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(())
}

fn index(name: &str) -> Result<u32, BenchError> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    let found = socket.and_then(|socket| rustix::net::netdevice::name_to_index(&socket, name));
    found.map_err(|error| failed(&format!("finding {name}"), &error))
}
