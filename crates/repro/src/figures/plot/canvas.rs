//! Lines, marks and text on a page, drawn by any backend of plotters.

use plotters::coord::Shift;
use plotters::prelude::{
    Color, DrawingArea, DrawingBackend, IntoFont, PathElement, Polygon, RGBColor, Rectangle, ShapeStyle, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, TextStyle, WHITE};

use super::PlotError;

/// Which point of a text is at its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    /// The middle of its left edge.
    Left,
    /// The middle of its right edge.
    Right,
    /// The middle of its upper edge.
    Top,
}

/// Form of a mark.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Inverted,
    Pentagon,
}

impl Shape {
    pub(super) const ALL: [Self; 6] =
        [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::Inverted, Self::Pentagon];

    /// Its corners around the origin: their number, the angle of the first in turns, the radius.
    fn corners(self) -> (u32, f64, f64) {
        match self {
            Self::Circle => (20, 0.0, 4.6),
            Self::Square => (4, 0.125, 5.8),
            Self::Triangle => (3, -0.25, 6.2),
            Self::Diamond => (4, 0.0, 6.2),
            Self::Inverted => (3, 0.25, 6.2),
            Self::Pentagon => (5, -0.25, 5.6),
        }
    }
}

type Place = (f64, f64);

/// A page on which every length is multiplied by a scale.
pub(super) struct Canvas<DB: DrawingBackend> {
    area: DrawingArea<DB, Shift>,
    scale: f64,
}

fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}

impl<DB: DrawingBackend> Canvas<DB> {
    pub(super) fn new(area: DrawingArea<DB, Shift>, scale: f64) -> Self {
        Self { area, scale }
    }

    pub(super) fn clear(&self) -> Result<(), PlotError> {
        self.area.fill(&WHITE).map_err(failed)
    }

    pub(super) fn finish(&self) -> Result<(), PlotError> {
        self.area.present().map_err(failed)
    }

    fn pixel(&self, (x, y): Place) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn stroke(&self, colour: RGBColor, width: f64) -> ShapeStyle {
        colour.stroke_width((width * self.scale).round().max(1.0) as u32)
    }

    pub(super) fn line(&self, places: &[Place], colour: RGBColor, width: f64) -> Result<(), PlotError> {
        if places.len() < 2 {
            return Ok(());
        }
        let pixels: Vec<(i32, i32)> = places.iter().map(|&place| self.pixel(place)).collect();
        self.area.draw(&PathElement::new(pixels, self.stroke(colour, width))).map_err(failed)
    }

    /// A dashed line; dashes continue around corners.
    pub(super) fn dashed(&self, places: &[Place], colour: RGBColor, width: f64) -> Result<(), PlotError> {
        const DASH: f64 = 7.0;
        const GAP: f64 = 4.0;
        let (mut dash, mut left, mut is_drawn) = (Vec::new(), DASH, true);
        for pair in places.windows(2) {
            let (mut from, to) = (pair[0], pair[1]);
            loop {
                let length = (to.0 - from.0).hypot(to.1 - from.1);
                if is_drawn && dash.is_empty() {
                    dash.push(from);
                }
                if length <= left {
                    left -= length;
                    if is_drawn {
                        dash.push(to);
                    }
                    break;
                }
                from = (from.0 + (to.0 - from.0) * left / length, from.1 + (to.1 - from.1) * left / length);
                if is_drawn {
                    dash.push(from);
                    self.line(&dash, colour, width)?;
                    dash.clear();
                }
                is_drawn = !is_drawn;
                left = if is_drawn { DASH } else { GAP };
            }
        }
        self.line(&dash, colour, width)
    }

    /// A bar; a light one has the colour only at its edges.
    pub(super) fn rectangle(&self, a: Place, b: Place, colour: RGBColor, light: bool) -> Result<(), PlotError> {
        let corners = [self.pixel(a), self.pixel(b)];
        let fill = if light { colour.mix(0.25).filled() } else { colour.filled() };
        self.area.draw(&Rectangle::new(corners, fill)).map_err(failed)?;
        self.area.draw(&Rectangle::new(corners, self.stroke(colour, 1.0))).map_err(failed)
    }

    /// A filled mark, or a hollow one.
    pub(super) fn mark(&self, shape: Shape, at: Place, colour: RGBColor, filled: bool) -> Result<(), PlotError> {
        let (n, first, radius) = shape.corners();
        let radius = if filled { radius } else { radius + 1.4 };
        let corner = |i: u32| {
            let angle = std::f64::consts::TAU * (first + f64::from(i) / f64::from(n));
            self.pixel((at.0 + radius * angle.cos(), at.1 + radius * angle.sin()))
        };
        let mut corners: Vec<(i32, i32)> = (0..n).map(corner).collect();
        let fill = if filled { colour } else { WHITE };
        self.area.draw(&Polygon::new(corners.clone(), fill.filled())).map_err(failed)?;
        corners.push(corners[0]);
        self.area.draw(&PathElement::new(corners, self.stroke(colour, 1.6))).map_err(failed)
    }

    fn style(&self, size: f64, colour: RGBColor) -> TextStyle<'static> {
        ("sans-serif", size * self.scale).into_font().color(&colour)
    }

    pub(super) fn text(
        &self,
        text: &str,
        at: Place,
        size: f64,
        anchor: Anchor,
        colour: RGBColor,
    ) -> Result<(), PlotError> {
        let pos = match anchor {
            Anchor::Left => Pos::new(HPos::Left, VPos::Center),
            Anchor::Right => Pos::new(HPos::Right, VPos::Center),
            Anchor::Top => Pos::new(HPos::Center, VPos::Top),
        };
        let style = self.style(size, colour).pos(pos);
        self.area.draw(&Text::new(text.to_owned(), self.pixel(at), style)).map_err(failed)
    }

    /// Text that reads upwards, with the middle of its left edge at `at`.
    pub(super) fn vertical_text(&self, text: &str, at: Place, size: f64, colour: RGBColor) -> Result<(), PlotError> {
        let font = ("sans-serif", size * self.scale).into_font().transform(FontTransform::Rotate270);
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(HPos::Center, VPos::Top));
        self.area.draw(&Text::new(text.to_owned(), self.pixel(at), style)).map_err(failed)
    }
}

/// Lines of at most `chars` characters, broken at spaces where possible.
pub(super) fn wrap(text: &str, chars: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.is_empty() { vec![String::new()] } else { lines }
}
