//! The report: one HTML file that includes its plots and style, light or dark like the reader's system.

mod tables;

use std::fmt::Write as _;

use super::report::Entry;
use super::store::Stored;
use super::verdict::{Outcome, Status, number, x_text};
use super::{Paper, PaperValue};
use tables::table;

/// The whole page; `plots` holds the SVG of each entry that has one.
pub fn page(papers: &[Paper], entries: &[Entry<'_>], plots: &[Option<String>]) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    out += "<title>fibula: the papers' tables and figures on this machine</title>\n<style>\n";
    out += STYLE;
    out += "</style></head><body><main>\n<h1>The papers' tables and figures, on this machine</h1>\n";
    out += &machines(entries);
    out += &summary(papers, entries);
    out += &contents(papers, entries);
    out += &unmet(entries);
    out += &lost(entries);
    for paper in papers {
        let _ = writeln!(out, "<section><h2 id=\"{}\">{}</h2>", paper.id, escape(&paper.title));
        let _ = writeln!(out, "<p class=\"about\">{}</p>", prose(paper.about.trim()));
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

const STATUSES: [(Status, &str); 9] = [
    (Status::Reproduced, "good"),
    (Status::WithDifference, "good"),
    (Status::InPart, "fair"),
    (Status::Contradicted, "bad"),
    (Status::Measured, "plain"),
    (Status::NotRun, "plain"),
    (Status::NotMeasured, "plain"),
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

/// All tables and figures, each with its badge.
fn contents(papers: &[Paper], entries: &[Entry<'_>]) -> String {
    let mut out = format!("<nav class=\"contents\"><h2>All {} tables and figures</h2>\n", entries.len());
    for paper in papers {
        let of: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.paper.id == paper.id).collect();
        let _ = write!(out, "<details><summary>{} ({})</summary><ul>", escape(&paper.title), of.len());
        for entry in of {
            let _ = write!(
                out,
                "<li><a href=\"#{}\">{}</a>: {} {}</li>",
                entry.id(),
                escape(&entry.figure.place),
                escape(&entry.figure.title),
                badge(entry.finding.status),
            );
        }
        out += "</ul></details>\n";
    }
    out + "</nav>\n"
}

fn badge(status: Status) -> String {
    format!("<span class=\"badge {}\">{status}</span>", class(status))
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
                    prose(&verdict.claim.says),
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
    let _ = writeln!(out, " {}</h3>", badge(finding.status));
    let _ = writeln!(out, "<p>{}</p>", prose(&sentence(&figure.shows)));
    if let Some(svg) = plot {
        let svg = svg.find("<svg").map_or(svg, |at| &svg[at..]);
        let _ = writeln!(out, "<figure class=\"plot\">{svg}</figure>");
    }
    let _ = writeln!(out, "<p class=\"finding\">{}</p>", prose(&finding.sentence(figure)));
    if !figure.difference.is_empty() {
        let _ = writeln!(out, "<p class=\"note\"><b>Difference.</b> {}</p>", prose(&sentence(&figure.difference)));
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
    let mut out = String::from("<div class=\"wide\"><table class=\"claims\"><thead><tr><th></th>");
    // The outcome first: on a phone the last columns are out of sight.
    out += "<th>the paper says</th><th>where</th><th>wanted</th><th>measured</th></tr></thead><tbody>";
    for verdict in &entry.finding.verdicts {
        let class = match verdict.outcome {
            Outcome::Met => "good",
            Outcome::Missed => "fair",
            Outcome::Contradicted => "bad",
            Outcome::NotMeasured => "plain",
        };
        let _ = write!(
            out,
            "<tr><td class=\"{class}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            verdict.outcome,
            prose(&verdict.claim.says),
            escape(&verdict.claim.place),
            escape(&verdict.wanted.to_string()),
            escape(&verdict.measured_text(entry.figure)),
        );
        // Under the outcome that it explains, and told apart from it.
        let explanation = verdict.explanation();
        for (what, text, numbers) in explanation.iter().flat_map(|explanation| explanation.parts(entry.figure)) {
            let numbers = if numbers.is_empty() { String::new() } else { format!(" <i>{}.</i>", prose(&numbers)) };
            let text = if text.is_empty() { text } else { prose(&sentence(&text)) };
            let _ =
                write!(out, "<tr class=\"cause\"><td></td><td colspan=\"4\"><b>{what}.</b> {text}{numbers}</td></tr>",);
        }
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
    for (series, reason) in stored.lacks() {
        let _ = writeln!(out, "<p class=\"note\"><b>Without {}:</b> {}</p>", escape(&series), prose(reason));
    }
    for note in stored.notes() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&note));
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

/// Text with what stands between backticks as code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 0 { escape(part) } else { format!("<code>{}</code>", escape(part)) }).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = include_str!("html/style.css");
