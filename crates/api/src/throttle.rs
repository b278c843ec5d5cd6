//! A bound on lines of the log: so many a second, and a count of the others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines a second.
const LINES_A_SECOND: u32 = 10;

/// Says of each line whether it is one too many.
#[derive(Debug)]
pub struct Throttle(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self(Mutex::new(Lines { since: Instant::now(), said: 0, unsaid: 0 }))
    }
}

impl Throttle {
    /// None if the line is one too many; otherwise how many were before it.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(lines.since) >= Duration::from_secs(1) {
            (lines.since, lines.said) = (now, 0);
        }
        if lines.said == LINES_A_SECOND {
            lines.unsaid += 1;
            return None;
        }
        lines.said += 1;
        Some(std::mem::take(&mut lines.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_pass_and_the_next_says_how_many_did_not() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let passed = |now| (0..100).filter_map(|_| throttle.pass_at(now)).collect::<Vec<_>>();
        assert_eq!(passed(start), [0; 10]);
        assert_eq!(passed(start + Duration::from_millis(900)), [0; 0]);
        let mut later = vec![190];
        later.extend([0; 9]);
        assert_eq!(passed(start + Duration::from_secs(2)), later);
    }
}
