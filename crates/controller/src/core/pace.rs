//! Limits how often peers may cause work that delays everyone else.
//!
//! **Reports.** Answering a report takes time in proportion to the names, and changes wait meanwhile. A switch may report
//! [`REPORTS_AT_ONCE`] times, then at the configured rate, and so rarely that its answers take at most one in
//! [`SHARE`] of the writer's time. So a switch that never stops asking holds up one change in a hundred, by one answer.
//!
//! **Tenants.** Names and changes of a tenant a second, as buckets of [`BURST`] that fill at the configured rates.
//!
//! **Rekeys.** Operators may ask for one per configured time. On its own the controller starts none unless it is configured to,
//! and then at most once in another configured time.

use fib::topology::NodeId;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Reports that are answered without a pause.
const REPORTS_AT_ONCE: f64 = 4.0;

/// The part of the writer's time that answers to one switch may take in the long run.
const SHARE: u32 = 100;

/// The longest pause that answers can cause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How many seconds' worth a tenant may send at once.
const BURST: f64 = 10.0;

/// The most switches and tenants that are remembered. Those with full buckets are forgotten first.
const REMEMBERED: usize = 4096;

/// The section `[rates]`: how often peers may cause work that delays everyone else.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// Reports of one switch that are answered a minute. Four more are answered at once.
    pub reports_per_minute: u32,
    /// Names of one tenant that are added, changed or removed a second, on average. 0: any number.
    pub names_per_second: u32,
    /// Requests for changes of one tenant's names a second, on average. 0: any number.
    pub changes_per_second: u32,
    /// The controller rekeys on its own at most once in this many seconds, when two names have one digest. 0: never.
    pub rekey_every_s: u64,
    /// Operators may ask for a rekey once in this many seconds. 0: at any time.
    pub rekey_pause_s: u64,
}

impl Default for Rates {
    fn default() -> Self {
        // Two digests are equal by accident once in millions of years. Without the key no one can make them equal. So a
        // rekey that starts on its own would most likely be caused by one tenant that has the key.
        Self { reports_per_minute: 60, names_per_second: 0, changes_per_second: 0, rekey_every_s: 0, rekey_pause_s: 60 }
    }
}

/// Tokens that fill up with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(burst: f64, now: Instant) -> Bucket {
        Bucket { tokens: burst, at: now }
    }

    fn fill(&mut self, per_second: f64, burst: f64, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + seconds * per_second).min(burst), now);
    }
}

/// Limits of a switch.
#[derive(Clone, Copy, Debug)]
struct Asks {
    bucket: Bucket,
    /// Time for one more token.
    every: Duration,
}

/// Why a tenant has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooFast {
    pub(crate) tenant: u32,
    /// `names` or `changes`.
    pub(crate) what: &'static str,
    pub(crate) per_second: u32,
    pub(crate) wait: Duration,
}

/// The paces of switches and tenants.
#[derive(Debug)]
pub(crate) struct Pace {
    rates: Rates,
    switches: HashMap<NodeId, Asks>,
    /// Names and changes.
    tenants: HashMap<u32, [Bucket; 2]>,
    rekeyed: Option<Instant>,
}

impl Pace {
    pub(crate) fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    pub(crate) fn new(rates: Rates) -> Pace {
        Pace { rates, switches: HashMap::new(), tenants: HashMap::new(), rekeyed: None }
    }

    /// Whether a report of this switch may be answered now.
    pub(crate) fn may_answer(&mut self, node: NodeId, now: Instant) -> bool {
        let Some(asks) = self.switches.get_mut(&node) else { return true };
        asks.bucket.fill(1.0 / asks.every.as_secs_f64(), REPORTS_AT_ONCE, now);
        asks.bucket.tokens >= 1.0
    }

    /// Notes that answering a report of this switch took this time.
    pub(crate) fn answered(&mut self, node: NodeId, took: Duration, now: Instant) {
        let slowest = Duration::from_secs(60) / self.rates.reports_per_minute.max(1);
        let every = slowest.max((took * SHARE).min(LONGEST_PAUSE));
        if self.switches.len() > REMEMBERED {
            self.switches.retain(|_, asks| asks.bucket.tokens < REPORTS_AT_ONCE);
        }
        let full = Asks { bucket: Bucket::full(REPORTS_AT_ONCE, now), every };
        let asks = self.switches.entry(node).or_insert(full);
        asks.bucket.tokens -= 1.0;
        asks.every = every;
    }

    /// Whether anything of tenants is limited.
    pub(crate) fn limits_tenants(&self) -> bool {
        self.rates.names_per_second > 0 || self.rates.changes_per_second > 0
    }

    /// Takes a change with these numbers of names of each tenant from their buckets, or from none.
    ///
    /// A batch may be larger than a bucket: it passes when the bucket is full, and the next one waits longer.
    /// # Errors
    /// [`TooFast`].
    pub(crate) fn take(&mut self, names: &HashMap<u32, usize>, now: Instant) -> Result<(), TooFast> {
        let rates = [("names", self.rates.names_per_second), ("changes", self.rates.changes_per_second)];
        if self.tenants.len() > REMEMBERED {
            let full = |bucket: &Bucket, rate: u32| bucket.tokens >= f64::from(rate) * BURST;
            self.tenants.retain(|_, [names, changes]| !full(names, rates[0].1) || !full(changes, rates[1].1));
        }
        for (&tenant, &n_names) in names {
            let full = rates.map(|(_, rate)| Bucket::full(f64::from(rate) * BURST, now));
            let buckets = self.tenants.entry(tenant).or_insert(full);
            let costs = [n_names as f64, 1.0];
            for ((bucket, (what, rate)), cost) in buckets.iter_mut().zip(rates).zip(costs) {
                let (per_second, burst) = (f64::from(rate), f64::from(rate) * BURST);
                bucket.fill(per_second, burst, now);
                let needed = cost.min(burst);
                if rate > 0 && bucket.tokens < needed {
                    let wait = Duration::from_secs_f64((needed - bucket.tokens) / per_second);
                    return Err(TooFast { tenant, what, per_second: rate, wait });
                }
            }
        }
        for (tenant, &n_names) in names {
            if let Some([names, changes]) = self.tenants.get_mut(tenant) {
                names.tokens -= n_names as f64;
                changes.tokens -= 1.0;
            }
        }
        Ok(())
    }

    /// The shortest time between two rekeys that operators ask for.
    pub(crate) fn rekey_pause(&self) -> Duration {
        Duration::from_secs(self.rates.rekey_pause_s)
    }

    /// Whether a rekey may start now, for an operator or on the controller's own; if so, notes that it does.
    /// # Errors
    /// The time to wait; forever if the controller starts none on its own.
    pub(crate) fn rekey(&mut self, is_asked_for: bool, now: Instant) -> Result<(), Duration> {
        let every = if is_asked_for { self.rekey_pause() } else { Duration::from_secs(self.rates.rekey_every_s) };
        if every.is_zero() && !is_asked_for {
            return Err(Duration::MAX);
        }
        let since = self.rekeyed.map(|at| now.saturating_duration_since(at));
        match since.and_then(|since| every.checked_sub(since)).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                self.rekeyed = Some(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_that_asks_for_ever_takes_a_hundredth_of_the_time() {
        let mut pace = Pace::new(Rates { reports_per_minute: 6000, ..Rates::default() });
        let (start, node, took) = (Instant::now(), NodeId(1), Duration::from_millis(20));
        let mut now = start;
        let mut n_answers = 0_u32;
        while now - start < Duration::from_secs(100) {
            now += Duration::from_millis(10);
            if pace.may_answer(node, now) {
                pace.answered(node, took, now);
                n_answers += 1;
            }
        }
        // 20 ms a hundred times slower: one in two seconds, and those at once.
        assert!((50..=54).contains(&n_answers), "{n_answers}");
        assert!(pace.may_answer(NodeId(2), now), "others are not held up");
    }

    #[test]
    fn tenant_that_is_too_fast_waits_alone_and_a_large_batch_passes_once() {
        let mut pace = Pace::new(Rates { names_per_second: 100, changes_per_second: 10, ..Rates::default() });
        let mut now = Instant::now();
        let of = |tenant, n| HashMap::from([(tenant, n)]);
        assert_eq!(pace.take(&of(1, 5000), now), Ok(()), "more than a bucket holds");
        let refused = pace.take(&of(1, 1), now).unwrap_err();
        assert_eq!((refused.tenant, refused.what, refused.per_second), (1, "names", 100));
        assert_eq!(pace.take(&of(2, 1), now), Ok(()));
        now += refused.wait;
        assert_eq!(pace.take(&of(1, 1), now), Ok(()));
        let both = HashMap::from([(1, 1), (2, 1)]);
        assert!(pace.take(&both, now).is_err());
        for _ in 0..100 {
            assert_eq!(pace.take(&of(2, 0), now), Ok(()), "a refused change takes nothing");
        }
        assert_eq!(pace.take(&of(2, 0), now).map_err(|refused| refused.what), Err("changes"));
        assert!(!Pace::new(Rates::default()).limits_tenants());
    }

    #[test]
    fn rekeys_are_paced_and_none_comes_by_itself_unless_it_may() {
        let mut pace = Pace::new(Rates { rekey_every_s: 60, ..Rates::default() });
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let may = [0, 1, 59, 60, 61].map(|seconds| pace.rekey(false, at(seconds)).is_ok());
        assert_eq!(may, [true, false, false, true, false]);
        let mut pace = Pace::new(Rates { rekey_pause_s: 10, ..Rates::default() });
        assert!(pace.rekey(false, now).is_err(), "not by itself");
        assert_eq!(pace.rekey(true, now), Ok(()));
        assert_eq!(pace.rekey(true, at(4)), Err(Duration::from_secs(6)));
        assert_eq!(pace.rekey(true, at(10)), Ok(()));
    }
}
