//! Judges one claim by the points: at every place, of which the worst decides.

use std::fmt;

use super::{Outcome, TIE, Verdict, number};
use crate::figures::{Claim, PaperValue, Point, X};
use crate::stats::Summary;

/// What a claim requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Between these bounds, either of which may be infinite.
    Between(f64, f64),
    /// Above the first and below the second of these bounds, either of which may be infinite, by more than the factor of
    /// a tie: equality is not enough.
    Beyond(f64, f64, f64),
    /// This value, within a share of it.
    Near(f64, f64),
}

/// Values that are claimed to be alike are not if they differ by this factor: the claim is then contradicted.
const UNLIKE: f64 = 2.0;

impl Wanted {
    fn of(claim: &Claim, printed: Option<f64>) -> Self {
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        if let (Some(near), within) = (claim.near.or(printed), claim.within) {
            return Self::Near(near, within.unwrap_or(0.0));
        }
        if claim.more_than.is_some() || claim.less_than.is_some() {
            let tie = if claim.counted || claim.to.is_none() { 1.0 } else { TIE };
            return Self::Beyond(claim.more_than.unwrap_or(low), claim.less_than.unwrap_or(high), tie);
        }
        Self::Between(claim.at_least.unwrap_or(low), claim.at_most.unwrap_or(high))
    }

    /// How far `value` is from satisfying it: at most 0 if it does.
    pub(super) fn distance(self, value: f64) -> f64 {
        let below = |low: f64| {
            if low.is_finite() { (low - value) / low.abs().max(f64::MIN_POSITIVE) } else { f64::NEG_INFINITY }
        };
        let above = |high: f64| {
            if high.is_finite() { (value - high) / high.abs().max(f64::MIN_POSITIVE) } else { f64::NEG_INFINITY }
        };
        match self {
            Self::Between(low, high) => below(low).max(above(high)),
            Self::Beyond(low, high, tie) => {
                let distance = below(low * tie).max(above(high / tie));
                if distance == 0.0 { f64::MIN_POSITIVE } else { distance }
            }
            Self::Near(near, within) => (value - near).abs() / near.abs().max(f64::MIN_POSITIVE) - within,
        }
    }

    /// Whether it is satisfied somewhere from the least of two values to the greatest.
    fn is_within(self, (least, most): (f64, f64)) -> bool {
        match self {
            Self::Near(near, _) => self.distance(near.clamp(least, most)) <= 0.0,
            Self::Between(low, high) => least <= high && most >= low,
            Self::Beyond(low, high, tie) => least < high / tie && most > low * tie,
        }
    }

    /// The outcome of a value that is so far from satisfying it; a ratio can contradict a claim.
    fn outcome(self, value: f64, distance: f64, is_ratio: bool) -> Outcome {
        let contradicts = match self {
            Self::Between(low, high) | Self::Beyond(low, high, _) => {
                low >= 1.0 && value < 1.0 || high <= 1.0 && value > 1.0
            }
            Self::Near(near, _) => near == 1.0 && !(1.0 / UNLIKE..=UNLIKE).contains(&value),
        };
        match distance {
            distance if distance <= 0.0 => Outcome::Met,
            _ if is_ratio && contradicts => Outcome::Contradicted,
            _ => Outcome::Missed,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Between(low, high) if high.is_infinite() => write!(f, "at least {}", number(low)),
            Self::Between(low, high) if low.is_infinite() => write!(f, "at most {}", number(high)),
            Self::Between(low, high) => write!(f, "{} to {}", number(low), number(high)),
            Self::Beyond(low, high, tie) => {
                match (low.is_finite(), high.is_finite()) {
                    (true, true) => write!(f, "more than {} and less than {}", number(low), number(high))?,
                    (true, false) => write!(f, "more than {}", number(low))?,
                    _ => write!(f, "less than {}", number(high))?,
                }
                if tie > 1.0 { write!(f, " by over {} %", number(100.0 * (tie - 1.0))) } else { Ok(()) }
            }
            Self::Near(near, 0.0) => write!(f, "{}", number(near)),
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

/// The x at which a distribution reaches a share.
fn quantile(points: &[&Point], series: &str, share: f64) -> Option<f64> {
    let reached = points.iter().filter(|point| point.series == series && point.y >= share);
    reached.filter_map(|point| point.x.as_ref()?.number()).reduce(f64::min)
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

/// Judges a claim by the points: at its x, or everywhere if it has none.
pub fn judge<'a>(claim: &'a Claim, points: &[&Point], values: &[&PaperValue]) -> Verdict<'a> {
    judge_at(claim, claim.x.as_ref(), points, values)
}

/// Judges a claim at `only`, or everywhere.
pub(super) fn judge_at<'a>(
    claim: &'a Claim,
    only: Option<&X>,
    points: &[&Point],
    values: &[&PaperValue],
) -> Verdict<'a> {
    let not_measured = Verdict {
        claim,
        outcome: Outcome::NotMeasured,
        measured: None,
        wanted: Wanted::of(claim, None),
        at: None,
        places: (0, 0),
        scatter: None,
        reasons: Vec::new(),
        unchecked: Vec::new(),
        was_tried: false,
    };
    let mut is_scattered = true;
    let mut worst: Option<(f64, Verdict<'a>)> = None;
    let mut judged = (0, 0);
    let shares = claim.quantiles.iter().map(|&share| Some(X::Number(share)));
    let all = if claim.quantiles.is_empty() { places(points) } else { shares.collect() };
    for x in all {
        if only.is_some() && !same_x(only, x.as_ref()) {
            continue;
        }
        let value = |series: &str, x: Option<&X>| match x.and_then(X::number) {
            Some(share) if !claim.quantiles.is_empty() => quantile(points, series, share),
            _ => {
                let rate = value_at(points, series, x)?;
                let Some(beyond) = &claim.beyond else { return Some(rate) };
                // A rate that is not below the other says nothing of what is beyond.
                let time = 1.0 / rate - 1.0 / value_at(points, beyond, x)?;
                (time > 0.0).then(|| 1.0 / time)
            }
        };
        let Some(of) = value(&claim.of, x.as_ref()) else { continue };
        let measured = match &claim.to {
            None => of,
            Some(to) => match value(to, claim.to_x.as_ref().or(x.as_ref())) {
                Some(to) if to != 0.0 => of / to,
                _ => continue,
            },
        };
        let printed = if claim.near.is_none() && claim.within.is_some() {
            let same = |v: &&&PaperValue| v.series == claim.of && same_x(v.x.as_ref(), x.as_ref());
            // A paper may print several values for one place: the closest one is meant.
            let distance = |v: &PaperValue| (v.y - of).abs();
            match values.iter().filter(same).min_by(|a, b| distance(a).total_cmp(&distance(b))) {
                Some(value) => Some(value.y),
                None => continue,
            }
        } else {
            None
        };
        let wanted = Wanted::of(claim, printed);
        let distance = wanted.distance(measured);
        judged = (judged.0 + usize::from(distance > 0.0), judged.1 + 1);
        let scatter = scatter_at(claim, points, x.as_ref());
        is_scattered &= distance <= 0.0 || scatter.is_some_and(|runs| wanted.is_within(runs));
        if worst.as_ref().is_none_or(|(most, _)| distance > *most) {
            let outcome = wanted.outcome(measured, distance, claim.to.is_some());
            let found = Verdict { outcome, measured: Some(measured), wanted, scatter, at: x, ..not_measured.clone() };
            worst = Some((distance, found));
        }
    }
    let Some((_, mut verdict)) = worst else { return not_measured };
    verdict.places = judged;
    verdict.scatter = verdict.scatter.filter(|_| is_scattered && verdict.is_unmet());
    verdict
}

/// The least and the greatest value or ratio that the runs at a place allow, each series' slowest beside the other's
/// fastest; `None` where there are no runs to compare.
fn scatter_at(claim: &Claim, points: &[&Point], x: Option<&X>) -> Option<(f64, f64)> {
    if claim.counted || claim.beyond.is_some() || !claim.quantiles.is_empty() {
        return None;
    }
    let runs = |series: &str, x: Option<&X>| {
        let mut at = points.iter().filter(|point| point.series == series && same_x(point.x.as_ref(), x));
        let point = at.next().filter(|_| at.next().is_none())?;
        (point.min < point.max).then_some((point.min, point.max))
    };
    let (least, most) = runs(&claim.of, x)?;
    let Some(to) = &claim.to else { return Some((least, most)) };
    let (to_least, to_most) = runs(to, claim.to_x.as_ref().or(x))?;
    (to_least > 0.0).then(|| (least / to_most, most / to_least))
}
