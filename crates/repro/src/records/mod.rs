//! The figures that documents quote, and the records that they come from.
//!
//! A *record* is a file of JSON lines for one machine: a header, then one line for each measured row with the command
//! that printed it. `recorder` writes records. `docs/benchmarks/figures.toml` (`Figures`) defines what is measured for
//! them and how their rows form tables. `page` writes tables, single figures and the bars of the picture into the
//! documents, between the markers `<!--=ID-->` and `<!--/-->`. So no figure is typed by hand. `campaigns` does the same with the
//! records of campaigns of crashes and fuzzing, `suites` with the results of long suites.

mod campaigns;
mod figures;
mod page;
mod picture;
mod recorder;
mod suites;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::report::size_text;

use figures::Figures;
pub use page::{Report, report};
pub(crate) use recorder::source;
pub use recorder::{Plan, record};
pub use suites::{Suite, suites};

/// The file that defines the figures, relative to the root of the source tree.
const FIGURES: &str = "docs/benchmarks/figures.toml";
/// The folder of records.
const RECORDS: &str = "docs/benchmarks/records";

/// Why figures could not be recorded or written into documents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}")]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        reason: String,
    },
    /// The record that exists is of another version or machine.
    #[error(
        "{path} holds figures of {found}, and this is {here}: give another --machine, or remove the file to record again"
    )]
    OtherRecord {
        /// The file.
        path: PathBuf,
        /// Machine and commit in it.
        found: String,
        /// Machine and commit here.
        here: String,
    },
    /// Some commands did not succeed; the others are recorded.
    #[error("{} failed: {}. The others are recorded; run the same command again for these", plural(.0), .0.join("; "))]
    Failed(Vec<String>),
}

fn plural(commands: &[String]) -> String {
    if commands.len() == 1 { "1 command".into() } else { format!("{} commands", commands.len()) }
}

impl RecordsError {
    fn malformed(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), reason: reason.to_string() }
    }
}

fn read(path: &Path) -> Result<String, RecordsError> {
    fs::read_to_string(path).map_err(|error| RecordsError::File { path: path.to_owned(), error })
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Short name of the machine, such as `Zen 4`.
    pub label: String,
    /// Processor, caches, memory, kernel, pages.
    pub machine: String,
    /// Version of fibula.
    pub version: String,
    /// Commit that was measured.
    pub commit: String,
    /// Date of the measurement.
    pub date: String,
}

/// One row of a bench in a record: the JSON of [`crate::report::Row`] and the command that printed it.
#[derive(Clone, Debug, Deserialize)]
pub struct Measurement {
    /// The command line.
    pub command: String,
    /// Which bench.
    pub bench: String,
    /// What was measured.
    #[serde(default)]
    pub contestant: String,
    /// Names in the table.
    #[serde(default)]
    pub n: u64,
    #[serde(default)]
    value_bits: u8,
    #[serde(default)]
    names: String,
    #[serde(default)]
    threads: u32,
    #[serde(default)]
    batch: u32,
    #[serde(default = "one")]
    in_flight: u32,
    #[serde(default = "one")]
    processes: u32,
    #[serde(default)]
    unit: String,
    /// Absent in a text.
    median: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    /// Round by round.
    #[serde(default)]
    samples: Vec<f64>,
    bits_per_name: Option<f64>,
    ns_per_name: Option<f64>,
    #[serde(default)]
    note: String,
    /// The output of a program, for benches whose result is not a row.
    #[serde(default)]
    text: String,
}

/// The version that the newest campaign ran; none if there was no campaign.
/// # Errors
/// When a record of campaigns cannot be read.
pub fn newest_campaign(root: &Path) -> Result<Option<String>, RecordsError> {
    Ok(campaigns::Campaigns::read(root)?.newest().map(str::to_owned))
}

fn one() -> u32 {
    1
}

/// All measurements on one machine.
#[derive(Clone, Debug)]
pub struct Record {
    /// Name of the file, without its extension.
    pub id: String,
    /// What was measured, and when.
    pub header: Header,
    /// The rows, in the order of the commands.
    pub rows: Vec<Measurement>,
}

impl Record {
    /// Reads one record.
    /// # Errors
    /// When the file cannot be read, or a line of it is not a header or row.
    pub fn read(path: &Path) -> Result<Self, RecordsError> {
        let text = read(path)?;
        let mut lines = text.lines();
        let wrong = |line: usize, error| RecordsError::malformed(path, format!("line {line}: {error}"));
        let header = serde_json::from_str(lines.next().unwrap_or("")).map_err(|error| wrong(1, error))?;
        let row = |(at, line)| serde_json::from_str(line).map_err(|error| wrong(at + 2, error));
        let rows = lines.enumerate().map(row).collect::<Result<_, _>>()?;
        let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { id, header, rows })
    }

    /// Reads all records of a source tree, in the order of their names.
    /// # Errors
    /// As [`Self::read`].
    pub fn read_all(root: &Path) -> Result<Vec<Self>, RecordsError> {
        let folder = root.join(RECORDS);
        let error = |error| RecordsError::File { path: folder.clone(), error };
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&folder).map_err(error)? {
            paths.push(entry.map_err(error)?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The first row that matches.
    fn find(&self, wanted: &Selector) -> Option<&Measurement> {
        self.rows.iter().find(|row| wanted.fits(row))
    }
}

/// Selects rows of a record: those that match all given fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Selector {
    bench: Option<String>,
    contestant: Option<String>,
    /// In its written form: 64K, 4M.
    n: Option<String>,
    value_bits: Option<u8>,
    names: Option<String>,
    threads: Option<u32>,
    batch: Option<u32>,
    /// One if not given.
    in_flight: Option<u32>,
    /// Part of the command line.
    command: Option<String>,
    /// Part of the note.
    note: Option<String>,
}

impl Selector {
    /// The fields of both; those of `inner` where they differ.
    fn and(&self, inner: &Self) -> Self {
        let text = |outer: &Option<String>, inner: &Option<String>| inner.clone().or_else(|| outer.clone());
        Self {
            bench: text(&self.bench, &inner.bench),
            contestant: text(&self.contestant, &inner.contestant),
            n: text(&self.n, &inner.n),
            value_bits: inner.value_bits.or(self.value_bits),
            names: text(&self.names, &inner.names),
            threads: inner.threads.or(self.threads),
            batch: inner.batch.or(self.batch),
            in_flight: inner.in_flight.or(self.in_flight),
            command: text(&self.command, &inner.command),
            note: text(&self.note, &inner.note),
        }
    }

    fn fits(&self, row: &Measurement) -> bool {
        let is = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| wanted == got);
        let has = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| got.contains(wanted));
        is(&self.bench, &row.bench)
            && is(&self.contestant, &row.contestant)
            && is(&self.n, &size_text(row.n))
            && self.value_bits.is_none_or(|bits| bits == row.value_bits)
            && is(&self.names, &row.names)
            && self.threads.is_none_or(|threads| threads == row.threads)
            && self.batch.is_none_or(|batch| batch == row.batch)
            && self.in_flight.unwrap_or(1) == row.in_flight
            && has(&self.command, &row.command)
            && has(&self.note, &row.note)
    }
}
