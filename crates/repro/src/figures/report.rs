//! The output made of stored results: plots, the report, the papers' pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::plot::{self, PlotError};
use super::store::{Mode, Record, Store, StoreError, Stored, replace};
use super::verdict::{Evidence, Finding, Run, finding};
use super::{Figure, Paper, PaperValue, Point, html, readme, runner};

/// A figure with its results.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// The figure.
    pub figure: &'a Figure,
    /// What was measured.
    pub stored: Option<Stored>,
    /// The verdict on it.
    pub finding: Finding<'a>,
}

impl Entry<'_> {
    /// `concise/figure-3`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.paper.id, self.figure.id)
    }

    /// The measured points.
    pub fn points(&self) -> Vec<&Point> {
        self.stored.iter().flat_map(Stored::points).collect()
    }

    /// The paper's values in the unit of the y axis.
    pub fn values(&self) -> Vec<&PaperValue> {
        self.paper.values_of(self.figure).filter(|value| value.unit == self.figure.y.label).collect()
    }

    /// The paper's other values.
    pub fn other_values(&self) -> Vec<&PaperValue> {
        self.paper.values_of(self.figure).filter(|value| value.unit != self.figure.y.label).collect()
    }
}

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Results cannot be read, or files cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A figure cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// The figures of all papers with their results, in order.
/// # Errors
/// [`StoreError`].
pub fn entries<'a>(papers: &'a [Paper], store: &Store) -> Result<Vec<Entry<'a>>, StoreError> {
    Ok(judged(papers, results(papers, store, |_, _| true)?, &[]))
}

/// The results of each figure of each paper.
type Results = Vec<Vec<Option<Stored>>>;

/// What `store` has of all figures, without the results that `is_wanted` refuses.
fn results(
    papers: &[Paper],
    store: &Store,
    is_wanted: impl Fn(&Figure, &Record) -> bool,
) -> Result<Results, StoreError> {
    let load = |paper: &Paper, figure: &Figure| {
        Ok(store.load(&paper.id, &figure.id)?.filter(|stored| is_wanted(figure, &stored.record)))
    };
    papers.iter().map(|paper| paper.figures.iter().map(|figure| load(paper, figure)).collect()).collect()
}

/// Judges the results of one run. What `others` measured, which have names, may explain claims of it.
fn judged<'a>(papers: &'a [Paper], results: Results, others: &[(String, Results)]) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for (at, (paper, results)) in papers.iter().zip(results).enumerate() {
        let findings: Vec<Finding<'a>> = (paper.figures.iter().zip(&results))
            .map(|(figure, stored)| {
                let run = evidence(paper, at, &results, stored.as_ref(), others);
                finding(paper, figure, stored.as_ref(), &run)
            })
            .collect();
        let both = paper.figures.iter().zip(results).zip(findings);
        entries.extend(both.map(|((figure, stored), finding)| Entry { paper, figure, stored, finding }));
    }
    entries
}

/// The results that may explain `wanted`, a result of the paper `at` this place: those of its own run, and of `others`
/// where it has none.
fn evidence<'r>(
    paper: &'r Paper,
    at: usize,
    own: &'r [Option<Stored>],
    wanted: Option<&Stored>,
    others: &'r [(String, Results)],
) -> Run<'r> {
    let complete = |stored: &'r Option<Stored>| stored.as_ref().filter(|stored| stored.record.complete);
    let mut run = Run::new();
    for (nth, figure) in paper.figures.iter().enumerate() {
        let may_explain = |stored: &Stored| {
            figure.counted || wanted.is_some_and(|wanted| is_alike(figure, &stored.record, &wanted.record))
        };
        let of_others = || {
            let found = others.iter().filter_map(|(name, results)| Some((name, complete(&results[at][nth])?)));
            let found = found.filter(|(_, stored)| may_explain(stored));
            // What takes time, of the same mode if there is one.
            let is_other = |stored: &Stored| wanted.is_some_and(|wanted| wanted.record.mode != stored.record.mode);
            found.min_by_key(|(_, stored)| !figure.counted && is_other(stored))
        };
        let found = match complete(&own[nth]) {
            Some(stored) => Some(Evidence { stored, from: None }),
            None => of_others().map(|(name, stored)| Evidence { stored, from: Some(name) }),
        };
        run.extend(found.map(|found| (figure.id.as_str(), found)));
    }
    run
}

/// Whether the results of a figure are what a run on the machine and in the mode of `wanted` would measure too.
fn is_alike(figure: &Figure, record: &Record, wanted: &Record) -> bool {
    record.machine.kind() == wanted.machine.kind() && is_of_steps(figure, wanted.mode, record)
}

/// Writes the plots, as SVG and PNG, next to the results, and `report.html` above them. Returns its path.
/// # Errors
/// [`ReportError`].
pub fn write(papers: &[Paper], store: &Store) -> Result<PathBuf, ReportError> {
    let entries = entries(papers, store)?;
    let mut plots = Vec::new();
    for entry in &entries {
        let (points, values) = (entry.points(), entry.values());
        let svg = plot::svg(entry.figure, &points, &values)?;
        if let Some(svg) = &svg {
            replace(&store.path(&entry.paper.id, &entry.figure.id, "svg"), svg.as_bytes())?;
            plot::png(&store.path(&entry.paper.id, &entry.figure.id, "png"), entry.figure, &points, &values)?;
        }
        plots.push(svg);
    }
    let path = store.root().join("report.html");
    replace(&path, html::page(papers, &entries, &plots).as_bytes())?;
    Ok(path)
}

/// The folder of records in the folder of the papers' pages.
const RECORDS: &str = "records";

/// Why results cannot be kept as a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The name cannot be that of a folder.
    #[error("`{0}` cannot name a record: use lower-case letters, digits and dashes, such as `zen-5`")]
    Name(String),
    /// Results cannot be read, or files cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps the results of `store` that are complete in `<folder>/records/<name>-<mode>`, from which the pages are made.
/// Returns how many figures they are.
/// # Errors
/// [`KeepError`].
pub fn keep(papers: &[Paper], store: &Store, folder: &Path, name: &str) -> Result<usize, KeepError> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Err(KeepError::Name(name.to_owned()));
    }
    let mut kept = 0;
    for entry in entries(papers, store)? {
        let is_whole = |stored: &&Stored| stored.record.complete && !stored.points.is_empty();
        if let Some(stored) = entry.stored.as_ref().filter(is_whole) {
            let record = Store::of_records(folder.join(RECORDS).join(format!("{name}-{}", stored.record.mode)));
            record.save(&entry.paper.id, &entry.figure.id, stored)?;
            kept += 1;
        }
    }
    Ok(kept)
}

/// The records in `<folder>/records`, by name. A record of a figure whose parameters have changed since is left out.
/// # Errors
/// [`StoreError`].
pub fn records<'a>(papers: &'a [Paper], folder: &Path) -> Result<Vec<(String, Vec<Entry<'a>>)>, StoreError> {
    let root = folder.join(RECORDS);
    let mut stores: Vec<PathBuf> = match fs::read_dir(&root) {
        Ok(listing) => listing.filter_map(|found| Some(found.ok()?.path())).filter(|path| path.is_dir()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(StoreError { path: root, reason: error.to_string() }),
    };
    stores.sort();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let all = stores
        .iter()
        .map(|path| Ok((name(path), results(papers, &Store::of_records(path), is_current)?)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(all.iter().map(|(name, results)| (name.clone(), judged(papers, results.clone(), &all))).collect())
}

/// Writes `<folder>/<paper>/README.md` for each paper, from its [`records`].
/// # Errors
/// [`ReportError`].
pub fn write_readmes(papers: &[Paper], folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let mut paths = Vec::new();
    for paper in papers {
        let records = records(std::slice::from_ref(paper), folder)?;
        let path = folder.join(&paper.id).join("README.md");
        replace(&path, readme::page(paper, &records).as_bytes())?;
        paths.push(path);
    }
    Ok(paths)
}

/// Whether a record is of a figure's steps as they are now.
fn is_current(figure: &Figure, record: &Record) -> bool {
    is_of_steps(figure, record.mode, record)
}

/// Whether a record is of the steps that a figure has in this mode.
fn is_of_steps(figure: &Figure, mode: Mode, record: &Record) -> bool {
    let Ok(steps) = runner::steps(figure, mode, record.seed) else { return false };
    let digests = record.steps.iter().map(|step| &step.digest);
    steps.iter().map(|step| &step.digest).eq(digests)
}
