//! What `lookup` of an offline table has in common, whatever the table.

use std::io::{self, IsTerminal, Write};

use command::output::{Exit, OrExit, Output, to_stdout};
use command::text::TextReader;
use serde::Serialize;

/// Answers the questions `asked`; without any, those on standard input, one a line. `answer` gets a question and its place,
/// with which errors begin. `csv` is an answer on one line.
/// # Errors
/// Exit code 3 for a line that cannot be read, and those of `answer`.
pub(crate) fn answer_all<A: Serialize>(
    asked: &[String],
    what: &str,
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
    for (line, asked) in (1u64..).zip(TextReader::new(io::stdin().lock()).lines()) {
        let asked = asked.or_exit(Exit::BadInput, format!("line {line}"))?;
        if asked.trim().is_empty() {
            continue;
        }
        let answer = answer(&asked, &format!("line {line}: "))?;
        // Line by line, so that questions may come from a pipe that stays open.
        let text = if out.is_json() { command::output::json(&answer)? } else { csv(&answer) };
        writeln!(stdout, "{text}").map_err(to_stdout)?;
    }
    stdout.flush().map_err(to_stdout)
}
