//! The output made of stored results: plots, the report, the papers' pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::plot::{self, PlotError};
use super::store::{Record, Store, StoreError, Stored, replace};
use super::verdict::{Finding, Run, finding};
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
    entries_that(papers, store, |_, _| true)
}

/// As [`entries`], without the results that `is_wanted` refuses.
fn entries_that<'a>(
    papers: &'a [Paper],
    store: &Store,
    is_wanted: impl Fn(&Figure, &Record) -> bool,
) -> Result<Vec<Entry<'a>>, StoreError> {
    let mut entries = Vec::new();
    for paper in papers {
        let load = |figure: &'a Figure| {
            let stored = store.load(&paper.id, &figure.id)?;
            Ok((figure, stored.filter(|stored| is_wanted(figure, &stored.record))))
        };
        let results = paper.figures.iter().map(load).collect::<Result<Vec<_>, StoreError>>()?;
        let complete = results.iter().filter_map(|(figure, stored)| {
            Some((figure.id.as_str(), stored.as_ref().filter(|stored| stored.record.complete)?))
        });
        let run: Run<'_> = complete.collect();
        let findings: Vec<Finding<'a>> =
            results.iter().map(|(figure, stored)| finding(paper, figure, stored.as_ref(), &run)).collect();
        let both = results.into_iter().zip(findings);
        entries.extend(both.map(|((figure, stored), finding)| Entry { paper, figure, stored, finding }));
    }
    Ok(entries)
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
    stores.iter().map(|path| Ok((name(path), entries_that(papers, &Store::of_records(path), is_current)?))).collect()
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
    let Ok(steps) = runner::steps(figure, record.mode, record.seed) else { return false };
    let digests = record.steps.iter().map(|step| &step.digest);
    steps.iter().map(|step| &step.digest).eq(digests)
}
