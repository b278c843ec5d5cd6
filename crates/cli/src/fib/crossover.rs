//! The number of names from which a line table is faster than concise, measured on this processor.
//!
//! Concise reads two cache lines per name, and line one, with more work. Which is faster depends on where in the memory
//! hierarchy a table is: `docs/decisions/0010-default-design.md`.

use std::fmt;
use std::ops::RangeInclusive;

use command::output::{Exit, Failure, aligned};
use fib::model::designs::{Demand, Figures, all};
use serde::Serialize;

use super::measure::inside;

/// Names of the smallest table.
const LEAST: u64 = 64 << 10;
/// Names of the largest table, unless the user gives a number.
const MOST: RangeInclusive<u64> = 4 << 20..=16 << 20;
/// The ratio of two sizes.
const STEP: u64 = 4;
/// The designs compared.
const DESIGNS: [&str; 2] = ["concise", "line"];

/// Rates of both designs by the number of names.
#[derive(Serialize)]
pub(super) struct Crossover {
    rates: Vec<Rates>,
    /// The smallest measured number of names at which line was faster; null if concise was faster at the largest.
    line_is_faster_from: Option<u64>,
    /// Memory of line, as a share of that of concise.
    line_memory_of_concise: f64,
}

/// Million lookups per second.
#[derive(Serialize)]
struct Rates {
    n_names: u64,
    concise: f64,
    line: f64,
}

impl Crossover {
    /// Builds and measures both designs with 64K names, 256K and so on, up to `most`.
    /// # Errors
    /// Exit code 2 when the kind has fewer names, 5 when a design cannot be built.
    pub(super) fn measure(demand: &Demand, most: Option<u64>, seed: u64) -> anyhow::Result<Crossover> {
        let rows: Vec<Figures> =
            DESIGNS.iter().filter_map(|design| all(demand).into_iter().find(|row| row.design == *design)).collect();
        if rows.len() < DESIGNS.len() {
            let text = "line tables and concise cannot both hold this demand: leave out --measure";
            return Err(Failure::new(Exit::Refused, text.to_owned()));
        }
        let most = most.unwrap_or(demand.n_names.clamp(*MOST.start(), *MOST.end()));
        let sizes = std::iter::successors(Some(LEAST.min(most)), |n| Some(n * STEP)).take_while(|n| *n <= most);
        let mut rates = Vec::new();
        for n_names in sizes {
            let measured = inside(&Demand { n_names, ..*demand }, &rows, n_names, seed)?;
            rates.push(Rates { n_names, concise: measured[0], line: measured[1] });
        }
        let slower = rates.iter().rposition(|rates| rates.line <= rates.concise);
        let line_is_faster_from = rates.get(slower.map_or(0, |at| at + 1)).map(|rates| rates.n_names);
        let line_memory_of_concise = rows[1].built_bits / rows[0].built_bits;
        Ok(Crossover { rates, line_is_faster_from, line_memory_of_concise })
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["names", "concise M/s", "line M/s", "line of concise"].map(str::to_owned);
        let row = |rates: &Rates| {
            let ratio = rates.line / rates.concise;
            vec![
                rates.n_names.to_string(),
                format!("{:.0}", rates.concise),
                format!("{:.0}", rates.line),
                format!("{ratio:.2}"),
            ]
        };
        let rows: Vec<_> = self.rates.iter().map(row).collect();
        writeln!(f, "  measured on this processor, two bursts in flight, one thread:\n")?;
        for line in aligned(&header, &rows, &[true; 4]).lines() {
            writeln!(f, "    {line}")?;
        }
        let most = self.rates.last().map_or(0, |rates| rates.n_names);
        match self.line_is_faster_from {
            Some(n) => writeln!(f, "\n  From {n} names on, line is the faster of the two."),
            None => writeln!(f, "\n  Up to {most} names, concise is the faster of the two."),
        }?;
        writeln!(f, "  line needs {:.2} of the memory of concise.", self.line_memory_of_concise)
    }
}
