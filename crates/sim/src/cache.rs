//! Two levels of set-associative cache in front of memory, least recently used first out.
//!
//! The second level is **inclusive**, as the last level of the papers' processor is: a line that it evicts is evicted
//! from the first as well. The second level does not see a hit in the first, so a line that is used all the time there
//! may be the oldest in the second, and be evicted. Reads only, as in lookups. O(ways) per access.
//! Differs from real ones: true LRU instead of an approximation, sets by the low bits of the line number instead of a hash,
//! no prefetcher, no translation of addresses.

/// A level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Time of a hit.
    pub latency_ps: u64,
}

/// Both levels and the memory behind them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of a line.
    pub line_bytes: u64,
    /// The first level.
    pub first: Level,
    /// The second.
    pub second: Level,
    /// Time of a read that misses both.
    pub memory_ps: u64,
}

impl Settings {
    /// The first and the last level of the papers' processor, an Intel Core i7-4770 at 3.4 GHz: 32 KiB of 8 ways in 4
    /// cycles, 8 MiB of 16 ways in 36; memory 57 ns behind that. The papers name the processor and "a two-level cache", but
    /// neither sizes nor times. These are the published values of the processor, without its middle level (256 KiB).
    pub const PAPERS: Self = Self {
        line_bytes: 64,
        first: Level { size_bytes: 32 << 10, ways: 8, latency_ps: 1_176 },
        second: Level { size_bytes: 8 << 20, ways: 16, latency_ps: 10_588 },
        memory_ps: 67_588,
    };
}

/// Why the settings describe no cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Lines cannot be numbered by shifts.
    #[error("a line has {line_bytes} bytes; use a power of two")]
    Line {
        /// Bytes of a line.
        line_bytes: u64,
    },
    /// Sets cannot be selected by a mask.
    #[error(
        "{size_bytes} bytes in {ways} ways of {line_bytes}-byte lines make a number of sets that is not a power of two; \
         change the size or the ways"
    )]
    Sets {
        /// Bytes of the level.
        size_bytes: u64,
        /// Lines of a set.
        ways: u32,
        /// Bytes of a line.
        line_bytes: u64,
    },
}

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// In the first level.
    First,
    /// In the second.
    Second,
    /// In neither.
    Memory,
}

/// A number that no line has.
const EMPTY: u64 = u64::MAX;

/// The sets of one level.
#[derive(Clone, Debug)]
struct Sets {
    /// Numbers of lines by set, each set from the most to the least recently used.
    lines: Vec<u64>,
    ways: usize,
    mask: u64,
}

impl Sets {
    fn new(level: Level, line_bytes: u64) -> Result<Self, CacheError> {
        let Level { size_bytes, ways, .. } = level;
        let n_sets = size_bytes.checked_div(u64::from(ways) * line_bytes).unwrap_or(0);
        if !n_sets.is_power_of_two() || n_sets * u64::from(ways) * line_bytes != size_bytes {
            return Err(CacheError::Sets { size_bytes, ways, line_bytes });
        }
        let lines = vec![EMPTY; n_sets as usize * ways as usize];
        Ok(Self { lines, ways: ways as usize, mask: n_sets - 1 })
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let start = (line & self.mask) as usize * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// Whether the line is present; if so it becomes the most recently used.
    fn find(&mut self, line: u64) -> bool {
        let set = self.set(line);
        let found = set.iter().position(|&held| held == line);
        if let Some(at) = found {
            set[..=at].rotate_right(1);
        }
        found.is_some()
    }

    /// Inserts a line that is not present, and returns the evicted one.
    fn take(&mut self, line: u64) -> Option<u64> {
        let set = self.set(line);
        set.rotate_right(1);
        Some(std::mem::replace(&mut set[0], line)).filter(|&gone| gone != EMPTY)
    }

    /// Evicts a line, if it is present.
    fn give_up(&mut self, line: u64) {
        let set = self.set(line);
        if let Some(at) = set.iter().position(|&held| held == line) {
            set[at..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

/// The caches, empty at first.
#[derive(Clone, Debug)]
pub struct Cache {
    settings: Settings,
    log_line: u32,
    first: Sets,
    second: Sets,
}

impl Cache {
    /// # Errors
    /// [`CacheError`].
    pub fn new(settings: Settings) -> Result<Self, CacheError> {
        let Settings { line_bytes, first, second, .. } = settings;
        if !line_bytes.is_power_of_two() {
            return Err(CacheError::Line { line_bytes });
        }
        let (first, second) = (Sets::new(first, line_bytes)?, Sets::new(second, line_bytes)?);
        Ok(Self { settings, log_line: line_bytes.trailing_zeros(), first, second })
    }

    /// The number of the line of an address.
    pub fn line_of(&self, address: u64) -> u64 {
        address >> self.log_line
    }

    /// Reads a line, which is then in both levels.
    pub fn read(&mut self, line: u64) -> Found {
        if self.first.find(line) {
            return Found::First;
        }
        let found = if self.second.find(line) { Found::Second } else { Found::Memory };
        if found == Found::Memory
            && let Some(gone) = self.second.take(line)
        {
            self.first.give_up(gone);
        }
        // A line that the first level evicts stays in the second.
        self.first.take(line);
        found
    }

    /// Time of a read of a line that was found there.
    pub fn latency_ps(&self, found: Found) -> u64 {
        match found {
            Found::First => self.settings.first.latency_ps,
            Found::Second => self.settings.second.latency_ps,
            Found::Memory => self.settings.memory_ps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Found::*;
    use super::*;

    /// Levels of lines of 64 bytes, as (sets, ways).
    fn cache(first: (u64, u32), second: (u64, u32)) -> Cache {
        let level =
            |(sets, ways): (u64, u32), latency_ps| Level { size_bytes: sets * u64::from(ways) * 64, ways, latency_ps };
        let (first, second) = (level(first, 1), level(second, 10));
        Cache::new(Settings { line_bytes: 64, first, second, memory_ps: 100 }).unwrap()
    }

    fn read(cache: &mut Cache, lines: &[u64]) -> Vec<Found> {
        lines.iter().map(|&line| cache.read(line)).collect()
    }

    #[test]
    fn bytes_of_a_line_come_together() {
        let mut cache = cache((2, 1), (2, 1));
        let lines: Vec<u64> = [0, 63, 64, 130, 64 * 1_000].map(|address| cache.line_of(address)).into();
        assert_eq!(lines, [0, 0, 1, 2, 1_000]);
        assert_eq!(read(&mut cache, &[0, 0, 1, 0]), [Memory, First, Memory, First]);
        assert_eq!([First, Second, Memory].map(|found| cache.latency_ps(found)), [1, 10, 100]);
    }

    #[test]
    fn lines_of_one_set_push_each_other_out_and_others_stay() {
        // Even lines share a set of two ways; three of them in turn never hit, however much space the odd ones have.
        let mut cache = cache((2, 2), (1, 8));
        assert_eq!(read(&mut cache, &[0, 2, 4, 1]), [Memory; 4]);
        assert_eq!(read(&mut cache, &[0, 2, 4, 0, 2, 4]), [Second; 6]);
        assert_eq!(read(&mut cache, &[1]), [First]);
        // Direct-mapped, two suffice.
        let mut cache = self::cache((2, 1), (1, 8));
        assert_eq!(read(&mut cache, &[0, 2, 0, 2, 1, 0]), [Memory, Memory, Second, Second, Memory, Second]);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = cache((1, 3), (1, 8));
        // After 1 2 3 1 the order is 1 3 2: 4 takes the place of 2, then 5 that of 3.
        assert_eq!(read(&mut cache, &[1, 2, 3, 1]), [Memory, Memory, Memory, First]);
        assert_eq!(read(&mut cache, &[4, 1, 3]), [Memory, First, First]);
        // Now 3 1 4: 2 takes the place of 4, and 4 that of 1.
        assert_eq!(read(&mut cache, &[2, 3, 4, 1]), [Second, First, Second, Second]);
    }

    #[test]
    fn what_the_second_level_gives_up_leaves_the_first() {
        // 1 is hit in the first level, which the second does not see: there 1 is the oldest, and 3 takes its place.
        let mut cache = cache((1, 2), (1, 2));
        assert_eq!(read(&mut cache, &[1, 2, 1, 3]), [Memory, Memory, First, Memory]);
        // Both have 3 and 2 now, although the first was asked for 1 after 2.
        assert_eq!(read(&mut cache, &[2, 3, 1]), [First, First, Memory]);
    }

    #[test]
    fn a_line_given_up_in_the_middle_of_a_set_leaves_its_place_free() {
        // First level: one set of three; second: two sets of two, so that even lines push each other out.
        let mut cache = cache((1, 3), (2, 2));
        assert_eq!(read(&mut cache, &[0, 1, 2]), [Memory; 3]);
        // 4 takes the place of 0 in both; the first level has 4 2 1.
        assert_eq!(read(&mut cache, &[4]), [Memory]);
        // 6 takes the place of 2 in the second level, and so of 2 in the first although 1 is older.
        assert_eq!(read(&mut cache, &[6, 1, 4, 6]), [Memory, First, First, First]);
    }

    #[test]
    fn impossible_geometries_are_refused_with_their_numbers() {
        let refused = |settings| Cache::new(settings).expect_err("refused");
        let good = Settings::PAPERS;
        assert!(Cache::new(good).is_ok());
        assert_eq!(refused(Settings { line_bytes: 48, ..good }), CacheError::Line { line_bytes: 48 });
        for (size_bytes, ways) in [(48 << 10, 8), (32 << 10, 0), (0, 8), (100, 1)] {
            let first = Level { size_bytes, ways, latency_ps: 1 };
            assert_eq!(refused(Settings { first, ..good }), CacheError::Sets { size_bytes, ways, line_bytes: 64 });
        }
    }
}
