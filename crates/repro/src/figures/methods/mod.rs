//! The methods by which figures are measured.
//!
//! A method takes one [`Setting`] and returns points; everything else, such as sweeps, files and plots, is done around
//! it. To add one: a file with `pub(super) const METHODS: &[Method]`, a `mod` line, a line in `FAMILIES`.

mod aliens;
mod build;
mod click;
mod delay;
mod export;
mod fib_table;
mod filter;
mod filter_rate;
mod flow;
mod flow_lines;
mod flow_model;
mod forward;
mod graph;
mod hashes;
mod keys;
mod lookup;
mod lpm;
mod message;
mod model;
mod name_length;
mod network;
mod southbound;
mod two_nodes;
mod update;

use serde::de::DeserializeOwned;
use toml::Table;

use super::{Point, Series};
use crate::BenchError;
use crate::bench::Listener;
use crate::report::Row;

/// A way to measure or compute points.
#[derive(Debug)]
pub struct Method {
    /// The name in `figures.toml`.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Whether `run` accepts the parameters and series. Cheap.
    pub check: fn(&Setting) -> Result<(), BenchError>,
    /// Measures.
    pub run: fn(&Setting, &mut dyn Progress) -> Result<Vec<Point>, BenchError>,
    /// Parameters, as TOML, that make any setting so small that it runs very fast: tests run every figure with them.
    pub toy: &'static str,
}

const FAMILIES: &[&[Method]] = &[
    aliens::METHODS,
    build::METHODS,
    click::METHODS,
    delay::METHODS,
    export::METHODS,
    fib_table::METHODS,
    filter::METHODS,
    filter_rate::METHODS,
    flow::METHODS,
    forward::METHODS,
    graph::METHODS,
    hashes::METHODS,
    keys::METHODS,
    lookup::METHODS,
    lpm::METHODS,
    message::METHODS,
    model::METHODS,
    name_length::METHODS,
    network::METHODS,
    southbound::METHODS,
    two_nodes::METHODS,
    update::METHODS,
];

/// All methods.
pub fn all() -> impl Iterator<Item = &'static Method> {
    FAMILIES.iter().copied().flatten()
}

/// The method of this name.
pub fn find(name: &str) -> Option<&'static Method> {
    all().find(|method| method.name == name)
}

/// The input of a method: the parameters of figure, mode and series, with one value of the swept one.
#[derive(Clone, Debug)]
pub struct Setting {
    /// By name; see [`Setting::parameters`].
    pub parameters: Table,
    /// The series to measure side by side.
    pub series: Vec<Series>,
    /// Seed of names, orders and keys.
    pub seed: u64,
}

impl Setting {
    /// The parameters as the method's own type, which should refuse unknown ones.
    /// # Errors
    /// [`BenchError::Setting`], which names the parameter.
    pub fn parameters<P: DeserializeOwned>(&self) -> Result<P, BenchError> {
        P::deserialize(self.parameters.clone()).map_err(|error| {
            // One line: the full error shows a position, which is not in any file.
            let text = error.to_string();
            BenchError::Setting(text.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    }

    /// The method's names for its series, in order.
    pub fn contestants(&self) -> Vec<String> {
        self.series.iter().map(|series| series.contestant().to_owned()).collect()
    }

    /// The points of a bench's rows: each under the name of its series, with `y` applied to the row's samples.
    pub(crate) fn points(&self, rows: &[Row], y: impl Fn(f64) -> f64) -> Vec<Point> {
        let of_row = |row: &Row| {
            let (a, b) = (y(row.min), y(row.max));
            Some(Point {
                series: self.series.iter().find(|series| series.contestant() == row.contestant)?.name.clone(),
                x: None,
                y: y(row.median),
                min: a.min(b),
                max: a.max(b),
            })
        };
        rows.iter().filter_map(of_row).collect()
    }
}

/// Receives what a method reports while it runs.
pub trait Progress {
    /// Reports progress.
    fn say(&mut self, text: &str);
    /// A series cannot take part here; `reason` says why, and what to do about it.
    fn lacks(&mut self, series: &str, reason: &str);
    /// The measurement differs from the parameters: a sentence for the record.
    fn differs(&mut self, text: &str) {
        self.say(text);
    }
}

/// Collects the rows of a bench. Contestants that are not available or cannot be built are left out.
pub(crate) struct Rows<'a> {
    /// The rows so far.
    pub(crate) rows: Vec<Row>,
    setting: &'a Setting,
    progress: &'a mut dyn Progress,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(setting: &'a Setting, progress: &'a mut dyn Progress) -> Self {
        Self { rows: Vec::new(), setting, progress }
    }
}

impl Listener for Rows<'_> {
    fn table(&mut self, rows: &[Row]) {
        self.rows.extend_from_slice(rows);
    }

    fn say(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn goes_without(&mut self, contestant: &str, error: &BenchError) -> bool {
        for series in self.setting.series.iter().filter(|series| series.contestant() == contestant) {
            self.progress.lacks(&series.name, &error.to_string());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ignores the progress of a run.
    pub(super) struct Silent;

    impl Progress for Silent {
        fn say(&mut self, _: &str) {}

        fn lacks(&mut self, _: &str, _: &str) {}
    }

    /// A setting with these parameters and with series named after their contestants.
    pub(super) fn setting(contestants: &[&str], parameters: &str, seed: u64) -> Setting {
        let series = |name: &&str| Series {
            name: (*name).to_owned(),
            contestant: String::new(),
            peer: false,
            ours: false,
            parameters: Table::new(),
        };
        let parameters = parameters.parse().expect("TOML");
        Setting { parameters, series: contestants.iter().map(series).collect(), seed }
    }
}
