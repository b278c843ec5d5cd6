//! Bounds how often switches report what they see: one request of a kind at a time, and so many reports of trunks.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that are under way, by switch and kind, and how often switches have reported their trunks.
#[derive(Debug, Default)]
pub(crate) struct Seeing {
    turns: Arc<Mutex<HashSet<(String, &'static str)>>>,
    trunks: Mutex<HashMap<String, Reports>>,
}

/// A request that is under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Mutex<HashSet<(String, &'static str)>>>,
    key: (String, &'static str),
}

impl Seeing {
    /// Begins a request; none while another one of this kind and switch is under way.
    pub(crate) fn turn(&self, switch: &str, kind: &'static str) -> Option<Turn> {
        let key = (switch.to_owned(), kind);
        // Built only for the first one: dropping it would end the other.
        let is_first = self.turns.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        is_first.then(|| Turn { turns: Arc::clone(&self.turns), key })
    }

    /// Whether a switch may report its trunks again already.
    pub(crate) fn may_tell(&self, switch: &str, now: Instant) -> bool {
        let mut trunks = self.trunks.lock().unwrap_or_else(PoisonError::into_inner);
        trunks.retain(|_, reports| reports.is_recent(now));
        trunks.entry(switch.to_owned()).or_default().may_come(now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Reports of trunks that a switch may send at once: every flap is damped at the switch, for longer each time.
const MOST_REPORTS: u32 = 100;
/// Within this time; what comes sooner is read this much later.
const REPORTS_WITHIN: Duration = Duration::from_secs(10);
pub(crate) const TOO_MANY: Duration = Duration::from_millis(100);

/// Counts the reports of a switch on its trunks: each one may change the paths of all.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    since: Option<Instant>,
    n: u32,
}

impl Reports {
    fn is_recent(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) < REPORTS_WITHIN)
    }

    pub(crate) fn may_come(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= REPORTS_WITHIN) {
            (self.since, self.n) = (Some(now), 0);
        }
        self.n += 1;
        self.n <= MOST_REPORTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_reports_as_fast_as_it_can_is_read_slowly_and_one_that_does_not_never_waits() {
        let start = Instant::now();
        let mut reports = Reports::default();
        let n_taken = (0..10_000).filter(|_| reports.may_come(start)).count();
        assert_eq!(n_taken, MOST_REPORTS as usize);
        assert!(reports.may_come(start + REPORTS_WITHIN));
        let each = REPORTS_WITHIN / MOST_REPORTS;
        let mut reports = Reports::default();
        assert!((0..1000).all(|i| reports.may_come(start + each * i)));
    }

    #[test]
    fn one_request_of_a_kind_and_a_switch_is_under_way() {
        let seeing = Seeing::default();
        let turn = seeing.turn("s1", "hosts").unwrap();
        assert!(seeing.turn("s1", "hosts").is_none());
        assert!(seeing.turn("s1", "trunks").is_some() && seeing.turn("s2", "hosts").is_some());
        drop(turn);
        assert!(seeing.turn("s1", "hosts").is_some());
        let now = Instant::now();
        assert_eq!((0..1000).filter(|_| seeing.may_tell("s1", now)).count(), MOST_REPORTS as usize);
        assert!(seeing.may_tell("s2", now) && seeing.may_tell("s1", now + REPORTS_WITHIN));
    }
}
