//! The sources of a port that were recently found to be true.
//!
//! Most frames of a host port come from few hosts. If all sources of a burst are known here, none is looked up (`fibula bench
//! forward` measures it with 16 hosts at the port). What is known holds for one version of the table of local names, so it is
//! forgotten whenever any of them goes or moves. A burst is given up at its first source that is not known; so a port with
//! many hosts pays for few comparisons a burst.

use crate::learn::Noted;
use std::hash::{BuildHasher, RandomState};

/// The number of sets of sources, and of sources in a set. Sixty hosts find room in most sets.
const SETS: usize = 64;
const WAYS: usize = 4;
/// No source has more than 48 bits.
const NONE: u64 = u64::MAX;

/// See the module.
pub(crate) struct Known {
    version: u64,
    sets: Box<[[u64; WAYS]; SETS]>,
    /// The source of a set that makes room next.
    next: usize,
}

impl Known {
    pub(crate) fn new() -> Self {
        Self { version: 0, sets: Box::new([[NONE; WAYS]; SETS]), next: 0 }
    }

    #[inline]
    fn set(source: u64) -> usize {
        (source.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SETS.trailing_zeros())) as usize
    }

    /// The first of the sources that is not known under `version`; none if all are known.
    #[inline]
    pub(crate) fn first_unknown(&self, version: u64, sources: &[u64]) -> Option<usize> {
        if self.version != version {
            return Some(0);
        }
        // Which way has it is practically random, so no branch may depend on it.
        let holds = |source| self.sets[Self::set(source)].iter().fold(false, |held, &known| held | (known == source));
        sources.iter().position(|&source| !holds(source))
    }

    /// Notes that a source was found to be true under `version`.
    pub(crate) fn add(&mut self, version: u64, source: u64) {
        if self.version != version {
            self.version = version;
            *self.sets = [[NONE; WAYS]; SETS];
        }
        let set = &mut self.sets[Self::set(source)];
        if !set.contains(&source) {
            let free = set.iter().position(|&known| known == NONE);
            self.next = (self.next + 1) % WAYS;
            set[free.unwrap_or(self.next)] = source;
        }
    }
}

/// The number of sets, and of sources in a set, of [`Notes`]: 64 KiB. Of 4,000 hosts nearly all find room.
const NOTED_SETS: usize = 1024;
const NOTED_WAYS: usize = 8;

/// Which true sources of a port were noted within its period, and when the port notes the next one.
///
/// A source that is here is not tried again, which takes no clock and no lock. So the source of a burst that is tried is one that was
/// not noted yet, no matter how many others send. After a try for which there was no budget a busy port tries none for some
/// bursts: it may note a thousand a second, and has hundreds of thousands of bursts.
pub(crate) struct Notes {
    period: u32,
    sets: Box<[[u64; NOTED_WAYS]]>,
    /// The source of a set that makes room next.
    next: usize,
    /// Odd, and known to no one else: no host can choose its set.
    key: u64,
    /// The number of full bursts left without a try.
    rest: u8,
}

/// The number of those bursts: a port of 500,000 bursts a second still tries thirty times as often as it may note.
const REST: u8 = 15;

impl Notes {
    pub(crate) fn new() -> Self {
        let key = RandomState::new().hash_one(0_u64) | 1;
        let sets = vec![[NONE; NOTED_WAYS]; NOTED_SETS].into_boxed_slice();
        Self { period: 0, sets, next: 0, key, rest: 0 }
    }

    #[inline]
    fn set(&self, source: u64) -> usize {
        (source.wrapping_mul(self.key) >> (64 - NOTED_SETS.trailing_zeros())) as usize
    }

    #[inline]
    fn has(&self, source: u64) -> bool {
        self.sets[self.set(source)].iter().fold(false, |held, &noted| held | (noted == source))
    }

    fn add(&mut self, source: u64) {
        let at = self.set(source);
        self.next = (self.next + 1) % NOTED_WAYS;
        let set = &mut self.sets[at];
        let free = set.iter().position(|&noted| noted == NONE);
        set[free.unwrap_or(self.next)] = source;
    }

    /// Tries to note the first of these true sources of a burst that was not noted in this period. Returns the first source if it
    /// need not be tried again. A burst that is not full does not come from a busy port.
    #[inline]
    pub(crate) fn note(
        &mut self,
        period: u32,
        is_full: bool,
        mut sources: impl Iterator<Item = u64>,
        try_one: impl FnOnce(u64) -> Noted,
    ) -> Option<u64> {
        if self.period != period {
            self.period = period;
            self.sets.fill([NONE; NOTED_WAYS]);
            self.rest = 0;
        }
        let first = sources.next()?;
        let known = self.has(first).then_some(first);
        if self.rest > 0 && is_full {
            self.rest -= 1;
            return known;
        }
        let tried = if known.is_none() { Some(first) } else { sources.find(|source| !self.has(*source)) };
        let Some(tried) = tried else { return known };
        match try_one(tried) {
            Noted::Now | Noted::Lately => {
                self.add(tried);
                Some(first)
            }
            // Another worker was noting: the next burst tries again.
            Noted::Busy => known,
            Noted::Not => {
                self.rest = REST;
                known
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::{Claim, Learner};
    use lookup::testkit::{Rng, seed};
    use netio::BURST;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_port_rests_for_want_of_budget_and_for_nothing_else() {
        let mut notes = Notes::new();
        let mut source = 0;
        let mut tries = |is_full, noted| {
            let mut n = 0;
            for _ in 0..160 {
                source += 1;
                notes.note(0, is_full, std::iter::once(source), |_| {
                    n += 1;
                    noted
                });
            }
            n
        };
        for noted in [Noted::Now, Noted::Lately, Noted::Busy] {
            assert_eq!(tries(true, noted), 160, "{noted:?}");
        }
        assert_eq!((tries(true, Noted::Not), tries(false, Noted::Not)), (10, 160));
    }

    /// An access point with 200 busy hosts, and one that sends something each second.
    #[test]
    fn a_host_that_speaks_seldom_is_noted_in_each_period_among_busy_ones() {
        const QUIET: u64 = 1 << 47;
        let mut rng = Rng::new(seed());
        let (learner, start) = (Learner::default(), Instant::now());
        let busy: Vec<u64> = (0..200).map(|_| rng.below(QUIET)).collect();
        let (mut known, mut notes) = (Known::new(), Notes::new());
        let bytes = |source: u64| Claim::new(&source.to_le_bytes()[..6], None);
        for period in 0..4_u32 {
            let mut noted = BTreeSet::new();
            // Five seconds, and a full burst each millisecond.
            for ms in 0..5000_u64 {
                let now = start + Duration::from_millis(5000 * u64::from(period) + ms);
                let mut burst: Vec<u64> = (0..BURST).map(|_| busy[rng.below(200) as usize]).collect();
                if ms % 1000 == 500 {
                    burst[rng.below(BURST as u64) as usize] = QUIET;
                }
                // As the worker has it.
                let version = u64::from(period);
                let Some(at) = known.first_unknown(version, &burst) else { continue };
                let try_one = |source| learner.note_true(0, bytes(source), now);
                if let Some(source) = notes.note(period, true, burst[at..].iter().copied(), try_one) {
                    known.add(version, source);
                }
                noted.extend(learner.take(usize::MAX).iter().map(|(_, claim)| claim.name().to_vec()));
            }
            for source in busy.iter().chain([&QUIET]) {
                assert!(noted.contains(bytes(*source).name()), "{source:012x} in period {period}");
            }
        }
    }

    #[test]
    fn what_was_added_last_is_known_until_the_version_ends() {
        let mut rng = Rng::new(seed());
        let mut known = Known::new();
        let hosts: Vec<u64> = (0..16).map(|_| rng.below(1 << 48)).collect();
        assert_eq!(known.first_unknown(7, &hosts), Some(0));
        for (i, &host) in hosts.iter().enumerate() {
            known.add(7, host);
            assert_eq!(known.first_unknown(7, &[host]), None, "the {i}th");
        }
        assert_eq!(known.first_unknown(7, &[hosts[15], 1 << 47 | 1]), Some(1));
        assert_eq!(known.first_unknown(8, &hosts[15..]), Some(0));
        known.add(8, hosts[0]);
        assert_eq!((known.first_unknown(8, &hosts[..1]), known.first_unknown(8, &hosts[1..])), (None, Some(0)));
    }
}
