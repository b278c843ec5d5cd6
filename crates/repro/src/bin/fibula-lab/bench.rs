//! `fibula bench`: contestants side by side, on the same names in the same order, every answer checked.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::lookup::hash::Family;
use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output};
use command::parse_size;
use fib::messages::ValueMode;
use fibula_repro::BenchError;
use fibula_repro::bench::click;
use fibula_repro::bench::filter;
use fibula_repro::bench::flow::{self, Part};
use fibula_repro::bench::lookup::{self, Asked};
use fibula_repro::bench::lpm::{self, Destinations};
use fibula_repro::bench::network;
use fibula_repro::bench::nodes::{self, Wires};
use fibula_repro::bench::rules::{self, Kind};
use fibula_repro::bench::{Listener, Options, processes, wires};
use fibula_repro::machine::Machine;
use fibula_repro::names::NameSet;
use fibula_repro::records::{self, RecordsError};
use fibula_repro::report::{Row, table};

use crate::capture::ipv4_packets;

/// A bench, and the number of processes to run it in.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Run the bench this many times, each time in a new process, and report the median over the processes
    #[arg(long, global = true, overrides_with = "processes", default_value_t = 1, value_name = "P",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    processes: u32,
    #[command(subcommand)]
    command: BenchCommand,
}

impl Bench {
    /// Runs the bench, or this program again in processes that each run it once.
    /// # Errors
    /// As [`BenchCommand::run`]; the exit code of a process that failed.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        if self.processes == 1 {
            return self.command.run(out);
        }
        let program = std::env::current_exe()?;
        if matches!(self.command, BenchCommand::Network { .. }) {
            return Err(Failure::new(
                Exit::Usage,
                "a network has a process of its own for its controller; leave --processes out",
            ));
        }
        let child = || {
            let mut child = std::process::Command::new(&program);
            child.args(std::env::args_os().skip(1)).args(["--processes", "1"]);
            child.args((!out.is_json()).then_some("--json"));
            child
        };
        measured(out, |listener| processes::run(self.processes, child, listener))
    }
}

/// The benches.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Lookups per second against the floor, hash tables and DPDK's tables
    Lookup {
        #[command(flatten)]
        args: BenchArgs,
        /// Bursts in flight: 2 begins a burst before finishing the previous one, as a switch does
        #[arg(long, value_delimiter = ',', default_value = "1", value_name = "K")]
        in_flight: Vec<u32>,
        /// Measure the parts of a lookup instead: digests by each kernel, positions, prefetches, reads, and the whole
        #[arg(long, conflicts_with_all = ["contestants", "in_flight", "ask"])]
        parts: bool,
        /// Names to look up: live, aliens (none of them in the table), mixed; structures that answer aliens are refused
        #[arg(long, default_value = "live")]
        ask: Asked,
    },
    /// Time and memory to build a table
    Build(BenchArgs),
    /// Cost of inserts, alters and removes with their messages; lookups during updates
    Update(BenchArgs),
    /// Cost of telling alien names from live ones: Bloom filter, checksum, fingerprint, exact filter
    Aliens(BenchArgs),
    /// Spreading of alien names over servers by weight: how evenly, and which names move when servers or names change
    Spread(BenchArgs),
    /// Number and size of the messages for adding, moving or removing one name, for each design
    Message(BenchArgs),
    /// Flow tables: Cuckoo++ and four more lookup policies, hashbrown and rte_hash
    Flow(FlowArgs),
    /// Bloom filters: the paper's SBF, LHBF and OHBF, and fibula's layouts; 4- and 13-byte keys
    Filter(FilterArgs),
    /// Longest prefix match: the trie against DPDK's rte_lpm and rte_fib, and tables behind Bloom filters
    Lpm(LpmArgs),
    /// Rules over five fields: merged tuples against Tuple Space Search and DPDK's rte_acl, on sets like ClassBench's
    Rules(RulesArgs),
    /// Frames per second through the switch, against the same loop without lookups
    Forward {
        #[command(flatten)]
        args: BenchArgs,
        /// Measure connection tracking instead, with this many open connections: 64K,1M
        #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "N")]
        flow: Vec<u64>,
        /// Measure captures at all ports instead: none, drops, all frames
        #[arg(long, conflicts_with_all = ["flow", "driver"])]
        capture: bool,
        /// Measure one switch over wires instead, with each driver, against the same path without a lookup, a BPF hash
        /// map and a bridge (needs root): xdp,redirect or all; `dpdk`: between two processes, against dpdk-testpmd
        #[arg(long, value_delimiter = ',', value_name = "NAME", conflicts_with = "flow")]
        driver: Vec<String>,
        /// With `--driver dpdk`, the link between the processes: vhost (the switch is the host), virtio (it is the
        /// guest), memif
        #[arg(long, value_delimiter = ',', default_value = "vhost,memif")]
        wires: Vec<Wires>,
        /// With `--driver dpdk`, frame size in bytes without the shim
        #[arg(long, value_delimiter = ',', default_value = "64,1500", value_name = "BYTES")]
        frame_bytes: Vec<usize>,
    },
    /// TCP between two hosts through a switch, against a Linux bridge, with and without the hosts' default offloads
    /// (needs root)
    Streams(BenchArgs),
    /// Frames per second through the Click modular router, in the tree that FIBULA_CLICK names, against the same
    /// without lookups
    Click(BenchArgs),
    /// Many switches at one controller: the cost of each, and the time until the last one has a change
    Network {
        /// Numbers of switches, with a network for each
        #[arg(long, value_delimiter = ',', default_value = "10,100", value_name = "N")]
        switches: Vec<u16>,
        /// Number of names
        #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "100K", value_name = "N")]
        names: Vec<u64>,
        /// Maximum number of switches with a host port
        #[arg(long, default_value_t = 8, value_name = "N")]
        gateways: u16,
        /// Value modes: port, egress
        #[arg(long, default_value = "egress")]
        value_mode: ValueMode,
        /// Number of single changes
        #[arg(long, default_value_t = 9)]
        runs: u32,
    },
    /// Measure all figures that the documents quote, into a record in docs/benchmarks/records; resumes where it stopped
    Record {
        /// Short name of this machine, such as "Zen 5", which names its record
        #[arg(long, value_name = "NAME")]
        machine: String,
        /// Extent of the measurements: quick, long
        #[arg(long, default_value = "quick")]
        set: String,
        /// Anything else that readers should know about the machine, such as "a shared virtual machine"
        #[arg(long, value_name = "TEXT")]
        remark: Option<String>,
        /// Root of the source tree
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
    /// Write the figures of all records into the documents that quote them
    Report {
        /// Change nothing; exit code 6 if a document quotes a figure that differs from the records
        #[arg(long)]
        check: bool,
        /// Root of the source tree
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
}

/// Common options of the benches of filters, prefixes and rules.
#[derive(Args, Clone, Debug)]
struct RoundsArgs {
    /// Contestants to measure; --list shows all
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<String>,
    /// Number of measurements of each contestant
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Keys, addresses or flows per call, up to 256
    #[arg(long, default_value_t = 32)]
    batch: u32,
    /// Seed of tables, orders and secrets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Minimum number of lookups in a run
    #[arg(long, value_parser = parse_size)]
    operations: Option<u64>,
    /// List the contestants and exit
    #[arg(long)]
    list: bool,
}

/// Options of the bench of Bloom filters.
#[derive(Args, Clone, Debug)]
pub(crate) struct FilterArgs {
    /// Names in a filter
    #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "1000,650000")]
    n: Vec<u64>,
    /// Positions per name
    #[arg(short, long, value_delimiter = ',', default_value = "3,10")]
    k: Vec<u32>,
    /// Bytes per key: 4, 13
    #[arg(long, value_delimiter = ',', default_value = "4,13")]
    key_bytes: Vec<usize>,
    /// Shares of the queries that are members
    #[arg(long, value_delimiter = ',', default_value = "0,0.5,1")]
    members: Vec<f64>,
    /// Bits of a filter per name
    #[arg(long, default_value_t = 16.0)]
    bits_per_name: f64,
    #[command(flatten)]
    rounds: RoundsArgs,
}

impl From<FilterArgs> for filter::Options {
    fn from(args: FilterArgs) -> Self {
        Self {
            n: args.n,
            k: args.k,
            key_bytes: args.key_bytes,
            members: args.members,
            bits_per_name: args.bits_per_name,
            contestants: args.rounds.contestants,
            runs: args.rounds.runs,
            batch: args.rounds.batch,
            seed: args.rounds.seed,
            operations: args.rounds.operations,
        }
    }
}

/// Options of the bench of flow tables.
#[derive(Args, Clone, Debug)]
pub(crate) struct FlowArgs {
    /// Slots of a table, as powers of two
    #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "512K,4M,32M")]
    capacity: Vec<u64>,
    /// Shares of the slots that are filled
    #[arg(long, value_delimiter = ',', default_value = "0.8")]
    load: Vec<f64>,
    /// Shares of the lookups whose keys are absent
    #[arg(long, value_delimiter = ',', default_value = "0,0.2,0.5,1")]
    absent: Vec<f64>,
    /// Contestants to measure; --list shows all
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<String>,
    /// Concurrent threads, each with its own table
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<u32>,
    /// Use keys and values of 4 bytes instead of 16, for the form whose entries are stored in the lines
    #[arg(long)]
    small: bool,
    /// Operations to measure: lookup, insert, hint (also after 30 turnovers, which takes minutes at 32M), churn
    /// (lookups after 3 turnovers, before and after flows are moved back to their first buckets)
    #[arg(long, value_delimiter = ',', default_value = "lookup,insert")]
    parts: Vec<Part>,
    /// Number of measurements of each contestant
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Keys per call, up to 64
    #[arg(long, default_value_t = 32)]
    batch: u32,
    /// Bursts in flight: 2 begins a burst before finishing the previous one, as a switch does
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "K")]
    in_flight: Vec<u32>,
    /// Seed of keys, orders and secrets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Minimum number of lookups in a run, per thread
    #[arg(long, value_parser = parse_size)]
    operations: Option<u64>,
    /// List the contestants and exit
    #[arg(long)]
    list: bool,
}

impl From<FlowArgs> for flow::Options {
    fn from(args: FlowArgs) -> Self {
        Self {
            capacity: args.capacity,
            load: args.load,
            absent: args.absent,
            contestants: args.contestants,
            threads: args.threads,
            runs: args.runs,
            batch: args.batch,
            in_flight: args.in_flight,
            seed: args.seed,
            operations: args.operations,
            parts: args.parts,
            is_small: args.small,
        }
    }
}

/// Options of the bench of longest prefix match.
#[derive(Args, Clone, Debug)]
pub(crate) struct LpmArgs {
    /// A list of prefixes, packed or not; without one, a table similar to a full one is generated
    #[arg(long)]
    table: Option<PathBuf>,
    /// Take at most this many prefixes, evenly from the list: rte_lpm takes minutes to build a full table
    #[arg(long, value_parser = parse_size)]
    prefixes: Option<u64>,
    /// Addresses to look up: random, prefix, zipf, trace
    #[arg(long, value_delimiter = ',', default_value = "random,prefix,zipf")]
    destinations: Vec<Destinations>,
    /// A capture whose IPv4 destinations are also looked up, as `trace`
    #[arg(long)]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    rounds: RoundsArgs,
}

impl LpmArgs {
    fn options(self) -> anyhow::Result<lpm::Options> {
        let (all, source) = match &self.table {
            Some(path) => {
                let read = fib::prefixes::List::read(command::open(path)?, Some("any"));
                let list = read.or_exit(Exit::BadInput, path.display())?;
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                (list.ipv4.into_iter().map(|(prefix, _)| prefix).collect(), name)
            }
            None => {
                eprintln!("no --table: the prefixes are generated, in the proportions of a full table");
                (lpm::generate(900_000, self.rounds.seed), "generated".into())
            }
        };
        let step = all.len().div_ceil(self.prefixes.unwrap_or(u64::MAX).max(1) as usize).max(1);
        let mut destinations = self.destinations;
        let trace = match &self.pcap {
            Some(path) => {
                if !destinations.contains(&Destinations::Trace) {
                    destinations.push(Destinations::Trace);
                }
                ipv4_destinations(path)?
            }
            None => Vec::new(),
        };
        Ok(lpm::Options {
            prefixes: all.into_iter().step_by(step).collect(),
            source,
            destinations,
            trace,
            contestants: self.rounds.contestants,
            runs: self.rounds.runs,
            batch: self.rounds.batch,
            seed: self.rounds.seed,
            operations: self.rounds.operations,
        })
    }
}

/// The IPv4 destinations of a capture, in order.
fn ipv4_destinations(path: &Path) -> anyhow::Result<Vec<u32>> {
    let mut addresses = Vec::new();
    ipv4_packets(path, |ip, _| {
        addresses.push(ip.header().destination_addr().into());
        Ok(())
    })?;
    if addresses.is_empty() {
        return Err(Failure::new(Exit::BadInput, format!("{}: no IPv4 packet in it", path.display())));
    }
    Ok(addresses)
}

/// Options of the bench of rules.
#[derive(Args, Clone, Debug)]
pub(crate) struct RulesArgs {
    /// Rules per set, with K, M for powers of two, or 10000
    #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "1000,10000,100000")]
    n: Vec<u64>,
    /// Kinds of sets: acl, fw, ipc
    #[arg(long, value_delimiter = ',', default_value = "acl,fw,ipc")]
    kinds: Vec<Kind>,
    #[command(flatten)]
    rounds: RoundsArgs,
}

impl From<RulesArgs> for rules::Options {
    fn from(args: RulesArgs) -> Self {
        Self {
            n: args.n,
            kinds: args.kinds,
            contestants: args.rounds.contestants,
            runs: args.rounds.runs,
            batch: args.rounds.batch,
            seed: args.rounds.seed,
            operations: args.rounds.operations,
        }
    }
}

/// Common options of all benches; each bench has its own defaults.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// Names in the table, with K, M for powers of two: 64K,1M,16M
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    n: Vec<u64>,
    /// Contestants to measure; --list shows all
    #[arg(long, value_delimiter = ',')]
    contestants: Vec<String>,
    /// Concurrent threads
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<u32>,
    /// Bits of a value, 1 to 64
    #[arg(long, default_value_t = 8)]
    value_bits: u8,
    /// Kinds of names: mac, seq, lfsr, uniform, zipf
    #[arg(long, default_value = "mac")]
    names: NameSet,
    /// Number of measurements of each contestant
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Names per call
    #[arg(long, default_value_t = 32)]
    batch: u32,
    /// Seed of names, orders and keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Digest family: muladd, wy, siphash13, crc32c
    #[arg(long, default_value = "muladd")]
    hash: Family,
    /// Minimum number of operations in a run
    #[arg(long, value_parser = parse_size)]
    operations: Option<u64>,
    /// List the contestants and exit
    #[arg(long)]
    list: bool,
}

impl BenchArgs {
    fn options(self, n: &[u64]) -> Options {
        Options {
            n: if self.n.is_empty() { n.to_vec() } else { self.n },
            contestants: self.contestants,
            threads: self.threads,
            value_bits: self.value_bits,
            names: self.names,
            runs: self.runs,
            batch: self.batch,
            in_flight: vec![1],
            seed: self.seed,
            family: self.hash,
            operations: self.operations,
        }
    }
}

impl BenchCommand {
    /// Runs the bench.
    /// # Errors
    /// Exit code 2 for settings and unknown contestants, 6 for a wrong answer.
    fn run(self, out: &Output) -> anyhow::Result<()> {
        type Run = fn(&Options, &mut dyn Listener) -> Result<(), BenchError>;
        let (designs, dynamic) =
            (fibula_repro::bench::forward::contestants(), fibula_repro::bench::message::contestants());
        let (args, sizes, list, run): (_, &[u64], &[(&str, &str)], Run) = match self {
            Self::Lookup { args, .. } if args.list => return print_list(out, &[]),
            Self::Lookup { args, in_flight, parts, ask } => {
                let options = args.options(&[64 << 10, 1 << 20, 4 << 20, 16 << 20]);
                let options = Options { in_flight, ..options };
                return measured(out, |listener| match parts {
                    true => lookup::run_parts(&options, listener),
                    false => lookup::run_asked(&options, ask, listener),
                });
            }
            Self::Build(args) => {
                (args, &[4 << 20], &fibula_repro::bench::build::CONTESTANTS, fibula_repro::bench::build::run)
            }
            Self::Forward { args, driver, wires, frame_bytes, .. } if driver == ["dpdk"] => {
                if args.list {
                    return print_list(out, &nodes::contestants());
                }
                let (options, program) = (args.options(&[1 << 20]), std::env::current_exe()?);
                return measured(out, |listener| nodes::run(&program, &options, &wires, &frame_bytes, listener));
            }
            Self::Forward { args, driver, .. } if !driver.is_empty() => {
                if args.list {
                    return print_list(out, &wires::CONTESTANTS);
                }
                if !args.contestants.is_empty() {
                    let text =
                        "over wires, --driver names the contestants; leave --contestants out, or take --driver dpdk";
                    return Err(Failure::new(Exit::Usage, text));
                }
                let contestants = if driver == ["all"] { Vec::new() } else { driver };
                let options = Options { contestants, ..args.options(&[1 << 20]) };
                return measured(out, |listener| wires::run(&options, listener));
            }
            Self::Forward { args, flow, .. } if !flow.is_empty() && !args.list => {
                let options = args.options(&[1 << 20]);
                return measured(out, |listener| {
                    fibula_repro::bench::forward::run_connections(&options, &flow, listener)
                });
            }
            Self::Forward { args, capture, .. } if capture && !args.list => {
                let options = args.options(&[1 << 20]);
                return measured(out, |listener| fibula_repro::bench::forward::run_captured(&options, listener));
            }
            Self::Forward { args, .. } => (args, &[1 << 20], &designs, fibula_repro::bench::forward::run),
            Self::Streams(args) => (args, &[2], &wires::streams::CONTESTANTS, wires::streams::run),
            Self::Click(args) => (args, &[1 << 20], &click::CONTESTANTS, click::run),
            Self::Aliens(args) => {
                (args, &[1 << 20], &fibula_repro::bench::aliens::CONTESTANTS, fibula_repro::bench::aliens::run)
            }
            Self::Spread(args) => {
                (args, &[64 << 10], &fibula_repro::bench::spread::CONTESTANTS, fibula_repro::bench::spread::run)
            }
            Self::Message(args) => (args, &[64 << 10], &dynamic, fibula_repro::bench::message::run),
            Self::Update(args) => {
                (args, &[4 << 20], &fibula_repro::bench::update::PARTS, fibula_repro::bench::update::run)
            }
            Self::Filter(args) if args.rounds.list => return print_list(out, &filter::CONTESTANTS),
            Self::Filter(args) => return measured(out, |listener| filter::run(&args.into(), listener)),
            Self::Lpm(args) if args.rounds.list => return print_list(out, &lpm::CONTESTANTS),
            Self::Lpm(args) => {
                let options = args.options()?;
                return measured(out, |listener| lpm::run(&options, listener));
            }
            Self::Rules(args) if args.rounds.list => return print_list(out, &rules::CONTESTANTS),
            Self::Rules(args) => return measured(out, |listener| rules::run(&args.into(), listener)),
            Self::Record { machine: label, set, remark, root } => {
                // `fibula` has all commands; it may be another program than this one.
                let program = std::env::current_exe()?.with_file_name("fibula");
                let plan = records::Plan { root, program, label, set, remark };
                let path = records::record(&plan, &mut |text| eprintln!("{text}")).map_err(of_records)?;
                return out.done(
                    &path,
                    format!("{}: write it into the documents with `fibula bench report`", path.display()),
                );
            }
            Self::Report { check, root } => return write_figures(out, &root, check),
            Self::Network { switches, names, gateways, value_mode, runs } => {
                let program = std::env::current_exe()?.with_file_name("fibula");
                let options = network::Options { switches, names, gateways, value_mode, runs, program };
                return networks(out, &options);
            }
            Self::Flow(args) if args.list => return print_list(out, &flow::CONTESTANTS),
            Self::Flow(args) => return measured(out, |listener| flow::run(&args.into(), listener)),
        };
        if args.list {
            return print_list(out, list);
        }
        measured(out, |listener| run(&args.options(sizes), listener))
    }
}

fn of_records(error: RecordsError) -> anyhow::Error {
    let exit = match &error {
        RecordsError::File { .. } => Exit::NotFound,
        RecordsError::Malformed { .. } => Exit::BadInput,
        RecordsError::OtherRecord { .. } => Exit::Refused,
        _ => Exit::CheckFailed,
    };
    Failure::new(exit, error)
}

/// Updates the documents from the records, or only reports which are out of date.
fn write_figures(out: &Output, root: &Path, is_check: bool) -> anyhow::Result<()> {
    let report = records::report(root, is_check).map_err(of_records)?;
    let stale: Vec<String> = report.stale.iter().map(|path| path.display().to_string()).collect();
    if is_check && !stale.is_empty() {
        let text = format!("{}: not what the records say; run `fibula bench report`", stale.join(", "));
        return Err(Failure::new(Exit::CheckFailed, text));
    }
    let written =
        if stale.is_empty() { "nothing changed".to_owned() } else { format!("written: {}", stale.join(", ")) };
    out.done(&stale, format!("{} figures and tables in the documents; {written}", report.figures))
}

/// Prints the figures of each network.
fn networks(out: &Output, options: &network::Options) -> anyhow::Result<()> {
    eprintln!("{}", Machine::read());
    let mut printed = Ok(());
    let mut tell = |figures: &[network::Figure]| {
        if printed.is_ok() {
            printed = out.rows(figures);
        }
    };
    let outcome = network::run(options, &mut tell, &mut |text| eprintln!("{text}"));
    outcome.map_err(|error| Failure::new(Exit::Usage, error))?;
    printed
}

/// Prints the machine, then what `run` reports.
fn measured(out: &Output, run: impl FnOnce(&mut dyn Listener) -> Result<(), BenchError>) -> anyhow::Result<()> {
    let machine = Machine::read();
    if out.is_json() {
        eprintln!("{}", serde_json::json!({ "machine": machine }));
    } else {
        eprintln!("{machine}");
    }
    let mut printer = Printer { out: *out, error: None };
    run(&mut printer).map_err(|error| {
        let exit = match &error {
            error if error.is_wrong_answer() => Exit::CheckFailed,
            BenchError::Unavailable { .. } => Exit::NotFound,
            BenchError::Build { .. } => Exit::Refused,
            BenchError::Process { code, .. } => exit_of_process(*code),
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    })?;
    printer.error.map_or(Ok(()), |error| Err(error.into()))
}

/// The exit code of a bench whose process ended with `code`.
fn exit_of_process(code: Option<i32>) -> Exit {
    let known = [Exit::Usage, Exit::BadInput, Exit::NotFound, Exit::Refused, Exit::CheckFailed, Exit::Interrupted];
    known.into_iter().find(|&exit| Some(exit as i32) == code).unwrap_or(Exit::Internal)
}

fn print_list(out: &Output, list: &[(&str, &str)]) -> anyhow::Result<()> {
    #[derive(serde::Serialize)]
    struct Contestant<'a> {
        name: &'a str,
        about: &'a str,
        default: bool,
    }
    let of_lookup = fibula_repro::contestants::ALL.iter().filter(|_| list.is_empty());
    let rows: Vec<Contestant<'_>> = of_lookup
        .map(|kind| Contestant { name: kind.name, about: kind.about, default: kind.default })
        .chain(list.iter().map(|&(name, about)| Contestant { name, about, default: true }))
        .collect();
    out.rows(&rows)
}

/// Prints each table when it is complete; keeps the first error of standard output.
struct Printer {
    out: Output,
    error: Option<std::io::Error>,
}

impl Listener for Printer {
    fn table(&mut self, rows: &[Row]) {
        let text =
            if self.out.is_json() { rows.iter().map(|row| row.to_json() + "\n").collect() } else { table(rows) + "\n" };
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        self.error = self.error.take().or(written.err());
    }

    fn say(&mut self, text: &str) {
        eprintln!("{text}");
    }
}
