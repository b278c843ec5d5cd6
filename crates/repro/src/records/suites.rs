//! The newest run of each long suite: `docs/reliability/suites.jsonl`, which `scripts/deep` writes.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::{RecordsError, read};

/// The file, in a source tree.
const FILE: &str = "docs/reliability/suites.jsonl";

/// The newest run of a suite.
#[derive(Clone, Debug, Deserialize)]
pub struct Suite {
    /// Its name, as `scripts/deep --list` prints it.
    pub suite: String,
    /// `passed`, `failed` or `skipped`.
    pub outcome: String,
    /// How long it took.
    pub seconds: u64,
    /// The commit that ran, with `-dirty` behind it if files had been changed.
    pub version: String,
    /// The day.
    pub date: String,
    /// The processor.
    pub machine: String,
}

/// Reads the newest run of each suite of a source tree; it may have none.
/// # Errors
/// When the file cannot be read, or has an invalid line.
pub fn suites(root: &Path) -> Result<Vec<Suite>, RecordsError> {
    let path = root.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = read(&path)?;
    let run = |(at, line)| {
        serde_json::from_str(line).map_err(|error| RecordsError::malformed(&path, format!("line {}: {error}", at + 1)))
    };
    text.lines().enumerate().map(run).collect()
}

/// A table of the runs.
pub(super) fn table(suites: &[Suite]) -> String {
    let mut text =
        String::from("\n| suite | result | seconds | version | day | machine |\n|---|---|---:|---|---|---|\n");
    for Suite { suite, outcome, seconds, version, date, machine } in suites {
        let _ = writeln!(text, "| {suite} | {outcome} | {seconds} | {version} | {date} | {machine} |");
    }
    text
}
