//! Results of figures on disk: `<out>/<paper>/<figure>.csv` with the points, `<figure>.json` with where and how they
//! were measured. After each step both are replaced completely, the points first, so that an interrupted run loses only
//! its current step.
//!
//! Records, which are kept in the repository, are one file a paper: `<records>/<paper>.txt` has the JSON of each figure on a
//! line, and its points below.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Point, X};
use crate::machine::Machine;

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All figures in some 15 minutes on two processors.
    Quick,
    /// All figures in a night.
    Full,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Quick { "quick" } else { "full" })
    }
}

/// Where and how the points of a figure were measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// `concise/figure-3`.
    pub figure: String,
    /// The method that measured.
    pub method: String,
    /// Quick or full.
    pub mode: Mode,
    /// Seed of names, orders and keys.
    pub seed: u64,
    /// Version of fibula.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// Of results from before steps said what measured them: the commit that keeps them, and its day. The code that measured
    /// is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Source>,
    /// Steps that are finished.
    pub steps: Vec<StepRecord>,
    /// Whether these are all.
    pub complete: bool,
}

/// A finished step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRecord {
    /// Digest of method, parameters, series and seed: a step is run again when one of them changes.
    pub digest: String,
    /// The swept parameter, in readable form.
    pub label: String,
    /// How long it took.
    pub seconds: f64,
    /// What measured it, and when; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Series without a point, and why.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// Where the measurement differs from the parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The figure for which it was measured, if that is another with the same step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_for: Option<String>,
}

/// A commit and a day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The commit; marked if the code had changes.
    pub commit: String,
    /// The day, as 2026-11-27.
    pub date: String,
}

/// A series that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its name.
    pub series: String,
    /// Why.
    pub reason: String,
}

/// Record and points of a figure, each point with the digest of its step.
#[derive(Clone, Debug)]
pub struct Stored {
    /// How they were measured.
    pub record: Record,
    /// In step order.
    pub points: Vec<(String, Point)>,
}

impl Stored {
    /// The points without their steps.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().map(|(_, point)| point)
    }

    /// Series without a point at some step, each once.
    pub fn missing(&self) -> Vec<&Missing> {
        let mut missing: Vec<&Missing> = Vec::new();
        for lack in self.record.steps.iter().flat_map(|step| &step.missing) {
            if !missing.contains(&lack) {
                missing.push(lack);
            }
        }
        missing
    }

    /// What differs from the parameters, and with which figures steps are shared; each once.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for step in &self.record.steps {
            let shared = step.measured_for.iter().map(|figure| format!("Measured once, for {figure}."));
            for note in step.notes.iter().cloned().chain(shared) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }

    /// The finished step with this digest and its points, if there are any.
    pub fn step(&self, digest: &str) -> Option<(&StepRecord, Vec<(String, Point)>)> {
        let step = self.record.steps.iter().find(|step| step.digest == digest)?;
        let points: Vec<_> = self.points.iter().filter(|(of, _)| of == digest).cloned().collect();
        // Where nothing could be measured, what was missing may be there now.
        (!points.is_empty()).then_some((step, points))
    }

    /// Each reason why series have no point, behind the names of these series.
    pub fn lacks(&self) -> Vec<(String, &str)> {
        let mut lacks: Vec<(String, &str)> = Vec::new();
        for Missing { series, reason } in self.missing() {
            match lacks.iter_mut().find(|lack| lack.1 == reason) {
                Some((all, _)) => *all = format!("{all}, {series}"),
                None => lacks.push((series.clone(), reason)),
            }
        }
        lacks
    }
}

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    form: Form,
}

/// How results lie in files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Two files a figure.
    Figures,
    /// One file a paper.
    Papers,
}

#[derive(Serialize, Deserialize)]
struct Line {
    step: String,
    series: String,
    x: String,
    y: f64,
    min: f64,
    max: f64,
}

impl Store {
    /// The results below `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), form: Form::Figures }
    }

    /// The records below `root`, which need not exist.
    pub fn of_records(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), form: Form::Papers }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file of a figure with this extension.
    pub fn path(&self, paper: &str, figure: &str, extension: &str) -> PathBuf {
        self.root.join(paper).join(format!("{figure}.{extension}"))
    }

    /// The stored results of a figure; `None` if it was never run.
    /// # Errors
    /// [`StoreError`] for files that are not in the form that [`Store::save`] writes.
    pub fn load(&self, paper: &str, figure: &str) -> Result<Option<Stored>, StoreError> {
        if self.form == Form::Papers {
            let (path, wanted) = (self.paper(paper), format!("{paper}/{figure}"));
            for (record, points) in blocks(&read(&path)?.unwrap_or_default()) {
                let record = parse_record(&path, record)?;
                if record.figure == wanted {
                    return Ok(Some(Stored { record, points: parse_points(&path, points)? }));
                }
            }
            return Ok(None);
        }
        let (json, csv) = (self.path(paper, figure, "json"), self.path(paper, figure, "csv"));
        let Some(text) = read(&json)? else { return Ok(None) };
        let record = parse_record(&json, &text)?;
        let points = read(&csv)?.ok_or_else(|| StoreError { path: csv.clone(), reason: "it is missing".to_owned() })?;
        Ok(Some(Stored { record, points: parse_points(&csv, &points)? }))
    }

    /// The file of a paper's records.
    fn paper(&self, paper: &str) -> PathBuf {
        self.root.join(format!("{paper}.txt"))
    }

    /// The complete results of all figures, not of records. What cannot be read, or is being written, is left out.
    pub fn complete(&self) -> Vec<Stored> {
        let entries = |folder: &Path| -> Vec<PathBuf> {
            let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
            paths.sort();
            paths
        };
        let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut all = Vec::new();
        for paper in entries(&self.root) {
            for path in entries(&paper).iter().filter(|path| path.extension().is_some_and(|ext| ext == "json")) {
                all.extend(self.load(&name(&paper), &name(path)).ok().flatten());
            }
        }
        all.retain(|stored| stored.record.complete);
        all
    }

    /// Replaces the stored results of a figure.
    /// # Errors
    /// [`StoreError`] when the files cannot be written.
    pub fn save(&self, paper: &str, figure: &str, stored: &Stored) -> Result<(), StoreError> {
        const PLAIN: &str = "a record is plain numbers and text";
        if self.form == Form::Papers {
            let path = self.paper(paper);
            let before = read(&path)?.unwrap_or_default();
            let mut all = BTreeMap::new();
            for (record, points) in blocks(&before) {
                all.insert(parse_record(&path, record)?.figure, format!("{record}\n{points}"));
            }
            let (record, points) =
                (serde_json::to_string(&stored.record).expect(PLAIN), to_csv(&path, &stored.points)?);
            all.insert(stored.record.figure.clone(), format!("{record}\n{points}"));
            return replace(&path, all.into_values().collect::<String>().as_bytes());
        }
        let path = self.path(paper, figure, "csv");
        replace(&path, to_csv(&path, &stored.points)?.as_bytes())?;
        let json = serde_json::to_string_pretty(&stored.record).expect(PLAIN);
        replace(&self.path(paper, figure, "json"), (json + "\n").as_bytes())
    }
}

/// The record and the points of each figure in the file of a paper. A record is a line of JSON; points begin with a digest.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (record, after) = rest.split_once('\n')?;
        let end = after.find("\n{").map_or(after.len(), |at| at + 1);
        let points;
        (points, rest) = after.split_at(end);
        Some((record, points))
    })
}

/// What a file holds; none if it does not exist.
fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError { path: path.to_owned(), reason: error.to_string() }),
    }
}

fn parse_record(path: &Path, json: &str) -> Result<Record, StoreError> {
    serde_json::from_str(json).map_err(|error| StoreError { path: path.to_owned(), reason: error.to_string() })
}

fn parse_points(path: &Path, csv: &str) -> Result<Vec<(String, Point)>, StoreError> {
    let wrong = |error: csv::Error| StoreError { path: path.to_owned(), reason: error.to_string() };
    let mut points = Vec::new();
    for line in csv::Reader::from_reader(csv.as_bytes()).deserialize() {
        let Line { step, series, x, y, min, max } = line.map_err(wrong)?;
        let x = (!x.is_empty()).then(|| X::parse(&x));
        points.push((step, Point { series, x, y, min, max }));
    }
    Ok(points)
}

fn to_csv(path: &Path, points: &[(String, Point)]) -> Result<String, StoreError> {
    let wrong = |error: csv::Error| StoreError { path: path.to_owned(), reason: error.to_string() };
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(["step", "series", "x", "y", "min", "max"]).map_err(wrong)?;
    for (step, Point { series, x, y, min, max }) in points {
        let x = x.as_ref().map_or(String::new(), X::to_string);
        let line = Line { step: step.clone(), series: series.clone(), x, y: *y, min: *min, max: *max };
        writer.serialize(line).map_err(wrong)?;
    }
    let bytes = writer.into_inner().map_err(|error| wrong(error.into_error().into()))?;
    Ok(String::from_utf8(bytes).expect("names of series and numbers are text"))
}

/// Writes a file such that either the old or the new one exists, and creates its folder.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError { path: path.to_owned(), reason: error.to_string() };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).map_err(failed)
}
