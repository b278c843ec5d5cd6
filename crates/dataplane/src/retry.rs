//! Decides when a port that is down is tried again.
//!
//! An interface that is missing or down is looked for every second, which is cheap. One that cannot be opened as it is
//! (another number of queues, a foreign program, no permission) may take half a second to fail, in which the
//! worker forwards nothing. So each try waits twice as long as the one before, up to a minute. A port that fails again
//! as soon as it is opened waits the same way.

use std::time::{Duration, Instant};

/// The shortest time between two tries.
pub(crate) const SHORTEST: Duration = Duration::from_secs(1);
/// The longest.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// The tries of a port.
#[derive(Debug)]
pub(crate) struct Retry {
    wait: Duration,
    /// When the next one is due, while the port is down.
    due: Option<Instant>,
    revived: Option<Instant>,
}

impl Retry {
    /// For a port that works.
    pub(crate) fn new() -> Self {
        Self { wait: SHORTEST, due: None, revived: None }
    }

    /// Notes that the port failed at `now`: while it was up, or when it was tried. Returns how long it waits.
    pub(crate) fn failed(&mut self, now: Instant, is_transient: bool) -> Duration {
        let is_soon = self.revived.take().is_some_and(|revived| now.saturating_duration_since(revived) < self.wait);
        let was_tried = self.due.is_some() || is_soon;
        self.wait = if is_transient || !was_tried { SHORTEST } else { (2 * self.wait).min(LONGEST) };
        self.due = Some(now + self.wait);
        self.wait
    }

    /// Notes that the port works again.
    pub(crate) fn revived(&mut self, now: Instant) {
        (self.due, self.revived) = (None, Some(now));
    }

    /// When the next try is due; `None` while the port works.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn tries_that_fail_for_good_wait_twice_as_long_up_to_a_minute() {
        let (mut retry, mut now) = (Retry::new(), Instant::now());
        let mut waits = vec![];
        for _ in 0..9 {
            waits.push(retry.failed(now, false).as_secs());
            now = retry.due().unwrap();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(retry.failed(now, true), SECOND, "it is missing now, which is looked for every second");
        assert_eq!(retry.failed(now, true), SECOND);
        assert_eq!(retry.failed(now, false), 2 * SECOND);
    }

    #[test]
    fn a_port_that_fails_as_soon_as_it_is_opened_waits_longer_each_time() {
        let (mut retry, mut now) = (Retry::new(), Instant::now());
        let mut waits = vec![];
        for _ in 0..5 {
            waits.push(retry.failed(now, false).as_secs());
            now = retry.due().unwrap();
            retry.revived(now);
            assert_eq!(retry.due(), None);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16]);
        now += 16 * SECOND;
        assert_eq!(retry.failed(now, false), SECOND, "it worked for a while");
    }
}
