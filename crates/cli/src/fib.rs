//! `fibula fib`: FIBs offline, from a list of names to a file and back, without controller and switch; and the cost of
//! each design.

mod advise;
mod compare;
mod crossover;
mod demand;
mod measure;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output};
use fib::action::Action;
use fib::designs::{self, Aliens, Design, Guard};
use fib::file::{Fib, FibError, Widths};
use fib::list::{Layout, List};
use fib::model::advice::{Node, advise};
use fib::model::designs::Demand;
use fib::name::{Name, NameKind};
use fib::text::{Dialect, Lines, quote};
use indicatif::{ProgressBar, ProgressStyle};
use lookup::hash::Family;
use serde::Serialize;

use crate::answers::answer_all;
use crate::atomic_file::check_is_not_list;
use crate::choices::{Choices, choices};
use crate::laboratory;
use crate::table_file;

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum FibCommand {
    /// Build a FIB file from a list of names and actions
    Build(BuildArgs),
    /// Look up names in a FIB file; names that are not in it get an arbitrary action
    Lookup(LookupArgs),
    /// Say what is in a FIB file
    Show {
        /// The FIB file; `-` is standard input
        file: PathBuf,
    },
    /// Compute what every design costs: memory, cache lines, hash calls, aliens that pass
    Compare(compare::CompareArgs),
    /// Say which design to take at a gateway and at a core node, and why
    Advise(advise::AdviseArgs),
}

/// Where the list is and how to build.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// The list: `name,action` on every line, or with --action a name on every line, packed with gzip or bzip2 or not; `-` is
    /// standard input
    list: PathBuf,
    /// The FIB file to write; `-` is standard output
    #[arg(short, long)]
    out: PathBuf,
    /// Kind of the names: mac, ipv4, ipv6, 5-tuple, teid, fixed:BYTES, text
    #[arg(long, alias = "names", default_value = "mac")]
    kind: NameKind,
    /// The list holds names only, and this is the action of all: port:3, drop, punt
    #[arg(long)]
    action: Option<Action>,
    /// FIB design; unset, with --fp the one that `fibula fib advise --gateway` takes for these names, without it concise
    #[arg(long, hide_possible_values = true, value_parser = designs())]
    design: Option<&'static Design>,
    /// Share of alien names that may get an action, as 0.001; 0 for none. A design that cannot hold it is refused
    #[arg(long)]
    fp: Option<f64>,
    /// What tells alien names, round the design: checksum or bloom. Unset, a checksum where --fp needs one
    #[arg(long)]
    aliens: Option<Guard>,
    /// Bits of a value; unset, as many as drop and the actions need
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    value_bits: Option<u8>,
    /// Digest family: muladd, wy, siphash13, crc32c
    #[arg(long, default_value = "muladd")]
    hash: Family,
    /// Threads to build with; 0 takes all
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// Reads the name of a design; completions offer all.
pub(crate) fn designs() -> Choices<impl TypedValueParser<Value = &'static Design>> {
    choices(laboratory::design, designs::all().map(|design| design.name))
}

/// What to look up.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The FIB file; `-` is standard input
    file: PathBuf,
    /// Names; without any, they are read from standard input, one a line
    names: Vec<String>,
}

/// Properties of a FIB file.
#[derive(Serialize)]
struct Shown {
    design: &'static str,
    kind: String,
    names: u64,
    actions: usize,
    hash: String,
    table_bytes: u64,
    bits_per_name: f64,
    fingerprint_bits: u8,
    /// Share of alien names that get an action: of the table as it is, or at most; 1 where nothing distinguishes them.
    false_positive_rate: f64,
    file_bytes: u64,
}

#[derive(Serialize)]
struct Answer {
    name: String,
    action: String,
}

impl FibCommand {
    /// Runs the command.
    /// # Errors
    /// Exit code 3 for a wrong line, name or file, 4 for a file that does not exist, 5 for a FIB that cannot be built.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Self::Build(args) => build(args, out),
            Self::Lookup(args) => lookup(&args, out),
            Self::Show { file } => {
                let (fib, file_bytes) = read(&file, "show")?;
                out.rows(&[shown(&fib, file_bytes)])
            }
            Self::Compare(args) => args.run(out),
            Self::Advise(args) => args.run(out),
        }
    }
}

fn build(args: BuildArgs, out: &Output) -> anyhow::Result<()> {
    let start = Instant::now();
    let from_stdin = args.list.as_os_str() == "-";
    check_is_not_list(&args.list, &args.out)?;
    table_file::check_out(&args.out)?;
    let entries = read_list(&args)?;
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        threads => threads,
    };
    let spinner = progress(ProgressBar::no_length(), "{spinner} {msg} {elapsed}");
    spinner.set_message(format!("building a FIB of {} names", entries.len()));
    spinner.enable_steady_tick(Duration::from_millis(200));
    let widths = Widths { rate: args.fp, value_bits: args.value_bits };
    let advised = if args.aliens.is_none() { advised(&args, &entries) } else { None };
    let design = args.design.or(advised).unwrap_or(&fib::designs::CONCISE);
    let design = match (args.aliens, args.fp) {
        (Some(guard), _) => design.guarded(guard).map_err(|error| {
            laboratory::hand_over_if(error.is_in_laboratory() && !from_stdin);
            Failure::new(Exit::Usage, error)
        })?,
        (None, Some(_)) => design.recognising(),
        (None, None) => design,
    };
    let fib = Fib::build_as(design, args.kind, args.hash, threads, widths, &entries).map_err(|error| {
        let exit = match &error {
            FibError::WrongKind { .. } | FibError::DuplicateName { .. } => Exit::BadInput,
            FibError::Rate(_) | FibError::ValueBits { .. } => Exit::Usage,
            _ => Exit::Refused,
        };
        Failure::new(exit, error)
    })?;
    spinner.set_message("writing");
    let bytes = fib.encode();
    spinner.finish_and_clear();

    let shown = shown(&fib, bytes.len() as u64);
    let sentence = format!(
        "{}: {}, {} names, {} actions, {:.2} bits a name, {} bytes, in {:.1} s",
        args.out.display(),
        shown.design,
        shown.names,
        shown.actions,
        shown.bits_per_name,
        shown.file_bytes,
        start.elapsed().as_secs_f64()
    );
    // Only the owner may read it, because it holds the hash key.
    table_file::write(&args.out, 0o600, &bytes, &shown, sentence, out)
}

/// The design that `fibula fib advise` takes at a gateway for such names, if few aliens may get an action.
fn advised(args: &BuildArgs, entries: &[(Name, Action)]) -> Option<&'static Design> {
    let fp = args.fp.filter(|fp| (0.0..1.0).contains(fp))?;
    let actions: HashSet<Action> = entries.iter().map(|(_, action)| *action).filter(|a| *a != Action::Drop).collect();
    let mut demand = Demand::new(args.kind, (entries.len() as u64).max(1), (actions.len() as u32).max(1), fp);
    demand.value_bits = demand.value_bits.max(args.value_bits.unwrap_or(0).into());
    Design::by_name(advise(Node::Gateway, &demand).taken.design).ok()
}

/// The names of the list with their actions.
fn read_list(args: &BuildArgs) -> anyhow::Result<Vec<(Name, Action)>> {
    let what = args.list.display().to_string();
    let from_stdin = args.list.as_os_str() == "-";
    let input = command::input(&args.list)?;
    let length = if from_stdin { None } else { std::fs::metadata(&args.list).ok().map(|data| data.len()) };
    let bar = match length {
        Some(length) => progress(ProgressBar::new(length), "{bar:40} {percent} % of {total_bytes} read, {eta} left"),
        None => progress(ProgressBar::no_length(), "{spinner} {bytes} read"),
    };
    let layout = if args.action.is_some() { Layout::Plain } else { Layout::Csv };
    let lines = Lines::new(bar.wrap_read(input));
    let mut entries = Vec::new();
    for entry in List::new(args.kind, layout, lines) {
        let entry = entry.map_err(|error| Failure::new(Exit::BadInput, format!("{what}: {error}")))?;
        let action = entry.action.or(args.action).unwrap_or(Action::Drop);
        entries.push((entry.name, action));
    }
    bar.finish_and_clear();
    Ok(entries)
}

fn lookup(args: &LookupArgs, out: &Output) -> anyhow::Result<()> {
    table_file::check_questions(&args.file, &args.names)?;
    let (fib, _) = read(&args.file, "lookup")?;
    let csv = |answer: &Answer| format!("{},{}", quote(&answer.name), answer.action);
    answer_all(&args.names, ("names", Dialect::of(fib.kind())), out, |name, place| answer(&fib, name, place), csv)
}

fn answer(fib: &Fib, text: &str, place: &str) -> anyhow::Result<Answer> {
    let name =
        Name::parse(fib.kind(), text).map_err(|error| Failure::new(Exit::BadInput, format!("{place}{error}")))?;
    Ok(Answer { name: text.to_owned(), action: fib.lookup(&name).to_string() })
}

fn shown(fib: &Fib, file_bytes: u64) -> Shown {
    let bits = fib.size_bits();
    Shown {
        design: fib.design().name,
        kind: fib.kind().to_string(),
        names: fib.n_names(),
        actions: fib.actions().len(),
        hash: fib.family().to_string(),
        table_bytes: bits / 8,
        bits_per_name: bits as f64 / fib.n_names().max(1) as f64,
        fingerprint_bits: fib.spec().fingerprint_bits,
        false_positive_rate: match fib.aliens() {
            Aliens::Arbitrary => 1.0,
            Aliens::DroppedBut { rate } => rate,
            Aliens::Dropped => 0.0,
        },
        file_bytes,
    }
}

fn read(path: &Path, verb: &str) -> anyhow::Result<(Fib, u64)> {
    let bytes = table_file::read(path, fib::file::MAGIC, verb)?;
    let fib = Fib::decode(&bytes).inspect_err(|error| {
        laboratory::hand_over_if(error.is_in_laboratory() && path.as_os_str() != "-");
    });
    let fib = fib.or_exit(Exit::BadInput, path.display())?;
    Ok((fib, bytes.len() as u64))
}

/// A progress bar on standard error, visible on a terminal only.
pub(crate) fn progress(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
