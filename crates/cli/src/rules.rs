//! `fibula rules`: tables of rules over five-tuples offline, from a list to a file and back.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, OrExit, Output, to_stdout};
use command::text::TextReader;
use fib::name::{Name, NameKind};
use fib::rules::{self, Match, RuleTable};
use lookup::traits::Query;
use serde::Serialize;

use crate::atomic_file::{AtomicFile, cannot_write, is_same_file};

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Build a file of rules from a list
    Build(BuildArgs),
    /// Look up flows: the rule that answers for each
    Lookup(LookupArgs),
    /// Say what is in a file of rules
    Show {
        /// The file
        file: PathBuf,
    },
}

/// Where the rules are.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// The list, for example `deny tcp from 10.0.0.0/8 to any port 22-23` on a line, or rules of ClassBench; the first rule
    /// that matches answers; `-` is standard input
    list: PathBuf,
    /// The file to write
    #[arg(short, long)]
    out: PathBuf,
}

/// What to look up.
#[derive(Args, Debug)]
pub(crate) struct LookupArgs {
    /// The file
    file: PathBuf,
    /// Flows such as 10.0.0.1:80->10.0.0.2:443/tcp; without any, they are read from standard input, one a line
    flows: Vec<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    flow: &'a str,
    action: Option<&'a str>,
    line: Option<u32>,
}

/// A table in figures.
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
                let (table, file_bytes) = read(&file)?;
                out.rows(&shown(&table, file_bytes))
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
    let mut text = String::new();
    let list = args.list.display();
    command::prefix_list::input(&args.list)?.read_to_string(&mut text).or_exit(Exit::BadInput, &list)?;
    let rules = rules::parse(&text).or_exit(Exit::BadInput, &list)?;
    let with_flags = rules.iter().filter(|rule| rule.had_flags).count();
    if with_flags > 0 {
        eprintln!(
            "{list}: {with_flags} rules have flags of TCP, which are not compared: they match whatever the flags"
        );
    }
    let table = RuleTable::build(&rules).or_exit(Exit::Refused, &list)?;
    let bytes = table.encode();
    let mut file = AtomicFile::create(&args.out, 0o644)?;
    file.write_all(&bytes).map_err(|error| cannot_write(&args.out, &error))?;
    file.finish()?;
    let sentence = format!(
        "{}: {} rules in {} hash tables of IPv4 and {} of IPv6, {} bytes, in {:.2} s",
        args.out.display(),
        table.len(),
        table.v4().n_tables(),
        table.v6().n_tables(),
        bytes.len(),
        start.elapsed().as_secs_f64()
    );
    out.done(&shown(&table, bytes.len() as u64), sentence)
}

fn lookup(args: &LookupArgs, out: &Output) -> anyhow::Result<()> {
    let (table, _) = read(&args.file)?;
    if !args.flows.is_empty() {
        let answers = args.flows.iter().map(|flow| answer(&table, flow, ""));
        return out.rows(&answers.collect::<Result<Vec<_>, _>>()?);
    }
    if io::stdin().is_terminal() {
        eprintln!("flows such as 10.0.0.1:80->10.0.0.2:443/tcp, one a line; end with Ctrl-D");
    }
    let mut stdout = io::stdout().lock();
    for (line, flow) in (1u64..).zip(TextReader::new(io::stdin().lock()).lines()) {
        let flow = flow.or_exit(Exit::BadInput, format!("line {line}"))?;
        if flow.trim().is_empty() {
            continue;
        }
        let answer = answer(&table, flow.trim(), &format!("line {line}: "))?;
        // Line by line, so that flows may come from a pipe that stays open.
        if out.is_json() {
            writeln!(stdout, "{}", serde_json::to_string(&answer)?).map_err(to_stdout)?;
        } else {
            let rule = answer.line.map_or("-".to_owned(), |line| line.to_string());
            writeln!(stdout, "{},{},{rule}", answer.flow, answer.action.unwrap_or("-")).map_err(to_stdout)?;
        }
    }
    stdout.flush().map_err(to_stdout)
}

fn answer<'a>(table: &'a RuleTable, text: &'a str, place: &str) -> anyhow::Result<Answer<'a>> {
    let flow = Name::parse(NameKind::FiveTuple, text)
        .map_err(|error| Failure::new(Exit::BadInput, format!("{place}{error}")))?;
    let rule = table.lookup(&flow);
    let (action, line) = (rule.map(|Match { action, .. }| action), rule.map(|Match { line, .. }| line));
    Ok(Answer { flow: text, action, line })
}

fn shown(table: &RuleTable, file_bytes: u64) -> [Shown; 2] {
    let (v4, v6) = (table.v4(), table.v6());
    let row = |table, rules, hash_tables, bits: u64| Shown { table, rules, hash_tables, bytes: bits / 8, file_bytes };
    [row("IPv4", v4.n_rules(), v4.n_tables(), v4.size_bits()), row("IPv6", v6.n_rules(), v6.n_tables(), v6.size_bits())]
}

fn read(path: &Path) -> anyhow::Result<(RuleTable, u64)> {
    let bytes = command::read_image(path, rules::MAGIC)?;
    let table = RuleTable::decode(&bytes).or_exit(Exit::BadInput, path.display())?;
    Ok((table, bytes.len() as u64))
}
