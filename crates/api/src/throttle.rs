//! A bound on lines of the log: so many a second, and a count of the others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines a second.
const LINES_A_SECOND: u32 = 10;

/// Says of each line whether it is one too many.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Lines { since: Instant::now(), said: 0, unsaid: 0 }))
    }

    /// None if the line is one too many; otherwise how many were before it.
    pub(crate) fn pass(&self) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.elapsed() >= Duration::from_secs(1) {
            (lines.since, lines.said) = (Instant::now(), 0);
        }
        if lines.said == LINES_A_SECOND {
            lines.unsaid += 1;
            return None;
        }
        lines.said += 1;
        Some(std::mem::take(&mut lines.unsaid))
    }
}
