//! What `lookup` has in common for all offline tables.

use std::io::{self, IsTerminal, Write};

use command::output::{Exit, OrExit, Output, to_stdout};
use fib::text::{self, Dialect, Line, LineError, Lines};
use serde::Serialize;

/// The questions on standard input.
pub(crate) fn questions(dialect: Dialect) -> impl Iterator<Item = Result<Line, LineError>> {
    text::names(Lines::new(io::stdin().lock()), dialect)
}

/// Answers the questions `asked`, or, if there are none, those on standard input, one a line. `answer` gets a question
/// and its place, which begins each error message. `csv` turns an answer into one line. `dialect` is that of a list of
/// such questions.
/// # Errors
/// Exit code 3 for a line that cannot be read, and those of `answer`.
pub(crate) fn answer_all<A: Serialize>(
    asked: &[String],
    (what, dialect): (&str, Dialect),
    out: &Output,
    answer: impl Fn(&str, &str) -> anyhow::Result<A>,
    csv: impl Fn(&A) -> String,
) -> anyhow::Result<()> {
    if !asked.is_empty() {
        return out.rows(&asked.iter().map(|asked| answer(asked, "")).collect::<Result<Vec<_>, _>>()?);
    }
    if io::stdin().is_terminal() {
        eprintln!("{what}, one a line; end with Ctrl-D");
    }
    let mut stdout = io::stdout().lock();
    for line in questions(dialect) {
        let Line { number, text } = line.or_exit(Exit::BadInput, "standard input")?;
        let answer = answer(&text, &format!("line {number}: "))?;
        // Line by line, so that questions may come from a pipe that stays open.
        let shown = if out.is_json() { command::output::json(&answer)? } else { csv(&answer) };
        writeln!(stdout, "{shown}").map_err(to_stdout)?;
    }
    stdout.flush().map_err(to_stdout)
}
