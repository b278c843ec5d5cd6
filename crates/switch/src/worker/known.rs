//! The sources of a port that were found to be true lately.
//!
//! Most frames of a host port come from few hosts. If all sources of a burst are known here, none is looked up (`fibula bench
//! forward` measures it with 16 hosts at the port). What is known holds for one version of the table of local names, so it is
//! forgotten whenever any of them goes or moves. A burst is given up at its first source that is not known; so a port with
//! many hosts pays for few comparisons a burst.

/// Sets of sources, and sources in a set. Sixty hosts find room in most sets.
const SETS: usize = 64;
const WAYS: usize = 4;
/// No source has more than 48 bits.
const NONE: u64 = u64::MAX;

/// See the module.
pub(crate) struct Known {
    version: u64,
    sets: Box<[[u64; WAYS]; SETS]>,
    /// Which source of a set makes room.
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

    /// The first of the sources that is not known under `version`; none if all are.
    #[inline]
    pub(crate) fn first_unknown(&self, version: u64, sources: &[u64]) -> Option<usize> {
        if self.version != version {
            return Some(0);
        }
        // Which way has it is as good as random: no branch may depend on it.
        let holds = |source| self.sets[Self::set(source)].iter().fold(false, |held, &known| held | (known == source));
        sources.iter().position(|&source| !holds(source))
    }

    /// A source was found to be true under `version`.
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

/// After a source that was noted in vain, because it was noted lately or enough is noted, a port that is busy notes none for
/// some bursts. A port may note a thousand a second, and a busy one has hundreds of thousands of bursts: with more hosts than are
/// known here, nearly all tries were in vain, and took a clock, a lock and two searches each.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Full bursts that are left.
    bursts: u8,
}

/// So many bursts: a port of 500,000 bursts a second still tries thirty times as often as it may note.
const REST: u8 = 15;

impl Rest {
    /// Whether to note a source of this burst. One that is not full is not of a busy port.
    #[inline]
    pub(crate) fn is_over(&mut self, is_full: bool) -> bool {
        if self.bursts == 0 || !is_full {
            return true;
        }
        self.bursts -= 1;
        false
    }

    #[inline]
    pub(crate) fn begin(&mut self, in_vain: bool) {
        self.bursts = if in_vain { REST } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::testkit::{Rng, seed};

    #[test]
    fn a_busy_port_rests_after_a_try_in_vain_and_no_other_does() {
        let mut rest = Rest::default();
        let tries = |rest: &mut Rest, is_full, in_vain| {
            (0..160).filter(|_| rest.is_over(is_full).then(|| rest.begin(in_vain)).is_some()).count()
        };
        assert_eq!(tries(&mut rest, true, false), 160);
        assert_eq!(tries(&mut rest, true, true), 10);
        assert_eq!(tries(&mut rest, false, true), 160);
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
