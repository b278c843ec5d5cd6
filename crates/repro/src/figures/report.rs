//! The output made of stored results: plots, the report, the papers' pages.

use std::path::PathBuf;

use super::plot::{self, PlotError};
use super::store::{Store, StoreError, Stored, replace};
use super::verdict::{Finding, finding};
use super::{Figure, Paper, PaperValue, Point, html, readme};

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
    let all = papers.iter().flat_map(|paper| paper.figures.iter().map(move |figure| (paper, figure)));
    all.map(|(paper, figure)| {
        let stored = store.load(&paper.id, &figure.id)?;
        Ok(Entry { paper, figure, finding: finding(paper, figure, stored.as_ref()), stored })
    })
    .collect()
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

/// Writes `<folder>/<paper>/README.md` for each paper, and keeps results of figures that the store has none of.
/// # Errors
/// [`ReportError`].
pub fn write_readmes(papers: &[Paper], store: &Store, folder: &std::path::Path) -> Result<Vec<PathBuf>, ReportError> {
    let entries = entries(papers, store)?;
    let mut paths = Vec::new();
    for paper in papers {
        let of_paper: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.paper.id == paper.id).collect();
        let path = folder.join(&paper.id).join("README.md");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        replace(&path, readme::page(paper, &of_paper, &before).as_bytes())?;
        paths.push(path);
    }
    Ok(paths)
}
