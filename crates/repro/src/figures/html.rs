//! The report: one HTML file that includes its plots and style, light or dark like the reader's system.

use std::fmt::Write as _;

use super::report::Entry;
use super::store::Stored;
use super::verdict::{Outcome, Status, number, places, same_x, value_at, x_text};
use super::{Figure, Form, Paper, PaperValue, Point, X};

/// The whole page; `plots` holds the SVG of each entry that has one.
pub fn page(papers: &[Paper], entries: &[Entry<'_>], plots: &[Option<String>]) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    out += "<title>fibula: the papers' tables and figures on this machine</title>\n<style>\n";
    out += STYLE;
    out += "</style></head><body><main>\n<h1>The papers' tables and figures, on this machine</h1>\n";
    out += &machines(entries);
    out += &summary(papers, entries);
    out += &unmet(entries);
    out += &lost(entries);
    for paper in papers {
        let _ = writeln!(out, "<section><h2 id=\"{}\">{}</h2>", paper.id, escape(&paper.title));
        let _ = writeln!(out, "<p class=\"about\">{}</p>", escape(paper.about.trim()));
        for (entry, plot) in entries.iter().zip(plots).filter(|(entry, _)| entry.paper.id == paper.id) {
            out += &section(entry, plot.as_deref());
        }
        out += "</section>\n";
    }
    out + "</main></body></html>\n"
}

fn machines(entries: &[Entry<'_>]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for record in entries.iter().filter_map(|entry| entry.stored.as_ref()).map(|stored| &stored.record) {
        let line = format!("fibula {}, {} run, {}", record.version, record.mode, record.machine);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("<p class=\"machine\">{}</p>\n", escape(line))).collect();
    lines.concat()
}

const STATUSES: [(Status, &str); 8] = [
    (Status::Reproduced, "good"),
    (Status::WithDifference, "good"),
    (Status::InPart, "fair"),
    (Status::Contradicted, "bad"),
    (Status::Measured, "plain"),
    (Status::NotRun, "plain"),
    (Status::NoHardware, "plain"),
    (Status::Nothing, "plain"),
];

fn class(status: Status) -> &'static str {
    STATUSES.iter().find(|(known, _)| *known == status).map_or("plain", |(_, class)| class)
}

/// Numbers of claims and figures per paper.
fn summary(papers: &[Paper], entries: &[Entry<'_>]) -> String {
    let outcomes = [Outcome::Met, Outcome::Missed, Outcome::Contradicted, Outcome::NotMeasured];
    let mut out = String::from("<div class=\"wide\"><table class=\"summary\"><thead><tr><th></th>");
    out += "<th colspan=\"4\">claims</th><th colspan=\"8\">tables and figures</th></tr><tr><th>paper</th>";
    for outcome in outcomes {
        let _ = write!(out, "<th>{outcome}</th>");
    }
    for (status, _) in STATUSES {
        let _ = write!(out, "<th>{status}</th>");
    }
    out += "</tr></thead><tbody>";
    let cell = |out: &mut String, count: usize, class: &str| {
        let class = if count == 0 { "none" } else { class };
        let _ = write!(out, "<td class=\"{class}\">{count}</td>");
    };
    let mut row = |head: String, of: &[&Entry<'_>]| {
        let _ = write!(out, "<tr><td>{head}</td>");
        for (outcome, class) in outcomes.iter().zip(["good", "fair", "bad", "plain"]) {
            cell(&mut out, of.iter().map(|entry| entry.finding.count(*outcome)).sum(), class);
        }
        for (status, class) in STATUSES {
            cell(&mut out, of.iter().filter(|entry| entry.finding.status == status).count(), class);
        }
        out += "</tr>";
    };
    for paper in papers {
        let of: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.paper.id == paper.id).collect();
        row(format!("<a href=\"#{0}\">{0}</a>", paper.id), &of);
    }
    row("<b>all</b>".into(), &entries.iter().collect::<Vec<_>>());
    out + "</tbody></table></div>\n"
}

fn link(entry: &Entry<'_>) -> String {
    format!("<a href=\"#{0}\">{0}</a>", entry.id())
}

/// Claims that do not hold on this machine.
fn unmet(entries: &[Entry<'_>]) -> String {
    let mut rows = String::new();
    for entry in entries {
        for verdict in &entry.finding.verdicts {
            if matches!(verdict.outcome, Outcome::Missed | Outcome::Contradicted) {
                let _ = write!(
                    rows,
                    "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                    link(entry),
                    escape(&verdict.claim.says),
                    escape(&verdict.wanted.to_string()),
                    escape(&verdict.measured_text(entry.figure)),
                    verdict.outcome,
                );
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    "<h2>Claims that do not hold here</h2>\n<div class=\"wide\"><table><thead><tr><th>figure</th><th>the paper says</th>\
     <th>wanted</th><th>measured</th><th></th></tr></thead><tbody>"
        .to_owned()
        + &rows
        + "</tbody></table></div>\n"
}

/// Figures in which something else is better than fibula.
fn lost(entries: &[Entry<'_>]) -> String {
    let mut rows = String::new();
    for entry in entries {
        for loss in &entry.finding.losses {
            let place = loss.at.as_ref().map_or(String::new(), |x| format!("{} = {}", entry.figure.x.label, x_text(x)));
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}×</td><td>{}</td><td>{} of {}</td></tr>",
                link(entry),
                escape(&loss.peer),
                escape(&loss.best),
                number(loss.factor),
                escape(&place),
                loss.places.0,
                loss.places.1,
            );
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    "<h2>Where fibula loses</h2>\n<div class=\"wide\"><table><thead><tr><th>figure</th><th>better</th>\
     <th>than fibula’s best there</th><th>by</th><th>most at</th><th>places</th></tr></thead><tbody>"
        .to_owned()
        + &rows
        + "</tbody></table></div>\n"
}

fn section(entry: &Entry<'_>, plot: Option<&str>) -> String {
    let Entry { figure, finding, stored, .. } = entry;
    let mut out = format!("<article id=\"{}\"><h3>{}: {}", entry.id(), escape(&figure.place), escape(&figure.title));
    let _ = writeln!(out, " <span class=\"badge {}\">{}</span></h3>", class(finding.status), finding.status);
    let _ = writeln!(out, "<p>{}</p>", escape(&sentence(&figure.shows)));
    if let Some(svg) = plot {
        let svg = svg.find("<svg").map_or(svg, |at| &svg[at..]);
        let _ = writeln!(out, "<figure class=\"plot\">{svg}</figure>");
    }
    let _ = writeln!(out, "<p class=\"finding\">{}</p>", escape(&finding.sentence(figure)));
    for (head, text) in [("Difference", &figure.difference), ("Why", &figure.explanation)] {
        if !text.is_empty() {
            let _ = writeln!(out, "<p class=\"note\"><b>{head}.</b> {}</p>", escape(&sentence(text)));
        }
    }
    out += &claims(entry);
    if let Some(stored) = stored {
        out += &table(figure, &entry.points(), &entry.values());
        out += &footnotes(entry, stored);
    } else if !entry.values().is_empty() {
        out += &table(figure, &[], &entry.values());
    }
    let others = entry.other_values();
    if !others.is_empty() {
        let text: Vec<String> = others.iter().map(|value| value_text(value)).collect();
        let _ = writeln!(out, "<p class=\"note\"><b>The paper also prints</b> {}.</p>", escape(&text.join("; ")));
    }
    if figure.is_runnable() {
        let _ = writeln!(out, "<p class=\"note\"><code>fibula repro run {}</code></p>", entry.id());
    }
    out + "</article>\n"
}

fn value_text(value: &PaperValue) -> String {
    let place = value.x.as_ref().map_or(String::new(), |x| format!(" at {}", x_text(x)));
    format!("{}{place}: {} {}", value.series, number(value.y), value.unit)
}

fn claims(entry: &Entry<'_>) -> String {
    if entry.finding.verdicts.is_empty() || entry.stored.is_none() {
        return String::new();
    }
    let mut out = String::from("<div class=\"wide\"><table class=\"claims\"><thead><tr><th>the paper says</th>");
    out += "<th>where</th><th>wanted</th><th>measured</th><th></th></tr></thead><tbody>";
    for verdict in &entry.finding.verdicts {
        let class = match verdict.outcome {
            Outcome::Met => "good",
            Outcome::Missed => "fair",
            Outcome::Contradicted => "bad",
            Outcome::NotMeasured => "plain",
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td></tr>",
            escape(&verdict.claim.says),
            escape(&verdict.claim.place),
            escape(&verdict.wanted.to_string()),
            escape(&verdict.measured_text(entry.figure)),
            verdict.outcome,
        );
    }
    out + "</tbody></table></div>\n"
}

/// Rows of a table that is shown unfolded; longer tables are folded.
const OPEN_ROWS: usize = 16;
/// Maximum rows of a folded table.
const MOST_ROWS: usize = 64;
/// The shares of a distribution that its table lists.
const SHARES: [f64; 6] = [0.1, 0.5, 0.6, 0.9, 0.99, 0.999];

/// Values by x and series: the paper's, ours, and their ratio.
fn table(figure: &Figure, points: &[&Point], values: &[&PaperValue]) -> String {
    if figure.form == Form::Cdf {
        return quantiles(figure, points);
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

fn footnotes(entry: &Entry<'_>, stored: &Stored) -> String {
    let mut out = String::new();
    for loss in &entry.finding.losses {
        let place = loss.at.as_ref().map_or(String::new(), |x| format!(" at {} = {}", entry.figure.x.label, x_text(x)));
        let text = format!(
            "{} is better than {} at {} of {} places, at most {}×{place}.",
            loss.peer,
            loss.best,
            loss.places.0,
            loss.places.1,
            number(loss.factor)
        );
        let _ = writeln!(out, "<p class=\"loss\"><b>Fibula loses.</b> {}</p>", escape(&text));
    }
    for lack in stored.missing() {
        let _ =
            writeln!(out, "<p class=\"note\"><b>Without {}:</b> {}</p>", escape(&lack.series), escape(&lack.reason));
    }
    if !stored.record.complete {
        out += "<p class=\"note\">The run is not complete.</p>\n";
    }
    out
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5d636b; --paper: #fff; --line: #d9dde2; --card: #f6f7f9;
  --good: #0b7a43; --fair: #9a5b00; --bad: #b3261e; --link: #0a58a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --soft: #9aa1ab; --paper: #15171a; --line: #33383f;
  --card: #1e2126; --good: #58c98b; --fair: #e0a54a; --bad: #ff8a80; --link: #7db7f0; }
  .plot svg { filter: invert(0.91) hue-rotate(180deg); } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1rem 1.2rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.6rem; border-bottom: 2px solid var(--line); }
h3 { margin: 2.2rem 0 .3rem; font-size: 1.1rem; } a { color: var(--link); }
p { margin: .4rem 0; max-width: 75ch; } .machine, .note, .about { color: var(--soft); font-size: .92rem; }
.finding { font-weight: 600; } .loss { color: var(--bad); font-size: .92rem; }
.badge { font-size: .75rem; font-weight: 600; padding: .1rem .5rem; border-radius: 1rem; border: 1px solid currentColor;
  white-space: nowrap; vertical-align: middle; }
.good { color: var(--good); } .fair { color: var(--fair); } .bad { color: var(--bad); } .plain { color: var(--soft); }
.none { color: var(--line); }
.plot { margin: .6rem 0; } .plot svg { width: 100%; max-width: 960px; height: auto; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; margin: .5rem 0;
  font-variant-numeric: tabular-nums; } th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; } th { background: var(--card); font-weight: 600; }
.values td + td, .values th + th, .summary td + td, .number { text-align: right; white-space: nowrap; }
.summary th { font-size: .75rem; vertical-align: bottom; } .paper { color: var(--soft); font-size: .85em; }
summary { cursor: pointer; color: var(--soft); font-size: .92rem; } code { font-size: .9em; }
";
