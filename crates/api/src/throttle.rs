//! A rate limit for log lines: a number of lines per time, and a count of the others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines per second about requests to this program.
const LINES_A_SECOND: u32 = 10;
/// Lines per minute about events that frames can cause.
const LINES_A_MINUTE: u32 = 10;

/// Decides for each line whether it exceeds the limit. [`Default`]: ten per second.
#[derive(Debug)]
pub struct Throttle {
    most: u32,
    within: Duration,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(LINES_A_SECOND, Duration::from_secs(1))
    }
}

impl Throttle {
    /// This number of lines within a time.
    fn new(most: u32, within: Duration) -> Self {
        Self { most, within, lines: Mutex::new(Lines { since: Instant::now(), said: 0, unsaid: 0 }) }
    }

    /// Ten lines per minute, for events that hosts and neighbours can cause by frames at any rate. Omitted lines are
    /// visible elsewhere: in a status, or a metric.
    pub fn of_frames() -> Self {
        Self::new(LINES_A_MINUTE, Duration::from_secs(60))
    }

    /// None if the line exceeds the limit; otherwise the number of lines omitted before it.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(lines.since) >= self.within {
            (lines.since, lines.said) = (now, 0);
        }
        if lines.said == self.most {
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

    #[test]
    fn of_what_frames_cause_ten_lines_a_minute_pass() {
        let (throttle, start) = (Throttle::of_frames(), Instant::now());
        let passed = |second| (0..100).filter_map(|_| throttle.pass_at(start + Duration::from_secs(second))).count();
        let n: usize = (0..60).map(passed).sum();
        assert_eq!((n, throttle.pass_at(start + Duration::from_secs(61))), (10, Some(5990)));
    }
}
