//! The cost in messages of a change of one name in a network: bytes and number for each design, as the controller
//! creates them and switches apply them.
//!
//! A full mesh of [`SWITCHES`] switches with [`HOST_PORTS`] host ports each has n names, spread evenly; the value of a
//! name at a switch is the port that it leaves by. Then names are added, moved to another switch, and removed, one at a
//! time. The bench counts the messages that change the table of the design, encoded as they are sent, header included.
//! The exact tables of gateways, the same for all designs, also get messages; only `all_bytes_per_change` includes
//! them. Every switch applies everything, and answers are compared with the RIB at the end.
//!
//! Source: Table III of "Re-designing Compact-structure based Forwarding for Programmable Networks" counts bits of such
//! messages; see `fib::model::messages`. Differs: messages also carry network, change, table, versions and digests.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fib::action::{Action, PortId};
use fib::designs::Design;
use fib::durable::Tenants;
use fib::messages::{Body, Message, Updates};
use fib::name::{Name, NameKind};
use fib::network::{Effects, Network, NetworkError, Settings};
use fib::replica::{Limits, MemoryTables, Replica};
use fib::rib::Attachment;
use fib::topology::{End, NodeId};
use lookup::bloom_fib;
use lookup::hash::SecretKey;

use super::{Listener, Options};
use crate::BenchError;
use crate::report::{MessageFigures, Row, Setting, size_text};

/// Switches of the network, fully meshed.
pub const SWITCHES: u16 = 8;
/// Host ports per switch; the ports below are links.
pub const HOST_PORTS: u16 = 4;
/// Default number of names that are added, moved and removed per run.
const NAMES: u64 = 1000;
/// The kinds of change, in the order in which each name has them.
const CHANGES: [&str; 3] = ["add", "change", "remove"];

/// The designs whose tables change in place.
pub fn contestants() -> Vec<(&'static str, &'static str)> {
    dynamic().map(|design| (design.name, design.summary)).collect()
}

fn dynamic() -> impl Iterator<Item = &'static Design> {
    crate::designs().filter(|design| !design.is_static)
}

/// Runs the bench: three tables for each n.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    let setting = |text: String| Err(BenchError::Setting(text));
    if options.names.name_len() != 6 {
        return setting(format!(
            "this bench has MAC addresses for names and no {} names; use --names mac",
            options.names
        ));
    }
    if !(4..=16).contains(&options.value_bits) {
        let n_ports = SWITCHES - 1 + HOST_PORTS;
        return setting(format!("values have {} bits; use 4 (for {n_ports} ports) to 16", options.value_bits));
    }
    if options.threads != [1] {
        return setting("changes come one after another; use one thread".into());
    }
    let chosen: Vec<&'static Design> = if options.contestants.is_empty() {
        dynamic().collect()
    } else {
        let by_name = |name: &String| dynamic().find(|design| design.name == *name).ok_or_else(|| name.clone());
        options.contestants.iter().map(by_name).collect::<Result<_, _>>().map_err(|name| {
            let known = dynamic().map(|design| design.name).collect::<Vec<_>>().join(", ");
            BenchError::UnknownContestant { name, known }
        })?
    };
    options.n.iter().try_for_each(|&n| run_size(options, &chosen, n, listener))
}

fn run_size(options: &Options, chosen: &[&'static Design], n: u64, out: &mut dyn Listener) -> Result<(), BenchError> {
    let n_new = options.operations.unwrap_or(NAMES);
    let names: Vec<Name> = options
        .names
        .generate((n + n_new) as usize, options.seed)
        .iter()
        .map(|name| Name::from_bytes(NameKind::Mac, &name.to_le_bytes()[..6]))
        .collect::<Result<_, _>>()
        .map_err(|error| BenchError::Setting(error.to_string()))?;
    let (names, new) = names.split_at(n as usize);
    let mut rows = [const { Vec::new() }; CHANGES.len()];
    for design in chosen {
        out.say(&format!("a network of {SWITCHES} switches with {} names in {design}", size_text(n)));
        let counts = measure(options, design, names, new).map_err(|error| match error {
            Trouble::Bench(error) => error,
            Trouble::Refused(reason) => BenchError::Build { contestant: design.name.into(), n, reason },
        })?;
        let names = options.names.to_string();
        let setting = Setting { n, value_bits: options.value_bits, names, threads: 1, batch: 1, in_flight: 1 };
        for ((counts, what), rows) in counts.into_iter().zip(CHANGES).zip(&mut rows) {
            rows.push(counts.row(&format!("message/{what}"), design.name, &setting));
        }
    }
    rows.iter().for_each(|rows| out.table(rows));
    Ok(())
}

/// Why a run failed.
enum Trouble {
    Bench(BenchError),
    Refused(String),
}

impl From<NetworkError> for Trouble {
    fn from(error: NetworkError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

/// The cost of one kind of change.
#[derive(Default)]
struct Counts {
    /// Mean bytes per message, run by run.
    means: Vec<f64>,
    /// Bytes of each message to a table.
    bytes: Vec<u32>,
    /// Of the messages that change a table in place: their number, their bytes, and those of them that say where in the
    /// filters of a Bloom forwarder a name has its bits.
    in_place: [u64; 3],
    n_changes: u64,
    all_bytes: u64,
    in_controller: Duration,
    in_switches: Duration,
    in_decoding: Duration,
    in_clock: Duration,
}

impl Counts {
    fn row(mut self, bench: &str, design: &str, setting: &Setting) -> Row {
        self.bytes.sort_unstable();
        let n_messages = self.bytes.len() as f64;
        let (changes, sum) = (self.n_changes as f64, self.bytes.iter().map(|&bytes| f64::from(bytes)).sum::<f64>());
        let ns = |time: Duration| time.as_secs_f64() * 1e9 / n_messages.max(1.0);
        let [n_in_place, in_place_bytes, position_bytes] = self.in_place.map(|count| count as f64);
        let figures = MessageFigures {
            mean_bytes: sum / n_messages.max(1.0),
            p99_bytes: self.bytes.get(self.bytes.len() * 99 / 100).copied().unwrap_or(0),
            max_bytes: self.bytes.last().copied().unwrap_or(0),
            messages_per_change: n_messages / changes,
            all_bytes_per_change: self.all_bytes as f64 / changes,
            changes_per_s: changes / self.in_controller.as_secs_f64(),
            applied_per_s: n_messages / self.in_switches.as_secs_f64().max(1e-9),
            decode_ns: ns(self.in_decoding.saturating_sub(self.in_clock)),
            clock_ns: ns(self.in_clock),
            in_place_bytes: in_place_bytes / n_in_place.max(1.0),
            position_bytes: position_bytes / n_in_place.max(1.0),
        };
        let mut row = Row::new(bench, design, setting, "bytes", self.means);
        row.note = format!(
            "99 % {:>6}, most {:>8}; {:4.2} messages; {:>5.0} K changes/s, {:>6.0} K applied/s a switch",
            figures.p99_bytes,
            figures.max_bytes,
            figures.messages_per_change,
            figures.changes_per_s / 1e3,
            figures.applied_per_s / 1e3,
        );
        row.messages = Some(figures);
        row
    }
}

/// The controller's network, and the replicas of its switches.
struct Rig {
    network: Network,
    nodes: Vec<NodeId>,
    replicas: Vec<Replica<MemoryTables>>,
    /// What reads the updates of a Bloom forwarder; none for other designs.
    filters: Option<bloom_fib::Settings>,
}

/// Bytes of the positions of bits, with the counts of these, in updates of a Bloom forwarder.
fn position_bytes(updates: &Updates, filters: &bloom_fib::Settings) -> u64 {
    let cells = updates.iter().map(|update| match bloom_fib::Update::decode(update, filters) {
        Ok(bloom_fib::Update::Cells(update)) => update.cells.len(),
        _ => 0,
    });
    (cells.sum::<usize>() * bloom_fib::update::CELL_BYTES) as u64
}

/// Where the name with this number is attached after `moved` moves, each to another switch.
fn home(nodes: &[NodeId], number: usize, moved: usize) -> Attachment {
    let port = SWITCHES + ((number / nodes.len()) % usize::from(HOST_PORTS)) as u16;
    Attachment::new(nodes[(number + moved * 3) % nodes.len()], PortId(port))
}

impl Rig {
    fn new(options: &Options, design: &'static Design, names: &[Name], n_new: usize) -> Result<Rig, Trouble> {
        let key = SecretKey::from_seed(options.seed);
        let settings = Settings {
            value_bits: options.value_bits,
            family: options.family,
            max_names: names.len() + n_new,
            gateway: design,
            core: design,
            ..Settings::new(1, key.clone())
        };
        let mut network = Network::new(settings, 1)?;
        let mut nodes = Vec::new();
        for switch in 1..=SWITCHES {
            nodes.push(network.add_switch(&format!("s{switch}"), Tenants::All)?.0);
        }
        for (at, &one) in nodes.iter().enumerate() {
            let ports = SWITCHES..SWITCHES + HOST_PORTS;
            let ends: Vec<End> = ports.map(|port| End { node: one, port: PortId(port) }).collect();
            network.add_host_ports(&ends)?;
            for (other_at, &other) in nodes.iter().enumerate().skip(at + 1) {
                // Ports 1 to 7: the port to a switch with a smaller number is that number.
                let end = |node, port| End { node, port: PortId(port as u16) };
                network.add_link(end(one, other_at), end(other, at + 1), 1)?;
            }
        }
        let homes: Vec<_> = names.iter().enumerate().map(|(i, name)| (name.clone(), home(&nodes, i, 0))).collect();
        network.put_names(&homes)?;
        let filters = (design.name == "bfw").then(|| {
            // Updates of all Bloom forwarders are read alike: only a whole table depends on the number of functions.
            let policy = bloom_fib::Policy::Bfw { hashes: 1 };
            bloom_fib::Settings::new(options.value_bits, names.len() + n_new, policy, bloom_fib::Form::Separate, &key)
        });
        let mut rig = Rig { network, nodes, replicas: Vec::new(), filters };
        for &node in &rig.nodes {
            let mut replica = Replica::new(Limits::default(), MemoryTables::default());
            for message in rig.network.attach(node, &replica.report())? {
                replica.apply(message).map_err(|error| Trouble::Refused(error.to_string()))?;
            }
            rig.replicas.push(replica);
        }
        Ok(rig)
    }

    /// Delivers the messages of a change to their switches.
    fn tell(&mut self, effects: &Effects, counts: &mut Counts) -> Result<(), Trouble> {
        counts.n_changes += 1;
        for (node, message) in effects.messages() {
            let bytes = message.encode();
            counts.all_bytes += bytes.len() as u64;
            let Some(at) = self.nodes.iter().position(|of| of == node) else { continue };
            let start = Instant::now();
            let received = self.replicas[at].receive(&bytes);
            let elapsed = start.elapsed();
            received.map_err(|error| Trouble::Refused(format!("a switch refuses a message: {error}")))?;
            if is_of_the_table(message) {
                counts.bytes.push(bytes.len() as u32);
                if let Body::Updates { updates, .. } = &message.body {
                    let of_positions: u64 = self.filters.iter().map(|filters| position_bytes(updates, filters)).sum();
                    let here = [1, bytes.len() as u64, of_positions];
                    counts.in_place.iter_mut().zip(here).for_each(|(sum, part)| *sum += part);
                }
                counts.in_switches += elapsed;
                // The parts of that time, once more and apart.
                let start = Instant::now();
                let decoded = black_box(Message::decode(&bytes));
                counts.in_decoding += start.elapsed();
                drop(decoded);
                let start = Instant::now();
                counts.in_clock += start.elapsed();
            }
        }
        Ok(())
    }

    /// The first name for which a switch and the RIB disagree.
    fn check(&self, design: &Design, names: &[Name]) -> Result<(), Trouble> {
        for name in names.iter().step_by(names.len().div_ceil(4096).max(1)) {
            for (replica, &node) in self.replicas.iter().zip(&self.nodes) {
                let (got, expected) = (replica.action(name), self.network.action(node, name));
                if got != expected {
                    let name = name.as_bytes().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                    let (contestant, got, expected) = (design.name.to_owned(), port(got), port(expected));
                    return Err(Trouble::Bench(BenchError::WrongAnswer { contestant, name, got, expected }));
                }
            }
        }
        Ok(())
    }
}

/// The port of an action; 0 if it has none.
fn port(action: Action) -> u64 {
    action.port().map_or(0, |port| port.0.into())
}

fn is_of_the_table(message: &Message) -> bool {
    matches!(message.body, Body::Table(_) | Body::Image { .. } | Body::Updates { .. } | Body::Resync { .. })
}

fn measure(
    options: &Options,
    design: &'static Design,
    names: &[Name],
    new: &[Name],
) -> Result<[Counts; CHANGES.len()], Trouble> {
    let mut rig = Rig::new(options, design, names, new.len())?;
    let mut counts: [Counts; CHANGES.len()] = Default::default();
    for run in 0..options.runs as usize {
        for (what, counts) in counts.iter_mut().enumerate() {
            let before = counts.bytes.len();
            for (number, name) in new.iter().enumerate() {
                // Different places in every run.
                let number = number + run;
                let start = Instant::now();
                let effects = match what {
                    0 => rig.network.add_name(name, home(&rig.nodes, number, 0))?,
                    1 => rig.network.set_name(name, home(&rig.nodes, number, 1))?,
                    _ => rig.network.remove_name(name)?,
                };
                counts.in_controller += start.elapsed();
                rig.tell(&effects, counts)?;
            }
            let bytes = &counts.bytes[before..];
            counts.means.push(bytes.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / bytes.len().max(1) as f64);
            if what < 2 {
                rig.check(design, new)?;
            }
        }
    }
    rig.check(design, names)?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameSet;

    struct Tables(Vec<Row>);

    impl Listener for Tables {
        fn table(&mut self, rows: &[Row]) {
            self.0.extend_from_slice(rows);
        }
        fn say(&mut self, _: &str) {}
    }

    fn options(contestants: &[&str]) -> Options {
        Options {
            n: vec![4000],
            contestants: contestants.iter().map(|&name| name.to_owned()).collect(),
            threads: vec![1],
            value_bits: 6,
            names: NameSet::Mac,
            runs: 1,
            batch: 32,
            in_flight: vec![1],
            seed: 1,
            family: lookup::hash::Family::MulAdd,
            operations: Some(200),
        }
    }

    #[test]
    fn every_dynamic_design_has_three_rows_and_small_messages() {
        let mut tables = Tables(Vec::new());
        run(&options(&[]), &mut tables).unwrap();
        assert_eq!(tables.0.len(), CHANGES.len() * contestants().len());
        for row in &tables.0 {
            let figures = row.messages.as_ref().unwrap();
            // One to each switch; a removed name may stay in a table until there is reason to touch it.
            assert!((0.5..=9.0).contains(&figures.messages_per_change), "{row:?}");
            assert!(figures.mean_bytes > 20.0 && f64::from(figures.max_bytes) >= figures.mean_bytes, "{row:?}");
            assert!((21..=figures.max_bytes).contains(&figures.p99_bytes), "{row:?}");
            assert!(figures.changes_per_s > 0.0 && figures.applied_per_s > 0.0, "{row:?}");
            let json: serde_json::Value = serde_json::from_str(&row.to_json()).unwrap();
            assert!(json["p99_bytes"].is_number() && json["messages_per_change"].is_number(), "{json}");
        }
        let change = |name: &str| {
            let row = tables.0.iter().find(|row| row.bench == "message/change" && row.contestant == name);
            row.unwrap().messages.clone().unwrap()
        };
        // New names fill filters up, which are then sent whole; what is changed in place has five bytes a bit.
        let add = |name: &str| {
            let row = tables.0.iter().find(|row| row.bench == "message/add" && row.contestant == name);
            row.unwrap().messages.clone().unwrap()
        };
        let (bfw, cfw) = (add("bfw"), add("cfw"));
        assert!(bfw.mean_bytes > bfw.in_place_bytes && bfw.in_place_bytes > bfw.position_bytes, "{bfw:?}");
        assert!(bfw.position_bytes >= 5.0 && cfw.position_bytes == 0.0 && cfw.in_place_bytes > 60.0, "{bfw:?} {cfw:?}");
        // One slot in a new place, compared with the cells of a tree and with a whole name.
        assert!(change("cfw").p99_bytes < 200 && change("concise").mean_bytes < 300.0);
        assert!((change("cuckoo").messages_per_change - f64::from(SWITCHES)).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let mut tables = Tables(Vec::new());
        let unknown = run(&options(&["sorted"]), &mut tables);
        assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })), "sorted is static");
        let narrow = run(&Options { value_bits: 3, ..options(&["cfw"]) }, &mut tables);
        assert!(matches!(narrow, Err(BenchError::Setting(_))));
    }
}
