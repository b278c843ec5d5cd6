//! The bars of the picture: the drawing is a hand-made template, the bars come from the records.

use std::fmt::Write as _;

use super::figures::Bars;
use super::page::Source;
use super::table::{Cell, digits};

/// Left end, width of the longest bar, and height of one bar with its gap, in the drawing's units.
const LEFT: f64 = 694.0;
const LONGEST: f64 = 138.0;
const PITCH: f64 = 36.0;
/// Where the first group starts, and the heights of a heading and of a gap between groups.
const TOP: f64 = 42.0;
const HEAD: f64 = 32.0;
const GAP: f64 = 62.0;

/// The template with its placeholders `{=ID}` replaced: `{=bars}`, and figures as in documents.
pub(super) fn draw(source: &Source<'_>, template: &str) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("{=") {
        let (id, after) = after.split_once('}').ok_or("a placeholder {= without an end")?;
        out.push_str(before);
        out.push_str(&if id == "bars" { all_bars(source)? } else { source.resolve(id)? });
        rest = after;
    }
    Ok(out + rest)
}

fn all_bars(source: &Source<'_>) -> Result<String, String> {
    let mut text = String::new();
    let mut y = TOP;
    for bars in &source.figures.picture.bars {
        let (cells, machine) = cells(source, bars)?;
        let _ = writeln!(text, r#"<text class="head" x="{LEFT}" y="{y}">{}</text>"#, bars.head);
        let _ = writeln!(text, r#"<text class="small" x="{LEFT}" y="{}">{}, {machine}</text>"#, y + 17.0, bars.about);
        y += HEAD;
        let largest = cells.iter().map(Cell::value).fold(0.0, f64::max);
        for (at, (cell, name)) in cells.iter().zip(&bars.labels).enumerate() {
            let width = (LONGEST * cell.value() / largest).max(2.0);
            let class = if at + 1 < cells.len() { "ours" } else { "theirs" };
            let _ =
                writeln!(text, r#"<rect class="{class}" x="{LEFT}" y="{y}" width="{width:.1}" height="24" rx="4"/>"#);
            let _ = writeln!(
                text,
                r#"<text class="small" x="{:.1}" y="{}"><tspan class="value">{}</tspan> {name}</text>"#,
                LEFT + width + 8.0,
                y + 17.0,
                digits(cell.value())
            );
            y += PITCH;
        }
        y += GAP;
    }
    Ok(text)
}

/// The cells of the record in which the first one is worst relative to the last one, and the name of its machine.
fn cells<'a>(source: &'a Source<'_>, bars: &Bars) -> Result<(Vec<Cell<'a>>, &'a str), String> {
    if bars.columns.len() != bars.labels.len() {
        return Err(format!("bars {:?}: as many labels as columns", bars.head));
    }
    let columns: Vec<Vec<Cell<'a>>> =
        bars.columns.iter().map(|column| source.cells(&bars.table, &bars.row, column)).collect::<Result<_, _>>()?;
    let of_record = |first: &Cell<'a>| -> Option<Vec<Cell<'a>>> {
        columns.iter().map(|cells| cells.iter().find(|cell| cell.record.id == first.record.id).copied()).collect()
    };
    let advantage = |cells: &Vec<Cell<'a>>| {
        let ratio = cells[0].value() / cells[cells.len() - 1].value();
        if cells[0].is_rate { ratio } else { 1.0 / ratio }
    };
    let complete = columns.first().into_iter().flatten().filter_map(of_record);
    if let Some(cells) = complete.min_by(|a, b| advantage(a).total_cmp(&advantage(b))) {
        let machine = &cells[0].record.header.label;
        return Ok((cells, machine));
    }
    let worst = columns.iter().map(|cells| cells.first().copied()).collect::<Option<_>>();
    Ok((worst.ok_or_else(|| format!("no record has all bars of {:?}", bars.head))?, "worst records"))
}
