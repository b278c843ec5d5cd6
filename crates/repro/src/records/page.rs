//! Writes figures into documents, between markers.
//!
//! `<!--=lookup/4M/concise-->31 to 94<!--/-->` is the cell of a table: the worst and the best record. A fourth part
//! selects one record: `/worst`, `/best`, or its name. `<!--=lookup-->` is a whole table, `<!--=machines-->` the list
//! of records, `<!--=demo-->` a text, `<!--=campaign/done-->` a table of what campaigns did, `<!--=suites-->` one of
//! the newest runs of long suites.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::campaigns::Campaigns;
use super::figures::Figures;
use super::suites::{Suite, suites};
use super::table::{Cell, digits, markdown};
use super::{Header, Record, RecordsError, picture, read};

const OPEN: &str = "<!--=";
const CLOSE: &str = "<!--/-->";

/// Result of a run of [`report`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files whose figures differ from the records; rewritten if that was asked for.
    pub stale: Vec<PathBuf>,
    /// Number of figures in documents.
    pub figures: usize,
}

/// Compares the figures in all documents with the records, and writes those that differ unless `is_check`.
/// # Errors
/// When a file cannot be read or written, or a marker names a figure that no record has.
pub fn report(root: &Path, is_check: bool) -> Result<Report, RecordsError> {
    let figures = Figures::read(root)?;
    let campaigns = Campaigns::read(root)?;
    let source = Source { figures: &figures, records: Record::read_all(root)?, campaigns, suites: suites(root)? };
    let mut report = Report::default();
    for document in &figures.documents {
        let path = root.join(document);
        let old = read(&path)?;
        let new = source.fill(&old).map_err(|reason| RecordsError::malformed(&path, reason))?;
        report.figures += old.matches(OPEN).count();
        report.settle(path, &new, is_check)?;
    }
    let template = root.join(&figures.picture.template);
    let picture =
        picture::draw(&source, &read(&template)?).map_err(|reason| RecordsError::malformed(&template, reason))?;
    report.settle(root.join(&figures.picture.output), &picture, is_check)?;
    Ok(report)
}

impl Report {
    fn settle(&mut self, path: PathBuf, new: &str, is_check: bool) -> Result<(), RecordsError> {
        if fs::read_to_string(&path).is_ok_and(|old| old == new) {
            return Ok(());
        }
        if !is_check {
            fs::write(&path, new).map_err(|error| RecordsError::File { path: path.clone(), error })?;
        }
        self.stale.push(path);
        Ok(())
    }
}

/// Where figures come from.
pub(super) struct Source<'a> {
    pub(super) figures: &'a Figures,
    pub(super) records: Vec<Record>,
    campaigns: Campaigns,
    suites: Vec<Suite>,
}

impl Source<'_> {
    /// `text` with the content of its markers filled in.
    fn fill(&self, text: &str) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (id, after) = after.split_once("-->").ok_or_else(|| format!("a marker {OPEN} without an end"))?;
            let (_, after) = after.split_once(CLOSE).ok_or_else(|| format!("{OPEN}{id}--> without {CLOSE}"))?;
            let _ = write!(out, "{before}{OPEN}{id}-->{}{CLOSE}", self.resolve(id)?);
            rest = after;
        }
        Ok(out + rest)
    }

    /// The text for an id.
    pub(super) fn resolve(&self, id: &str) -> Result<String, String> {
        let parts: Vec<&str> = id.split('/').collect();
        match parts[..] {
            ["machines"] => Ok(self.machines()),
            ["suites"] => Ok(super::suites::table(&self.suites)),
            ["campaign", what] => self.campaigns.resolve(what),
            [id] if self.figures.text.contains_key(id) => Ok(self.text(id)),
            [id] => match self.figures.table.get(id) {
                Some(table) => Ok(format!("\n{}", markdown(table, &self.records))),
                None => Err(format!("no table and no text {id:?} in figures.toml")),
            },
            [table, row, column] => self.range(id, &self.cells(table, row, column)?),
            [table, row, column, which] => {
                let cells = self.cells(table, row, column)?;
                let cell = match which {
                    "worst" => cells.first(),
                    "best" => cells.last(),
                    record => cells.iter().find(|cell| cell.record.id == record),
                };
                cell.map(|cell| digits(cell.value())).ok_or_else(|| format!("no record has {id}"))
            }
            _ => Err(format!("{id:?} is no figure: write table/row/column")),
        }
    }

    /// One cell from every record that has it, the worst first.
    pub(super) fn cells(&self, table: &str, row: &str, column: &str) -> Result<Vec<Cell<'_>>, String> {
        let wanted = self.figures.table.get(table).ok_or_else(|| format!("no table {table:?} in figures.toml"))?;
        let line = wanted.rows.iter().find(|line| line.id == row);
        let line = line.ok_or_else(|| format!("no row {row:?} in table {table}"))?;
        let found = wanted.columns.iter().find(|found| found.id == column);
        let found = found.ok_or_else(|| format!("no column {column:?} in table {table}"))?;
        let mut cells: Vec<_> =
            self.records.iter().filter_map(|record| Cell::of(record, wanted, line, found)).collect();
        cells.sort_by(Cell::worse_first);
        Ok(cells)
    }

    fn range(&self, id: &str, cells: &[Cell<'_>]) -> Result<String, String> {
        let (Some(worst), Some(best)) = (cells.first(), cells.last()) else {
            return Err(format!("no record has {id}"));
        };
        let (worst, best) = (digits(worst.value()), digits(best.value()));
        Ok(if worst == best { worst } else { format!("{worst} to {best}") })
    }

    fn machines(&self) -> String {
        let mut text = String::from("\n| record | machine | version | commit | date |\n|---|---|---|---|---|\n");
        for Record { id, header, .. } in &self.records {
            let _ = writeln!(
                text,
                "| [{}](benchmarks/records/{id}.jsonl) | {} | {} | {} | {} |",
                header.label, header.machine, header.version, header.commit, header.date
            );
        }
        text
    }

    fn text(&self, id: &str) -> String {
        let wanted = &self.figures.text[id];
        let with_text = |record: &'_ Record| record.rows.iter().any(|row| row.bench == wanted.bench);
        let mut records: Vec<&Record> = self.records.iter().filter(|record| with_text(record)).collect();
        if !wanted.all {
            records.sort_by(|a, b| a.header.date.cmp(&b.header.date));
            records = records.split_off(records.len().saturating_sub(1));
        }
        let mut text = String::new();
        for record in records {
            for row in record.rows.iter().filter(|row| row.bench == wanted.bench) {
                if wanted.all {
                    let Header { label, commit, .. } = &record.header;
                    let _ = write!(text, "\n{label}, version {commit}, `{}`:\n", row.command);
                }
                let is_quoted = |line: &&str| wanted.without.as_ref().is_none_or(|text| !line.contains(text));
                let lines: Vec<&str> = row.text.lines().filter(is_quoted).collect();
                let from = lines.len().saturating_sub(wanted.last.unwrap_or(usize::MAX));
                let _ = write!(text, "\n```text\n{}\n```\n", lines[from..].join("\n"));
            }
        }
        text
    }
}
