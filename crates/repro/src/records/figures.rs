//! The definition of the figures: what is measured for a record, and how rows form tables.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{FIGURES, RecordsError, Selector, read};

/// `docs/benchmarks/figures.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    /// Files with markers, relative to the root of the source tree.
    pub(super) documents: Vec<String>,
    /// Command lines by set, without the program name.
    pub(super) sets: BTreeMap<String, Vec<String>>,
    pub(super) picture: Picture,
    pub(super) table: BTreeMap<String, Table>,
    /// Benches that print text instead of rows, by name.
    pub(super) text: BTreeMap<String, Text>,
}

/// A table of a page: one row per line and record, worst record first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// Heading of the first column.
    pub(super) head: String,
    #[serde(default, rename = "where")]
    pub(super) select: Selector,
    /// Factor applied to values, such as 0.001 for microseconds.
    #[serde(default = "one")]
    pub(super) scale: f64,
    pub(super) rows: Vec<Line>,
    pub(super) columns: Vec<Column>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    pub(super) id: String,
    /// Text of the first column; the id if absent.
    head: Option<String>,
    #[serde(flatten)]
    pub(super) select: Selector,
}

impl Line {
    pub(super) fn head(&self) -> &str {
        self.head.as_deref().unwrap_or(&self.id)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Column {
    pub(super) id: String,
    head: Option<String>,
    /// If given, the value is the ratio to this contestant in the same command.
    pub(super) over: Option<String>,
    #[serde(default)]
    pub(super) pick: Pick,
    #[serde(flatten)]
    pub(super) select: Selector,
}

impl Column {
    pub(super) fn head(&self) -> &str {
        self.head.as_deref().unwrap_or(&self.id)
    }
}

/// Which of a row's figures is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pick {
    #[default]
    Median,
    BitsPerName,
    NsPerName,
    Megabytes,
}

/// The bars in the drawing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The drawing with placeholders, and the output.
    pub(super) template: String,
    pub(super) output: String,
    pub(super) bars: Vec<Bars>,
}

/// One group of bars: cells of a table, all of one record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bars {
    pub(super) head: String,
    /// The sizes, printed below the heading.
    pub(super) about: String,
    pub(super) table: String,
    pub(super) row: String,
    /// Ids of columns. The record whose first column is worst relative to the last one is shown; if no record has all
    /// of them, each bar is of the record that is worst in it.
    pub(super) columns: Vec<String>,
    /// The label of each bar, as many as columns.
    pub(super) labels: Vec<String>,
}

/// A bench whose output is quoted verbatim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    pub(super) bench: String,
    /// Whether all records that have it are quoted, or only the one measured last.
    #[serde(default)]
    pub(super) all: bool,
    /// The number of its last lines to quote; all if absent.
    pub(super) last: Option<usize>,
    /// Lines with this text are left out.
    pub(super) without: Option<String>,
}

fn one() -> f64 {
    1.0
}

impl Figures {
    /// Reads the definition in a source tree.
    /// # Errors
    /// When it cannot be read or has unknown contents.
    pub(super) fn read(root: &Path) -> Result<Self, RecordsError> {
        let path = root.join(FIGURES);
        toml::from_str(&read(&path)?).map_err(|error| RecordsError::malformed(&path, error))
    }

    /// The command lines of a set, without the program name.
    pub(super) fn commands(&self, set: &str) -> Option<&[String]> {
        self.sets.get(set).map(Vec::as_slice)
    }
}
