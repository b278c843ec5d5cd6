//! Output of commands and their exit codes: rows as a table or as JSON from one `Serialize` type, and exit codes by kind
//! of failure.

use crate::log::priority::StandardError;
use lookup::base::visible::{visible, visible_json, visible_lines};
use serde::Serialize;
use serde_json::Value;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// How a command ended, as the exit code of the process. 0 is success; clap itself ends with 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// An unexpected failure: a bug, a full disk.
    Internal = 1,
    /// The command line or a configuration file is wrong.
    Usage = 2,
    /// Input is malformed: a name, a line of a CSV, an image.
    BadInput = 3,
    /// The thing asked for does not exist, or the controller cannot be reached.
    NotFound = 4,
    /// Refused: a limit, a digest collision, something still in use.
    Refused = 5,
    /// The command ran, and a check of it failed (a frame was misdelivered).
    CheckFailed = 6,
    /// Ctrl-C or SIGTERM, after cleaning up.
    Interrupted = 130,
}

/// An error with its exit code. The message is complete in itself; the source adds detail below it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    exit: Exit,
    message: String,
    source: Option<anyhow::Error>,
}

impl Failure {
    /// An error with the exit code `exit` and no source.
    #[expect(clippy::new_ret_no_self, reason = "made to be returned with `?`")]
    pub fn new(exit: Exit, message: impl Display) -> anyhow::Error {
        Self { exit, message: message.to_string(), source: None }.into()
    }
}

/// Gives an error its exit code: `parse(line).or_exit(Exit::BadInput, "line 7")?`.
pub trait OrExit<T> {
    /// Wraps the error with `message` in front and the exit code `exit`.
    fn or_exit(self, exit: Exit, message: impl Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit, message: impl Display) -> anyhow::Result<T> {
        self.map_err(|e| Failure { exit, message: message.to_string(), source: Some(e.into()) }.into())
    }
}

/// The exit code of an error: that of the outermost [`Failure`] in its chain, otherwise internal.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error
        .downcast_ref::<Failure>()
        .or_else(|| error.chain().find_map(|e| e.downcast_ref()))
        .map_or(Exit::Internal, |f| f.exit)
}

/// Where results go. Copy it freely; it holds one flag.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// `json`: one JSON object per row; otherwise tables and sentences.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether the user asked for JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints rows: each as one JSON object per line, or all as one aligned table whose columns are the field names, and in which
    /// every character can be [seen](crate::visible).
    /// # Errors
    /// When standard output is closed, or a row does not serialise to an object.
    pub fn rows<T: Serialize>(self, rows: &[T]) -> anyhow::Result<()> {
        let values = rows.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let text = if self.json { json_lines(&values)? } else { table_within(&values, room(WIDEST)) };
        write_out(&text)
    }

    /// As [`Output::rows`], with another form of each row in the table: short headings, and numbers for people.
    /// # Errors
    /// As there.
    pub fn rows_as<T: Serialize, S: Serialize>(self, rows: &[T], shown: impl FnMut(&T) -> S) -> anyhow::Result<()> {
        self.rows_within(rows, shown, WIDEST)
    }

    /// As [`Output::rows_as`], in a table of at most this many columns.
    /// # Errors
    /// As there.
    pub fn rows_within<T: Serialize, S: Serialize>(
        self,
        rows: &[T],
        shown: impl FnMut(&T) -> S,
        widest: usize,
    ) -> anyhow::Result<()> {
        if self.json {
            return self.rows(rows);
        }
        let values = rows.iter().map(shown).map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        write_out(&table_within(&values, room(widest)))
    }

    /// Prints the result of a command that changes something: `value` as JSON, or the sentence.
    /// # Errors
    /// When standard output is closed.
    pub fn done<T: Serialize>(self, value: &T, sentence: impl Display) -> anyhow::Result<()> {
        if self.json {
            write_out(&format!("{}\n", json(value)?))
        } else {
            write_out(&format!("{}\n", visible_lines(&sentence.to_string())))
        }
    }

    /// Prints an error with its causes to standard error and returns the exit code.
    pub fn failure(self, error: &anyhow::Error) -> ExitCode {
        if error.chain().any(|cause| cause.is::<ReaderGone>()) {
            return ExitCode::SUCCESS;
        }
        let exit = exit_of(error);
        let message = message_of(error);
        let text = if self.json {
            visible_json(&serde_json::json!({"error": message, "exit": exit as u8}).to_string()).into_owned()
        } else {
            format!("fibula: {}", visible_lines(&message))
        };
        // If standard error is closed, the message is lost.
        let _ = StandardError::of_this_process().errors().write_all(format!("{text}\n").as_bytes());
        ExitCode::from(exit as u8)
    }
}

/// An error and its causes, from the outside in. Many errors say their cause in their own text; it is not said again.
fn message_of(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            message.push_str(separator);
            message.push_str(&cause);
        }
    }
    message
}

/// The reader of standard output has gone (`fibula name export | head`), which is not a failure of ours.
#[derive(Debug, thiserror::Error)]
#[error("standard output has no reader any more")]
struct ReaderGone;

/// Converts a failure to write to standard output.
pub fn to_stdout(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::from(error).context("standard output cannot be written"),
    }
}

/// Writes text to standard output unchanged.
/// # Errors
/// When standard output is closed.
pub fn write_out(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(to_stdout)
}

/// Says something on standard error besides the result, in which every character can be [seen](crate::visible).
pub fn note(sentence: impl Display) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(std::io::stderr(), "{}", visible_lines(&sentence.to_string()));
}

/// A value as JSON, in one line, in which every character can be [seen](crate::visible).
/// # Errors
/// When it does not serialise.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    Ok(visible_json(&serde_json::to_string(value)?).into_owned())
}

fn json_lines(values: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for value in values {
        writeln!(text, "{}", json(value)?)?;
    }
    Ok(text)
}

/// An aligned table: numbers to the right, the rest to the left, columns two spaces apart.
fn table_within(rows: &[Value], widest: usize) -> String {
    let Some(Value::Object(first)) = rows.first() else { return String::new() };
    let header: Vec<String> = first.keys().map(|k| k.replace('_', " ")).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| first.keys().map(|key| cell(&row[key])).collect()).collect();
    let is_number: Vec<bool> =
        first.keys().map(|key| rows.iter().any(|r| r[key].is_number()) || is_quantity(rows, key)).collect();
    let (cells, is_number) = fitted(&header, cells, is_number, widest);
    aligned(&header, &cells, &is_number)
}

/// Whether a column has [quantities](crate::units), which are texts.
fn is_quantity(rows: &[Value], key: &str) -> bool {
    let is_one = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<std::net::IpAddr>().is_err() && {
            let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim_start();
            ["", "k", "M", "G", "T", "B", "KiB", "MiB", "GiB", "TiB"].contains(&unit)
        }
    };
    let mut texts = rows.iter().filter_map(|row| row[key].as_str()).filter(|text| *text != "-").peekable();
    texts.peek().is_some() && texts.all(is_one)
}

/// As wide as a table is where people read it.
const WIDEST: usize = 120;

/// How wide a table may be, of which `widest` is asked: other programs get a row a line, however long, unless COLUMNS says how much room
/// there is.
fn room(widest: usize) -> usize {
    if std::io::stdout().is_terminal() {
        return widest;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    columns.map_or(usize::MAX, |columns| columns.min(widest))
}
/// Minimum line length when a text is broken into lines, in characters.
const NARROWEST: usize = 24;

/// Breaks the widest texts between words where a table would be too wide, so that a cell continues in lines of its own. Nothing
/// is left out.
fn fitted(
    header: &[String],
    cells: Vec<Vec<String>>,
    is_number: Vec<bool>,
    limit: usize,
) -> (Vec<Vec<String>>, Vec<bool>) {
    let length = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = (0..header.len())
        .map(|c| cells.iter().map(|row| length(&row[c])).chain([length(&header[c])]).max().unwrap_or(0))
        .collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    let natural = widths.clone();
    loop {
        let excess = total(&widths).saturating_sub(limit);
        // The widest text that has spaces to be broken at.
        let breakable =
            |c: &usize| !is_number[*c] && widths[*c] > NARROWEST && cells.iter().any(|row| row[*c].contains(' '));
        let widest = (0..widths.len()).filter(breakable).max_by_key(|&c| widths[c]);
        let Some(c) = widest.filter(|_| excess > 0) else { break };
        widths[c] = (widths[c] - excess.min(widths[c] - NARROWEST)).max(NARROWEST);
    }
    if widths == natural {
        return (cells, is_number);
    }
    let mut lines = Vec::new();
    for row in cells {
        let broken: Vec<Vec<String>> = row.iter().zip(&widths).map(|(cell, &width)| broken(cell, width)).collect();
        for n in 0..broken.iter().map(Vec::len).max().unwrap_or(1) {
            lines.push(broken.iter().map(|cell| cell.get(n).cloned().unwrap_or_default()).collect());
        }
    }
    (lines, is_number)
}

/// A text in lines of at most this many characters, broken between words; a longer word gets its own line.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Columns two spaces apart, as wide as their widest cell; those in `to_the_right` are right-aligned.
pub fn aligned(header: &[String], cells: &[Vec<String>], to_the_right: &[bool]) -> String {
    let width = |c: usize| {
        let rows = cells.iter().map(|row| row[c].chars().count());
        rows.chain([header[c].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(header).chain(cells.iter().map(Vec::as_slice)) {
        let cell = |(c, s): (usize, &String)| {
            let w = widths[c];
            if to_the_right[c] { format!("{s:>w$}") } else { format!("{s:<w$}") }
        };
        let line: Vec<String> = row.iter().enumerate().map(cell).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(s) => visible(s).into_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(n) if n.is_f64() => {
            let x = n.as_f64().unwrap_or_default();
            match x.abs() {
                100.0.. => format!("{x:.0}"),
                // A rate of 1e-9 is not 0.
                y if y < 0.001 && y > 0.0 => format!("{x:.1e}"),
                _ => format!("{x:.3}"),
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[Value]) -> String {
        table_within(rows, WIDEST)
    }

    #[derive(Serialize)]
    struct Row {
        name: &'static str,
        n_names: u64,
        up: bool,
    }

    #[test]
    fn table_has_a_header_and_aligns_numbers_to_the_right() {
        let rows = [Row { name: "s1", n_names: 5, up: true }, Row { name: "seattle", n_names: 12_000, up: false }];
        let values: Vec<Value> = rows.iter().map(|r| serde_json::to_value(r).unwrap()).collect();
        assert_eq!(table(&values), "name     n names  up\ns1             5  yes\nseattle    12000  no\n");
    }

    #[test]
    fn a_name_that_would_be_shown_reversed_or_not_at_all_is_written_out_in_a_table_and_in_json_that_means_the_same() {
        let rows = [serde_json::to_value(Row { name: "a\u{202e}b\u{200b}", n_names: 1, up: true }).unwrap()];
        assert_eq!(table(&rows), "name            n names  up\na\\u202eb\\u200b        1  yes\n");
        let lines = json_lines(&rows).unwrap();
        assert!(lines.is_ascii(), "{lines}");
        assert_eq!(serde_json::from_str::<Value>(&lines).unwrap(), rows[0]);
    }

    #[test]
    fn a_table_is_at_most_120_columns_wide_and_has_every_word() {
        let why = "the controller has given it a table that it cannot hold ".repeat(4);
        let rows = [
            serde_json::json!({"switch": "s1", "detail": "x".repeat(20), "why": why, "n": 7}),
            serde_json::json!({"switch": "s2", "detail": "", "why": "short", "n": 12}),
        ];
        let shown = table(&rows);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDEST), "{shown}");
        assert!(shown.lines().count() > 3, "{shown}");
        let is_of_it = |word: &&str| why.split_whitespace().any(|other| other == *word);
        let below: Vec<&str> = shown.lines().skip(1).flat_map(str::split_whitespace).filter(is_of_it).collect();
        assert_eq!(below, why.split_whitespace().collect::<Vec<_>>(), "{shown}");
        let second: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(second, ["s2", "short", "12"]);
        let narrow = [serde_json::json!({"switch": "s1", "why": "two words"})];
        assert_eq!(table(&narrow), "switch  why\ns1      two words\n");
    }

    #[test]
    fn quantities_are_aligned_to_the_right_and_addresses_are_not() {
        let rows = [
            serde_json::json!({"sent": "1.18 KiB", "ip": "10.0.0.1", "a": "s1:2"}),
            serde_json::json!({"sent": "999 B", "ip": "10.0.0.10", "a": "s1:20"}),
        ];
        assert_eq!(table(&rows), "    sent  ip         a\n1.18 KiB  10.0.0.1   s1:2\n   999 B  10.0.0.10  s1:20\n");
    }

    #[test]
    fn small_shares_are_not_nothing() {
        let shown = [0.0, 5e-4, 0.001, -2e-9, 0.25, 99.9994, 1234.5].map(|x: f64| cell(&x.into()));
        assert_eq!(shown, ["0.000", "5.0e-4", "0.001", "-2.0e-9", "0.250", "99.999", "1234"]);
    }

    #[test]
    fn json_has_one_object_a_line_in_the_order_of_the_fields() {
        let values = [serde_json::to_value(Row { name: "s1", n_names: 5, up: true }).unwrap()];
        assert_eq!(json_lines(&values).unwrap(), "{\"name\":\"s1\",\"n_names\":5,\"up\":true}\n");
    }

    #[test]
    fn cause_that_an_error_has_in_its_own_text_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read x: {source}")]
        struct Unreadable {
            source: std::io::Error,
        }
        let gone = || std::io::Error::other("gone");
        let error = Err::<(), _>(Unreadable { source: gone() }).or_exit(Exit::Usage, "no configuration").unwrap_err();
        assert_eq!(message_of(&error), "no configuration: cannot read x: gone");
        let error = Err::<(), _>(gone()).or_exit(Exit::Usage, "no configuration").unwrap_err();
        assert_eq!(message_of(&error), "no configuration: gone");
    }

    #[test]
    fn exit_code_survives_added_context() {
        let error = Failure::new(Exit::Refused, "the table is full").context("importing a.csv");
        assert_eq!(exit_of(&error), Exit::Refused);
        let wrapped: anyhow::Result<()> = Err(error).or_exit(Exit::BadInput, "line 7");
        assert_eq!(exit_of(&wrapped.unwrap_err()), Exit::BadInput);
        assert_eq!(exit_of(&anyhow::anyhow!("disk full")), Exit::Internal);
    }
}
