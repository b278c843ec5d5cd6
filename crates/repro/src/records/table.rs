//! Cells of a table from records, and the table as Markdown.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::figures::{Column, Line, Pick, Table};
use super::{Measurement, Record};
use crate::report::STEADY;
use crate::stats::Summary;

/// One figure of one record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'a> {
    pub(super) record: &'a Record,
    row: &'a Measurement,
    median: f64,
    /// Smallest and largest of the rounds, if known.
    range: Option<(f64, f64)>,
    /// Whether larger is better.
    pub(super) is_rate: bool,
}

impl<'a> Cell<'a> {
    /// The cell of `record` for a line and a column.
    pub(super) fn of(record: &'a Record, table: &Table, line: &Line, column: &Column) -> Option<Self> {
        let wanted = table.select.and(&line.select).and(&column.select);
        let is_rate = |row: &Measurement| row.unit.ends_with("/s");
        if let Some(over) = &column.over {
            let row = record.find(&wanted)?;
            let mut wanted = wanted;
            wanted.contestant = Some(over.clone());
            wanted.command = Some(row.command.clone());
            let other = record.find(&wanted)?;
            let cell = |median, range| Self { record, row, median, range, is_rate: is_rate(row) };
            // A disturbance of a whole round cancels out in the ratio of that round.
            if !row.samples.is_empty() && row.samples.len() == other.samples.len() {
                let ratios: Vec<f64> = row.samples.iter().zip(&other.samples).map(|(a, b)| a / b).collect();
                let Summary { median, min, max } = Summary::of(&ratios);
                return Some(cell(median, Some((min, max))));
            }
            return Some(cell(row.median? / other.median?, None));
        }
        let row = record.find(&wanted)?;
        let scaled = |x: f64| x * table.scale;
        let size = |size: Option<f64>| size.map(|median| Self { record, row, median, range: None, is_rate: false });
        match column.pick {
            Pick::BitsPerName => size(row.bits_per_name),
            Pick::NsPerName => size(row.ns_per_name),
            Pick::Megabytes => size(row.bits_per_name.map(|bits| bits * row.n as f64 / 8e6)),
            Pick::Median => {
                let range = row.min.zip(row.max).map(|(min, max)| (scaled(min), scaled(max)));
                row.median.map(|median| Self { record, row, median: scaled(median), range, is_rate: is_rate(row) })
            }
        }
    }

    /// The median.
    pub(super) fn value(&self) -> f64 {
        self.median
    }

    /// Orders the cell with the worse value first.
    pub(super) fn worse_first(&self, other: &Self) -> Ordering {
        let order = self.value().total_cmp(&other.value());
        if self.is_rate { order } else { order.reverse() }
    }

    /// The median with its range below it, which is marked if processes differ too much.
    fn text(&self) -> String {
        let is_unsteady = |low: f64, high: f64| self.row.processes > 1 && high > STEADY * low;
        let mark = |low, high| if is_unsteady(low, high) { "&nbsp;‡" } else { "" };
        let range = self.range.map(|(low, high)| format!("{}–{}{}", digits(low), digits(high), mark(low, high)));
        match range.filter(|_| self.row.samples.len() != 1) {
            Some(range) => format!("{}<br><sub>{range}</sub>", digits(self.median)),
            None => digits(self.median),
        }
    }
}

/// Three significant digits, more for integers; no trailing zeros after the point.
pub(super) fn digits(x: f64) -> String {
    let decimals = if x == 0.0 { 0 } else { (2 - x.abs().log10().floor() as i32).max(0) as usize };
    let text = format!("{x:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let (whole, rest) = text.split_once('.').map_or((text, String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && whole.len() > 3 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

/// The table as Markdown, with the commands below it.
pub(super) fn markdown(table: &Table, records: &[Record]) -> String {
    // Lines in order; for each line, the worst record first.
    let mut lines: Vec<(&Line, &Record, Vec<Option<Cell<'_>>>)> = Vec::new();
    for line in &table.rows {
        let cells =
            |record| table.columns.iter().map(|column| Cell::of(record, table, line, column)).collect::<Vec<_>>();
        let mut of_line: Vec<_> = records.iter().map(|record| (line, record, cells(record))).collect();
        of_line.retain(|(_, _, cells)| cells.iter().any(Option::is_some));
        of_line.sort_by(|(_, _, a), (_, _, b)| worse_first(a, b));
        lines.extend(of_line);
    }
    let used: Vec<usize> =
        (0..table.columns.len()).filter(|&at| lines.iter().any(|line| line.2[at].is_some())).collect();
    let mut text = format!("| {} | machine | version |", table.head);
    used.iter().for_each(|&at| _ = write!(text, " {} |", table.columns[at].head()));
    text.push_str("\n|---|---|---|");
    text.push_str(&"---:|".repeat(used.len()));
    text.push('\n');
    for (line, record, cells) in &lines {
        let header = &record.header;
        let _ = write!(text, "| {} | {} | {} |", line.head(), header.label.replace(' ', "&nbsp;"), header.commit);
        used.iter().for_each(|&at| _ = write!(text, " {} |", cells[at].map_or(String::new(), |cell| cell.text())));
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&commands(lines.iter().flat_map(|line| line.2.iter().flatten())));
    text
}

/// Compares by the first column that both have.
fn worse_first(a: &[Option<Cell<'_>>], b: &[Option<Cell<'_>>]) -> Ordering {
    let both = a.iter().zip(b).find_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
    both.map_or(Ordering::Equal, |(a, b)| a.worse_first(b))
}

/// Which commands printed these cells, on which machines, with how many runs.
fn commands<'a>(cells: impl Iterator<Item = &'a Cell<'a>>) -> String {
    let mut commands: Vec<(&str, Vec<String>)> = Vec::new();
    for cell in cells {
        let noun = if cell.row.processes > 1 { "process" } else { "run" };
        let plural = if cell.row.processes > 1 { "es" } else { "s" };
        let runs = match cell.row.samples.len() {
            0 => String::new(),
            runs => format!(", {runs} {noun}{}", if runs == 1 { "" } else { plural }),
        };
        let who = format!("{}{runs}", cell.record.header.label);
        let at = commands.iter().position(|(command, _)| *command == cell.row.command).unwrap_or_else(|| {
            commands.push((&cell.row.command, Vec::new()));
            commands.len() - 1
        });
        if !commands[at].1.contains(&who) {
            commands[at].1.push(who);
        }
    }
    let line = |(command, who): &(&str, Vec<String>)| format!("- `{command}` ({})\n", who.join("; "));
    commands.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_no_zeros_behind() {
        let texts = [251.0, 94.0, 19.3412, 1.3, 0.68, 0.0951, 2134.4, 190_012.0, 0.0].map(digits);
        assert_eq!(texts, ["251", "94", "19.3", "1.3", "0.68", "0.0951", "2,134", "190,012", "0"]);
    }
}
