//! `fibula lpm`: tables of IP prefixes offline, from a list to a file and back.

use std::io::{self, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output};
use fib::prefixes::{List, mrt};
use fib::text::{Dialect, unpacked};
use lookup::hash::SecretKey;
use lookup::lpm::bloom::Pushed;
use lookup::lpm::file::{self, Parts, PrefixFile};
use lookup::lpm::trie::Leaf;
use serde::Serialize;

use crate::answers::answer_all;
use crate::atomic_file::check_is_not_list;
use crate::table_file;

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum LpmCommand {
    /// Build a file of prefixes from a list or a routing table dump
    Build(BuildArgs),
    /// Look up addresses: the next hop of the longest prefix of each
    Lookup(LookupArgs),
    /// Describe a file of prefixes
    Show {
        /// The file; `-` is standard input
        file: PathBuf,
    },
}

/// The input and output of a build.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// A list with a prefix and a next hop per line (with --next-hop, only a prefix per line), or a routing table dump
    /// or updates of BGP (MRT); plain or packed with gzip or bzip2. `-` is standard input
    list: PathBuf,
    /// The file to write; `-` is standard output
    #[arg(short, long)]
    out: PathBuf,
    /// The next hop of prefixes that have none
    #[arg(long)]
    next_hop: Option<String>,
    /// Format of the list, if its first bytes do not identify it
    #[arg(long, default_value = "auto")]
    format: Format,
    /// Lookup structure: a trie, or a hash table behind a one-hashing Bloom filter, unchanged (bloom) or leaf-pushed to
    /// few lengths (bloom-pushed). The last two are for comparison, and take up to 32,767 next hops
    #[arg(long, default_value = "trie")]
    design: Design,
    /// The part of a route in a dump that counts as its next hop
    #[arg(long, default_value = "next-hop")]
    hops: Hops,
}

/// Formats of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// Text, unless the first bytes are those of a dump.
    Auto,
    /// One prefix per line.
    Text,
    /// A routing table dump, TABLE_DUMP or TABLE_DUMP_V2, or updates, BGP4MP.
    Mrt,
}

/// The part of a route that counts as its next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Hops {
    /// The address of the next hop.
    NextHop,
    /// The AS that originates the prefix, such as `AS64500`.
    Origin,
}

/// Lookup structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Design {
    /// A compressed trie.
    Trie,
    /// A hash table of all prefixes behind a filter.
    Bloom,
    /// The same with few lengths.
    BloomPushed,
}

/// The questions.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The file; `-` is standard input
    file: PathBuf,
    /// Addresses; if none are given, they are read from standard input, one per line
    addresses: Vec<String>,
}

#[derive(Serialize)]
struct Answer {
    address: String,
    next_hop: Option<String>,
}

/// The figures of a table.
#[derive(Serialize)]
struct Shown {
    table: &'static str,
    prefixes: u64,
    next_hops: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaf_bytes: Option<u64>,
    file_bytes: u64,
    design: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_table_bytes: Option<u64>,
}

impl LpmCommand {
    /// Runs the command.
    /// # Errors
    /// Exit code 3 for a wrong line, address or file, 4 for a file that does not exist, 5 for a table that cannot be
    /// built.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Self::Build(args) => build(&args, out),
            Self::Lookup(args) => lookup(&args, out),
            Self::Show { file } => {
                let (tables, file_bytes) = read(&file, "show")?;
                out.rows(&shown(&tables, file_bytes))
            }
        }
    }
}

fn build(args: &BuildArgs, out: &Output) -> anyhow::Result<()> {
    let start = Instant::now();
    check_is_not_list(&args.list, &args.out)?;
    table_file::check_out(&args.out)?;
    let list = read_list(args)?;
    let are_few = list.hops.len() <= u16::MAX_HOP as usize;
    let bytes = match args.design {
        Design::Trie => {
            let bytes = file::encode_trie(&SecretKey::random(), &list.hops, &list.ipv4, &list.ipv6);
            bytes.or_exit(Exit::Refused, "the table cannot be built")
        }
        _ if !are_few => {
            let why =
                format!("{} next hops: designs with a filter take at most 32,767; use --design trie", list.hops.len());
            return Err(Failure::new(Exit::Refused, why));
        }
        Design::Bloom => encode_bloom(Pushed::Basic, &list),
        Design::BloomPushed => encode_bloom(Pushed::Few, &list),
    }?;
    let tables = file::decode(&bytes)?;
    let shown = shown(&tables, bytes.len() as u64);
    let sentence = format!(
        "{}: {} IPv4 and {} IPv6 prefixes, {} next hops, {} bytes, in {:.1} s",
        args.out.display(),
        list.ipv4.len(),
        list.ipv6.len(),
        list.hops.len(),
        bytes.len(),
        start.elapsed().as_secs_f64()
    );
    table_file::write(&args.out, 0o644, &bytes, &shown, sentence, out)
}

fn read_list(args: &BuildArgs) -> anyhow::Result<List> {
    let shown = args.list.display();
    let wrong = |text: String| Failure::new(Exit::BadInput, format!("{shown}: {text}"));
    let (is_text, input) = is_text(command::input(&args.list)?).map_err(|error| wrong(error.to_string()))?;
    let next_hop = args.next_hop.as_deref();
    match (args.format, is_text) {
        (Format::Text, _) | (Format::Auto, true) => {
            List::read(input, next_hop).map_err(|error| wrong(error.to_string()))
        }
        (Format::Mrt, _) | (Format::Auto, false) => {
            let hops = match args.hops {
                Hops::NextHop => mrt::Hops::NextHop,
                Hops::Origin => mrt::Hops::Origin,
            };
            let dump = mrt::read(BufReader::new(input), hops, next_hop).map_err(wrong)?;
            if dump.n_others > 0 {
                eprintln!("{shown}: {} records without unicast routes of IPv4 or IPv6 are skipped", dump.n_others);
            }
            if dump.n_cut > 0 {
                eprintln!("{shown}: {} updates end in the middle of a prefix, which is skipped", dump.n_cut);
            }
            Ok(dump.list)
        }
    }
}

/// Whether an input is text: a list of prefixes has no byte 0, but each record of a routing table dump has one. Returns
/// the input from its beginning, unpacked.
fn is_text(input: Box<dyn Read>) -> io::Result<(bool, Box<dyn Read>)> {
    /// Bytes of the first header of a dump.
    const HEADER: u64 = 12;
    let mut input = unpacked(input)?;
    let mut start = Vec::new();
    input.by_ref().take(HEADER).read_to_end(&mut start)?;
    let is_text = !start.contains(&0);
    Ok((is_text, Box::new(io::Cursor::new(start).chain(input))))
}

fn encode_bloom(pushed: Pushed, list: &List) -> anyhow::Result<Vec<u8>> {
    let bytes = file::encode_bloom(pushed, &SecretKey::random(), &list.hops, &list.ipv4, &list.ipv6);
    bytes.or_exit(Exit::Refused, "the table cannot be built")
}

fn lookup(args: &LookupArgs, out: &Output) -> anyhow::Result<()> {
    table_file::check_questions(&args.file, &args.addresses)?;
    let (tables, _) = read(&args.file, "lookup")?;
    let csv = |answer: &Answer| format!("{},{}", answer.address, answer.next_hop.as_deref().unwrap_or("-"));
    answer_all(
        &args.addresses,
        ("addresses", Dialect::Plain),
        out,
        |address, place| answer(&tables, address.trim(), place),
        csv,
    )
}

fn answer(tables: &PrefixFile, text: &str, place: &str) -> anyhow::Result<Answer> {
    let unreadable = |_| Failure::new(Exit::BadInput, format!("{place}`{text}` is not an IPv4 or IPv6 address"));
    let number = match text.parse().map_err(unreadable)? {
        IpAddr::V4(address) => tables.ipv4.lookup(address.into()),
        IpAddr::V6(address) => tables.ipv6.lookup(address.into()),
    };
    Ok(Answer { address: text.to_owned(), next_hop: tables.hop(number).map(str::to_owned) })
}

fn shown(tables: &PrefixFile, file_bytes: u64) -> [Shown; 2] {
    let behind_filter = if tables.pushed == Some(Pushed::Few) { "bloom-pushed" } else { "bloom" };
    let row = |table, prefixes, parts| {
        let (design, [top, chunks, leaves, filter, hash_table]) = match parts {
            Parts::Trie { top, chunks, leaves } => ("trie", [Some(top), Some(chunks), Some(leaves), None, None]),
            Parts::Bloom { filter, table } => (behind_filter, [None, None, None, Some(filter), Some(table)]),
        };
        Shown {
            table,
            prefixes,
            next_hops: tables.hops.len(),
            top_bytes: top,
            chunk_bytes: chunks,
            leaf_bytes: leaves,
            file_bytes,
            design,
            filter_bytes: filter,
            hash_table_bytes: hash_table,
        }
    };
    [row("IPv4", tables.ipv4.n_prefixes, tables.ipv4.parts()), row("IPv6", tables.ipv6.n_prefixes, tables.ipv6.parts())]
}

fn read(path: &Path, verb: &str) -> anyhow::Result<(PrefixFile, u64)> {
    let bytes = table_file::read(path, &file::MAGIC, verb)?;
    let tables = file::decode(&bytes).or_exit(Exit::BadInput, path.display())?;
    Ok((tables, bytes.len() as u64))
}
