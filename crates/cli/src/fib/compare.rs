//! `fibula fib compare`: the cost of every design for one demand.

use clap::Args;
use command::output::{Exit, Failure, Output, aligned, write_out};
use command::parse_size;
use fib::model::designs::{Demand, Figures, Updates, all};
use serde::Serialize;

use super::demand::{DemandArgs, sentence};
use super::measure::{Measured, measure};

/// The demand to compare for.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    demand: DemandArgs,
    /// Also build the designs, and measure size, aliens that pass and lookups per second
    #[arg(long)]
    measure: bool,
    /// Number of names to measure with [default: as many as -n, at most a million]
    #[arg(long, value_parser = parse_size, requires = "measure")]
    measure_n: Option<u64>,
    /// Seed of the names to measure with
    #[arg(long, default_value_t = 1, requires = "measure")]
    seed: u64,
}

/// Default maximum number of names to measure with.
const MEASURE_N: u64 = 1 << 20;

/// The computed figures of a design.
#[derive(Serialize)]
pub(super) struct Row {
    design: &'static str,
    parameters: String,
    memory_bytes: u64,
    bits_per_name: f64,
    papers_bits_per_name: f64,
    reads: f64,
    reads_alien: f64,
    hash_calls: f64,
    hash_calls_alien: f64,
    false_positive_rate: f64,
    collision_rate: Option<f64>,
    changes: &'static str,
    meets_demand: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

impl Row {
    pub(super) fn new(figures: &Figures, demand: &Demand) -> Row {
        Row {
            design: figures.design,
            parameters: figures.parameters.clone(),
            memory_bytes: (figures.built_bits / 8.0).ceil() as u64,
            bits_per_name: figures.built_bits / demand.n_names as f64,
            papers_bits_per_name: figures.bits / demand.n_names as f64,
            reads: figures.lines,
            reads_alien: figures.lines_alien,
            hash_calls: figures.hashes,
            hash_calls_alien: figures.hashes_alien,
            false_positive_rate: figures.fp,
            collision_rate: figures.cr,
            changes: changes(figures.updates),
            meets_demand: figures.meets(demand),
            measured: None,
        }
    }

    pub(super) fn design(&self) -> &'static str {
        self.design
    }

    pub(super) fn parameters(&self) -> &str {
        &self.parameters
    }
}

fn changes(updates: Updates) -> &'static str {
    match updates {
        Updates::Cells => "cells",
        Updates::Rebuild => "rebuild",
    }
}

const LEGEND: &str = "\
size: memory of the data plane, exact tables included, in units of 1000; paper: bits a name by the papers' equations,
before cells and slots are rounded to words. Cache lines read and hash calls of a lookup: for a valid name | an alien.
FP: share of aliens that get an action, in brackets where that is too many. CR: share of valid names that filters get
wrong; an exact table has them. change: cells where a change of one name writes a few, rebuild where it makes all anew.
";

impl CompareArgs {
    /// Prints the table.
    /// # Errors
    /// Exit code 2 for an impossible demand, 5 for a design that cannot be built, 6 for a wrong answer.
    pub(crate) fn run(self, out: &Output) -> anyhow::Result<()> {
        let demand = self.demand.demand()?;
        let figures = all(&demand);
        let n_measured = self.measure_n.unwrap_or(demand.n_names.min(MEASURE_N));
        let measured = if self.measure { measure(&demand, &figures, n_measured, self.seed)? } else { Vec::new() };
        let wrong = figures.iter().zip(&measured).find(|(_, measured)| measured.wrong_answers > 0);
        let failed = wrong.map(|(figures, measured)| {
            let (n_wrong, design) = (measured.wrong_answers, figures.design);
            let text = format!("{design} answers {n_wrong} of {n_measured} valid names wrongly: please report it");
            Failure::new(Exit::CheckFailed, text)
        });
        if out.is_json() {
            let mut rows: Vec<Row> = figures.iter().map(|figures| Row::new(figures, &demand)).collect();
            rows.iter_mut().zip(measured).for_each(|(row, measured)| row.measured = Some(measured));
            out.rows(&rows)?;
            return failed.map_or(Ok(()), Err);
        }
        let mut text = format!("{}\n\n{}\n{LEGEND}", sentence(&demand), table(&figures, &demand));
        if self.measure {
            // For the measured number of names: constant costs weigh more when it is small.
            let measured_demand = Demand { n_names: n_measured, ..demand };
            let table = measured_table(&all(&measured_demand), &measured, &measured_demand);
            text += &format!("\nmeasured with {n_measured} names\n\n{table}\n{MEASURED_LEGEND}");
        }
        write_out(&text)?;
        failed.map_or(Ok(()), Err)
    }
}

const MEASURED_LEGEND: &str = "\
Bits a name and FP: as computed, and of the table that was built; bits more than 10 % off are marked *. l_f: bits of a
fingerprint, of a filter minus the logarithm of its rate. wrong: valid names with a wrong answer. M/s: million lookups a
second on one thread, hashing included, medians of rounds in which all take turns.
";

fn columns(header: &str) -> Vec<String> {
    header.split('|').map(str::to_owned).collect()
}

fn measured_table(figures: &[Figures], measured: &[Measured], demand: &Demand) -> String {
    let header = columns("design|l_f|b/name|built||FP|measured|wrong|of asked|M/s|build s");
    let cells = figures.iter().zip(measured).map(|(figures, measured)| {
        let bits = figures.built_bits / demand.n_names as f64;
        let off = (measured.bits_per_name / bits - 1.0).abs();
        vec![
            figures.design.to_owned(),
            if measured.fingerprint_bits == 0 { "-".to_owned() } else { measured.fingerprint_bits.to_string() },
            format!("{bits:.1}"),
            format!("{:.1}", measured.bits_per_name),
            if off > 0.1 { "*".to_owned() } else { String::new() },
            rate(figures.fp),
            rate(measured.false_positive_rate),
            measured.wrong_answers.to_string(),
            measured.names_asked.to_string(),
            format!("{:.1}", measured.lookups_m_per_s),
            format!("{:.1}", measured.build_s),
        ]
    });
    let to_the_right: Vec<bool> = (0..header.len()).map(|column| column > 0).collect();
    aligned(&header, &cells.collect::<Vec<_>>(), &to_the_right)
}

fn table(figures: &[Figures], demand: &Demand) -> String {
    let header = columns("design|with|size|b/name|paper|lines|alien|calls|alien|FP|CR|change");
    let cells: Vec<Vec<String>> = figures
        .iter()
        .map(|row| {
            let fp = rate(row.fp);
            vec![
                row.design.to_owned(),
                row.parameters.clone(),
                size(row.built_bits),
                format!("{:.1}", row.built_bits / demand.n_names as f64),
                format!("{:.1}", row.bits / demand.n_names as f64),
                count(row.lines),
                count(row.lines_alien),
                count(row.hashes),
                count(row.hashes_alien),
                if row.meets(demand) { fp } else { format!("({fp})") },
                row.cr.map_or_else(|| "-".to_owned(), rate),
                changes(row.updates).to_owned(),
            ]
        })
        .collect();
    let to_the_right: Vec<bool> = (0..header.len()).map(|column| (2..header.len() - 1).contains(&column)).collect();
    aligned(&header, &cells, &to_the_right)
}

/// A size in bytes with three digits, in units of 1000.
pub(super) fn size(bits: f64) -> String {
    let bytes = (bits / 8.0).ceil();
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    // From 999.5 of a unit on, the number would be printed as 1000.
    let step = (1..units.len()).take_while(|step| bytes >= 999.5 * 1000f64.powi(*step as i32 - 1)).count();
    let number = bytes / 1000f64.powi(step as i32);
    let digits = match number {
        _ if step == 0 => 0,
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {}", units[step])
}

/// A count to a tenth, unless that is noise.
fn count(x: f64) -> String {
    if x < 99.95 { format!("{x:.1}") } else { format!("{x:.0}") }
}

/// A probability with two digits.
fn rate(rate: f64) -> String {
    match rate {
        0.0 | 1.0 => format!("{rate:.0}"),
        rate if rate >= 0.0995 => format!("{rate:.2}"),
        rate if rate >= 0.00995 => format!("{rate:.3}"),
        rate => format!("{rate:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::name::NameKind;

    #[test]
    fn tables_fit_a_terminal() {
        for (n, n_actions) in [(1000, 1), (10_000_000, 32), (1 << 32, 65_535)] {
            for kind in [NameKind::Mac, NameKind::FiveTuple, NameKind::Text] {
                let demand = Demand::new(kind, n, n_actions, 1e-6);
                let table = table(&all(&demand), &demand);
                let widest = table.lines().map(str::len).max().unwrap();
                assert!(widest < 120, "{widest} columns:\n{table}");
            }
        }
        assert!(LEGEND.lines().all(|line| line.len() < 120));
    }

    #[test]
    fn numbers_have_three_digits() {
        let sizes = [8.0, 999.0 * 8.0, 8e3, 8e5, 9.996 * 8e6, 123.4 * 8e6, 999.7 * 8e6].map(size);
        assert_eq!(sizes, ["1 B", "999 B", "1.00 KB", "100 KB", "10.0 MB", "123 MB", "1.00 GB"]);
        assert_eq!([0.0, 1.0, 0.334, 0.0104, 7.4e-3].map(rate), ["0", "1", "0.33", "0.010", "7.4e-3"]);
    }
}
