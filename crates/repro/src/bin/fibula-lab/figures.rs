//! `fibula repro`: the tables and figures of the papers, reproduced on this machine.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use command::output::{Exit, Failure, Output};
use fibula_repro::BenchError;
use fibula_repro::figures::catalogue::{self, CatalogueError};
use fibula_repro::figures::report::{self, KeepError};
use fibula_repro::figures::runner::{self, Plan, RunError, Watch};
use fibula_repro::figures::store::{Mode, Store};
use fibula_repro::figures::verdict::Outcome;
use fibula_repro::figures::{Figure, Paper};
use indicatif::{ProgressBar, ProgressStyle};

/// Commands for figures.
#[derive(Debug, Subcommand)]
pub(crate) enum ReproCommand {
    /// List all tables and figures
    List {
        /// Only those of these papers
        papers: Vec<String>,
    },
    /// Run some figures
    Run {
        /// Figures such as concise/figure-3; the name of a paper selects all of its figures
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        args: RunArgs,
    },
    /// Run all figures, except those that have run before
    All(RunArgs),
    /// Plot the results and write report.html, which compares them with the papers
    Report {
        #[command(flatten)]
        results: ResultsArgs,
        /// Also write README.md of each paper, into folders of this directory, from the records in DIR/records
        #[arg(long, value_name = "DIR")]
        readme: Option<PathBuf>,
        /// First store the complete results in DIR/records, under the name of this kind of machine, such as zen-5
        #[arg(long, value_name = "MACHINE", requires = "readme")]
        keep: Option<String>,
    },
}

/// Options of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    results: ResultsArgs,
    /// Seed of names, orders and keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat finished steps
    #[arg(long)]
    again: bool,
}

impl RunArgs {
    fn plan(&self) -> Plan {
        Plan { mode: self.results.mode(), seed: self.seed, again: self.again }
    }
}

/// The results to use.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResultsArgs {
    /// Use small sizes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Use the papers' sizes, which take many hours
    #[arg(long)]
    full: bool,
    /// Folder of results [default: repro-results/quick or repro-results/full]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ResultsArgs {
    fn mode(&self) -> Mode {
        if self.full { Mode::Full } else { Mode::Quick }
    }

    fn store(&self) -> Store {
        let default = || PathBuf::from("repro-results").join(self.mode().to_string());
        Store::new(self.out.clone().unwrap_or_else(default))
    }
}

impl ReproCommand {
    /// Runs the command.
    /// # Errors
    /// Exit code 4 for figures that do not exist or cannot be run, 6 if a structure answered wrongly.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let papers = catalogue::papers()?;
        match self {
            Self::List { papers: wanted } => list(out, &choose(&papers, &wanted)?),
            Self::Run { ids, args } => {
                let chosen = choose(&papers, &ids)?;
                runner::reserve(chosen.iter().map(|pair| pair.1), &args.plan());
                for (paper, figure) in chosen {
                    if !figure.is_runnable() && ids.iter().any(|id| id.ends_with(&format!("/{}", figure.id))) {
                        let why = if figure.hardware.is_empty() { &figure.why } else { &figure.hardware };
                        return Err(Failure::new(Exit::NotFound, format!("{}/{}: {why}", paper.id, figure.id)));
                    }
                    if figure.is_runnable() {
                        run(paper, figure, &args)?;
                    }
                }
                Ok(())
            }
            Self::All(args) => all(&choose(&papers, &[])?, &args),
            Self::Report { results, readme, keep } => {
                let store = results.store();
                if let (Some(folder), Some(machine)) = (&readme, &keep) {
                    let kept = report::keep(&papers, &store, folder, machine).map_err(|error| match error {
                        KeepError::Name(_) => Failure::new(Exit::Usage, error),
                        error => error.into(),
                    })?;
                    eprintln!("kept the results of {kept} figures");
                }
                tell(out, &papers, &store, readme.as_deref())
            }
        }
    }
}

fn choose<'a>(papers: &'a [Paper], wanted: &[String]) -> anyhow::Result<Vec<(&'a Paper, &'a Figure)>> {
    catalogue::choose(papers, wanted).map_err(|error: CatalogueError| Failure::new(Exit::NotFound, error))
}

fn list(out: &Output, figures: &[(&Paper, &Figure)]) -> anyhow::Result<()> {
    #[derive(serde::Serialize)]
    struct Row<'a> {
        id: String,
        place: &'a str,
        title: &'a str,
        method: &'a str,
        runs: bool,
    }
    let rows = figures.iter().map(|(paper, figure)| Row {
        id: format!("{}/{}", paper.id, figure.id),
        place: &figure.place,
        title: &figure.title,
        method: &figure.method,
        runs: figure.is_runnable(),
    });
    out.rows(&rows.collect::<Vec<_>>())
}

/// Writes plots and report, and prints the outcome of the papers' claims.
fn tell(out: &Output, papers: &[Paper], store: &Store, readme: Option<&Path>) -> anyhow::Result<()> {
    #[derive(serde::Serialize)]
    struct Row {
        paper: String,
        figures: usize,
        run: usize,
        met: usize,
        missed: usize,
        contradicted: usize,
        not_measured: usize,
        lost_to_peers: usize,
    }
    let path = report::write(papers, store)?;
    let mut paths = vec![path];
    if let Some(folder) = readme {
        paths.extend(report::write_readmes(papers, folder)?);
    }
    let entries = report::entries(papers, store)?;
    let row = |paper: &Paper| {
        let of: Vec<_> = entries.iter().filter(|entry| entry.paper.id == paper.id).collect();
        let count = |outcome: Outcome| of.iter().map(|entry| entry.finding.count(outcome)).sum();
        Row {
            paper: paper.id.clone(),
            figures: of.len(),
            run: of.iter().filter(|entry| entry.stored.is_some()).count(),
            met: count(Outcome::Met),
            missed: count(Outcome::Missed),
            contradicted: count(Outcome::Contradicted),
            not_measured: count(Outcome::NotMeasured),
            lost_to_peers: of.iter().map(|entry| entry.finding.losses.len()).sum(),
        }
    };
    out.rows(&papers.iter().map(row).collect::<Vec<_>>())?;
    for path in paths {
        eprintln!("{}", path.display());
    }
    Ok(())
}

/// Runs everything that can run. A figure that fails does not stop the others; the first failure is the outcome.
fn all(figures: &[(&Paper, &Figure)], args: &RunArgs) -> anyhow::Result<()> {
    let runnable: Vec<_> = figures.iter().filter(|(_, figure)| figure.is_runnable()).collect();
    runner::reserve(runnable.iter().map(|pair| pair.1), &args.plan());
    let mut first_error = None;
    for (at, (paper, figure)) in runnable.iter().enumerate() {
        eprintln!("[{}/{}] {}/{}: {}", at + 1, runnable.len(), paper.id, figure.id, figure.title);
        if let Err(error) = run(paper, figure, args) {
            eprintln!("fibula: {error:#}");
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

fn run(paper: &Paper, figure: &Figure, args: &RunArgs) -> anyhow::Result<()> {
    let plan = args.plan();
    let mut bar = Bar::new(format!("{}/{}", paper.id, figure.id));
    let stored = runner::run(paper, figure, &plan, &args.results.store(), &mut bar);
    bar.bar.finish_and_clear();
    let stored = stored.map_err(|error| {
        let exit = match &error {
            RunError::NotRunnable { .. } => Exit::NotFound,
            RunError::Step { error, .. } if error.is_wrong_answer() => Exit::CheckFailed,
            RunError::Step { error: BenchError::Unavailable { .. }, .. } => Exit::NotFound,
            RunError::Step { error: BenchError::Build { .. }, .. } => Exit::Refused,
            RunError::Step { .. } => Exit::Usage,
            _ => Exit::Internal,
        };
        Failure::new(exit, error)
    })?;
    for (series, reason) in stored.lacks() {
        eprintln!("{}/{}: not measured: {series}: {reason}", paper.id, figure.id);
    }
    let seconds: f64 = stored.record.steps.iter().map(|step| step.seconds).sum();
    eprintln!(
        "{}/{}: {} steps, {} points, {seconds:.1} s; {}",
        paper.id,
        figure.id,
        stored.record.steps.len(),
        stored.points.len(),
        args.results.store().path(&paper.id, &figure.id, "csv").display(),
    );
    Ok(())
}

/// A progress bar on a terminal, lines elsewhere.
struct Bar {
    id: String,
    bar: ProgressBar,
    is_terminal: bool,
}

impl Bar {
    fn new(id: String) -> Self {
        let style = ProgressStyle::with_template("{prefix:28} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}");
        let bar = ProgressBar::new(0).with_style(style.expect("a valid template")).with_prefix(id.clone());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { id, bar, is_terminal: std::io::stderr().is_terminal() }
    }
}

impl Watch for Bar {
    fn step(&mut self, done: usize, of: usize, label: &str) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(label.to_owned());
        if !self.is_terminal && done < of {
            eprintln!("{}: step {} of {of} {label}", self.id, done + 1);
        }
    }

    fn say(&mut self, text: &str) {
        if self.is_terminal {
            self.bar.set_message(text.to_owned());
        } else {
            tracing::debug!("{}: {text}", self.id);
        }
    }
}
