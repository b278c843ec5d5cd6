//! Processing delay of a FIB, simulated by [`sim::delay`]: arrivals, a queue, a processor behind caches.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use lookup::base::touches::{Touch, Touches};
use lookup::hash::Family;
use serde::Deserialize;
use sim::arrivals::{self, Arrival, Field, Traffic};
use sim::cache;
use sim::delay::{self, Delays};

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::contestants::{self, Input};
use crate::figures::{Point, X};
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "delay",
    about: "share of packets whose processing delay is at most x ns, simulated: concise, line, cuckoo and their like",
    check: |setting| Plan::new(setting).map(drop),
    run,
    toy: "n = 3000\npackets = 5000",
}];

/// Contestants that report what they read.
const KNOWN: [&str; 9] =
    ["concise", "concise-option1", "concise-option2", "ofw", "line", "line-fast", "line-small", CUCKOO, UNTIL_FOUND];
const CUCKOO: &str = "cuckoo";
/// The same table, but a name's second bucket is read only if the name is not in the first.
const UNTIL_FOUND: &str = "cuckoo-until-found";

/// Bytes of a name: a MAC address, or a zero-padded IPv4 address.
const NAME_LEN: usize = 6;
/// Points of the distribution per decade, from 1 ns on.
const STEPS_A_DECADE: u32 = 20;
const DECADES: u32 = 6;

/// Parameters of `delay`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Names in the table.
    n: u64,
    value_bits: u8,
    /// Packets whose delays count. As many packets before them fill the caches, unless `warm_up` gives their number.
    packets: usize,
    warm_up: Option<usize>,
    /// Packets per second of synthetic traffic, before the speed-up.
    trace_rate: f64,
    speedup: f64,
    /// Mean packets per train, and nanoseconds between them.
    train_packets: f64,
    train_gap_ns: f64,
    /// The name of rank r is drawn in proportion to 1/r^exponent.
    exponent: f64,
    /// A capture to replay instead of synthetic traffic: its destination addresses are names; other names fill the
    /// table up to `n`.
    pcap: Option<PathBuf>,
    /// The header field of the capture that is the name.
    field: NameField,
    line_bytes: u64,
    first_kib: u64,
    first_ways: u32,
    first_ns: f64,
    second_kib: u64,
    second_ways: u32,
    second_ns: f64,
    memory_ns: f64,
    compute_ns: f64,
    /// Whether independent reads overlap.
    overlap: bool,
    /// Lines of each packet that pass through the caches.
    packet_lines: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NameField {
    Mac,
    Ipv4,
}

impl Default for Parameters {
    fn default() -> Self {
        let (settings, traffic) = (delay::Settings::default(), Traffic::default());
        let cache::Settings { line_bytes, first, second, memory_ps } = settings.cache;
        Self {
            n: 1 << 20,
            value_bits: 8,
            packets: 1_000_000,
            warm_up: None,
            trace_rate: traffic.rate_pps,
            speedup: 1.0,
            train_packets: traffic.train_packets,
            train_gap_ns: traffic.train_gap_ns,
            exponent: traffic.exponent,
            pcap: None,
            field: NameField::Ipv4,
            line_bytes,
            first_kib: first.size_bytes >> 10,
            first_ways: first.ways,
            first_ns: ns(first.latency_ps),
            second_kib: second.size_bytes >> 10,
            second_ways: second.ways,
            second_ns: ns(second.latency_ps),
            memory_ns: ns(memory_ps),
            compute_ns: ns(settings.compute_ps),
            overlap: settings.overlap,
            packet_lines: settings.packet_lines,
        }
    }
}

fn ns(ps: u64) -> f64 {
    ps as f64 / 1e3
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

/// The parsed and checked form of a setting.
struct Plan {
    parameters: Parameters,
    settings: delay::Settings,
    traffic: Traffic,
}

impl Plan {
    fn new(setting: &Setting) -> Result<Self, BenchError> {
        let parameters: Parameters = setting.parameters()?;
        let refused = |text: String| Err(BenchError::Setting(text));
        let p = &parameters;
        for name in setting.contestants() {
            if !KNOWN.contains(&&*name) {
                return Err(BenchError::UnknownContestant { name, known: KNOWN.join(", ") });
            }
        }
        if p.n == 0 || p.packets == 0 || !(1..=32).contains(&p.value_bits) {
            return refused("n and packets are at least 1, value_bits is 1 to 32".into());
        }
        if !(p.trace_rate > 0.0
            && p.speedup > 0.0
            && p.train_packets >= 1.0
            && p.train_gap_ns >= 0.0
            && p.exponent >= 0.0)
        {
            return refused(
                "rate and speed-up are above 0, a train has a packet at least, gap and exponent are not negative"
                    .into(),
            );
        }
        let level =
            |kib: u64, ways, latency_ns| cache::Level { size_bytes: kib << 10, ways, latency_ps: ps(latency_ns) };
        let settings = delay::Settings {
            cache: cache::Settings {
                line_bytes: p.line_bytes,
                first: level(p.first_kib, p.first_ways, p.first_ns),
                second: level(p.second_kib, p.second_ways, p.second_ns),
                memory_ps: ps(p.memory_ns),
            },
            compute_ps: ps(p.compute_ns),
            overlap: p.overlap,
            packet_lines: p.packet_lines,
            warm_up: p.warm_up.unwrap_or(p.packets),
        };
        cache::Cache::new(settings.cache).map_err(|error| BenchError::Setting(error.to_string()))?;
        let traffic = Traffic {
            rate_pps: p.trace_rate,
            speed_up: p.speedup,
            train_packets: p.train_packets,
            train_gap_ns: p.train_gap_ns,
            exponent: p.exponent,
            seed: setting.seed,
        };
        Ok(Self { settings, traffic, parameters })
    }

    /// The packets of the capture, if one is to be replayed.
    fn capture(&self) -> Result<Option<Vec<Arrival>>, BenchError> {
        let Some(path) = &self.parameters.pcap else { return Ok(None) };
        let refused = |error: &dyn std::fmt::Display| BenchError::Setting(format!("{}: {error}", path.display()));
        let field = match self.parameters.field {
            NameField::Mac => Field::MacDestination,
            NameField::Ipv4 => Field::Ipv4Destination,
        };
        let file = BufReader::new(File::open(path).map_err(|error| refused(&error))?);
        arrivals::capture(file, field, self.parameters.speedup).map(Some).map_err(|error| refused(&error))
    }

    fn play(
        &self,
        names: &[u64],
        capture: Option<&[Arrival]>,
        reads: impl FnMut(u64, &mut dyn FnMut(Touch)),
    ) -> Result<Delays, BenchError> {
        let n = self.settings.warm_up + self.parameters.packets;
        let delays = match capture {
            Some(packets) => delay::run(&self.settings, packets.iter().copied().take(n), reads),
            None => delay::run(&self.settings, self.traffic.packets(names).take(n), reads),
        };
        delays.map_err(|error| BenchError::Setting(error.to_string()))
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let plan = Plan::new(setting)?;
    let capture = plan.capture()?;
    let mut names = NameSet::Mac.generate(plan.parameters.n as usize, setting.seed);
    if let Some(packets) = &capture {
        let mut seen = HashSet::new();
        let of_packets = packets.iter().map(|packet| packet.name);
        names = of_packets.chain(names).filter(|&name| seen.insert(name)).take(plan.parameters.n as usize).collect();
    }
    let input = Input {
        names: &names,
        name_len: NAME_LEN,
        value_bits: plan.parameters.value_bits,
        family: Family::default(),
        seed: setting.seed,
        build_threads: std::thread::available_parallelism().map_or(1, usize::from),
        floor_bytes: 0,
    };
    let mut points = Vec::new();
    for series in &setting.series {
        let delays = match series.contestant() {
            CUCKOO => {
                let table = contestants::cuckoo_query(&input)?;
                plan.play(&names, capture.as_deref(), |name, touch| table.touches([name], touch))?
            }
            UNTIL_FOUND => {
                let table = contestants::cuckoo_query(&input)?;
                plan.play(&names, capture.as_deref(), |name, touch| table.touches_until_found([name], touch))?
            }
            name => {
                let kind = contestants::choose(&[name.to_owned()])?.remove(0);
                let table = (kind.build)(&input)?;
                plan.play(&names, capture.as_deref(), |name, touch| table.touches(name, touch))?
            }
        };
        progress.say(&summary(&series.name, &delays));
        points.extend(distribution(&series.name, &delays));
    }
    Ok(points)
}

fn summary(series: &str, delays: &Delays) -> String {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| delays.percentile_ns(share));
    let [first, second, memory] = delays.lines;
    format!(
        "{series}: delay {:.0} ns, median {p50:.0}, 90 % {p90:.0}, 99 % {p99:.0}; a lookup {:.0} ns, its lines {first:.2} \
         from the first cache, {second:.2} from the second, {memory:.2} from memory; load {:.3}, {}",
        delays.mean_ns(),
        delays.mean_service_ps / 1e3,
        delays.offered,
        if delays.is_stable() { "stable" } else { "not stable: the longer it lasts, the longer packets wait" },
    )
}

/// The share of packets at the same points for every series, from the first delay on.
fn distribution(series: &str, delays: &Delays) -> Vec<Point> {
    let places = (0..=DECADES * STEPS_A_DECADE).map(|step| 10f64.powf(f64::from(step) / f64::from(STEPS_A_DECADE)));
    let shares = places.map(|ns| (ns, delays.share_within_ns(ns))).filter(|&(_, share)| share > 0.0);
    shares.map(|(ns, share)| Point::exact(series, Some(X::Number(ns)), share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Series;

    struct Said(Vec<String>);

    impl Progress for Said {
        fn say(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }

        fn lacks(&mut self, series: &str, reason: &str) {
            panic!("{series}: {reason}");
        }
    }

    fn setting(contestants: &[&str], parameters: &str) -> Setting {
        let series = |name: &&str| Series {
            name: format!("series {name}"),
            contestant: (*name).to_owned(),
            peer: false,
            ours: false,
            parameters: toml::Table::new(),
        };
        Setting { parameters: parameters.parse().unwrap(), series: contestants.iter().map(series).collect(), seed: 1 }
    }

    #[test]
    fn distributions_rise_to_one_for_every_contestant() {
        let contestants = KNOWN;
        for speedup in [1, 100] {
            let setting = setting(
                &contestants,
                &format!("n = 5000\npackets = 5000\nspeedup = {speedup}\nsecond_kib = 32\nsecond_ways = 8"),
            );
            let mut said = Said(Vec::new());
            let points = run(&setting, &mut said).unwrap();
            assert_eq!(said.0.len(), contestants.len(), "{:?}", said.0);
            for name in &contestants {
                let curve: Vec<_> = points.iter().filter(|point| point.series == format!("series {name}")).collect();
                assert!(curve.is_sorted_by_key(|point| point.x.as_ref().and_then(X::number).expect("a number")));
                assert!(curve.is_sorted_by_key(|point| point.y) && curve.iter().all(|point| point.y > 0.0), "{name}");
                assert!(curve[0].x.as_ref().and_then(X::number) >= Some(6.0), "{name} reads nothing");
                assert!(speedup == 100 || curve.last().is_some_and(|point| point.y == 1.0), "{name}");
                assert!(curve.iter().any(|point| point.x == Some(X::Number(1_000.0))), "claims are made of 1 us");
            }
        }
    }

    #[test]
    fn settings_without_sense_are_refused() {
        for parameters in [
            "n = 0",
            "packets = 0",
            "speedup = 0.0",
            "train_packets = 0.5",
            "first_kib = 33",
            "no_such = 1",
            "value_bits = 40",
        ] {
            assert!(matches!(Plan::new(&setting(&["line"], parameters)), Err(BenchError::Setting(_))), "{parameters}");
        }
        assert!(matches!(Plan::new(&setting(&["bfw"], "")), Err(BenchError::UnknownContestant { .. })));
        let missing = run(&setting(&["line"], "pcap = '/no/such/file'"), &mut Said(Vec::new()));
        assert!(matches!(missing, Err(BenchError::Setting(_))));
    }
}
