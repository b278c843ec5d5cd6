//! Compares the points of a figure with the paper's claims, and finds where fibula loses to what one would use today.

use std::fmt;

mod explain;
mod judge;

pub use explain::{Evidence, Explanation, Given, Reason, Run};
pub use judge::{Wanted, judge, places, same_x, value_at};

use super::store::Stored;
use super::{Better, Claim, Figure, Form, Paper, PaperValue, Point, X};
use crate::report::size_text;

/// Outcome of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds here.
    Met,
    /// It does not hold here.
    Missed,
    /// The opposite holds: what should be larger is smaller, or vice versa.
    Contradicted,
    /// A series is missing.
    NotMeasured,
}

impl Outcome {
    /// Its place among outcomes, the worst first.
    pub fn rank(self) -> u8 {
        match self {
            Self::Contradicted => 0,
            Self::Missed => 1,
            Self::Met => 2,
            Self::NotMeasured => 3,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Contradicted => "contradicted",
            Self::NotMeasured => "not measured",
        })
    }
}

/// A claim and its measurement.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The outcome: the worst over all x.
    pub outcome: Outcome,
    /// Ratio or value at the worst x.
    pub measured: Option<f64>,
    /// The value that the claim requires there.
    pub wanted: Wanted,
    /// The worst x, or the worst share of a distribution.
    pub at: Option<X>,
    /// The number of places at which it does not hold, and of all places that were judged.
    pub places: (usize, usize),
    /// If it does not hold, and would wherever it does not if other runs of the same measurement decided: the least and
    /// the greatest ratio or value of these, at the worst x.
    pub scatter: Option<(f64, f64)>,
    /// Why it does not hold, as far as the numbers of this run show it, each with these numbers.
    pub reasons: Vec<Reason<'a>>,
    /// Figures without results in this run that other explanations need.
    pub unchecked: Vec<&'a str>,
    /// Whether what the claim says was tried to find a cause was tried for this outcome, on this machine.
    pub was_tried: bool,
}

impl Verdict<'_> {
    /// How far what was measured is from what is claimed, as a share of it: more is worse, and 0 or less holds.
    pub fn distance(&self) -> f64 {
        self.measured.map_or(f64::NEG_INFINITY, |measured| self.wanted.distance(measured))
    }

    /// Orders the worse first.
    pub fn worse_first(&self, other: &Self) -> std::cmp::Ordering {
        self.outcome.rank().cmp(&other.outcome.rank()).then(other.distance().total_cmp(&self.distance()))
    }
}

/// A peer that was better than the best of fibula's.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Name of the peer.
    pub peer: String,
    /// Name of fibula's best series there.
    pub best: String,
    /// How much better the peer is at its best place, as a factor above 1.
    pub factor: f64,
    /// Its best place.
    pub at: Option<X>,
    /// The number of places at which it is better, and of all places.
    pub places: (usize, usize),
}

/// A ratio of measured rates or times within this factor is a tie.
const TIE: f64 = 1.03;

/// Where peers are better, each once. Fibula's best are its own forms if the figure has some, otherwise the paper's.
pub fn losses(figure: &Figure, points: &[&Point]) -> Vec<Loss> {
    let Some(better) = figure.better.filter(|_| figure.form != Form::Cdf) else { return Vec::new() };
    let has_ours = figure.series.iter().any(|series| series.ours);
    let mine = || figure.series.iter().filter(move |s| !s.peer && (s.ours || !has_ours));
    let mut losses = Vec::new();
    for peer in figure.series.iter().filter(|series| series.peer) {
        let mut loss: Option<Loss> = None;
        let (mut lost, mut compared) = (0, 0);
        for x in places(points) {
            let Some(theirs) = value_at(points, &peer.name, x.as_ref()) else { continue };
            let own = mine().filter_map(|series| Some((series, value_at(points, &series.name, x.as_ref())?)));
            let best = own.reduce(|a, b| {
                let is_better = if better == Better::Higher { b.1 > a.1 } else { b.1 < a.1 };
                if is_better { b } else { a }
            });
            let Some((series, value)) = best else { continue };
            compared += 1;
            let factor = if better == Better::Higher { theirs / value } else { value / theirs };
            if factor.is_finite() && factor > TIE {
                lost += 1;
                if loss.as_ref().is_none_or(|loss| factor > loss.factor) {
                    let (peer, best) = (peer.name.clone(), series.name.clone());
                    loss = Some(Loss { peer, best, factor, at: x, places: (0, 0) });
                }
            }
        }
        losses.extend(loss.map(|loss| Loss { places: (lost, compared), ..loss }));
    }
    losses
}

/// Overall outcome of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All claims hold, in the paper's setting.
    Reproduced,
    /// All claims hold, in a setting that differs as stated.
    WithDifference,
    /// Some claims do not hold, or were not measured.
    InPart,
    /// The opposite of some claim holds.
    Contradicted,
    /// Measured; no claim can be checked.
    Measured,
    /// Nothing, or not every step, was measured yet.
    NotRun,
    /// It was run, but nothing could be measured: what it needs is not there.
    NotMeasured,
    /// It cannot be run here.
    NoHardware,
    /// There is nothing to run.
    Nothing,
}

impl Status {
    /// Its place among the statuses of what was measured, the worst last.
    pub fn rank(self) -> u8 {
        match self {
            Self::NotRun | Self::NotMeasured | Self::NoHardware | Self::Nothing => 0,
            Self::Measured => 1,
            Self::Reproduced => 2,
            Self::WithDifference => 3,
            Self::InPart => 4,
            Self::Contradicted => 5,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::WithDifference => "reproduced with a stated difference",
            Self::InPart => "reproduced in part",
            Self::Contradicted => "contradicted",
            Self::Measured => "measured",
            Self::NotRun => "not run yet",
            Self::NotMeasured => "not measured",
            Self::NoHardware => "needs hardware we lack",
            Self::Nothing => "nothing to run",
        })
    }
}

/// All findings about a figure.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// One per claim.
    pub verdicts: Vec<Verdict<'a>>,
    /// Where peers are better.
    pub losses: Vec<Loss>,
    /// The overall outcome.
    pub status: Status,
}

/// Judges a figure by its results, if there are any, and explains claims that fail by them and by the other results of
/// the `run`.
pub fn finding<'a>(paper: &'a Paper, figure: &'a Figure, stored: Option<&Stored>, run: &Run<'_>) -> Finding<'a> {
    let points: Vec<&Point> = stored.map(|stored| stored.points().collect()).unwrap_or_default();
    let values: Vec<&PaperValue> = paper.values_of(figure).filter(|value| value.unit == figure.y.label).collect();
    let judged = figure.claims.iter().map(|claim| judge(claim, &points, &values));
    let made_by = stored.map(|stored| format!("{} {}", stored.record.machine.kind(), stored.record.mode));
    let explained = |verdict: Verdict<'a>| {
        let outcome = made_by
            .as_ref()
            .zip(verdict.measured)
            .map(|(made_by, measured)| format!("{made_by}: {} {}", verdict.outcome, number(measured)));
        let was_tried = outcome.is_some_and(|outcome| verdict.claim.open_of.contains(&outcome));
        Verdict { was_tried, ..verdict }.explained(&points, &paper.figures, run)
    };
    let verdicts: Vec<Verdict<'a>> = judged.map(explained).collect();
    let any = |outcome: Outcome| verdicts.iter().any(|verdict| verdict.outcome == outcome);
    let status = if !figure.hardware.is_empty() {
        Status::NoHardware
    } else if figure.method == "none" {
        Status::Nothing
    } else if stored.is_none_or(|stored| !stored.record.complete) {
        Status::NotRun
    } else if points.is_empty() {
        Status::NotMeasured
    } else if any(Outcome::Contradicted) {
        Status::Contradicted
    } else if !any(Outcome::Met) && !any(Outcome::Missed) {
        Status::Measured
    } else if any(Outcome::Missed) || any(Outcome::NotMeasured) {
        Status::InPart
    } else if figure.difference.is_empty() {
        Status::Reproduced
    } else {
        Status::WithDifference
    };
    Finding { losses: losses(figure, &points), verdicts, status }
}

impl Finding<'_> {
    /// How many claims have this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.outcome == outcome).count()
    }

    /// The finding in one sentence.
    pub fn sentence(&self, figure: &Figure) -> String {
        match self.status {
            Status::NoHardware => return format!("Not run: {}.", figure.hardware.trim_end_matches('.')),
            Status::Nothing => return format!("Nothing to run: {}.", figure.why.trim_end_matches('.')),
            Status::NotRun => return "Not run yet.".into(),
            Status::NotMeasured => return "Not measured: what it needs is not here.".into(),
            _ => {}
        }
        let judged = self.verdicts.len() - self.count(Outcome::NotMeasured);
        let mut text = match (self.verdicts.len(), judged) {
            (0, _) => "Measured; the paper's text claims nothing of it that could be checked".to_owned(),
            (_, 0) => "Measured, but without the structures that the paper's claims are about".to_owned(),
            (all, _) => format!("{} of {all} claims met", self.count(Outcome::Met)),
        };
        match self.count(Outcome::NotMeasured) {
            0 => {}
            n if judged == 0 => text += &format!(": {n} claims not measured"),
            n => text += &format!(", {n} not measured"),
        }
        let failed = self.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::Missed | Outcome::Contradicted));
        for (i, verdict) in failed.enumerate() {
            text += if i == 0 { "; not " } else { ", nor " };
            text += &format!("“{}” ({})", verdict.claim.says, verdict.measured_text(figure));
        }
        text + "."
    }
}

impl Verdict<'_> {
    /// Whether the claim was judged and does not hold.
    pub fn is_unmet(&self) -> bool {
        matches!(self.outcome, Outcome::Missed | Outcome::Contradicted)
    }

    /// `1.9× at names = 64K`, and at how many places it fails if there are several.
    pub fn measured_text(&self, figure: &Figure) -> String {
        let Some(measured) = self.measured else { return "not measured".into() };
        let is_quantile = !self.claim.quantiles.is_empty();
        let unit = match (&self.claim.to, is_quantile) {
            (Some(_), _) => "×".to_owned(),
            (None, false) => format!(" {}", figure.y.label),
            (None, true) => format!(" {}", figure.x.label),
        };
        let place = match &self.at {
            Some(x) if is_quantile => format!(" at a share of {}", x_text(x)),
            Some(x) if !figure.x.label.is_empty() => format!(" at {} = {}", figure.x.label, x_text(x)),
            Some(x) => format!(" at {}", x_text(x)),
            None => String::new(),
        };
        let places = match self.places {
            (failed, of) if self.is_unmet() && of > 1 => format!(", unmet at {failed} of {of} places"),
            _ => String::new(),
        };
        format!("{}{unit}{place}{places}", number(measured))
    }
}

/// A number with three significant digits, in readable form.
pub fn number(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 {
        "0".into()
    } else if !x.is_finite() {
        x.to_string()
    } else if !(1e-3..1e7).contains(&size) {
        let text = format!("{x:.2e}");
        text.replace(".00e", "e")
    } else if size >= 1000.0 {
        format!("{x:.0}")
    } else {
        let digits = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{x:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

/// A place, with sizes in readable form.
pub fn x_text(x: &X) -> String {
    match x {
        X::Number(x) if x.fract() == 0.0 && (1024.0..1e15).contains(x) => size_text(*x as u64),
        X::Number(x) => number(*x),
        X::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests;
