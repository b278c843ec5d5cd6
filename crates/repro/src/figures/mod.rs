//! Every table and figure of the papers, reproduced on this machine.
//!
//! `repro/<paper>/figures.toml` describes a paper's figures, `repro/<paper>/values.csv` holds the values that it
//! prints; both are part of the binary ([`catalogue`]). A figure names a [`methods::Method`] and its parameters. The
//! [`runner`] calls the method once for each value of the swept parameter and keeps every finished step in the
//! [`store`]. [`verdict`] compares the points with the paper's claims, [`plot`] draws them, and [`report`] writes the
//! results.

pub mod catalogue;
pub mod html;
pub mod methods;
pub mod plot;
pub mod readme;
pub mod report;
pub mod runner;
pub mod store;
pub mod verdict;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::Table;

/// A paper and all its tables and figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Name of its folder, and the first half of a figure's id.
    pub id: String,
    /// Title, and where it appeared.
    pub title: String,
    /// File with its text, in the folder of the papers' texts; only a test reads it.
    pub text: String,
    /// What the paper is, and what to know when comparing.
    pub about: String,
    /// Short names of machines, each of a [`Machine::kind`](crate::machine::Machine::kind); [`Claim::open_of`] has them.
    #[serde(default)]
    pub machines: BTreeMap<String, String>,
    /// Explanations that several claims share; [`Claim::because`] names them.
    #[serde(default, rename = "why")]
    pub whys: Vec<SharedWhy>,
    /// In paper order.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// The values that the paper prints.
    #[serde(skip)]
    pub values: Vec<PaperValue>,
}

impl Paper {
    /// The values that the paper prints for one figure.
    pub fn values_of<'a>(&'a self, figure: &'a Figure) -> impl Iterator<Item = &'a PaperValue> {
        self.values.iter().filter(|value| value.figure == figure.id)
    }
}

/// A table or figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// `figure-3`, `table-1`.
    pub id: String,
    /// Its place in the paper: `Figure 3`.
    pub place: String,
    /// A title of our own.
    pub title: String,
    /// What is measured, and with which setting.
    pub shows: String,
    /// Name of the method, or `none`.
    pub method: String,
    /// Why there is nothing to run; only with method `none`.
    #[serde(default)]
    pub why: String,
    /// How it is drawn.
    #[serde(default)]
    pub form: Form,
    /// Axis of the swept parameter.
    #[serde(default)]
    pub x: Axis,
    /// Axis of what is measured; its label is the unit of the points.
    #[serde(default)]
    pub y: Axis,
    /// Which end of `y` is better, if one is.
    #[serde(default)]
    pub better: Option<Better>,
    /// The parameter that is a list: the run has one step for each value, which is also x unless the method sets x.
    #[serde(default)]
    pub sweep: Option<String>,
    /// The curves, bars or columns.
    #[serde(default)]
    pub series: Vec<Series>,
    /// Whether its values are counted or computed, without a clock, so that those of any machine explain claims of others.
    #[serde(default)]
    pub counted: bool,
    /// Differences from the paper's setting; empty if there are none.
    #[serde(default)]
    pub difference: String,
    /// The missing hardware, if the figure cannot be run at all.
    #[serde(default)]
    pub hardware: String,
    /// Parameters of both modes.
    #[serde(default)]
    pub common: Table,
    /// Parameters of the quick run.
    #[serde(default)]
    pub quick: Table,
    /// Parameters of the full run.
    #[serde(default)]
    pub full: Table,
    /// The paper's claims about it.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

impl Figure {
    /// Whether there is something to run.
    pub fn is_runnable(&self) -> bool {
        self.method != "none" && self.hardware.is_empty()
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Curves with markers.
    Lines,
    /// Groups of bars, a group for each x.
    Bars,
    /// Cumulative distribution: curves without markers, y from 0 to 1.
    Cdf,
    /// No plot: one row per x, one column per series.
    #[default]
    Table,
}

/// One axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// Linear by default.
    #[serde(default)]
    pub scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal steps.
    #[default]
    Linear,
    /// Equal factors.
    Log,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Rates.
    Higher,
    /// Times, sizes, errors.
    Lower,
}

/// A curve, a group of bars, a column.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name in the paper, or of a peer.
    pub name: String,
    /// Its name in the method; equal to `name` if empty.
    #[serde(default)]
    pub contestant: String,
    /// Whether it is what one would use today instead.
    #[serde(default)]
    pub peer: bool,
    /// Whether it is fibula's best form for this job, which the paper did not have.
    #[serde(default)]
    pub ours: bool,
    /// Parameters of this series only. Series with equal ones are measured side by side.
    #[serde(default, rename = "with")]
    pub parameters: Table,
}

impl Series {
    /// Its name in the method.
    pub fn contestant(&self) -> &str {
        if self.contestant.is_empty() { &self.name } else { &self.contestant }
    }
}

/// A claim of the paper about a figure, checked against the points: either a ratio of two series, or a value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim in our own words, with the tolerance that we read into it. It can be read alone.
    pub says: String,
    /// Its place in the paper; empty in the conditions of a [`Why`].
    #[serde(default)]
    pub place: String,
    /// Name of the series.
    pub of: String,
    /// The series that it is compared with; without one, the claim is about the value itself.
    #[serde(default)]
    pub to: Option<String>,
    /// Lower bound of the ratio or value.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Upper bound of the ratio or value.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The ratio or value is above this: equality is not enough, nor is a tie, unless it is `counted`.
    #[serde(default)]
    pub more_than: Option<f64>,
    /// The ratio or value is below this, likewise.
    #[serde(default)]
    pub less_than: Option<f64>,
    /// Whether the values are counted or computed, not timed, so that the least difference is one.
    #[serde(default)]
    pub counted: bool,
    /// The ratio or value equals this, within the share `within` of it.
    #[serde(default)]
    pub near: Option<f64>,
    /// See `near`; without `near`, each value equals the paper's within this share.
    #[serde(default)]
    pub within: Option<f64>,
    /// The x of the claim; by default every x that both have.
    #[serde(default)]
    pub x: Option<X>,
    /// The x at which the other series is taken, if it differs.
    #[serde(default)]
    pub to_x: Option<X>,
    /// Shares of a distribution: the claim is about the x at which its curves reach them.
    #[serde(default)]
    pub quantiles: Vec<f64>,
    /// Why it may not hold here. Each shows only where it does not, and the run bears it out.
    #[serde(default)]
    pub why: Vec<Why>,
    /// Ids of the paper's shared explanations that may apply too; the catalogue adds them to `why`.
    #[serde(default)]
    pub because: Vec<String>,
    /// What was tried, where no cause is known: it shows under the outcomes `open_of`, where no `why` does.
    #[serde(default)]
    pub open: String,
    /// The outcomes that it was tried for, each with its machine, of [`Paper::machines`]: `zen-4 quick: missed 1.85`. It
    /// says nothing of others.
    #[serde(default)]
    pub open_of: Vec<String>,
    /// What it would take to look for a cause, and is not to be had here: it shows where nothing else does.
    #[serde(default)]
    pub needs: String,
    /// In the conditions of a [`Why`]: the id of another figure of the paper that the condition is about. Its results are
    /// those of the same run; if that has none, those of a run with equal parameters on a machine of the same kind, or
    /// of any run if the figure is [`Figure::counted`].
    #[serde(default)]
    pub figure: Option<String>,
    /// In the conditions of a [`Why`]: the condition is judged at the x that decided the outcome.
    #[serde(default)]
    pub at_worst: bool,
    /// In the conditions of a [`Why`] about rates: a series whose time an operation is taken off that of `of` and `to`.
    #[serde(default)]
    pub beyond: Option<String>,
}

/// An explanation of a claim that does not hold, and the numbers of the same run that it stands on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// The explanation.
    pub text: String,
    /// What the run must show for it to be given.
    pub given: Vec<Claim>,
}

/// An explanation that claims of several figures share. Its conditions name series that each of these figures has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedWhy {
    /// What [`Claim::because`] calls it.
    pub id: String,
    /// The explanation.
    pub text: String,
    /// As [`Why::given`].
    pub given: Vec<Claim>,
}

/// A place on the x axis: a number, or the name of a group of bars or of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// On a numeric axis.
    Number(f64),
    /// In order of occurrence.
    Text(String),
}

impl X {
    /// Parses the output of [`X`]'s `Display`.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Number)
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(x) = self { Some(*x) } else { None }
    }
}

impl fmt::Display for X {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(x) => write!(f, "{x}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of the series, as [`Series::name`].
    pub series: String,
    /// Its x; where the method sets none, the runner fills in the swept value.
    pub x: Option<X>,
    /// The median, in the unit of the figure's y axis.
    pub y: f64,
    /// The smallest of the runs.
    pub min: f64,
    /// The largest of the runs.
    pub max: f64,
}

impl Point {
    /// A point that is computed, not measured, and so has no spread.
    pub fn exact(series: &str, x: Option<X>, y: f64) -> Self {
        Self { series: series.to_owned(), x, y, min: y, max: y }
    }
}

/// A value that a paper prints.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// Id of the figure.
    pub figure: String,
    /// Name of the series.
    pub series: String,
    /// Its x, if it has a place on the x axis.
    #[serde(deserialize_with = "x_of_text")]
    pub x: Option<X>,
    /// The value.
    pub y: f64,
    /// Unit of the value; the value is drawn if this is the label of the y axis.
    pub unit: String,
    /// A fragment of the paper's text that contains the number.
    pub quote: String,
}

fn x_of_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<X>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.is_empty()).then(|| X::parse(&text)))
}
