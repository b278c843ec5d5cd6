//! Plots of figures: our curves, and the paper's values as hollow marks of the same colour.
//!
//! The layout is computed here, in points of a page of 960 x 520. plotters draws lines, polygons and text, as SVG and
//! as a bitmap, so that both look alike. The font of bitmaps is part of the binary; SVG names a family.

mod canvas;
mod scale;

use std::path::Path;
use std::sync::Once;

use plotters::prelude::{BitMapBackend, DrawingBackend, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::{FontStyle, register_font};

use super::verdict::{places, same_x, x_text};
use super::{Figure, Form, PaperValue, Point, Scale as Kind, Series, X};
use canvas::{Anchor, Canvas, Shape};
use scale::Scale;

/// A plot could not be drawn or written.
#[derive(Debug, thiserror::Error)]
#[error("plot: {0}")]
pub struct PlotError(String);

/// Size of the page.
const SIZE: (u32, u32) = (960, 520);
/// Edges of the plot on the page: left, top, right, bottom.
const LEFT: f64 = 84.0;
const TOP: f64 = 18.0;
const RIGHT: f64 = 668.0;
const BOTTOM: f64 = 440.0;
/// Pixels of a bitmap per point of the page.
const PIXELS: u32 = 2;
/// Characters per line of the legend.
const LEGEND_CHARS: usize = 34;

const INK: RGBColor = RGBColor(30, 30, 30);
const GREY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(228, 228, 228);
/// Distinguishable with colour-blind vision; after Okabe and Ito, and Tol.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 90, 170),
    RGBColor(213, 94, 0),
    RGBColor(0, 138, 100),
    RGBColor(190, 80, 150),
    RGBColor(184, 134, 11),
    RGBColor(60, 170, 220),
    RGBColor(110, 60, 160),
    RGBColor(90, 90, 90),
    RGBColor(140, 40, 40),
    RGBColor(110, 150, 30),
];

/// The plot as SVG; `None` if the figure is a table or nothing was measured.
/// # Errors
/// [`PlotError`].
pub fn svg(figure: &Figure, points: &[&Point], values: &[&PaperValue]) -> Result<Option<String>, PlotError> {
    let Some(plot) = Plot::new(figure, points, values) else { return Ok(None) };
    let mut text = String::new();
    let canvas = Canvas::new(SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), 1.0);
    plot.draw(&canvas)?;
    drop(canvas);
    // Scales with the page that contains it.
    Ok(Some(text.replacen("<svg width=\"960\" height=\"520\" ", "<svg ", 1)))
}

/// Writes the plot as a PNG file; `false` if there is nothing to draw.
/// # Errors
/// [`PlotError`].
pub fn png(path: &Path, figure: &Figure, points: &[&Point], values: &[&PaperValue]) -> Result<bool, PlotError> {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        // Light enough for small sizes; the bitmap has twice the points.
        let _ = register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
    let Some(plot) = Plot::new(figure, points, values) else { return Ok(false) };
    let size = (SIZE.0 * PIXELS, SIZE.1 * PIXELS);
    let canvas = Canvas::new(BitMapBackend::new(path, size).into_drawing_area(), f64::from(PIXELS));
    plot.draw(&canvas)?;
    Ok(true)
}

/// Values that span so much are drawn by their logarithms.
const DECADES: f64 = 100.0;

/// The scales of both axes: those of the figure; logarithmic also for curves over decades of positive values.
fn kinds(figure: &Figure, points: &[&Point], grouped: bool) -> (Kind, Kind) {
    let spans = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, 0.0), |(low, high), v| (v.min(low), v.max(high)));
        figure.form == Form::Lines && low > 0.0 && high / low >= DECADES
    };
    let kind = |own: Kind, spans: bool| if spans { Kind::Log } else { own };
    let xs = &mut points.iter().filter_map(|point| point.x.as_ref()?.number());
    let ys = &mut points.iter().map(|point| point.y);
    (kind(figure.x.scale, !grouped && spans(xs)), kind(figure.y.scale, spans(ys)))
}

/// A curve or the bars of one colour, in the order of x.
struct Curve<'a> {
    series: &'a Series,
    colour: RGBColor,
    shape: Shape,
    measured: Vec<(f64, &'a Point)>,
    paper: Vec<(f64, f64)>,
}

struct Plot<'a> {
    figure: &'a Figure,
    curves: Vec<Curve<'a>>,
    /// Labels of groups, if x is not numeric or bars are drawn.
    groups: Vec<String>,
    x: Scale,
    y: Scale,
}

impl<'a> Plot<'a> {
    fn new(figure: &'a Figure, points: &[&'a Point], values: &[&PaperValue]) -> Option<Self> {
        if figure.form == Form::Table || points.is_empty() {
            return None;
        }
        let places = places(points);
        let is_numeric = |x: &Option<X>| matches!(x, Some(X::Number(_)));
        let grouped = figure.form == Form::Bars || !places.iter().all(is_numeric);
        let position = |x: Option<&X>| -> Option<f64> {
            if grouped {
                places.iter().position(|place| same_x(place.as_ref(), x)).map(|at| at as f64)
            } else {
                x.and_then(X::number)
            }
        };
        let drawable = |y: f64, kind: Kind| y.is_finite() && (kind == Kind::Linear || y > 0.0);
        let (x_kind, y_kind) = kinds(figure, points, grouped);
        let visible = |x: f64, y: f64| (grouped || drawable(x, x_kind)) && drawable(y, y_kind);
        let mut curves = Vec::new();
        for (i, series) in figure.series.iter().enumerate() {
            let mut measured: Vec<(f64, &Point)> = points
                .iter()
                .filter(|point| point.series == series.name)
                .filter_map(|&point| Some((position(point.x.as_ref())?, point)))
                .filter(|(x, point)| visible(*x, point.y))
                .collect();
            measured.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.y.total_cmp(&b.1.y)));
            if figure.form == Form::Cdf {
                // The last thousandth would take most of the axis; the table includes it.
                let end = measured.iter().position(|(_, point)| point.y >= 0.999);
                measured.truncate(end.map_or(measured.len(), |end| end + 1));
            }
            let paper: Vec<(f64, f64)> = values
                .iter()
                .filter(|value| value.series == series.name && value.unit == figure.y.label)
                .filter_map(|value| Some((position(value.x.as_ref())?, value.y)))
                .filter(|&(x, y)| visible(x, y))
                .collect();
            if !measured.is_empty() || !paper.is_empty() {
                let (colour, shape) = (COLOURS[i % COLOURS.len()], Shape::ALL[i % Shape::ALL.len()]);
                curves.push(Curve { series, colour, shape, measured, paper });
            }
        }
        let xs = || curves.iter().flat_map(|c| c.measured.iter().map(|p| p.0).chain(c.paper.iter().map(|p| p.0)));
        let ys = || {
            let measured = |c: &'_ Curve<'a>| c.measured.iter().map(|p| p.1.y).collect::<Vec<_>>();
            curves.iter().flat_map(move |c| measured(c).into_iter().chain(c.paper.iter().map(|p| p.1)))
        };
        xs().next()?;
        let x = if grouped { Scale::groups(places.len(), LEFT, RIGHT) } else { Scale::of_x(x_kind, xs(), LEFT, RIGHT) };
        let y = match figure.form {
            Form::Cdf => Scale::unit(BOTTOM, TOP),
            _ => Scale::of_y(y_kind, ys(), BOTTOM, TOP),
        };
        let groups = if grouped {
            places.iter().map(|x| x.as_ref().map_or(String::new(), x_text)).collect()
        } else {
            Vec::new()
        };
        Some(Self { figure, curves, groups, x, y })
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), PlotError> {
        canvas.clear()?;
        self.axes(canvas)?;
        match self.figure.form {
            Form::Bars => self.bars(canvas)?,
            _ => self.lines(canvas)?,
        }
        self.legend(canvas)?;
        canvas.finish()
    }

    fn axes<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), PlotError> {
        for (value, label) in self.y.ticks() {
            let y = self.y.at(value);
            canvas.line(&[(LEFT, y), (RIGHT, y)], GRID, 1.0)?;
            canvas.line(&[(LEFT - 5.0, y), (LEFT, y)], INK, 1.0)?;
            canvas.text(&label, (LEFT - 9.0, y), 13.0, Anchor::Right, INK)?;
        }
        if self.groups.is_empty() {
            let wanted: Vec<f64> = self.curves.iter().flat_map(|c| c.measured.iter().map(|p| p.0)).collect();
            for (value, label) in self.x.ticks_at(&wanted) {
                let x = self.x.at(value);
                canvas.line(&[(x, TOP), (x, BOTTOM)], GRID, 1.0)?;
                canvas.line(&[(x, BOTTOM), (x, BOTTOM + 5.0)], INK, 1.0)?;
                canvas.text(&label, (x, BOTTOM + 9.0), 13.0, Anchor::Top, INK)?;
            }
        } else {
            let width = (RIGHT - LEFT) / self.groups.len() as f64;
            let chars = ((width - 4.0) / 6.5).max(4.0) as usize;
            for (at, label) in self.groups.iter().enumerate() {
                for (i, line) in canvas::wrap(label, chars).iter().take(3).enumerate() {
                    let place = (self.x.at(at as f64), BOTTOM + 8.0 + 14.0 * i as f64);
                    canvas.text(line, place, 13.0, Anchor::Top, INK)?;
                }
            }
        }
        canvas.line(&[(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], INK, 1.2)?;
        canvas.text(&self.figure.x.label, ((LEFT + RIGHT) / 2.0, BOTTOM + 54.0), 15.0, Anchor::Top, INK)?;
        canvas.vertical_text(&self.figure.y.label, (14.0, (TOP + BOTTOM) / 2.0), 15.0, INK)
    }

    fn lines<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), PlotError> {
        let is_cdf = self.figure.form == Form::Cdf;
        for curve in &self.curves {
            let place = |&(x, point): &(f64, &Point)| (self.x.at(x), self.y.at(point.y));
            let mut places: Vec<(f64, f64)> = curve.measured.iter().map(place).collect();
            if let (true, Some(&(first, _))) = (is_cdf, places.first()) {
                // A distribution rises from 0.
                places.insert(0, (first, BOTTOM));
            }
            let width = if curve.series.ours { 2.6 } else { 1.8 };
            // Several points at one x are single runs, not a curve.
            let is_curve = curve.measured.windows(2).all(|pair| is_cdf || pair[0].0 < pair[1].0);
            if is_curve && curve.series.peer {
                canvas.dashed(&places, curve.colour, width)?;
            } else if is_curve {
                canvas.line(&places, curve.colour, width)?;
            }
            for (&(x, y), (_, point)) in places.iter().zip(&curve.measured).filter(|_| !is_cdf) {
                let (low, high) = (self.y.at(point.min), self.y.at(point.max));
                if low - high > 6.0 {
                    canvas.line(&[(x, low), (x, high)], curve.colour, 1.0)?;
                }
                canvas.mark(curve.shape, (x, y), curve.colour, true)?;
            }
        }
        for curve in &self.curves {
            for &(x, y) in &curve.paper {
                canvas.mark(curve.shape, (self.x.at(x), self.y.at(y)), curve.colour, false)?;
            }
        }
        Ok(())
    }

    fn bars<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), PlotError> {
        let group = (RIGHT - LEFT) / self.groups.len() as f64;
        let width = (0.84 * group / self.curves.len() as f64).min(60.0);
        for (i, curve) in self.curves.iter().enumerate() {
            let left = |at: f64| self.x.at(at) + (i as f64 - self.curves.len() as f64 / 2.0) * width;
            for &(at, point) in &curve.measured {
                let (x, y) = (left(at), self.y.at(point.y));
                let gap = (0.08 * width).min(2.0);
                canvas.rectangle((x + gap, y), (x + width - gap, BOTTOM), curve.colour, curve.series.peer)?;
                let (low, high) = (self.y.at(point.min), self.y.at(point.max));
                if low - high > 6.0 {
                    let middle = x + width / 2.0;
                    canvas.line(&[(middle, low), (middle, high)], INK, 1.0)?;
                }
            }
            for &(at, y) in &curve.paper {
                canvas.mark(curve.shape, (left(at) + width / 2.0, self.y.at(y)), curve.colour, false)?;
            }
        }
        Ok(())
    }

    fn legend<DB: DrawingBackend>(&self, canvas: &Canvas<DB>) -> Result<(), PlotError> {
        let (x, mut y) = (RIGHT + 18.0, TOP + 8.0);
        for curve in &self.curves {
            let sample = [(x, y), (x + 26.0, y)];
            match self.figure.form {
                Form::Bars => {
                    canvas.rectangle((x + 4.0, y - 6.0), (x + 22.0, y + 6.0), curve.colour, curve.series.peer)?;
                }
                _ if curve.series.peer => canvas.dashed(&sample, curve.colour, 1.8)?,
                _ => canvas.line(&sample, curve.colour, if curve.series.ours { 2.6 } else { 1.8 })?,
            }
            if self.figure.form == Form::Lines {
                canvas.mark(curve.shape, (x + 13.0, y), curve.colour, !curve.measured.is_empty())?;
            }
            for line in canvas::wrap(&curve.series.name, LEGEND_CHARS) {
                canvas.text(&line, (x + 34.0, y), 13.0, Anchor::Left, INK)?;
                y += 16.0;
            }
            y += 5.0;
        }
        let mut note = |text: &str, mark: bool| -> Result<(), PlotError> {
            if mark {
                canvas.mark(Shape::Circle, (x + 13.0, y), GREY, false)?;
            } else {
                canvas.dashed(&[(x, y), (x + 26.0, y)], GREY, 1.8)?;
            }
            canvas.text(text, (x + 34.0, y), 13.0, Anchor::Left, GREY)?;
            y += 20.0;
            Ok(())
        };
        if self.curves.iter().any(|curve| !curve.paper.is_empty()) {
            note("hollow: printed in the paper", true)?;
        }
        if self.figure.form != Form::Bars && self.curves.iter().any(|curve| curve.series.peer) {
            note("dashed: what others offer today", false)?;
        }
        Ok(())
    }
}
