//! Summaries of refusals to one source: a limited number of lines in a time, and then a count.

use super::Record;
use crate::address::Origin;
use crate::limits::peer_text;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines for one source within [`WITHIN`], in addition to the summary.
const LINES: u64 = 10;
const WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of sources to distinguish within [`WITHIN`].
const MAX_SOURCES: usize = 256;

/// The source of refusals: a name, and an address in the classes of the limits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Source(String, String);

impl Source {
    pub(super) fn new(who: &str, from: Origin) -> Self {
        Self(who.to_owned(), peer_text(from))
    }

    /// The source for all refusals beyond the maximum.
    fn others() -> Self {
        Self("-".to_owned(), "others".to_owned())
    }
}

#[derive(Debug)]
struct Sum {
    since: Instant,
    lines: u64,
    /// The last refusal, and the number of those without a line.
    last: Option<Record>,
}

/// The summaries; see the module.
#[derive(Debug, Default)]
pub(super) struct Sums(Mutex<HashMap<Source, Sum>>);

impl Sums {
    /// Adds a refusal; returns it if it gets its own line.
    pub(super) fn add(&self, source: Source, record: Record, now: Instant) -> Option<Record> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_crowd = sums.len() >= MAX_SOURCES && !sums.contains_key(&source);
        let source = if is_crowd { Source::others() } else { source };
        let sum = sums.entry(source).or_insert(Sum { since: now, lines: 0, last: None });
        if sum.lines < LINES {
            sum.lines += 1;
            return Some(record);
        }
        let times = sum.last.as_ref().map_or(0, |last| last.times) + 1;
        let from = if is_crowd { "others".to_owned() } else { record.from.clone() };
        sum.last = Some(Record { times, from, ..record });
        None
    }

    /// Takes the summaries that are complete at a time, or all.
    pub(super) fn take(&self, now: Option<Instant>) -> Vec<Record> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_complete = |sum: &Sum| now.is_none_or(|now| now.saturating_duration_since(sum.since) >= WITHIN);
        let complete = sums.extract_if(|_, sum| is_complete(sum));
        complete.filter_map(|(_, sum)| sum.last).collect()
    }
}
