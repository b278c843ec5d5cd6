//! `fibula rules`: tables of rules over five-tuples offline, from a list to a file and back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output};
use fib::name::{Name, NameKind};
use fib::rules::{self, Actions, Match, RuleTable};
use fib::text::Dialect;
use indicatif::ProgressBar;
use lookup::traits::Query;
use serde::Serialize;

use crate::answers::answer_all;
use crate::atomic_file::check_is_not_list;
use crate::fib::progress;
use crate::table_file;

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Build a file of rules from a list
    Build(BuildArgs),
    /// Look up flows: the rule that answers for each
    Lookup(LookupArgs),
    /// Describe a file of rules
    Show {
        /// The file; `-` is standard input
        file: PathBuf,
    },
}

/// The input and output of a build.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// The list: a rule such as `deny tcp from 10.0.0.0/8 to any port 22-23` per line, or rules of ClassBench; the
    /// first matching rule answers. Plain or packed with gzip or bzip2; `-` is standard input
    list: PathBuf,
    /// The file to write; `-` is standard output
    #[arg(short, long)]
    out: PathBuf,
    /// Allowed actions, separated by commas; any other is reported as an error
    #[arg(long, default_value = "permit,deny")]
    actions: Actions,
}

/// The questions.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The file; `-` is standard input
    file: PathBuf,
    /// Flows such as 10.0.0.1:80->10.0.0.2:443/tcp; if none are given, they are read from standard input, one per line
    flows: Vec<String>,
}

#[derive(Serialize)]
struct Answer {
    flow: String,
    action: Option<String>,
    line: Option<u32>,
}

/// The figures of a table.
#[derive(Serialize)]
struct Shown {
    table: &'static str,
    rules: usize,
    hash_tables: usize,
    bytes: u64,
    file_bytes: u64,
}

impl RulesCommand {
    /// Runs the command.
    /// # Errors
    /// Exit code 3 for a wrong line, flow or file, 4 for a file that does not exist, 5 for rules that cannot be held.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        match self {
            Self::Build(args) => build(&args, out),
            Self::Lookup(args) => lookup(&args, out),
            Self::Show { file } => {
                let (table, file_bytes) = read(&file, "show")?;
                out.rows(&shown(&table, file_bytes))
            }
        }
    }
}

fn build(args: &BuildArgs, out: &Output) -> anyhow::Result<()> {
    let start = Instant::now();
    check_is_not_list(&args.list, &args.out)?;
    table_file::check_out(&args.out)?;
    let list = args.list.display();
    let actions = args.actions.clone().or("; for other actions, list all of them with --actions");
    let rules = rules::read(command::input(&args.list)?, &actions).or_exit(Exit::BadInput, &list)?;
    let with_flags = rules.iter().filter(|rule| rule.had_flags).count();
    if with_flags > 0 {
        eprintln!("{list}: {with_flags} rules have TCP flags, which are not compared: these rules match any flags");
    }
    let spinner = progress(ProgressBar::no_length(), "{spinner} {msg} {elapsed}");
    spinner.set_message(format!("laying out {} rules", rules.len()));
    spinner.enable_steady_tick(Duration::from_millis(200));
    let bytes = rules::encode(&rules);
    spinner.finish_and_clear();
    let bytes = bytes.or_exit(Exit::Refused, &list)?;
    let table = RuleTable::decode(&bytes).or_exit(Exit::Refused, &list)?;
    let sentence = format!(
        "{}: {} rules in {} hash tables of IPv4 and {} of IPv6, {} bytes, in {:.2} s",
        args.out.display(),
        table.len(),
        table.v4().n_tables(),
        table.v6().n_tables(),
        bytes.len(),
        start.elapsed().as_secs_f64()
    );
    // Only the owner may read it, because it holds the hash key.
    table_file::write(&args.out, 0o600, &bytes, &shown(&table, bytes.len() as u64), sentence, out)
}

fn lookup(args: &LookupArgs, out: &Output) -> anyhow::Result<()> {
    table_file::check_questions(&args.file, &args.flows)?;
    let (table, _) = read(&args.file, "lookup")?;
    let csv = |answer: &Answer| {
        let rule = answer.line.map_or("-".to_owned(), |line| line.to_string());
        format!("{},{},{rule}", answer.flow, answer.action.as_deref().unwrap_or("-"))
    };
    let flows = "flows such as 10.0.0.1:80->10.0.0.2:443/tcp";
    answer_all(&args.flows, (flows, Dialect::Plain), out, |flow, place| answer(&table, flow.trim(), place), csv)
}

fn answer(table: &RuleTable, text: &str, place: &str) -> anyhow::Result<Answer> {
    let flow = Name::parse(NameKind::FiveTuple, text)
        .map_err(|error| Failure::new(Exit::BadInput, format!("{place}{error}")))?;
    let rule = table.lookup(&flow);
    let (action, line) = (rule.map(|Match { action, .. }| action.to_owned()), rule.map(|Match { line, .. }| line));
    Ok(Answer { flow: text.to_owned(), action, line })
}

fn shown(table: &RuleTable, file_bytes: u64) -> [Shown; 2] {
    let (v4, v6) = (table.v4(), table.v6());
    let row = |table, rules, hash_tables, bits: u64| Shown { table, rules, hash_tables, bytes: bits / 8, file_bytes };
    [row("IPv4", v4.n_rules(), v4.n_tables(), v4.size_bits()), row("IPv6", v6.n_rules(), v6.n_tables(), v6.size_bits())]
}

fn read(path: &Path, verb: &str) -> anyhow::Result<(RuleTable, u64)> {
    let bytes = table_file::read(path, rules::MAGIC, verb)?;
    let table = RuleTable::decode(&bytes).or_exit(Exit::BadInput, path.display())?;
    Ok((table, bytes.len() as u64))
}
