//! Maps values to places on the page, and computes ticks.

use super::Kind;
use crate::figures::X;
use crate::figures::verdict::{number, x_text};

/// An axis: values `low..=high` are drawn from `from` to `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// The scale of a numeric x axis, with a margin on both sides.
    pub(super) fn of_x(kind: Kind, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = range(values);
        let (low, high) = match kind {
            Kind::Log if low < high => (low * (low / high).powf(0.04), high * (high / low).powf(0.04)),
            Kind::Log => (low / 2.0, high * 2.0),
            Kind::Linear if low < high => {
                let margin = 0.04 * (high - low);
                // A margin must not add negative sizes.
                (if low >= 0.0 { (low - margin).max(0.0) } else { low - margin }, high + margin)
            }
            Kind::Linear => (low - 0.5, high + 0.5),
        };
        Self { kind, low, high, from, to }
    }

    /// The scale of a y axis: from 0 if linear, and in whole steps.
    pub(super) fn of_y(kind: Kind, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = range(values);
        let (low, high) = match kind {
            Kind::Log if high / low > 30.0 => (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil())),
            Kind::Log => (low / 1.5, high * 1.5),
            Kind::Linear => {
                let low = low.min(0.0);
                let step = step(if high > low { high - low } else { 1.0 });
                let top = (high * 1.02 / step).ceil() * step;
                ((low / step).floor() * step, if top > low { top } else { low + step })
            }
        };
        Self { kind, low, high, from, to }
    }

    /// From 0 to 1.
    pub(super) fn unit(from: f64, to: f64) -> Self {
        Self { kind: Kind::Linear, low: 0.0, high: 1.0, from, to }
    }

    /// `n` groups, each at its number.
    pub(super) fn groups(n: usize, from: f64, to: f64) -> Self {
        Self { kind: Kind::Linear, low: -0.5, high: n as f64 - 0.5, from, to }
    }

    /// The place of a value; a value outside the axis is clamped to it.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values on the axis, with labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        self.round().into_iter().map(|value| (value, number(value))).collect()
    }

    /// Ticks at `wanted`, if these are few and far enough apart; otherwise round values.
    pub(super) fn ticks_at(&self, wanted: &[f64]) -> Vec<(f64, String)> {
        let mut values = wanted.to_vec();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let is_far = |pair: &[f64]| (self.at(pair[1]) - self.at(pair[0])).abs() > 42.0;
        if values.len() > 14 || !values.windows(2).all(is_far) || values.len() < 2 {
            values = self.round();
        }
        values.into_iter().map(|value| (value, x_text(&X::Number(value)))).collect()
    }

    fn round(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear => {
                let step = step(self.high - self.low);
                let first = (self.low / step - 1e-9).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|i| i as f64 * step).collect()
            }
            Kind::Log => {
                let decades = (self.high / self.low).log10();
                let mantissas: &[f64] = if decades < 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / 9.0).ceil().max(1.0) as i32;
                let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                let decade = |e: i32| mantissas.iter().map(move |m| m * 10f64.powi(e));
                let on_axis = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
                (first..=last).filter(|e| e.rem_euclid(every) == 0).flat_map(decade).filter(on_axis).collect()
            }
        }
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// 1, 2 or 5 times a power of ten, such that about six steps fit.
fn step(span: f64) -> f64 {
    let raw = span / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let mantissa = raw / power;
    power
        * if mantissa <= 1.0 {
            1.0
        } else if mantissa <= 2.0 {
            2.0
        } else if mantissa <= 5.0 {
            5.0
        } else {
            10.0
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axis_starts_at_zero_and_has_round_ticks() {
        let scale = Scale::of_y(Kind::Linear, [3.0, 47.0].into_iter(), 400.0, 0.0);
        let ticks: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["0", "10", "20", "30", "40", "50"]);
        assert_eq!((scale.at(0.0), scale.at(50.0)), (400.0, 0.0));
        let constant = Scale::of_y(Kind::Linear, [0.0].into_iter(), 400.0, 0.0);
        assert!(constant.at(0.0).is_finite() && !constant.ticks().is_empty());
    }

    #[test]
    fn logarithmic_axis_has_equal_steps_for_equal_factors() {
        let scale = Scale::of_x(Kind::Log, [1024.0, 65536.0, 4194304.0].into_iter(), 0.0, 600.0);
        let (a, b, c) = (scale.at(1024.0), scale.at(65536.0), scale.at(4194304.0));
        assert!((b - a - (c - b)).abs() < 1e-9 && a > 0.0 && c < 600.0);
        let labels: Vec<String> = scale.ticks_at(&[1024.0, 65536.0, 4194304.0]).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["1K", "64K", "4M"]);
        let y = Scale::of_y(Kind::Log, [1e-6, 0.3].into_iter(), 400.0, 0.0);
        assert_eq!(y.ticks().first().map(|tick| tick.0), Some(1e-6));
        assert!(y.ticks().len() >= 6);
    }
}
