//! `fibula filter hash-test`: Tables V and VI of "Low Computational Cost Bloom Filters", and fibula's digests in the same
//! tests.

use std::path::{Path, PathBuf};

use clap::Args;
use command::output::{Exit, Failure, Output, aligned, write_out};
use command::{open, parse_size};
use etherparse::{Ipv4Slice, TransportSlice};
use fib::list::{Layout, List};
use fib::name::NameKind;
use fib::text::Lines;
use fibula_repro::hash_lab::Table;
use fibula_repro::hash_lab::chi_squared::{LEAST_VALUES, Verdict};
use fibula_repro::hash_lab::keys::Keys;
use serde::Serialize;

use crate::capture::ipv4_packets;

/// Maximum number of keys: with the set that finds duplicates, some 60 bytes each.
const MOST_KEYS: u64 = 16 << 20;
/// Significance at which fibula's own digests must pass.
const ALPHA_OWN: f64 = 1e-4;

/// The keys, and the functions.
#[derive(Args, Debug)]
pub(crate) struct HashTestArgs {
    /// Keys from the IPv4 packets of a capture: destination addresses, and 5-tuples
    #[arg(long, conflicts_with_all = ["list", "keys"])]
    pcap: Option<PathBuf>,
    /// Keys from a list, one per line: IPv4 addresses (with --key-bytes 4) or 5-tuples (with --key-bytes 13)
    #[arg(long, conflicts_with = "keys")]
    list: Option<PathBuf>,
    /// Number of generated keys
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    keys: u64,
    /// Bytes per key: 4 (address), 13 (5-tuple)
    #[arg(long, value_delimiter = ',', default_value = "4,13")]
    key_bytes: Vec<usize>,
    /// Significance level for the papers' functions; fibula's own are held to 0.0001
    #[arg(long, default_value_t = 0.05)]
    alpha: f64,
    /// Seed of generated keys and secrets
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One test, for JSON.
#[derive(Serialize)]
struct Row<'a> {
    key_bytes: usize,
    test: &'static str,
    function: &'a str,
    other: Option<&'a str>,
    statistic: f64,
    degrees: u32,
    p: f64,
    alpha: f64,
    passes: bool,
}

impl HashTestArgs {
    /// Runs the tests.
    /// # Errors
    /// Exit code 6 if one of fibula's digest families fails, 3 for keys that cannot be read, 2 for settings out of
    /// range.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let usage = |text: String| Err(Failure::new(Exit::Usage, text));
        if let Some(bytes) = self.key_bytes.iter().find(|bytes| ![Keys::ADDRESS, Keys::TUPLE].contains(bytes)) {
            return usage(format!("keys of {bytes} bytes: 4 or 13"));
        }
        if !(LEAST_VALUES..=MOST_KEYS).contains(&self.keys) {
            return usage(format!("{} keys: from {LEAST_VALUES} to {MOST_KEYS}", self.keys));
        }
        if !(self.alpha > 0.0 && self.alpha < 1.0) {
            return usage(format!("a significance of {}: more than 0 and less than 1", self.alpha));
        }
        if self.list.is_some() && self.key_bytes.len() != 1 {
            return usage("a list has keys of one kind: say --key-bytes 4 or --key-bytes 13".into());
        }
        let sets = self.key_bytes.iter().map(|&bytes| self.read(bytes)).collect::<anyhow::Result<Vec<Keys>>>()?;
        let papers: Vec<Table> = sets.iter().map(Table::of_the_paper).collect();
        let own: Vec<Table> = sets.iter().map(|keys| Table::of_families(keys, self.seed)).collect();
        let crc: Vec<Table> = sets.iter().map(Table::of_plain_crc32c).collect();
        if out.is_json() {
            let all = [(&papers, self.alpha), (&own, ALPHA_OWN), (&crc, ALPHA_OWN)];
            let rows = all.iter().flat_map(|(tables, alpha)| {
                tables.iter().zip(&sets).flat_map(|(table, keys)| rows(table, keys.key_bytes(), *alpha))
            });
            out.rows(&rows.collect::<Vec<_>>())?;
        } else {
            write_out(&self.text(&sets, &papers, &own, &crc))?;
        }
        match own.iter().all(|table| table.passes(ALPHA_OWN)) {
            true => Ok(()),
            false => Err(Failure::new(Exit::CheckFailed, "a digest family of fibula's own fails a test at 0.0001")),
        }
    }

    fn text(&self, sets: &[Keys], papers: &[Table], own: &[Table], crc: &[Table]) -> String {
        let source = match (&self.pcap, &self.list) {
            (Some(path), _) | (_, Some(path)) => path.display().to_string(),
            _ => format!("synthetic, seed {}", self.seed),
        };
        let mut text =
            format!("Randomness of the functions of Table IV (Table V), alpha = {}, keys: {source}\n", self.alpha);
        text += &randomness(sets, papers, self.alpha, true);
        for (keys, table) in sets.iter().zip(papers) {
            text += &format!("\nIndependence of their pairs (Table VI), {}-byte keys\n", keys.key_bytes());
            text += &matrix(table, self.alpha);
        }
        text += &format!("\nfibula's digests, alpha = {ALPHA_OWN}\n");
        text += &randomness(sets, own, ALPHA_OWN, false);
        for (keys, table) in sets.iter().zip(own) {
            text += &format!("\nIndependence of their pairs, {}-byte keys\n", keys.key_bytes());
            text += &matrix(table, ALPHA_OWN);
        }
        for (keys, table) in sets.iter().zip(crc) {
            let (_, _, verdict) = table.pairs[0];
            text += &format!(
                "\nCRC32c under two seeds, {}-byte keys: {} (chi-squared {:.3e}, {} degrees, p = {:.1e})\n",
                keys.key_bytes(),
                if verdict.passes(ALPHA_OWN) { "independent" } else { "one function, not two" },
                verdict.statistic,
                verdict.degrees,
                verdict.p
            );
        }
        text
    }

    fn read(&self, key_bytes: usize) -> anyhow::Result<Keys> {
        let keys = match (&self.pcap, &self.list) {
            (Some(path), _) => from_pcap(path, key_bytes)?,
            (_, Some(path)) => from_list(path, key_bytes)?,
            _ if key_bytes == Keys::ADDRESS => Keys::addresses(self.keys as usize, self.seed),
            _ => Keys::tuples(self.keys as usize, self.seed),
        };
        if (keys.len() as u64) < LEAST_VALUES {
            let text = format!("{} different keys of {key_bytes} bytes: a test takes {LEAST_VALUES}", keys.len());
            return Err(Failure::new(Exit::BadInput, text));
        }
        Ok(keys)
    }
}

fn too_many(path: &Path) -> anyhow::Error {
    Failure::new(Exit::Refused, format!("{} has more than {MOST_KEYS} keys: take a part of it", path.display()))
}

fn from_list(path: &Path, key_bytes: usize) -> anyhow::Result<Keys> {
    let what = path.display();
    let kind = if key_bytes == Keys::ADDRESS { NameKind::Ipv4 } else { NameKind::FiveTuple };
    let mut keys = Keys::new(key_bytes);
    for entry in List::new(kind, Layout::Plain, Lines::new(open(path)?)) {
        let entry = entry.map_err(|error| Failure::new(Exit::BadInput, format!("{what}: {error}")))?;
        if entry.name.as_bytes().len() != key_bytes {
            let text = format!("{what}: line {}: `{}` is not of IPv4", entry.line, entry.name);
            return Err(Failure::new(Exit::BadInput, text));
        }
        if keys.len() as u64 == MOST_KEYS {
            return Err(too_many(path));
        }
        keys.push(entry.name.as_bytes());
    }
    Ok(keys)
}

fn from_pcap(path: &Path, key_bytes: usize) -> anyhow::Result<Keys> {
    let (mut addresses, mut tuples) = (Vec::new(), Vec::new());
    ipv4_packets(path, |ip, transport| {
        if key_bytes == Keys::ADDRESS {
            addresses.push(ip.header().destination());
        } else {
            tuples.push(tuple(ip, transport));
        }
        let n_keys = (addresses.len() + tuples.len()) as u64;
        if n_keys > MOST_KEYS { Err(too_many(path)) } else { Ok(()) }
    })?;
    Ok(if key_bytes == Keys::ADDRESS { Keys::distinct(addresses) } else { Keys::distinct(tuples) })
}

/// The 5-tuple of a packet.
fn tuple(ip: &Ipv4Slice<'_>, transport: Option<&TransportSlice<'_>>) -> [u8; Keys::TUPLE] {
    let ports = match transport {
        Some(TransportSlice::Tcp(tcp)) => [tcp.source_port(), tcp.destination_port()],
        Some(TransportSlice::Udp(udp)) => [udp.source_port(), udp.destination_port()],
        _ => [0, 0],
    };
    let mut tuple = [0; Keys::TUPLE];
    tuple[..4].copy_from_slice(&ip.header().source());
    tuple[4..8].copy_from_slice(&ip.header().destination());
    tuple[8] = ip.header().protocol().0;
    tuple[9..11].copy_from_slice(&ports[0].to_be_bytes());
    tuple[11..].copy_from_slice(&ports[1].to_be_bytes());
    tuple
}

fn rows(table: &Table, key_bytes: usize, alpha: f64) -> Vec<Row<'_>> {
    let row = |test, function, other, verdict: &Verdict| {
        let Verdict { statistic, degrees, p } = *verdict;
        Row { key_bytes, test, function, other, statistic, degrees, p, alpha, passes: verdict.passes(alpha) }
    };
    let single = table.names.iter().zip(&table.randomness).map(|(name, v)| row("randomness", name.as_str(), None, v));
    let name = |index: usize| table.names[index].as_str();
    let pairs = table.pairs.iter().map(|(i, j, v)| row("independence", name(*i), Some(name(*j)), v));
    single.chain(pairs).collect()
}

fn sign(verdict: &Verdict, alpha: f64) -> String {
    if verdict.passes(alpha) { "+" } else { "-" }.to_owned()
}

/// One line per function: its number, if it is in Table IV, and its verdict and statistic for each length.
fn randomness(sets: &[Keys], tables: &[Table], alpha: f64, numbered: bool) -> String {
    let lengths = sets.iter().map(|keys| format!("{} bytes ({} keys)", keys.key_bytes(), keys.len()));
    let header: Vec<String> = ["".to_owned(), "function".into()].into_iter().chain(lengths).collect();
    let lines: Vec<Vec<String>> = (0..tables[0].names.len())
        .map(|function| {
            let number = if numbered { format!("h{}", function + 1) } else { String::new() };
            let verdicts = tables.iter().map(|table| {
                let verdict = &table.randomness[function];
                format!("{} {:.1}/{}", sign(verdict, alpha), verdict.statistic, verdict.degrees)
            });
            [number, tables[0].names[function].clone()].into_iter().chain(verdicts).collect()
        })
        .collect();
    aligned(&header, &lines, &vec![false; header.len()])
}

/// Pairs of functions, as in Table VI.
fn matrix(table: &Table, alpha: f64) -> String {
    let n = table.names.len();
    let mut cells = vec![vec!["o".to_owned(); n]; n];
    for (i, j, verdict) in &table.pairs {
        cells[*i][*j] = sign(verdict, alpha);
        cells[*j][*i] = sign(verdict, alpha);
    }
    let header: Vec<String> = [String::new()].into_iter().chain((1..=n).map(|number| format!("h{number}"))).collect();
    let lines: Vec<Vec<String>> = cells
        .into_iter()
        .enumerate()
        .map(|(row, cells)| [format!("h{} {}", row + 1, table.names[row])].into_iter().chain(cells).collect())
        .collect();
    aligned(&header, &lines, &vec![false; header.len()])
}
