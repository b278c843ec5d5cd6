//! The contestants of `bench rules`.

use std::collections::HashMap;

use hashbrown::HashMap as FastMap;
use lookup::hash::{Family, SecretKey};
use lookup::rules::{Flow, Prefix, Rule, Rules, RulesQuery, Settings, Update};
use lookup::traits::Query;

use super::{Fields, MAX_BATCH, rte};
use crate::BenchError;

/// Contestants, with a one-line description of each.
pub const CONTESTANTS: [(&str, &str); 4] = [
    ("rules", "fibula: merged tuples, runs of rules compared whole"),
    ("tuple-space", "one hash table for each combination of mask lengths, in order of priorities; one flow at a time"),
    ("linear", "all rules from the first one on, one flow at a time"),
    ("rte_acl", "DPDK, tries over all rules, its best vector code; no changes after the build (needs DPDK)"),
];

/// One table under measurement.
pub(super) trait Side {
    /// The number of the rule of each flow, 0 for none.
    fn look_up(&self, at: std::ops::Range<usize>, values: &mut [u32]);

    /// Bytes that lookups read.
    fn bytes(&self) -> u64;

    /// A remark for the table of results.
    fn note(&self) -> String {
        String::new()
    }
}

/// Builds the table of a contestant, and its form of the flows.
pub(super) fn new(name: &str, rules: &[Rule], flows: &[Fields], seed: u64) -> Result<Box<dyn Side>, BenchError> {
    match name {
        "rules" => Ok(Box::new(Merged::build(rules, flows, seed)?)),
        "tuple-space" => Ok(Box::new(TupleSpace::build(rules, flows))),
        "linear" => Ok(Box::new(Linear { rules: rules.to_vec(), flows: flows.to_vec() })),
        _ => rte::acl(rules, flows),
    }
}

fn key(fields: &Fields) -> Flow<1> {
    Flow::v4(fields.addresses.map(Into::into), fields.ports, fields.protocol)
}

struct Merged {
    query: RulesQuery<1>,
    flows: Vec<Flow<1>>,
    note: String,
}

pub(super) fn settings(seed: u64) -> Settings {
    Settings::new(Family::MulAdd, &SecretKey::from_seed(seed))
}

impl Merged {
    fn build(rules: &[Rule], flows: &[Fields], seed: u64) -> Result<Self, BenchError> {
        let error = |error: lookup::rules::RuleError| BenchError::Setting(error.to_string());
        let control = Rules::<1>::build(settings(seed), rules).map_err(error)?;
        let (query, flows) = (control.export(), flows.iter().map(key).collect::<Vec<_>>());
        let mut values = vec![0; flows.len()];
        let [slots, compared] = query.lookup_counted(&flows, &mut values).map(|n| n as f64 / flows.len() as f64);
        let n_tables = query.n_tables();
        let note = format!("{n_tables} tables; a flow: {slots:.1} slots, {compared:.1} rules");
        Ok(Self { query, flows, note })
    }
}

impl Side for Merged {
    fn look_up(&self, at: std::ops::Range<usize>, values: &mut [u32]) {
        let mut wide = [0; MAX_BATCH];
        self.query.lookup_batch(&self.flows[at.clone()], &mut wide);
        values.iter_mut().zip(&wide[..at.len()]).for_each(|(value, &wide)| *value = wide as u32);
    }

    fn bytes(&self) -> u64 {
        self.query.size_bits() / 8
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

/// Mean time of an insertion and of a removal, in microseconds, with the messages and their application.
pub(super) fn update_us(rules: &[Rule], more: &[Rule], seed: u64) -> Result<[f64; 2], BenchError> {
    let error = |error: lookup::rules::RuleError| BenchError::Setting(error.to_string());
    let mut control = Rules::<1>::build(settings(seed), rules).map_err(error)?;
    let mut query = control.export();
    let mut updates: Vec<Update> = Vec::new();
    let mut apply = |updates: &mut Vec<Update>| {
        for update in updates.drain(..) {
            query.apply(&update).map_err(|error| BenchError::Setting(error.to_string()))?;
        }
        Ok::<(), BenchError>(())
    };
    let start = std::time::Instant::now();
    for rule in more {
        control.insert(rule, &mut updates).map_err(error)?;
        apply(&mut updates)?;
    }
    let inserted = start.elapsed();
    let start = std::time::Instant::now();
    for rule in more {
        control.remove(rule, &mut updates);
        apply(&mut updates)?;
    }
    Ok([inserted, start.elapsed()].map(|time| time.as_secs_f64() * 1e6 / more.len() as f64))
}

fn matches(rule: &Rule, flow: &Fields) -> bool {
    let in_prefix = |prefix: Prefix, address: u32| {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len())).unwrap_or(0);
        (prefix.v4().to_bits() ^ address) & mask == 0
    };
    in_prefix(rule.source, flow.addresses[0])
        && in_prefix(rule.destination, flow.addresses[1])
        && rule.source_ports.contains(&flow.ports[0])
        && rule.destination_ports.contains(&flow.ports[1])
        && rule.protocol.is_none_or(|protocol| protocol == flow.protocol)
}

struct Linear {
    rules: Vec<Rule>,
    flows: Vec<Fields>,
}

impl Side for Linear {
    fn look_up(&self, at: std::ops::Range<usize>, values: &mut [u32]) {
        for (value, flow) in values.iter_mut().zip(&self.flows[at]) {
            *value = self.rules.iter().find(|rule| matches(rule, flow)).map_or(0, |rule| rule.value);
        }
    }

    fn bytes(&self) -> u64 {
        size_of_val(&self.rules[..]) as u64
    }
}

/// The bits of a flow that rules of one tuple compare for equality: prefixes, single ports, the protocol.
type Lens = (u8, u8, bool, bool, bool);

struct Tuple {
    lens: Lens,
    highest: u32,
    rules: FastMap<Fields, Vec<Rule>>,
}

/// As in Open vSwitch: ranges are compared after the hash table.
struct TupleSpace {
    tuples: Vec<Tuple>,
    flows: Vec<Fields>,
}

fn masked(lens: Lens, flow: &Fields) -> Fields {
    let mask = |len: u8| u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    let port = |exact: bool, port: u16| if exact { port } else { 0 };
    Fields {
        addresses: [flow.addresses[0] & mask(lens.0), flow.addresses[1] & mask(lens.1)],
        ports: [port(lens.2, flow.ports[0]), port(lens.3, flow.ports[1])],
        protocol: if lens.4 { flow.protocol } else { 0 },
    }
}

impl TupleSpace {
    fn build(rules: &[Rule], flows: &[Fields]) -> Self {
        let mut tuples: HashMap<Lens, Tuple> = HashMap::new();
        for rule in rules {
            let single = |ports: &std::ops::RangeInclusive<u16>| ports.start() == ports.end();
            let ports = [single(&rule.source_ports), single(&rule.destination_ports)];
            let lens = (rule.source.len(), rule.destination.len(), ports[0], ports[1], rule.protocol.is_some());
            let tuple = tuples.entry(lens).or_insert_with(|| Tuple { lens, highest: 0, rules: FastMap::new() });
            tuple.highest = tuple.highest.max(rule.priority);
            let flow = Fields {
                addresses: [rule.source.v4().to_bits(), rule.destination.v4().to_bits()],
                ports: [*rule.source_ports.start(), *rule.destination_ports.start()],
                protocol: rule.protocol.unwrap_or(0),
            };
            tuple.rules.entry(masked(lens, &flow)).or_default().push(rule.clone());
        }
        let mut tuples: Vec<Tuple> = tuples.into_values().collect();
        tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.highest));
        Self { tuples, flows: flows.to_vec() }
    }
}

impl Side for TupleSpace {
    fn look_up(&self, at: std::ops::Range<usize>, values: &mut [u32]) {
        for (value, flow) in values.iter_mut().zip(&self.flows[at]) {
            let mut best = (0, 0);
            for tuple in self.tuples.iter() {
                if tuple.highest < best.0 {
                    break;
                }
                // In the order of the list: the first that matches has the highest priority of the run.
                let run = tuple.rules.get(&masked(tuple.lens, flow));
                if let Some(rule) = run.and_then(|run| run.iter().find(|rule| matches(rule, flow))) {
                    best = best.max((rule.priority, rule.value));
                }
            }
            *value = best.1;
        }
    }

    fn bytes(&self) -> u64 {
        let of = |tuple: &Tuple| {
            tuple.rules.allocation_size() + tuple.rules.values().map(|run| size_of_val(&run[..])).sum::<usize>()
        };
        self.tuples.iter().map(of).sum::<usize>() as u64
    }

    fn note(&self) -> String {
        format!("{} tuples", self.tuples.len())
    }
}
