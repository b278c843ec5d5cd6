//! A bench in several processes, one after the other.
//!
//! Where a process has its memory, and what else uses the last-level cache while it runs, can change its figures more
//! than its rounds show. So a figure is the median of the medians of all processes, with their smallest and largest.
//! Rows that differ by more than [`STEADY`](crate::report::STEADY) times are marked.

use std::process::{Command, Stdio};

use super::Listener;
use crate::BenchError;
use crate::report::Row;

/// Runs `command`, which prints rows as JSON lines, `n` times, and reports their tables.
/// # Errors
/// [`BenchError::Process`], with what the process wrote to standard error.
pub fn run(n: u32, command: impl Fn() -> Command, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let mut all: Vec<Vec<Row>> = Vec::new();
    for number in 1..=n {
        listener.say(&format!("process {number} of {n}"));
        let rows = rows(command()).map_err(|(code, reason)| BenchError::Process { number, code, reason })?;
        let first = all.first().unwrap_or(&rows);
        let is_same = |(a, b): (&Row, &Row)| a.is_beside(b) && a.contestant == b.contestant && a.checksum == b.checksum;
        if rows.len() != first.len() || !first.iter().zip(&rows).all(is_same) {
            let reason = "its rows or checksums are not those of the first process".into();
            return Err(BenchError::Process { number, code: None, reason });
        }
        all.push(rows);
    }
    let of_row = |at: usize| Row::merged(&all.iter().map(|rows| &rows[at]).collect::<Vec<_>>());
    let merged: Vec<Row> = (0..all.first().map_or(0, Vec::len)).map(of_row).collect();
    merged.chunk_by(Row::is_beside).for_each(|table| listener.table(table));
    Ok(())
}

/// The rows that a process prints, or its exit code and why there are none.
fn rows(mut command: Command) -> Result<Vec<Row>, (Option<i32>, String)> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| (None, error.to_string()))?;
    if !output.status.success() {
        let reason = format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
        return Err((output.status.code(), reason));
    }
    let row = |line| serde_json::from_str(line).map_err(|error| (None, format!("{line:?} is no row: {error}")));
    String::from_utf8_lossy(&output.stdout).lines().map(row).collect()
}
