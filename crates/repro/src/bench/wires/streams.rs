//! TCP between two hosts in network namespaces, through switches and through Linux bridges, with the offloads that hosts
//! have by default and without them.
//!
//! ```text
//!   iperf3 -c ─ veth ─► port 1 │ switch or bridge │ port 2 ─ veth ─ iperf3 -s
//!   iperf3 -c ─ veth ─► port 1 │ switch or bridge │ trunk ─ veth ─ trunk │ switch or bridge │ port 2 ─ veth ─ iperf3 -s
//! ```
//! A veth leaves checksums and the cutting of segments to hardware that is not there, as containers and guests do. Each
//! contestant has hosts, wires and namespaces of its own, and they take turns. A switch has one worker, and checks
//! sources by MAC address, as it does unless it is configured otherwise. Needs root, `ip`, `iperf3` and `ethtool`.

use super::{Names, ip};
use crate::BenchError;
use crate::bench::{Listener, Options, failed};
use crate::report::{Row, Setting};
use dataplane::assembly::{Dataplane, PortSpec, Settings};
use dataplane::port::Role;
use dataplane::source::CheckSource;
use dataplane::table::FibTable;
use fib::action::{Action, PortId};
use fib::name::{Name, NameKind};
use fib::replica::Exact;
use netio::Device;
use netio::backend::af_packet::{self, AfPacket};
use netio::backend::af_xdp::{self, AfXdp};
use std::any::Any;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// The contestants, all of which run when none are named.
pub const CONTESTANTS: [(&str, &str); 5] = [
    ("bridge", "a Linux bridge"),
    ("af_packet", "a switch with driver = \"af_packet\""),
    ("af_xdp", "a switch with driver = \"af_xdp\""),
    ("bridge-trunk", "two Linux bridges and a wire between them"),
    ("af_packet-trunk", "two switches with driver = \"af_packet\" and a trunk between them"),
];

/// The hosts' names, lowest byte first, and their addresses.
const HOSTS: [(u64, &str, &str); 2] =
    [(0x0a00_0000_0002, "02:00:00:00:00:0a", "10.0.0.1"), (0x0b00_0000_0002, "02:00:00:00:00:0b", "10.0.0.2")];
/// How long a sample takes.
const SECONDS: &str = "2";
/// Room for the shim on a trunk.
const TRUNK_MTU: u32 = 1600;
const OFFLOADS: [&str; 4] = ["tx", "tso", "gso", "gro"];

/// Runs the bench: a table with the hosts' default offloads, and one without. This thread is in another network namespace
/// afterwards.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let chosen = options.chosen(&CONTESTANTS)?;
    netio::namespace::enter().map_err(|error| failed("making a network namespace (it takes root)", &error))?;
    let mut contestants = Vec::new();
    for (at, name) in chosen.iter().enumerate() {
        listener.say(&format!("{name}: hosts and wires"));
        contestants.push(Pair::new(at, name, options)?);
    }
    for (bench, has_offloads) in [("streams", true), ("streams/no offloads", false)] {
        if !has_offloads {
            contestants.iter().flat_map(|pair| &pair.hosts).try_for_each(Host::turn_offloads_off)?;
        }
        let mut samples = vec![Vec::new(); chosen.len()];
        for round in 1..=options.runs {
            listener.say(&format!("{bench}: round {round} of {}", options.runs));
            for (pair, samples) in contestants.iter().zip(&mut samples) {
                samples.push(pair.gigabits_per_second()?);
            }
        }
        let setting = Setting {
            n: HOSTS.len() as u64,
            value_bits: options.value_bits,
            names: options.names.to_string(),
            threads: 1,
            batch: 1,
            in_flight: 1,
        };
        let rows = chosen.iter().zip(samples);
        let rows = rows.map(|(name, samples)| Row::new(bench, name, &setting, "Gbit/s", samples));
        listener.table(&rows.collect::<Vec<_>>());
    }
    Ok(())
}

/// Two hosts, and what is between them.
struct Pair {
    hosts: [Host; 2],
    /// What must live as long.
    _between: Vec<Box<dyn Any>>,
}

impl Pair {
    fn new(at: usize, contestant: &str, options: &Options) -> Result<Self, BenchError> {
        let [near, far] = [format!("s{at}a"), format!("s{at}b")];
        let [left, right] = [format!("s{at}l"), format!("s{at}r")];
        let hosts = [Host::new(0, &near)?, Host::new(1, &far)?];
        let (kind, has_trunk) = match contestant.strip_suffix("-trunk") {
            Some(kind) => (kind, true),
            None => (contestant, false),
        };
        if has_trunk {
            let mut script = format!("link add {left} type veth peer name {right}\n");
            for end in [&left, &right] {
                let _ = writeln!(script, "link set {end} addrgenmode none mtu {TRUNK_MTU} up");
            }
            ip(&script)?;
        }
        let sides: Vec<[(&String, Role); 2]> = if has_trunk {
            vec![[(&near, Role::Host), (&left, Role::Trunk)], [(&right, Role::Trunk), (&far, Role::Host)]]
        } else {
            vec![[(&near, Role::Host), (&far, Role::Host)]]
        };
        let mut between = Vec::new();
        for (side, ports) in sides.iter().enumerate() {
            if kind == "bridge" {
                let bridge = format!("s{at}br{side}");
                let mut script = format!("link add {bridge} type bridge\nlink set {bridge} addrgenmode none up\n");
                for (port, _) in ports {
                    let _ = writeln!(script, "link set {port} master {bridge}");
                }
                ip(&script)?;
            } else {
                between.push(switch(kind, ports, options)?);
            }
        }
        let [_, server] = &hosts;
        between.push(Box::new(server.serve()?));
        Ok(Self { hosts, _between: between })
    }

    fn gigabits_per_second(&self) -> Result<f64, BenchError> {
        let [client, _] = &self.hosts;
        let mut command = client.command("iperf3");
        command.args(["-c", HOSTS[1].2, "-t", SECONDS, "-J", "--connect-timeout", "5000"]);
        let output = command.output().map_err(|error| failed("starting iperf3", &error))?;
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed("reading the output of iperf3", &error))?;
        if let Some(error) = answer["error"].as_str() {
            return Err(failed("iperf3", &error));
        }
        let received = answer["end"]["sum_received"]["bits_per_second"].as_f64();
        received.map(|bits| bits / 1e9).ok_or_else(|| failed("iperf3", &"its output lacks the received bits"))
    }
}

/// A switch with these ports. Host 0 is at the first, or beyond it if that is a trunk, host 1 at the second.
fn switch(driver: &str, ports: &[(&String, Role); 2], options: &Options) -> Result<Box<dyn Any>, BenchError> {
    let ids = [PortId(1), PortId(2)];
    let words = HOSTS.map(|(word, ..)| word);
    let names = Names::with_exits(options, &words, vec![1, 2]);
    let (_, table, hasher) = names.table("concise")?;
    let specs = ids.into_iter().zip(ports).map(|(id, &(interface, role))| {
        let device: Result<Box<dyn Device>, _> = match driver {
            "af_xdp" => {
                AfXdp::open(interface, &af_xdp::Options::default()).map(|device| Box::new(device) as Box<dyn Device>)
            }
            _ => AfPacket::open(interface, &af_packet::Options::default()).map(|device| Box::new(device) as _),
        };
        let device = device.map_err(|error| failed("opening a port", &error))?;
        let check_source = if role == Role::Host { CheckSource::Mac } else { CheckSource::Off };
        Ok(PortSpec { check_source, ..PortSpec::with(id, role, device) })
    });
    let specs = specs.collect::<Result<Vec<_>, BenchError>>()?;
    let (plane, mut writer) =
        Dataplane::start(&Settings::default(), specs).map_err(|error| failed("starting a switch", &error))?;
    writer.set_actions(&[Action::Drop, Action::Port(ids[0]), Action::Port(ids[1])]);
    for ((id, &(_, role)), (word, _, address)) in ids.into_iter().zip(ports).zip(HOSTS) {
        let name =
            Name::from_bytes(NameKind::Mac, &word.to_le_bytes()[..6]).map_err(|error| failed("a name", &error))?;
        writer.valid().put(name.clone(), address.parse().ok());
        if role == Role::Host {
            writer.local().put(name, id);
        }
    }
    writer.set_table(NameKind::Mac, &hasher, || FibTable::new(NameKind::Mac, hasher.clone(), table.reader()));
    Ok(Box::new((plane, writer, table)))
}

/// A network namespace with one end of a veth. It ends with the process that holds it.
struct Host(Running);

impl Host {
    /// The host of this number, whose wire has this end here.
    fn new(number: usize, end: &str) -> Result<Self, BenchError> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "echo ready; exec sleep infinity"]);
        let host = Self(Running::until(holder, "ready")?);
        let ((_, mac, address), (_, other_mac, other)) = (HOSTS[number], HOSTS[1 - number]);
        let pid = host.0.0.id();
        ip(&format!(
            "link add {end} type veth peer name host address {mac} netns {pid}\nlink set {end} addrgenmode none up\n"
        ))?;
        for arguments in [
            "link set lo up".to_owned(),
            "link set host addrgenmode none up".to_owned(),
            format!("address add {address}/24 dev host"),
            format!("neighbour add {other} lladdr {other_mac} dev host"),
        ] {
            host.succeed("ip", arguments.split(' '))?;
        }
        Ok(host)
    }

    fn turn_offloads_off(&self) -> Result<(), BenchError> {
        self.succeed("ethtool", ["-K", "host"].into_iter().chain(OFFLOADS.iter().flat_map(|&offload| [offload, "off"])))
    }

    fn serve(&self) -> Result<Running, BenchError> {
        let mut server = self.command("iperf3");
        server.args(["-s", "--forceflush"]);
        Running::until(server, "listening")
    }

    /// A command that runs there.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.0.id().to_string(), program]);
        command
    }

    fn succeed<'a>(&self, program: &str, arguments: impl Iterator<Item = &'a str>) -> Result<(), BenchError> {
        let output = self.command(program).args(arguments).output();
        let output = output.map_err(|error| failed(&format!("starting {program} in a namespace"), &error))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(program, &String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

/// A process, which is killed when dropped.
struct Running(Child);

impl Running {
    /// Starts a command and waits until it prints a line with this word.
    fn until(mut command: Command, word: &str) -> Result<Self, BenchError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(&format!("starting {program}"), &error))?;
        let output = child.stdout.take();
        let running = Self(child);
        let mut lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
        if !lines.any(|line| line.is_ok_and(|line| line.contains(word))) {
            return Err(failed(&program, &format!("it ended before it printed `{word}`")));
        }
        // A pipe that is not read stops its writer.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
