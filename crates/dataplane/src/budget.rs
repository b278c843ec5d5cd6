//! Limits how often a port may do what costs others something.

use std::time::Instant;

/// A budget of this much a second, and this much at once.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: u32,
    most: u32,
    left: f64,
    at: Instant,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub(crate) fn full(per_second: u32, now: Instant) -> Self {
        Self::with_burst(per_second, per_second, now)
    }

    /// A budget of which nothing is spent, with different numbers at once and per second.
    pub(crate) fn with_burst(per_second: u32, most: u32, now: Instant) -> Self {
        Self { per_second, most, left: most.into(), at: now }
    }

    /// Spends one, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.take_many(1, now)
    }

    /// Whether this many are left.
    pub(crate) fn has(&mut self, n: usize, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * f64::from(self.per_second);
        (self.left, self.at) = ((self.left + earned).min(self.most.into()), now);
        self.left >= n as f64
    }

    /// Spends this many, or none.
    pub(crate) fn take_many(&mut self, n: usize, now: Instant) -> bool {
        let may = self.has(n, now);
        if may {
            self.left -= n as f64;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_spent_comes_back_with_time_and_no_more_than_that() {
        let start = Instant::now();
        let mut budget = Budget::full(10, start);
        let spend = |budget: &mut Budget, at| (0..100).filter(|_| budget.take(at)).count();
        assert_eq!(spend(&mut budget, start), 10);
        assert_eq!(spend(&mut budget, start + Duration::from_millis(500)), 5);
        assert_eq!(spend(&mut budget, start + Duration::from_secs(3600)), 10);
        assert!(budget.take_many(0, start) && !budget.take_many(1, start));
        assert!(!budget.take_many(11, start + Duration::from_secs(9999)), "more than there ever is");
        assert!(budget.take_many(10, start + Duration::from_secs(9999)));
        assert_eq!(spend(&mut budget, start), 0, "a clock that goes back earns nothing");
    }
}
