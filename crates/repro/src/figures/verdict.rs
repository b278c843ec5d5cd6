//! Compares the points of a figure with the paper's claims, and finds where fibula loses to what one would use today.

use std::fmt;

use super::store::Stored;
use super::{Better, Claim, Figure, Form, Paper, PaperValue, Point, X};
use crate::report::size_text;
use crate::stats::Summary;

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
    /// The worst x.
    pub at: Option<X>,
}

/// What a claim requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Between these bounds, either of which may be infinite.
    Between(f64, f64),
    /// This value, within a share of it.
    Near(f64, f64),
}

impl Wanted {
    /// How far `value` is from satisfying it: at most 0 if it does.
    fn distance(self, value: f64) -> f64 {
        match self {
            Self::Between(low, high) => {
                let below = if low.is_finite() { (low - value) / low.abs().max(f64::MIN_POSITIVE) } else { -1.0 };
                let above = if high.is_finite() { (value - high) / high.abs().max(f64::MIN_POSITIVE) } else { -1.0 };
                below.max(above)
            }
            Self::Near(near, within) => (value - near).abs() / near.abs().max(f64::MIN_POSITIVE) - within,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Between(low, high) if high.is_infinite() => write!(f, "at least {}", number(low)),
            Self::Between(low, high) if low.is_infinite() => write!(f, "at most {}", number(high)),
            Self::Between(low, high) => write!(f, "{} to {}", number(low), number(high)),
            Self::Near(near, within) => write!(f, "{} ± {} %", number(near), number(100.0 * within)),
        }
    }
}

/// The median of the points of a series at a place.
pub fn value_at(points: &[&Point], series: &str, x: Option<&X>) -> Option<f64> {
    let y: Vec<f64> =
        points.iter().filter(|p| p.series == series && same_x(p.x.as_ref(), x)).map(|point| point.y).collect();
    (!y.is_empty()).then(|| Summary::of(&y).median)
}

/// Whether two places are the same; numbers are compared up to rounding.
pub fn same_x(a: Option<&X>, b: Option<&X>) -> bool {
    match (a, b) {
        (Some(X::Number(a)), Some(X::Number(b))) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        (a, b) => a == b,
    }
}

/// The places of all points, each once: numbers in order, then texts in order of occurrence.
pub fn places(points: &[&Point]) -> Vec<Option<X>> {
    let mut places: Vec<Option<X>> = Vec::new();
    for point in points {
        if !places.iter().any(|known| same_x(known.as_ref(), point.x.as_ref())) {
            places.push(point.x.clone());
        }
    }
    places.sort_by(|a, b| match (a.as_ref().and_then(X::number), b.as_ref().and_then(X::number)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => std::cmp::Ordering::Equal,
    });
    places
}

/// Judges a claim by the points.
pub fn judge<'a>(claim: &'a Claim, points: &[&Point], values: &[&PaperValue]) -> Verdict<'a> {
    let mut worst: Option<(f64, Verdict<'a>)> = None;
    for x in places(points) {
        if claim.x.is_some() && !same_x(claim.x.as_ref(), x.as_ref()) {
            continue;
        }
        let Some(of) = value_at(points, &claim.of, x.as_ref()) else { continue };
        let measured = match &claim.to {
            None => of,
            Some(to) => match value_at(points, to, claim.to_x.as_ref().or(x.as_ref())) {
                Some(to) if to != 0.0 => of / to,
                _ => continue,
            },
        };
        let wanted = match (claim.near, claim.within) {
            (Some(near), within) => Wanted::Near(near, within.unwrap_or(0.0)),
            (None, Some(within)) => {
                let same = |v: &&&PaperValue| v.series == claim.of && same_x(v.x.as_ref(), x.as_ref());
                // A paper may print several values for one place: the closest one is meant.
                let distance = |v: &PaperValue| (v.y - of).abs();
                let Some(value) = values.iter().filter(same).min_by(|a, b| distance(a).total_cmp(&distance(b))) else {
                    continue;
                };
                Wanted::Near(value.y, within)
            }
            (None, None) => {
                Wanted::Between(claim.at_least.unwrap_or(f64::NEG_INFINITY), claim.at_most.unwrap_or(f64::INFINITY))
            }
        };
        let distance = wanted.distance(measured);
        if worst.as_ref().is_none_or(|(most, _)| distance > *most) {
            let outcome = match wanted {
                _ if distance <= 0.0 => Outcome::Met,
                Wanted::Between(low, _) if claim.to.is_some() && low >= 1.0 && measured < 1.0 => Outcome::Contradicted,
                Wanted::Between(_, high) if claim.to.is_some() && high <= 1.0 && measured > 1.0 => {
                    Outcome::Contradicted
                }
                _ => Outcome::Missed,
            };
            worst = Some((distance, Verdict { claim, outcome, measured: Some(measured), wanted, at: x }));
        }
    }
    worst.map_or(
        Verdict {
            claim,
            outcome: Outcome::NotMeasured,
            measured: None,
            wanted: match (claim.near, claim.within) {
                (Some(near), within) => Wanted::Near(near, within.unwrap_or(0.0)),
                _ => {
                    Wanted::Between(claim.at_least.unwrap_or(f64::NEG_INFINITY), claim.at_most.unwrap_or(f64::INFINITY))
                }
            },
            at: None,
        },
        |(_, verdict)| verdict,
    )
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

/// A ratio within this factor is a tie.
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
    /// Some claims do not hold.
    InPart,
    /// The opposite of some claim holds.
    Contradicted,
    /// Measured; no claim can be checked.
    Measured,
    /// Nothing, or not every step, was measured yet.
    NotRun,
    /// It cannot be run here.
    NoHardware,
    /// There is nothing to run.
    Nothing,
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

/// Judges a figure by its results, if there are any.
pub fn finding<'a>(paper: &'a Paper, figure: &'a Figure, stored: Option<&Stored>) -> Finding<'a> {
    let points: Vec<&Point> = stored.map(|stored| stored.points().collect()).unwrap_or_default();
    let values: Vec<&PaperValue> = paper.values_of(figure).filter(|value| value.unit == figure.y.label).collect();
    let verdicts: Vec<Verdict<'a>> = figure.claims.iter().map(|claim| judge(claim, &points, &values)).collect();
    let any = |outcome: Outcome| verdicts.iter().any(|verdict| verdict.outcome == outcome);
    let status = if !figure.hardware.is_empty() {
        Status::NoHardware
    } else if figure.method == "none" {
        Status::Nothing
    } else if points.is_empty() || stored.is_none_or(|stored| !stored.record.complete) {
        Status::NotRun
    } else if any(Outcome::Contradicted) {
        Status::Contradicted
    } else if any(Outcome::Missed) {
        Status::InPart
    } else if !any(Outcome::Met) {
        Status::Measured
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
            _ => {}
        }
        let judged = self.verdicts.len() - self.count(Outcome::NotMeasured);
        let mut text = match (self.verdicts.len(), judged) {
            (0, _) => "Measured; the paper's text claims nothing of it that could be checked".to_owned(),
            (_, 0) => "Measured, but without the structures that the paper's claims are about".to_owned(),
            _ => format!("{} of {judged} claims met", self.count(Outcome::Met)),
        };
        let failed = self.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::Missed | Outcome::Contradicted));
        for (i, verdict) in failed.enumerate() {
            text += if i == 0 { "; not " } else { ", nor " };
            text += &format!("“{}” ({})", verdict.claim.says, verdict.measured_text(figure));
        }
        text + "."
    }
}

impl Verdict<'_> {
    /// `1.9× at 64K names, at least 2 claimed`.
    pub fn measured_text(&self, figure: &Figure) -> String {
        let Some(measured) = self.measured else { return "not measured".into() };
        let unit = if self.claim.to.is_some() { "×".to_owned() } else { format!(" {}", figure.y.label) };
        let place = match &self.at {
            Some(x) if !figure.x.label.is_empty() => format!(" at {} = {}", figure.x.label, x_text(x)),
            Some(x) => format!(" at {}", x_text(x)),
            None => String::new(),
        };
        format!("{}{unit}{place}", number(measured))
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
mod tests {
    use super::*;

    fn claim(to: Option<&str>, rest: &str) -> Claim {
        let to = to.map_or(String::new(), |to| format!("to = \"{to}\"\n"));
        toml::from_str(&format!("says = \"c\"\nplace = \"p\"\nof = \"A\"\n{to}{rest}")).expect("a claim")
    }

    fn points() -> Vec<Point> {
        let at = |x: f64| Some(X::Number(x));
        vec![
            Point::exact("A", at(1.0), 30.0),
            Point::exact("B", at(1.0), 10.0),
            Point::exact("A", at(2.0), 18.0),
            Point::exact("B", at(2.0), 10.0),
            Point::exact("A", at(4.0), 9.0),
        ]
    }

    fn outcome(claim: &Claim) -> (Outcome, Option<f64>, Option<X>) {
        let points = points();
        let value = |x: f64, y: f64| PaperValue {
            figure: "f".into(),
            series: "A".into(),
            x: Some(X::Number(x)),
            y,
            unit: "u".into(),
            quote: String::new(),
        };
        let values = [value(1.0, 31.0), value(2.0, 18.0)];
        let verdict = judge(claim, &points.iter().collect::<Vec<_>>(), &values.iter().collect::<Vec<_>>());
        (verdict.outcome, verdict.measured, verdict.at)
    }

    #[test]
    fn claim_of_a_ratio_is_judged_where_it_holds_least() {
        let at = |x: f64| Some(X::Number(x));
        assert_eq!(outcome(&claim(Some("B"), "at_least = 1.5")), (Outcome::Met, Some(1.8), at(2.0)));
        assert_eq!(outcome(&claim(Some("B"), "at_least = 2.0")), (Outcome::Missed, Some(1.8), at(2.0)));
        assert_eq!(outcome(&claim(Some("B"), "at_least = 2.0\nx = 1")), (Outcome::Met, Some(3.0), at(1.0)));
        assert_eq!(outcome(&claim(Some("B"), "at_most = 0.4")), (Outcome::Contradicted, Some(3.0), at(1.0)));
        assert_eq!(outcome(&claim(Some("B"), "at_least = 1.0\nat_most = 2.0")).0, Outcome::Missed);
        assert_eq!(outcome(&claim(Some("A"), "near = 0.3\nwithin = 0.01\nx = 4\nto_x = 1")).0, Outcome::Met);
    }

    #[test]
    fn claim_of_a_value_is_judged_by_itself_or_by_what_the_paper_prints() {
        assert_eq!(outcome(&claim(None, "at_least = 10.0")).0, Outcome::Missed);
        assert_eq!(outcome(&claim(None, "at_least = 9.0")).0, Outcome::Met);
        assert_eq!(outcome(&claim(None, "near = 20.0\nwithin = 0.2\nx = 2")).0, Outcome::Met);
        assert_eq!(outcome(&claim(None, "within = 0.05")), (Outcome::Met, Some(30.0), Some(X::Number(1.0))));
        assert_eq!(outcome(&claim(None, "within = 0.01")).0, Outcome::Missed);
    }

    #[test]
    fn claim_without_a_series_is_not_measured() {
        assert_eq!(outcome(&claim(Some("C"), "at_least = 1.0")).0, Outcome::NotMeasured);
        assert_eq!(outcome(&claim(Some("B"), "at_least = 1.0\nx = 4")).0, Outcome::NotMeasured);
    }

    #[test]
    fn peer_that_is_better_is_named_with_its_factor() {
        let text = r#"
            id = "f"
            place = "F"
            title = "t"
            shows = "s"
            method = "none"
            better = "higher"
            series = [{ name = "A" }, { name = "B", ours = true }, { name = "C", peer = true }, { name = "D", peer = true }]
        "#;
        let figure: Figure = toml::from_str(text).expect("a figure");
        let mut all = points();
        all.push(Point::exact("C", Some(X::Number(1.0)), 12.0));
        all.push(Point::exact("C", Some(X::Number(2.0)), 10.1));
        all.push(Point::exact("D", Some(X::Number(2.0)), 2.0));
        let losses = losses(&figure, &all.iter().collect::<Vec<_>>());
        assert_eq!(losses.len(), 1, "a tie and a slower peer are none");
        assert_eq!((losses[0].peer.as_str(), losses[0].best.as_str(), losses[0].places), ("C", "B", (1, 2)));
        assert!((losses[0].factor - 1.2).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        for (x, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (2.345, "2.35"),
            (0.0123456, "0.0123"),
            (412.4, "412"),
            (18974.0, "18974"),
            (1.7399e-5, "1.74e-5"),
            (2e9, "2e9"),
        ] {
            assert_eq!(number(x), text);
        }
        assert_eq!(x_text(&X::Number(65536.0)), "64K");
    }
}
