//! `fibula filter`: Bloom filters offline, from a list of names to a file and back.

mod union;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output, to_stdout};
use command::parse_size;
use fib::list::{Layout as Lines, List};
use fib::name::{Name, NameKind};
use fib::text::{self, Dialect, Line};
use lookup::bloom::image::{self, Header};
use lookup::bloom::named::{layout_of, parse_layout, word};
use lookup::bloom::{Bloom, CounterBits, Counting, Layout, OneHashing, Shape};
use lookup::hash::{Digest, Family, Hasher, Purpose, SecretKey};
use lookup::with_layout;
use serde::Serialize;

use crate::answers::questions;
use crate::atomic_file::check_is_not_list;
use crate::table_file;

/// Maximum size in bytes of a filter with its counters; its file needs as much memory again.
const MOST_BYTES: u64 = 4 << 30;
/// Names that are looked up together.
const BATCH: usize = 32;

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Build a filter file from a list of names
    Build(BuildArgs),
    /// Look up names in a filter file: yes for all that are in it, and for few others
    #[command(alias = "query")]
    Lookup(LookupArgs),
    /// Merge all names of several filters into one
    Union(union::UnionArgs),
    /// Describe a filter file
    Show {
        /// The filter file; `-` is standard input
        file: PathBuf,
    },
}

/// Where the list is and what to build.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// The list, one name per line, plain or packed with gzip or bzip2; `-` is standard input
    list: PathBuf,
    /// The filter file to write; `-` is standard output
    #[arg(short, long)]
    out: PathBuf,
    /// Kind of the names: mac, ipv4, ipv6, 5-tuple, teid, fixed:BYTES, text
    #[arg(long, alias = "names", default_value = "mac")]
    kind: NameKind,
    /// Layout of the bits: one-hashing, double-hashing, standard, partitioned, blocked, address-hashing
    #[arg(long, default_value = OneHashing::<true>::NAME, value_parser = parse_layout)]
    layout: &'static str,
    /// Share of other names that are reported as present, when the filter is at capacity
    #[arg(long, default_value_t = 0.01, conflicts_with_all = ["bits", "positions"])]
    fp: f64,
    /// Number of names to make room for [default: the number in the list]
    #[arg(long, value_parser = parse_size, conflicts_with_all = ["bits", "positions"])]
    capacity: Option<u64>,
    /// Size of the filter in bits, with K, M for powers of two, instead of --fp
    #[arg(long, value_parser = parse_size, requires = "positions")]
    bits: Option<u64>,
    /// Positions per name, with --bits
    #[arg(short = 'k', long, requires = "bits")]
    positions: Option<u32>,
    /// Counters beside the bits, so that names can be removed: 4 or 8 bits each
    #[arg(long, value_parser = parse_counters)]
    counters: Option<CounterBits>,
    /// Digest family: muladd, wy, siphash13, crc32c
    #[arg(long, default_value = "muladd")]
    hash: Family,
    /// Take kind, layout, size, counters and hash key from another filter file, so that both can be merged
    #[arg(long, conflicts_with_all = ["kind", "layout", "fp", "capacity", "bits", "positions", "counters", "hash"])]
    like: Option<PathBuf>,
}

/// The questions.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The filter file; `-` is standard input
    file: PathBuf,
    /// Names; if none are given, they are read from standard input, one per line
    names: Vec<String>,
}

fn parse_counters(text: &str) -> Result<CounterBits, String> {
    match text {
        "4" => Ok(CounterBits::Four),
        "8" => Ok(CounterBits::Eight),
        _ => Err(format!("counters of `{text}` bits: 4 or 8")),
    }
}

/// Properties of a filter file.
#[derive(Serialize)]
struct Shown {
    layout: &'static str,
    kind: String,
    names: u64,
    bits: u64,
    positions: u32,
    bits_per_name: f64,
    counters: u8,
    hash: String,
    /// Percentage of bits that are one.
    fill_percent: f64,
    /// Probability that a random alien is positive: for a filter of this shape and number of names, and for this one.
    expected_fp: f64,
    fp: f64,
    file_bytes: u64,
}

#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    present: bool,
}

impl FilterCommand {
    /// Runs the command.
    /// # Errors
    /// Exit code 2 for sizes out of range, 3 for a wrong line, name or file, 4 for a file that does not exist, 5 for a
    /// filter that would be too large.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Self::Build(mut args) => {
                let like = args.take_after()?;
                with_layout!(args.layout, L => build::<L>(&args, like, out))
            }
            Self::Union(args) => args.run(out),
            Self::Lookup(args) => {
                table_file::check_questions(&args.file, &args.names)?;
                let (bytes, layout) = read(&args.file, "lookup")?;
                with_layout!(layout, L => look_up::<L>(&args, &bytes, out))
            }
            Self::Show { file } => {
                let (bytes, layout) = read(&file, "show")?;
                with_layout!(layout, L => {
                    let (header, filter) = decode::<L>(&file, &bytes)?;
                    out.rows(&[shown(&header, &filter, bytes.len() as u64)])
                })
            }
        }
    }
}

impl BuildArgs {
    /// Takes the parameters of the filter given as `like`, and returns the header of that filter.
    fn take_after(&mut self) -> anyhow::Result<Option<Header>> {
        let Some(path) = &self.like else { return Ok(None) };
        let (bytes, layout) = read(path, "show")?;
        let header = with_layout!(layout, L => decode::<L>(path, &bytes)?.0);
        self.kind = kind_of(&header).or_exit(Exit::BadInput, path.display())?;
        (self.layout, self.hash, self.counters) = (layout, header.family, header.counters);
        (self.bits, self.positions) = (Some(header.bits), Some(header.n_hashes));
        Ok(Some(header))
    }
}

fn build<L: Layout>(args: &BuildArgs, like: Option<Header>, out: &Output) -> anyhow::Result<()> {
    check_is_not_list(&args.list, &args.out)?;
    table_file::check_out(&args.out)?;
    let shape_for = |n_names: u64| {
        let made = match (args.bits, args.positions) {
            (Some(bits), Some(positions)) => Shape::<L>::new(bits, positions),
            _ => Shape::for_names(args.capacity.unwrap_or(0).max(n_names), args.fp),
        };
        let shape = made.map_err(|error| Failure::new(Exit::Usage, error))?;
        let bytes = shape.bits() / 8 * (1 + args.counters.map_or(0, |bits| bits as u64));
        if bytes > MOST_BYTES {
            let text =
                format!("the filter would take {bytes} bytes, and at most {MOST_BYTES} can be built: split the list");
            return Err(Failure::new(Exit::Refused, text));
        }
        Ok(shape)
    };
    // Refuse impossible sizes before reading anything.
    shape_for(1)?;
    let key = like.as_ref().map_or_else(SecretKey::random, |like| like.key.clone());
    let hasher = Hasher::new(args.hash, &key);
    let digests = read_list(args, &hasher)?;
    let shape = shape_for(digests.len() as u64)?;
    let seed = like.map_or_else(|| key.derive(Purpose::Structure, 4), |like| like.seed);
    let n_names = digests.len() as u64;
    let (filter, bytes) = match args.counters {
        None => {
            let mut filter = Bloom::new(shape, seed);
            digests.into_iter().for_each(|digest| filter.insert(digest));
            let header = header(args, &filter, &key, n_names);
            let bytes = image::encode(&filter, &header);
            (filter, bytes)
        }
        Some(bits) => {
            let (mut counting, mut changes) = (Counting::new(shape, bits, seed), Vec::new());
            for digest in digests {
                counting.insert(digest, &mut changes);
                changes.clear();
            }
            let header = header(args, counting.filter(), &key, n_names);
            let bytes = image::encode_counting(&counting, &header);
            (counting.into_filter(), bytes)
        }
    };
    write(&args.out, &bytes, &filter, out)
}

/// Writes a filter file and prints its properties.
fn write<L: Layout>(path: &Path, bytes: &[u8], filter: &Bloom<L>, out: &Output) -> anyhow::Result<()> {
    let shown = shown(&image::header(bytes)?, filter, bytes.len() as u64);
    let sentence = format!(
        "{}: {} names in {} bits, {} positions a name, {:.2} bits a name; {:.4} % of other names get a yes",
        path.display(),
        shown.names,
        shown.bits,
        shown.positions,
        shown.bits_per_name,
        shown.fp * 100.0
    );
    // Only the owner may read it, because it holds the hash key.
    table_file::write(path, 0o600, bytes, &shown, sentence, out)
}

fn header<L: Layout>(args: &BuildArgs, filter: &Bloom<L>, key: &SecretKey, n_names: u64) -> Header {
    Header::new(filter, args.hash, key, n_names, u16::from_le_bytes(args.kind.to_wire()))
}

fn read_list(args: &BuildArgs, hasher: &Hasher) -> anyhow::Result<Vec<Digest>> {
    let what = args.list.display();
    let mut digests = Vec::new();
    for entry in List::new(args.kind, Lines::Plain, text::Lines::new(command::input(&args.list)?)) {
        let entry = entry.map_err(|error| Failure::new(Exit::BadInput, format!("{what}: {error}")))?;
        let digest = with_layout!(args.layout, L => word::<L>(hasher, entry.name.as_bytes()));
        digests.push(digest.or_exit(Exit::Usage, format!("{what}: line {}", entry.line))?);
    }
    Ok(digests)
}

fn look_up<L: Layout>(args: &LookupArgs, bytes: &[u8], out: &Output) -> anyhow::Result<()> {
    let (header, filter) = decode::<L>(&args.file, bytes)?;
    let kind = kind_of(&header).or_exit(Exit::BadInput, args.file.display())?;
    let hasher = Hasher::new(header.family, &header.key);
    let ask = |texts: &[(String, String)]| -> anyhow::Result<Vec<bool>> {
        let (mut digests, mut present) = (Vec::with_capacity(texts.len()), vec![false; texts.len()]);
        for (place, text) in texts {
            let name =
                Name::parse(kind, text).map_err(|error| Failure::new(Exit::BadInput, format!("{place}{error}")))?;
            digests.push(word::<L>(&hasher, name.as_bytes()).map_err(|error| Failure::new(Exit::Usage, error))?);
        }
        filter.lookup_batch(&digests, &mut present);
        Ok(present)
    };
    if !args.names.is_empty() {
        let texts: Vec<_> = args.names.iter().map(|name| (String::new(), name.clone())).collect();
        let present = ask(&texts)?;
        let answers = args.names.iter().zip(present).map(|(name, present)| Answer { name, present });
        return out.rows(&answers.collect::<Vec<_>>());
    }
    let is_terminal = io::stdin().is_terminal();
    if is_terminal {
        eprintln!("names, one per line; end with Ctrl-D");
    }
    let mut stdout = io::stdout().lock();
    let mut put = |texts: &mut Vec<(String, String)>| -> anyhow::Result<()> {
        for ((_, name), present) in texts.iter().zip(ask(texts)?) {
            if out.is_json() {
                writeln!(stdout, "{}", command::output::json(&Answer { name, present })?).map_err(to_stdout)?;
            } else {
                let answer = if present { "yes" } else { "no" };
                writeln!(stdout, "{},{answer}", text::quote(name)).map_err(to_stdout)?;
            }
        }
        stdout.flush().map_err(to_stdout)?;
        texts.clear();
        Ok(())
    };
    let mut waiting = Vec::new();
    for line in questions(Dialect::of(kind)) {
        match line.or_exit(Exit::BadInput, "standard input") {
            Ok(Line { number, text }) => waiting.push((format!("line {number}: "), text)),
            // Answer the names before the error.
            Err(error) => return put(&mut waiting).and(Err(error)),
        }
        // On a terminal, answer each line at once.
        if waiting.len() == BATCH || is_terminal {
            put(&mut waiting)?;
        }
    }
    put(&mut waiting)
}

fn shown<L: Layout>(header: &Header, filter: &Bloom<L>, file_bytes: u64) -> Shown {
    let bits = filter.shape().bits();
    let n_ones: u64 = filter.words().iter().map(|word| u64::from(word.count_ones())).sum();
    Shown {
        layout: L::NAME,
        kind: kind_of(header).map_or_else(|_| format!("unknown ({})", header.kind), |kind| kind.to_string()),
        names: header.n_names,
        bits,
        positions: header.n_hashes,
        bits_per_name: bits as f64 / header.n_names.max(1) as f64,
        counters: header.counters.map_or(0, |bits| bits as u8),
        hash: header.family.to_string(),
        fill_percent: n_ones as f64 / bits as f64 * 100.0,
        expected_fp: filter.shape().expected_fp(header.n_names),
        fp: filter.false_positive_rate(),
        file_bytes,
    }
}

fn kind_of(header: &Header) -> anyhow::Result<NameKind> {
    let kind = NameKind::from_wire(header.kind.to_le_bytes());
    kind.ok_or_else(|| {
        anyhow::anyhow!("the filter is over names of kind {}, which this version does not know", header.kind)
    })
}

/// The bytes of a filter file, and its layout.
fn read(path: &Path, verb: &str) -> anyhow::Result<(Vec<u8>, &'static str)> {
    let bytes = table_file::read(path, &image::MAGIC, verb)?;
    let header = image::header(&bytes).or_exit(Exit::BadInput, path.display())?;
    let layout = layout_of(header.layout).ok_or_else(|| {
        let text =
            format!("{}: the filter has layout {}, which this version does not know", path.display(), header.layout);
        Failure::new(Exit::BadInput, text)
    })?;
    Ok((bytes, layout))
}

fn decode<L: Layout>(path: &Path, bytes: &[u8]) -> anyhow::Result<(Header, Bloom<L>)> {
    image::decode(bytes).or_exit(Exit::BadInput, path.display())
}
