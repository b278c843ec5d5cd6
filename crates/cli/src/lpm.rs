//! `fibula lpm`: tables of IP prefixes offline, from a list to a file and back.

mod mrt;

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output, to_stdout};
use command::prefix_list::List;
use command::text::TextReader;
use lookup::hash::SecretKey;
use lookup::lpm::PrefixTrie;
use lookup::lpm::file::{self, PrefixFile};
use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::Settings;
use lookup::traits::{Control, Query};
use serde::Serialize;

use crate::atomic_file::{AtomicFile, cannot_write, is_same_file};

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum LpmCommand {
    /// Build a file of prefixes from a list or a routing table dump
    Build(BuildArgs),
    /// Look up addresses: the next hop of the longest prefix of each
    Lookup(LookupArgs),
    /// Say what is in a file of prefixes
    Show {
        /// The file
        file: PathBuf,
    },
}

/// Where the prefixes are.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// The list: `prefix,next-hop` on every line, or with --next-hop a prefix on every line; `-` is standard input. Lists
    /// and dumps may be compressed with gzip
    list: PathBuf,
    /// The file to write
    #[arg(short, long)]
    out: PathBuf,
    /// The next hop of prefixes without one
    #[arg(long)]
    next_hop: Option<String>,
    /// What the list is: text, or an MRT table dump
    #[arg(long, default_value = "text")]
    format: Format,
}

/// What a list is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// A prefix a line.
    Text,
    /// A routing table dump, TABLE_DUMP or TABLE_DUMP_V2.
    Mrt,
}

/// What to look up.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The file
    file: PathBuf,
    /// Addresses; without any, they are read from standard input, one a line
    addresses: Vec<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    address: &'a str,
    next_hop: Option<&'a str>,
}

/// A table in figures.
#[derive(Serialize)]
struct Shown {
    table: &'static str,
    prefixes: u64,
    next_hops: usize,
    top_bytes: u64,
    chunk_bytes: u64,
    leaf_bytes: u64,
    file_bytes: u64,
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
                let (tables, file_bytes) = read(&file)?;
                out.rows(&shown(&tables, file_bytes))
            }
        }
    }
}

fn build(args: &BuildArgs, out: &Output) -> anyhow::Result<()> {
    let start = Instant::now();
    if is_same_file(&args.list, &args.out) {
        let what = args.out.display();
        return Err(Failure::new(Exit::Usage, format!("{what} is the list itself; write the table to another file")));
    }
    let list = match args.format {
        Format::Text => List::read(&args.list, args.next_hop.as_deref()),
        Format::Mrt => mrt::read(&args.list, args.next_hop.as_deref()),
    }?;
    let settings = Settings::new(list.ipv4.len().max(list.ipv6.len()), &SecretKey::random());
    let ipv4 = table(&settings, &list.ipv4)?;
    let ipv6 = table(&settings, &list.ipv6)?;
    let counts = (ipv4.len() as u64, ipv6.len() as u64);
    let bytes = file::encode(&settings, &list.hops, (&ipv4.whole(), counts.0), (&ipv6.whole(), counts.1));
    let mut file = AtomicFile::create(&args.out, 0o644)?;
    file.write_all(&bytes).map_err(|error| cannot_write(&args.out, &error))?;
    file.finish()?;
    let tables = file::decode(&bytes)?;
    let shown = shown(&tables, bytes.len() as u64);
    let sentence = format!(
        "{}: {} IPv4 and {} IPv6 prefixes, {} next hops, {} bytes, in {:.1} s",
        args.out.display(),
        counts.0,
        counts.1,
        list.hops.len(),
        bytes.len(),
        start.elapsed().as_secs_f64()
    );
    out.done(&shown, sentence)
}

fn table<A: Address>(settings: &Settings, routes: &[(Prefix<A>, u64)]) -> anyhow::Result<PrefixTrie<A>> {
    let mut trie = PrefixTrie::new(settings.clone());
    trie.insert_batch(routes, &mut Vec::new()).or_exit(Exit::Refused, "the table cannot be built")?;
    Ok(trie)
}

fn lookup(args: &LookupArgs, out: &Output) -> anyhow::Result<()> {
    let (tables, _) = read(&args.file)?;
    if !args.addresses.is_empty() {
        let answers = args.addresses.iter().map(|address| answer(&tables, address, ""));
        return out.rows(&answers.collect::<Result<Vec<_>, _>>()?);
    }
    if io::stdin().is_terminal() {
        eprintln!("addresses, one a line; end with Ctrl-D");
    }
    let mut stdout = io::stdout().lock();
    for (line, address) in (1u64..).zip(TextReader::new(io::stdin().lock()).lines()) {
        let address = address.or_exit(Exit::BadInput, format!("line {line}"))?;
        if address.trim().is_empty() {
            continue;
        }
        let answer = answer(&tables, address.trim(), &format!("line {line}: "))?;
        // Line by line, so that addresses may come from a pipe that stays open.
        if out.is_json() {
            writeln!(stdout, "{}", serde_json::to_string(&answer)?).map_err(to_stdout)?;
        } else {
            writeln!(stdout, "{},{}", answer.address, answer.next_hop.unwrap_or("-")).map_err(to_stdout)?;
        }
    }
    stdout.flush().map_err(to_stdout)
}

fn answer<'a>(tables: &'a PrefixFile, text: &'a str, place: &str) -> anyhow::Result<Answer<'a>> {
    let unreadable = |_| Failure::new(Exit::BadInput, format!("{place}`{text}` is no IPv4 or IPv6 address"));
    let number = match text.parse().map_err(unreadable)? {
        IpAddr::V4(address) => tables.ipv4.0.lookup(address.into()),
        IpAddr::V6(address) => tables.ipv6.0.lookup(address.into()),
    };
    Ok(Answer { address: text, next_hop: tables.hop(number) })
}

fn shown(tables: &PrefixFile, file_bytes: u64) -> [Shown; 2] {
    let row = |table, prefixes, [top_bytes, chunk_bytes, leaf_bytes]: [u64; 3]| Shown {
        table,
        prefixes,
        next_hops: tables.hops.len(),
        top_bytes,
        chunk_bytes,
        leaf_bytes,
        file_bytes,
    };
    [row("IPv4", tables.ipv4.1, tables.ipv4.0.size_bytes()), row("IPv6", tables.ipv6.1, tables.ipv6.0.size_bytes())]
}

fn read(path: &Path) -> anyhow::Result<(PrefixFile, u64)> {
    let bytes = command::read_image(path, &file::MAGIC)?;
    let tables = file::decode(&bytes).or_exit(Exit::BadInput, path.display())?;
    Ok((tables, bytes.len() as u64))
}
