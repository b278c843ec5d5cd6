//! The values of a figure as a table: by x and series, as quantiles of distributions, or as a matrix of verdicts.

use std::fmt::Write as _;

use super::escape;
use crate::figures::verdict::{number, places, same_x, value_at, x_text};
use crate::figures::{Figure, Form, PaperValue, Point, X};

/// Rows of a table that is shown unfolded; longer tables are folded.
const OPEN_ROWS: usize = 16;
/// Maximum rows of a folded table.
const MOST_ROWS: usize = 64;
/// The shares of a distribution that its table lists.
const SHARES: [f64; 6] = [0.1, 0.5, 0.6, 0.9, 0.99, 0.999];

/// Values by x and series: the paper's, ours, and their ratio.
pub(super) fn table(figure: &Figure, points: &[&Point], values: &[&PaperValue]) -> String {
    if figure.form == Form::Cdf {
        return quantiles(figure, points);
    }
    let verdicts = verdicts(points, values);
    if !verdicts.is_empty() {
        return matrix(figure, &verdicts, points);
    }
    let mut rows = places(points);
    for value in values {
        if !rows.iter().any(|x| same_x(x.as_ref(), value.x.as_ref())) {
            rows.push(value.x.clone());
        }
    }
    let has = |name: &str| points.iter().any(|p| p.series == name) || values.iter().any(|v| v.series == name);
    let mut series: Vec<&str> = figure.series.iter().map(|s| s.name.as_str()).filter(|name| has(name)).collect();
    for value in values {
        if !series.contains(&value.series.as_str()) {
            series.push(&value.series);
        }
    }
    let cell = |x: &Option<X>, name: &str| {
        let ours = value_at(points, name, x.as_ref());
        let paper = values.iter().find(|v| v.series == name && same_x(v.x.as_ref(), x.as_ref())).map(|v| v.y);
        match (ours, paper) {
            (None, None) => String::new(),
            (Some(ours), None) => number(ours),
            (None, Some(paper)) => format!("<span class=\"paper\">paper {}</span>", number(paper)),
            (Some(ours), Some(paper)) => {
                let ratio = if paper == 0.0 { String::new() } else { format!(", {}×", number(ours / paper)) };
                format!("{} <span class=\"paper\">paper {}{ratio}</span>", number(ours), number(paper))
            }
        }
    };
    let place = |x: &Option<X>| x.as_ref().map_or(String::new(), x_text);
    let every = rows.len().div_ceil(MOST_ROWS).max(1);
    let rows: Vec<&Option<X>> = rows.iter().step_by(every).collect();
    let mut out = String::from("<div class=\"wide\"><table class=\"values\"><thead><tr>");
    // A table of many columns and few rows is easier to read transposed.
    if series.len() > 5 && rows.len() <= 8 {
        let _ = write!(out, "<th>{}</th>", escape(&format!("{} by {}", figure.y.label, figure.x.label)));
        for x in &rows {
            let _ = write!(out, "<th>{}</th>", escape(&place(x)));
        }
        out += "</tr></thead><tbody>";
        for name in series {
            let cells: Vec<String> = rows.iter().map(|x| format!("<td>{}</td>", cell(x, name))).collect();
            let _ = write!(out, "<tr><td>{}</td>{}</tr>", escape(name), cells.concat());
        }
    } else {
        let _ = write!(out, "<th>{}</th>", escape(&figure.x.label));
        for name in &series {
            let _ = write!(out, "<th>{}</th>", escape(name));
        }
        out += "</tr></thead><tbody>";
        for x in &rows {
            let cells: Vec<String> = series.iter().map(|name| format!("<td>{}</td>", cell(x, name))).collect();
            let _ = write!(out, "<tr><td>{}</td>{}</tr>", escape(&place(x)), cells.concat());
        }
    }
    out += "</tbody></table></div>\n";
    let unit = escape(&figure.y.label);
    let open = if rows.len() <= OPEN_ROWS { " open" } else { "" };
    format!("<details{open}><summary>Values, in {unit}</summary>\n{out}</details>\n")
}

/// Where each curve of a distribution reaches these shares.
fn quantiles(figure: &Figure, points: &[&Point]) -> String {
    let mut out =
        format!("<div class=\"wide\"><table class=\"values\"><thead><tr><th>{}</th>", escape(&figure.x.label));
    for share in SHARES {
        let _ = write!(out, "<th>{} %</th>", number(100.0 * share));
    }
    out += "</tr></thead><tbody>";
    for series in &figure.series {
        let reached = |share: f64| {
            let xs = points.iter().filter(|p| p.series == series.name && p.y >= share);
            xs.filter_map(|point| point.x.as_ref()?.number()).reduce(f64::min)
        };
        let cells = SHARES.map(|share| format!("<td>{}</td>", reached(share).map_or(String::new(), number)));
        let _ = write!(out, "<tr><td>{}</td>{}</tr>", escape(&series.name), cells.concat());
    }
    out + "</tbody></table></div>\n"
}

/// A verdict of ours beside the paper's, of a table of verdicts.
struct Both<'a> {
    series: &'a str,
    x: &'a Option<X>,
    ours: bool,
    paper: bool,
}

/// The verdicts of a table whose printed values are all 0 or 1; empty for other tables.
fn verdicts<'a>(points: &[&'a Point], values: &[&PaperValue]) -> Vec<Both<'a>> {
    let is_verdict = |y: f64| y == 0.0 || y == 1.0;
    if !values.iter().all(|value| is_verdict(value.y)) {
        return Vec::new();
    }
    let of = |point: &&'a Point| {
        let same = |value: &&&PaperValue| value.series == point.series && same_x(value.x.as_ref(), point.x.as_ref());
        let paper = values.iter().find(same)?.y == 1.0;
        is_verdict(point.y).then_some(Both { series: &point.series, x: &point.x, ours: point.y == 1.0, paper })
    };
    points.iter().filter_map(of).collect()
}

/// Verdicts as a matrix of + and -, those that differ from the paper's marked, and how many agree; other values below.
fn matrix(figure: &Figure, verdicts: &[Both<'_>], points: &[&Point]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<&Option<X>> = Vec::new();
    for verdict in verdicts {
        if !columns.contains(&verdict.series) {
            columns.push(verdict.series);
        }
        if !rows.contains(&verdict.x) {
            rows.push(verdict.x);
        }
    }
    let in_order = |figure: &Figure, name: &str| figure.series.iter().position(|series| series.name == name);
    columns.sort_by_key(|name| in_order(figure, name));
    rows.sort_by_key(|x| x.as_ref().and_then(|x| in_order(figure, &x.to_string())));
    let agree = verdicts.iter().filter(|verdict| verdict.ours == verdict.paper).count();
    let mut out = format!(
        "<p class=\"note\"><b>{agree} of {} verdicts agree with the paper's</b>; those that do not are marked: ours, \
         then the paper's. + is accepted, - rejected.</p>\n<div class=\"wide\"><table class=\"matrix\"><thead><tr><th>{}</th>",
        verdicts.len(),
        escape(&figure.x.label),
    );
    for name in &columns {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out += "</tr></thead><tbody>";
    let sign = |accepted: bool| if accepted { "+" } else { "-" };
    for x in rows {
        let _ = write!(out, "<tr><th>{}</th>", escape(&x.as_ref().map_or(String::new(), x_text)));
        for name in &columns {
            out += &match verdicts.iter().find(|verdict| verdict.series == *name && verdict.x == x) {
                None => "<td></td>".to_owned(),
                Some(both) if both.ours == both.paper => format!("<td>{}</td>", sign(both.ours)),
                Some(both) => format!("<td class=\"bad\">{}/{}</td>", sign(both.ours), sign(both.paper)),
            };
        }
        out += "</tr>";
    }
    out += "</tbody></table></div>\n";
    let others = points.iter().filter(|point| !columns.contains(&point.series.as_str())).map(|point| {
        let place = point.x.as_ref().map_or(String::new(), |x| format!(" at {}", x_text(x)));
        format!("{}{place}: {}", point.series, number(point.y))
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() { out } else { format!("{out}<p class=\"note\">{}.</p>\n", escape(&others.join("; "))) }
}
