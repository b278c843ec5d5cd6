//! Tables of marked words: keys of 48 bits, each with a mark of 16 bits, in lines of eight that are searched at once.
//!
//! ```text
//! word:  | key, 48 bits | mark, 16 bits |      mark 0: empty, 1: removed, otherwise a value
//! ```
//! The digest of a key gives its line, the *home*. A key goes to the first line with an empty word: the home, the other line
//! of the same 128 bytes, which processors often fetch unasked, and then the lines behind. A key keeps its word as long as
//! the table lives; only the mark changes. Each word is written by one store, so a search sees each word whole.
//!
//! **Overflow bits.** Each line has eight bits in an array of their own. A key that its home has no room for sets one of
//! them, chosen by its digest, before it is stored elsewhere. So few searches for other keys read a second line.
//!
//! A burst is searched in three steps, so that its cache misses overlap, without a branch that depends on a name in the
//! first two:
//! ```text
//! begin    homes, and fetches them
//! advance  compares each home with its key: one unsigned comparison of eight words
//!          names that were not found and may be elsewhere: fetches the second lines of the first few
//! finish   compares the second lines of these; searches on for those that are not there either
//! ```
//! Steps are compiled for AVX-512, for AVX2, and for any processor. They give the same answers.

#![expect(unsafe_code, reason = "reads lines at numbers that are checked for all keys at once, as vectors")]

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::arena::LINE;
use super::bits::{first, ones};
use super::prefetch::{BURST, prefetch};
#[cfg(target_arch = "x86_64")]
use super::processor::Vectors;
use super::processor::{Kernel, Reads, prefetch_pays};
use crate::hash::Digest;

/// Words of a line.
pub const WORDS: usize = LINE / 8;
/// Bits of a mark.
pub const MARK_BITS: u32 = 16;
/// The mark of a word that was never used.
pub const EMPTY: u64 = 0;
/// The least mark that is a value.
pub const FIRST_VALUE: u64 = 2;
/// The marks that are values.
pub const VALUES: Range<u64> = FIRST_VALUE..1 << MARK_BITS;

const MARK: u64 = (1 << MARK_BITS) - 1;
/// Names of a burst whose second lines are read together. At the fill of an exact table, 5 % of the names are outside their
/// homes.
const FEW: usize = 4;
/// The most lines: numbers of words have 32 bits.
const MAX_LINES: usize = 1 << 29;

/// A table, as its readers see it.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
    overflow: &'a [AtomicU8],
}

/// The names of a burst: their digests, and the keys themselves.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    digests: &'a [Digest],
    keys: &'a [u64],
}

impl<'a> Burst<'a> {
    /// Up to [`BURST`] names.
    /// # Panics
    /// If there are more, or another number of digests than of keys.
    #[inline]
    pub fn new(digests: &'a [Digest], keys: &'a [u64]) -> Self {
        assert!(keys.len() <= BURST && digests.len() == keys.len(), "at most {BURST} keys, each with its digest");
        Self { digests, keys }
    }
}

/// The searches for the names of a burst.
#[derive(Debug, Default, Clone, Copy)]
pub struct Searches {
    /// The first word of each home.
    homes: [u32; BURST],
    /// Names that were found.
    found: u32,
    /// Names whose search must go on.
    left: u32,
}

impl<'a> Table<'a> {
    /// A table of these words, eight a line, with the overflow bits of each line.
    /// # Panics
    /// If the number of lines is odd, or is not that of the overflow bits, or above 2^29.
    #[inline]
    pub fn new(words: &'a [AtomicU64], overflow: &'a [AtomicU8]) -> Self {
        let n_lines = overflow.len();
        assert!(words.len() == n_lines * WORDS && n_lines.is_multiple_of(2) && n_lines <= MAX_LINES, "lines in pairs");
        Self { words, overflow }
    }

    /// The line of a digest: its low half, scaled to the lines. The high bits choose shards; a table of the names of one
    /// shard would be crowded.
    #[inline(always)]
    fn home(self, digest: Digest) -> usize {
        (((digest.0 & 0xFFFF_FFFF) * self.overflow.len() as u64) >> 32) as usize
    }

    /// Whether a key with this digest may be outside its home, which is full.
    #[inline(always)]
    fn may_be_elsewhere(self, digest: Digest) -> bool {
        self.overflow[self.home(digest)].load(Ordering::Relaxed) & overflow_bit(digest) != 0
    }

    /// Records that a key will be in a word, if that is outside its home. Call it before the word is written.
    pub fn note(self, word: usize, digest: Digest) {
        let home = self.home(digest);
        if word / WORDS != home {
            self.overflow[home].fetch_or(overflow_bit(digest), Ordering::Relaxed);
        }
    }

    /// Searches for a key. Returns the number of its word, or of the empty word where the search ended, and its mark. The
    /// search ends: the writer keeps some words empty.
    #[inline]
    pub fn find(self, digest: Digest, key: u64) -> (usize, u64) {
        let home = self.home(digest);
        let lines: &[[AtomicU64; WORDS]] = self.words.as_chunks().0;
        let mut step = 0;
        loop {
            let line = nth_line(home, step, lines.len());
            for (at, word) in lines[line].iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                if word & MARK == EMPTY || word >> MARK_BITS == key {
                    return (line * WORDS + at, word & MARK);
                }
            }
            step += 1;
        }
    }

    /// The word of a key with a value. The home is read without a branch that depends on the key.
    #[inline]
    pub fn find_value(self, digest: Digest, key: u64) -> Option<usize> {
        let start = self.home(digest) * WORDS;
        let words = self.words[start..start + WORDS].iter().enumerate();
        let (wanted, n) = (with_first(key, &VALUES), VALUES.end - VALUES.start);
        let found = words.fold(0u32, |found, (at, word)| found | u32::from(has(word, wanted, n)) << at);
        if found != 0 {
            return Some(start + found.trailing_zeros() as usize);
        }
        let (word, mark) = self.find(digest, key);
        VALUES.contains(&mark).then_some(word)
    }

    /// Begins the search for the names of a burst: where it starts, and fetching what is there.
    /// # Panics
    /// When there are more than [`BURST`] digests.
    #[inline]
    pub fn begin(self, kernel: Kernel, digests: &[Digest], searches: &mut Searches) {
        let homes = &mut searches.homes[..digests.len()];
        match kernel.vectors() {
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { homes_avx512(self, digests, homes) },
            _ => self.homes(digests, homes),
        }
        if prefetch_pays(Reads::Line, self.words.len() * 8) {
            homes.iter().for_each(|&home| self.fetch(home));
        }
    }

    /// Compares the homes with the keys, which are to have marks of `marks`, and begins to fetch the second lines of the few
    /// names that need them.
    /// # Panics
    /// When the search was begun in another table, and its homes are not here.
    #[inline]
    pub fn advance(self, kernel: Kernel, burst: Burst<'_>, marks: &Range<u64>, searches: &mut Searches) {
        match kernel.vectors() {
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { advance_avx512(self, burst, marks, searches) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { advance_avx2(self, burst, marks, searches) },
            _ => self.advance_all::<Scalar>(burst, marks, searches),
        }
    }

    /// Which of the names are in the table with marks of `marks`: bit `i` for name `i`. Their search has
    /// [advanced](Table::advance).
    #[inline]
    pub fn finish(self, kernel: Kernel, burst: Burst<'_>, marks: &Range<u64>, searches: &Searches) -> u32 {
        match kernel.vectors() {
            // SAFETY: the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx512Ifma => unsafe { finish_avx512(self, burst, marks, searches) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { finish_avx2(self, burst, marks, searches) },
            _ => self.finish_all::<Scalar>(burst, marks, searches),
        }
    }

    /// Starts fetching the line of a word.
    #[inline(always)]
    fn fetch(self, word: u32) {
        // The home is the miss of a search. The homes of a burst are in flight together, before the first is compared.
        prefetch(self.words.as_ptr().wrapping_add(word as usize).cast());
    }

    /// The first word of the home of each digest.
    #[inline(always)]
    fn homes(self, digests: &[Digest], homes: &mut [u32]) {
        for (home, &digest) in homes.iter_mut().zip(digests) {
            *home = (self.home(digest) * WORDS) as u32;
        }
    }

    #[inline(always)]
    fn advance_all<C: Compare>(self, burst: Burst<'_>, marks: &Range<u64>, searches: &mut Searches) {
        let n = burst.keys.len();
        // Most bursts are full. A number that the compiler knows spares the loops their ends.
        let mut wanted = [0; BURST];
        searches.found = match burst.keys.as_array::<BURST>() {
            Some(keys) => {
                // SAFETY: the callers are compiled for the processor.
                unsafe { C::want(keys, marks, &mut wanted) };
                self.compare::<C>(&searches.homes, &wanted, marks)
            }
            None => {
                wanted.iter_mut().zip(burst.keys).for_each(|(wanted, &key)| *wanted = with_first(key, marks));
                self.compare::<C>(&searches.homes[..n], &wanted[..n], marks)
            }
        };
        searches.left = first(n) & !searches.found;
        // Few are left if all are members. Reading their overflow bits would take as long as reading their lines.
        if searches.left.count_ones() > FEW as u32 {
            searches.left = self.elsewhere(searches.left, burst.digests);
        }
        searches.second_lines(n).into_iter().for_each(|(_, word)| self.fetch(word));
    }

    #[inline(always)]
    fn finish_all<C: Compare>(self, burst: Burst<'_>, marks: &Range<u64>, searches: &Searches) -> u32 {
        let n = burst.keys.len();
        if n == 0 {
            return 0;
        }
        let (mut found, mut searches) = (searches.found, *searches);
        let mut behind = searches.left & first(n);
        // Mostly once.
        loop {
            let second = searches.second_lines(n);
            let (words, keys) = (second.map(|(_, word)| word), second.map(|(i, _)| with_first(burst.keys[i], marks)));
            let seconds = self.compare::<C>(&words, &keys, marks);
            for (at, (i, _)) in second.into_iter().enumerate() {
                found |= (seconds >> at & 1) << i;
                searches.left &= searches.left.wrapping_sub(1);
            }
            if searches.left == 0 {
                break;
            }
        }
        behind &= !found;
        if behind != 0 {
            for i in ones(self.elsewhere(behind, burst.digests)) {
                let is_behind = self.is_behind::<C>(searches.homes[i], with_first(burst.keys[i], marks), marks);
                found |= u32::from(is_behind) << i;
            }
        }
        found
    }

    /// Those of the names `which` that may be outside their homes.
    #[inline(always)]
    fn elsewhere(self, which: u32, digests: &[Digest]) -> u32 {
        ones(which).fold(0, |left, i| left | u32::from(self.may_be_elsewhere(digests[i])) << i)
    }

    /// Which keys are in the lines from these words on, with marks of `marks`.
    #[inline(always)]
    fn compare<C: Compare>(self, words: &[u32], wanted: &[u64], marks: &Range<u64>) -> u32 {
        let highest = words.iter().fold(0, |highest, &word| highest.max(word));
        assert!(words.is_empty() || highest as usize + WORDS <= self.words.len(), "the table of a search has changed");
        // SAFETY: lines are there from each word on; the callers are compiled for the processor.
        unsafe { C::compare(self.words.as_ptr(), words, wanted, marks.end - marks.start) }
    }

    /// Whether a key that is neither in its home nor in its second line has a mark of `marks`.
    #[inline(always)]
    fn is_behind<C: Compare>(self, home: u32, wanted: u64, marks: &Range<u64>) -> bool {
        let (home, n_lines) = (home as usize / WORDS, self.overflow.len());
        // The search ends: the writer keeps some words empty.
        for step in 2.. {
            let words = [(nth_line(home, step, n_lines) * WORDS) as u32];
            if self.compare::<C>(&words, &[wanted], marks) != 0 {
                return true;
            }
            let line = &self.words[words[0] as usize..][..WORDS];
            if line.iter().fold(false, |ends, word| ends | (word.load(Ordering::Acquire) & MARK == EMPTY)) {
                return false;
            }
        }
        false
    }
}

impl Searches {
    /// The first few of the `n` names whose search must go on, and the first words of their second lines. If there are fewer,
    /// other names with their homes: a fixed number costs less than a branch.
    #[inline(always)]
    fn second_lines(&self, n: usize) -> [(usize, u32); FEW] {
        let (mut left, mut second) = (self.left, [(0, 0); FEW]);
        for second in &mut second {
            let i = (left.trailing_zeros() as usize).min(n.saturating_sub(1));
            *second = (i, self.homes[i] ^ if left == 0 { 0 } else { WORDS as u32 });
            left &= left.wrapping_sub(1);
        }
        second
    }
}

/// The line that a search reads after `step` others: first those of one pair, then the others in turn.
#[inline]
fn nth_line(home: usize, step: usize, n_lines: usize) -> usize {
    match step {
        0 => home,
        1 => home ^ 1,
        _ => ((home & !1) + step) % n_lines,
    }
}

/// Bits that choose neither the home nor, in most structures, a part of the FIB.
#[inline(always)]
fn overflow_bit(digest: Digest) -> u8 {
    1 << (digest.0 >> 32 & 7)
}

/// A key with the first of `marks`.
#[inline(always)]
fn with_first(key: u64, marks: &Range<u64>) -> u64 {
    key << MARK_BITS | marks.start
}

/// Whether a word is `wanted`, or has the same key and one of the `n_marks` marks from there on. What is between two words
/// of one key is less than the number of marks; otherwise, it is at least that many, or below zero, which is more.
#[inline(always)]
fn has(word: &AtomicU64, wanted: u64, n_marks: u64) -> bool {
    word.load(Ordering::Acquire).wrapping_sub(wanted) < n_marks
}

/// How lines are compared with keys.
trait Compare {
    /// Which of the lines that begin at `words` have a word that is the one in `wanted` or one of `n_marks` from there on, a
    /// bit for each.
    /// # Safety
    /// Lines begin at these words from `base`, and the processor has the instructions.
    unsafe fn compare(base: *const AtomicU64, words: &[u32], wanted: &[u64], n_marks: u64) -> u32;

    /// Writes what is wanted for each key of a full burst.
    /// # Safety
    /// The processor has the instructions.
    // SAFETY: nothing is demanded of the caller here.
    #[inline(always)]
    unsafe fn want(keys: &[u64; BURST], marks: &Range<u64>, all: &mut [u64; BURST]) {
        all.iter_mut().zip(keys).for_each(|(all, &key)| *all = with_first(key, marks));
    }
}

struct Scalar;

impl Compare for Scalar {
    // SAFETY: the caller keeps the contract.
    #[inline(always)]
    unsafe fn compare(base: *const AtomicU64, words: &[u32], wanted: &[u64], n_marks: u64) -> u32 {
        words.iter().zip(wanted).enumerate().fold(0, |found, (bit, (&word, &wanted))| {
            // SAFETY: by the caller's contract.
            let line = unsafe { std::slice::from_raw_parts(base.add(word as usize), WORDS) };
            found | u32::from(line.iter().fold(false, |found, word| found | has(word, wanted, n_marks))) << bit
        })
    }
}

#[cfg(target_arch = "x86_64")]
use x86::*;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{AtomicU64, BURST, Burst, Compare, Digest, MARK_BITS, Range, Searches, Table, WORDS};
    use crate::base::vectors::store_words;
    use std::arch::x86_64::*;

    struct Avx512;
    struct Avx2;

    impl Compare for Avx512 {
        /// Bits are gathered in a vector. Stored as bytes and loaded as a vector, they would wait for all stores before.
        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
        unsafe fn compare(base: *const AtomicU64, words: &[u32], wanted: &[u64], n_marks: u64) -> u32 {
            let n_marks = _mm512_set1_epi64(n_marks.cast_signed());
            let mut found = _mm512_setzero_si512();
            for (bit, (&word, &wanted)) in words.iter().zip(wanted).enumerate() {
                let line;
                // SAFETY: 64 bytes of a line, which is there by the caller's contract. A part of it may be written meanwhile,
                // so this is not a load of the compiler's. Each aligned word is loaded whole. Loads of x86 are acquiring ones.
                unsafe {
                    std::arch::asm!("vmovdqu64 {}, zmmword ptr [{} + 8*{}]", out(zmm_reg) line, in(reg) base,
                        in(reg) u64::from(word), options(readonly, nostack, preserves_flags));
                }
                let more = _mm512_sub_epi64(line, _mm512_set1_epi64(wanted.cast_signed()));
                let bit = _mm512_set1_epi64(BITS[bit]);
                found = _mm512_mask_or_epi64(found, _mm512_cmplt_epu64_mask(more, n_marks), found, bit);
            }
            _mm512_reduce_or_epi64(found) as u32
        }

        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
        unsafe fn want(keys: &[u64; BURST], marks: &Range<u64>, all: &mut [u64; BURST]) {
            let start = _mm512_set1_epi64(marks.start.cast_signed());
            for (keys, wanted) in keys.as_chunks::<8>().0.iter().zip(all.as_chunks_mut::<8>().0) {
                // SAFETY: eight words are 64 bytes.
                unsafe {
                    let keys = _mm512_loadu_si512(keys.as_ptr().cast());
                    store_words(wanted.as_mut_ptr(), _mm512_or_si512(_mm512_slli_epi64::<MARK_BITS>(keys), start));
                }
            }
        }
    }

    /// A bit for each name.
    static BITS: [i64; BURST] = {
        let mut bits = [0; BURST];
        let mut bit = 0;
        while bit < BURST {
            bits[bit] = 1 << bit;
            bit += 1;
        }
        bits
    };

    /// As [`Table::homes`]. Digests are loaded as they were stored, eight at a time: see
    /// [`store_words`](crate::base::vectors::store_words).
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn homes_avx512(table: Table<'_>, digests: &[Digest], homes: &mut [u32]) {
        let n_lines = _mm512_set1_epi64(table.overflow.len() as i64);
        let (eights, rest) = digests.as_chunks::<8>();
        let (homes, homes_rest) = homes.as_chunks_mut::<8>();
        for (eight, homes) in eights.iter().zip(homes) {
            // SAFETY: eight digests are 64 bytes, and eight homes 32.
            unsafe {
                let lines =
                    _mm512_srli_epi64::<32>(_mm512_mul_epu32(_mm512_loadu_si512(eight.as_ptr().cast()), n_lines));
                let words = _mm512_cvtepi64_epi32(_mm512_slli_epi64::<{ WORDS.ilog2() }>(lines));
                _mm256_storeu_si256(homes.as_mut_ptr().cast(), words);
            }
        }
        table.homes(rest, homes_rest);
    }

    impl Compare for Avx2 {
        // SAFETY: the caller keeps the contract.
        #[inline]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        unsafe fn compare(base: *const AtomicU64, words: &[u32], wanted: &[u64], n_marks: u64) -> u32 {
            // There are signed comparisons only: the highest bit of both sides is changed.
            let n_marks = _mm256_set1_epi64x((n_marks ^ HIGHEST).cast_signed());
            let mut found = 0;
            for (bit, (&word, &wanted)) in words.iter().zip(wanted).enumerate() {
                let (low, high): (__m256i, __m256i);
                // SAFETY: as above, in two halves.
                unsafe {
                    std::arch::asm!("vmovdqu {0}, ymmword ptr [{2} + 8*{3}]", "vmovdqu {1}, ymmword ptr [{2} + 8*{3} + 32]",
                        out(ymm_reg) low, out(ymm_reg) high, in(reg) base, in(reg) u64::from(word),
                        options(readonly, nostack, preserves_flags));
                }
                let wanted = _mm256_set1_epi64x((wanted ^ HIGHEST).cast_signed());
                let is_one = |words| _mm256_cmpgt_epi64(n_marks, _mm256_sub_epi64(words, wanted));
                let either = _mm256_or_si256(is_one(low), is_one(high));
                found |= u32::from(_mm256_testz_si256(either, either) == 0) << bit;
            }
            found
        }
    }

    const HIGHEST: u64 = 1 << 63;

    /// The steps, compiled for a processor.
    macro_rules! steps {
        ($features:literal, $compare:ty, $advance:ident, $finish:ident) => {
            #[target_feature(enable = $features)]
            pub(super) fn $advance(table: Table<'_>, burst: Burst<'_>, marks: &Range<u64>, searches: &mut Searches) {
                table.advance_all::<$compare>(burst, marks, searches);
            }

            #[target_feature(enable = $features)]
            pub(super) fn $finish(table: Table<'_>, burst: Burst<'_>, marks: &Range<u64>, searches: &Searches) -> u32 {
                table.finish_all::<$compare>(burst, marks, searches)
            }
        };
    }
    steps!("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt", Avx512, advance_avx512, finish_avx512);
    steps!("avx2,bmi1,bmi2,popcnt", Avx2, advance_avx2, finish_avx2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn every_kernel_finds_what_single_searches_find() {
        let mut rng = Rng::new(seed());
        println!("not run, for want of a processor: {:?}", Kernel::unavailable().collect::<Vec<_>>());
        for n_lines in [2, 10, 64] {
            let words: Vec<AtomicU64> = (0..n_lines * WORDS).map(|_| AtomicU64::new(0)).collect();
            let overflow: Vec<AtomicU8> = (0..n_lines).map(|_| AtomicU8::new(0)).collect();
            let table = Table::new(&words, &overflow);
            let mut held = Vec::new();
            // Filled until two words in three lines are outside their homes, but for some empty words.
            while held.len() < n_lines * WORDS - 5 {
                let (digest, key) = (Digest(rng.next_u64()), rng.next_u64() >> MARK_BITS);
                let (word, mark) = table.find(digest, key);
                assert_eq!(mark, EMPTY, "a new key");
                table.note(word, digest);
                let mark = [1, 2, 3, 0xFFFF][rng.below(4) as usize];
                words[word].store(key << MARK_BITS | mark, Ordering::Release);
                held.push((digest, key));
            }
            for round in 0..2_000 {
                let shares = [0, 1, 10, 100];
                let ask = |rng: &mut Rng| match rng.below(100) < shares[round % 4] {
                    true => (Digest(rng.next_u64()), rng.next_u64() >> MARK_BITS),
                    false => held[rng.below(held.len() as u64) as usize],
                };
                let (digests, keys): (Vec<_>, Vec<_>) = (0..round % 33).map(|_| ask(&mut rng)).unzip();
                let burst = Burst::new(&digests, &keys);
                for marks in [VALUES, 2..3, 0xFFFF..0x1_0000] {
                    let mut expected = 0;
                    for (i, (&digest, &key)) in digests.iter().zip(&keys).enumerate() {
                        let (word, mark) = table.find(digest, key);
                        expected |= u32::from(marks.contains(&mark)) << i;
                        let value = VALUES.contains(&mark).then_some(word);
                        assert_eq!(table.find_value(digest, key), value);
                    }
                    for kernel in Kernel::available() {
                        // What an earlier burst left there does not matter.
                        let mut searches = Searches { homes: [u32::MAX; BURST], found: u32::MAX, left: u32::MAX };
                        table.begin(kernel, &digests, &mut searches);
                        table.advance(kernel, burst, &marks, &mut searches);
                        assert_eq!(table.finish(kernel, burst, &marks, &searches), expected, "{kernel}, {marks:?}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "the table of a search has changed")]
    fn a_search_in_another_table_is_refused() {
        let large: Vec<AtomicU64> = (0..1000 * WORDS).map(|_| AtomicU64::new(0)).collect();
        let overflow: Vec<AtomicU8> = (0..1000).map(|_| AtomicU8::new(0)).collect();
        let (digests, keys) = ([Digest(u64::MAX)], [7]);
        let mut searches = Searches::default();
        Table::new(&large, &overflow).begin(Kernel::get(), &digests, &mut searches);
        let small = Table::new(&large[..2 * WORDS], &overflow[..2]);
        small.advance(Kernel::get(), Burst::new(&digests, &keys), &VALUES, &mut searches);
    }
}
