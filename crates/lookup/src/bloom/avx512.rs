//! The burst of [`burst`](super::burst) with AVX-512: positions, words and bits of eight names at a time.
//!
//! ```text
//! word     = mix(digest ^ seed)                                 eight names
//! position = next draw, or remainder, or term                   the same arithmetic as in the layout
//! ones    &= word of the filter at position / 64, rotated right by position
//! ```
//! The lowest bits of `ones` say which names have ones at all positions so far. The words of these names are compressed
//! to the front before the next step, so that a step costs as much as names are left; `pdep` brings the answers back.
//!
//! In [`Blocked`](super::Blocked) filters the positions of one name are in one line, so a vector holds the positions of
//! a name instead: the line is loaded once, and permuted so that each position has its word.

#![expect(unsafe_code, reason = "loads words of the filter at computed positions")]

use std::arch::x86_64::*;
use std::ops::Range;

use super::burst::{FIRST, MAX_STEP, SECOND};
use super::layout::{BLOCK_A_MIX, BLOCK_BITS, Layout, Places, Rule, STEP};
use super::one_hashing::Partition;
use crate::base::prefetch::{BURST, prefetch};
use crate::base::vectors::{load, load_line, load_words, mix, set, store_words};
use crate::hash::Digest;

/// Names per vector.
const LANES: usize = 8;
/// Words per block.
const BLOCK_WORDS: usize = (BLOCK_BITS / 64) as usize;
/// Blocks whose positions need this many mixes at most.
const MAX_MIXES: usize = (super::MAX_HASHES.div_ceil(BLOCK_A_MIX)) as usize;

/// Vectors of a burst.
const ALL: usize = BURST / LANES;

/// Words of names; a whole vector can be stored at the place of any of them. Aligned, so that no vector of a full burst
/// is in two lines.
#[repr(align(64))]
struct Starts([u64; BURST + LANES]);

/// A filter: its words, whether they are in cache, the number of positions per name, and the seed if words are mixed.
#[derive(Clone, Copy)]
struct Filter {
    base: *const u64,
    n_words: usize,
    is_near: bool,
    n_hashes: u32,
    seed: Option<u64>,
    /// Whether words are loaded by gathers.
    gathers: bool,
}

/// Calls `each` for each burst of `digests` with the index of its first name and the names whose bits are all one, one
/// bit each. False if there is no vector loop for the layout and size.
/// # Safety
/// There are as many words from `base` on as the filter of `places` has, from the start of a line.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
// SAFETY: the caller keeps the contract.
pub(super) unsafe fn bursts<L: Layout>(
    places: &Places<L>,
    (base, n_words): (*const u64, usize),
    (is_near, gathers): (bool, bool),
    digests: &[Digest],
    each: impl FnMut(usize, u32),
) -> bool {
    let shape = places.shape();
    let seed = L::MIXED.then_some(places.seed());
    let filter = Filter { base, n_words, is_near, n_hashes: shape.n_hashes(), seed, gathers };
    debug_assert!(n_words as u64 >= shape.bits().div_ceil(64));
    // SAFETY: positions are below the bits of the filter, whatever the word of a name, as in the layout.
    unsafe {
        match L::rule(shape, places.plan()) {
            Rule::Draws { range, a_mix, apart } if range < 1 << 32 => {
                filter.bursts(Draws { range, a_mix, apart }, digests, each);
            }
            Rule::Progression { range, a_mix } if range < 1 << 32 => {
                filter.bursts(Progression(Draws { range, a_mix, apart: 0 }), digests, each);
            }
            Rule::Remainders(partitions) => filter.bursts(Remainders(partitions), digests, each),
            Rule::Block { n_blocks } if n_blocks < 1 << 32 => filter.blocks(n_blocks, digests, each),
            _ => return false,
        }
    }
    true
}

impl Filter {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
    // SAFETY: the caller has checked that the positions of the rule are inside the filter.
    unsafe fn bursts(self, rule: impl Positions, digests: &[Digest], each: impl FnMut(usize, u32)) {
        // SAFETY: the caller keeps the contract.
        unsafe {
            if self.is_near {
                self.steps(digests, each, |starts, step| self.read(rule, starts, step));
            } else {
                let mut scratch = [[0; LANES]; ALL * MAX_STEP];
                self.steps(digests, each, |starts, step| self.fetch_and_read(rule, starts, step, &mut scratch));
            }
        }
    }

    /// Bursts, of which `read` tells which names have ones at the positions of a step.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
    fn steps(
        self,
        digests: &[Digest],
        mut each: impl FnMut(usize, u32),
        mut read: impl FnMut(&[u64], Range<u32>) -> u32,
    ) {
        let mut starts = Starts([0; BURST + LANES]);
        for (from, digests) in (0..).step_by(BURST).zip(digests.chunks(BURST)) {
            self.start(digests, &mut starts);
            let (mut left, mut n, mut done) = (u32::MAX >> (BURST - digests.len()), digests.len(), 0);
            while n > 0 && done < self.n_hashes {
                let step = done..self.end_of_step(done);
                done = step.end;
                let ones = read(&starts.0[..n.next_multiple_of(LANES)], step) & (u32::MAX >> (BURST - n));
                left = _pdep_u32(ones, left);
                if done < self.n_hashes {
                    compress(&mut starts, n, ones);
                }
                n = ones.count_ones() as usize;
            }
            each(from, left);
        }
    }

    /// The end of the step that begins with position `from`. In cache, as many positions are read as reject most aliens.
    fn end_of_step(self, from: u32) -> u32 {
        let length = match (self.is_near, from as usize) {
            (true, 0) => SECOND as u32,
            (true, _) => self.n_hashes,
            (false, ..SECOND) => FIRST as u32,
            (false, _) => MAX_STEP as u32,
        };
        (from + length).min(self.n_hashes)
    }

    /// The words that the positions of names follow from.
    ///
    /// Whole vectors are loaded without a mask: digests are stored shortly before, and a load by a mask would wait until
    /// they are in the cache.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    fn start(self, digests: &[Digest], starts: &mut Starts) {
        let (eights, rest) = digests.as_chunks::<LANES>();
        let mut vectors = [set(0); ALL];
        for (vector, eight) in vectors.iter_mut().zip(eights) {
            // SAFETY: eight digests are eight words.
            *vector = unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) };
        }
        if !rest.is_empty() {
            let lanes = 0xFF >> (LANES - rest.len());
            // SAFETY: as many digests are loaded as there are.
            vectors[eights.len()] = unsafe { _mm512_maskz_loadu_epi64(lanes, rest.as_ptr().cast()) };
        }
        if let Some(seed) = self.seed {
            let seed = set(seed);
            vectors.iter_mut().for_each(|vector| *vector = _mm512_xor_si512(*vector, seed));
            vectors = mix(vectors);
        }
        for (at, vector) in (0..).step_by(LANES).zip(vectors) {
            // SAFETY: words are there for each vector of a burst. They are loaded as vectors.
            unsafe { _mm512_storeu_si512(starts.0.as_mut_ptr().add(at).cast(), vector) };
        }
    }

    /// Which names have ones at these positions, one bit each. All vectors of a full burst go abreast, so that the
    /// products of one hide the latency of those of the others.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    // SAFETY: the caller has checked that the positions of the rule are inside the filter.
    unsafe fn read(self, rule: impl Positions, starts: &[u64], step: Range<u32>) -> u32 {
        let mut found = 0;
        // SAFETY: by the caller's contract.
        unsafe {
            match starts.try_into() {
                Ok(all) => self.read_abreast::<ALL>(rule, all_vectors(all), step),
                Err(_) => {
                    for (at, starts) in (0..).step_by(LANES).zip(starts.as_chunks().0) {
                        found |= self.read_abreast(rule, [load(starts)], step.clone()) << at;
                    }
                    found
                }
            }
        }
    }

    /// Which names of `N` vectors have ones at these positions, one bit each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    // SAFETY: the caller has checked that the positions of the rule are inside the filter.
    unsafe fn read_abreast<const N: usize>(self, rule: impl Positions, starts: [__m512i; N], step: Range<u32>) -> u32 {
        let mut ones = [set(u64::MAX); N];
        // SAFETY: the processor has the instructions, and the positions are inside the filter.
        unsafe {
            let mut state = rule.begin(starts, step.start);
            for _ in step {
                for (ones, positions) in ones.iter_mut().zip(rule.next(&mut state)) {
                    *ones = self.and_bits(*ones, positions);
                }
            }
        }
        let mut found = 0;
        for (at, ones) in (0..).step_by(LANES).zip(ones) {
            found |= u32::from(_mm512_test_epi64_mask(ones, set(1))) << at;
        }
        found
    }

    /// As [`read`](Self::read); the words of all names are fetched before the first is read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    // SAFETY: the caller has checked that the positions of the rule are inside the filter.
    unsafe fn fetch_and_read(
        self,
        rule: impl Positions,
        starts: &[u64],
        step: Range<u32>,
        scratch: &mut [[u64; LANES]; ALL * MAX_STEP],
    ) -> u32 {
        for (starts, positions) in starts.as_chunks().0.iter().zip(scratch.chunks_exact_mut(step.len())) {
            // SAFETY: the processor has the instructions.
            let mut state = unsafe { rule.begin([load(starts)], step.start) };
            for position in &mut *positions {
                // SAFETY: as above.
                store(position, unsafe { rule.next(&mut state) }[0]);
            }
            for &position in positions.as_flattened() {
                prefetch(self.base.wrapping_add((position / 64) as usize).cast());
            }
        }
        let mut found = 0;
        for (at, positions) in (0..starts.len()).step_by(LANES).zip(scratch.chunks_exact(step.len())) {
            let mut ones = set(u64::MAX);
            for position in positions {
                // SAFETY: the positions are inside the filter.
                ones = unsafe { self.and_bits(ones, load(position)) };
            }
            found |= u32::from(_mm512_test_epi64_mask(ones, set(1))) << at;
        }
        found
    }

    /// Clears the lowest bit where that of the filter at a position is zero; the other bits mean nothing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    // SAFETY: the caller has checked that the positions are inside the filter.
    unsafe fn and_bits(self, ones: __m512i, positions: __m512i) -> __m512i {
        let indices = _mm512_srli_epi64::<6>(positions);
        debug_assert_eq!(_mm512_cmpge_epu64_mask(indices, set(self.n_words as u64)), 0);
        // SAFETY: by the caller's contract.
        let words = unsafe {
            if self.gathers { load_words::<true>(self.base, indices) } else { load_words::<false>(self.base, indices) }
        };
        _mm512_and_si512(ones, _mm512_rorv_epi64(words, positions))
    }

    /// As [`bursts`](Self::bursts), for a filter of blocks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    // SAFETY: the caller has checked that there are this many blocks.
    unsafe fn blocks(self, n_blocks: u64, digests: &[Digest], mut each: impl FnMut(usize, u32)) {
        // Positions are the highest nine bits of a mix, the next nine, and so on. Of each, the upper three are the word.
        let bits = BLOCK_BITS.ilog2() as i64;
        let shift = |nth: i64| (64 - bits * (nth + 1)).max(0);
        let shifts = _mm512_set_epi64(0, 0, shift(5), shift(4), shift(3), shift(2), shift(1), shift(0));
        let to_word = _mm512_add_epi64(shifts, set(6));
        let n_mixes = self.n_hashes.div_ceil(BLOCK_A_MIX) as usize;
        // The positions that the last mix yields.
        let wanted = |mix: usize| 0xFF_u8 >> (8 - (self.n_hashes - BLOCK_A_MIX * mix as u32).min(BLOCK_A_MIX));
        let mut starts = Starts([0; BURST + LANES]);
        let (mut blocks, mut mixes) = ([0; BURST], [[0; BURST]; MAX_MIXES]);
        for (from, digests) in (0..).step_by(BURST).zip(digests.chunks(BURST)) {
            self.start(digests, &mut starts);
            let mut next = all_vectors(starts.0.first_chunk().expect("there is room for a burst"));
            for (blocks, start) in blocks.as_chunks_mut::<LANES>().0.iter_mut().zip(next) {
                store(blocks, reduce(start, set(n_blocks)).0);
            }
            for mixes in &mut mixes[..n_mixes] {
                next.iter_mut().for_each(|next| *next = _mm512_add_epi64(*next, set(STEP)));
                for (mixes, mix) in mixes.as_chunks_mut::<LANES>().0.iter_mut().zip(mix(next)) {
                    store(mixes, mix);
                }
            }
            let block = |name: usize| self.base.wrapping_add(blocks[name] as usize * BLOCK_WORDS);
            if !self.is_near {
                (0..digests.len()).for_each(|name| prefetch(block(name).cast()));
            }
            let mut found = 0;
            for name in 0..digests.len() {
                debug_assert!((blocks[name] as usize + 1) * BLOCK_WORDS <= self.n_words);
                // SAFETY: blocks are below their number, and lines of the cache.
                let line = unsafe { load_line(block(name).cast()) };
                let mut is_in = true;
                for (nth, mixes) in mixes[..n_mixes].iter().enumerate() {
                    let mix = set(mixes[name]);
                    let (positions, word) = (_mm512_srlv_epi64(mix, shifts), _mm512_srlv_epi64(mix, to_word));
                    // The permutation reads the lowest three bits of an index, the rotation the lowest six.
                    let ones = _mm512_rorv_epi64(_mm512_permutexvar_epi64(word, line), positions);
                    is_in &= !_mm512_test_epi64_mask(ones, set(1)) & wanted(nth) == 0;
                }
                found |= u32::from(is_in) << name;
            }
            each(from, found);
        }
    }
}

/// Moves the words of those of the first `n` names whose bits are set to the front.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn compress(starts: &mut Starts, n: usize, which: u32) {
    let mut n_left = 0;
    for at in (0..n).step_by(LANES) {
        let lanes = (which >> at) as u8;
        let start = load(starts.0[at..].first_chunk().expect("there is room for a vector after each name"));
        // What is stored beyond these lanes was loaded before, or is overwritten or not read.
        store(&mut starts.0[n_left..], _mm512_maskz_compress_epi64(lanes, start));
        n_left += lanes.count_ones() as usize;
    }
}

/// How positions follow from the words of names, eight in a vector.
trait Positions: Copy {
    /// What the next position of `N` vectors follows from.
    type State<const N: usize>;

    /// The state before position `from`.
    /// # Safety
    /// The processor has AVX-512.
    unsafe fn begin<const N: usize>(self, starts: [__m512i; N], from: u32) -> Self::State<N>;

    /// The next position.
    /// # Safety
    /// The processor has AVX-512.
    unsafe fn next<const N: usize>(self, state: &mut Self::State<N>) -> [__m512i; N];
}

/// [`Rule::Draws`], with ranges of at most 32 bits.
#[derive(Clone, Copy)]
struct Draws {
    range: u64,
    a_mix: u32,
    apart: u64,
}

struct Drawn<const N: usize> {
    next: [__m512i; N],
    words: [__m512i; N],
    left: u32,
    offset: u64,
}

impl Positions for Draws {
    type State<const N: usize> = Drawn<N>;

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    // SAFETY: the caller has checked the processor.
    unsafe fn begin<const N: usize>(self, mut starts: [__m512i; N], from: u32) -> Drawn<N> {
        // Mixes of which no position is wanted are skipped.
        let n_mixes = from / self.a_mix;
        add(&mut starts, STEP.wrapping_mul(n_mixes.into()));
        let offset = u64::from(n_mixes * self.a_mix) * self.apart;
        let mut state = Drawn { next: starts, words: starts, left: 0, offset };
        for _ in n_mixes * self.a_mix..from {
            // SAFETY: as here.
            unsafe { self.next(&mut state) };
        }
        state
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    // SAFETY: the caller has checked the processor.
    unsafe fn next<const N: usize>(self, state: &mut Drawn<N>) -> [__m512i; N] {
        if state.left == 0 {
            add(&mut state.next, STEP);
            state.words = mix(state.next);
            state.left = self.a_mix;
        }
        state.left -= 1;
        let mut positions = state.words;
        for (position, word) in positions.iter_mut().zip(&mut state.words) {
            (*position, *word) = reduce(*word, set(self.range));
        }
        add(&mut positions, state.offset);
        state.offset += self.apart;
        positions
    }
}

/// [`Rule::Remainders`].
#[derive(Clone, Copy)]
struct Remainders<'a>(&'a [Partition]);

impl<'a> Positions for Remainders<'a> {
    type State<const N: usize> = ([__m512i; N], &'a [Partition]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    // SAFETY: the caller has checked the processor.
    unsafe fn begin<const N: usize>(self, starts: [__m512i; N], from: u32) -> Self::State<N> {
        (starts, &self.0[from as usize..])
    }

    /// As [`Modulus::remainder`](super::modulus::Modulus::remainder): the upper half of the product with the magic
    /// number from four products of 32-bit halves.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    // SAFETY: the caller has checked the processor.
    unsafe fn next<const N: usize>(self, (words, partitions): &mut Self::State<N>) -> [__m512i; N] {
        let (&Partition { modulus, first }, rest) = partitions.split_first().expect("a partition for each position");
        *partitions = rest;
        let (m0, m1) = (set(modulus.magic & 0xFFFF_FFFF), set(modulus.magic >> 32));
        let divisor = set(modulus.divisor);
        let mut positions = *words;
        for position in &mut positions {
            let (x0, x1) = (*position, _mm512_srli_epi64::<32>(*position));
            let t = _mm512_add_epi64(_mm512_mul_epu32(x1, m0), _mm512_srli_epi64::<32>(_mm512_mul_epu32(x0, m0)));
            let u = _mm512_add_epi64(_mm512_mul_epu32(x0, m1), _mm512_and_si512(t, set(0xFFFF_FFFF)));
            let carries = _mm512_add_epi64(_mm512_srli_epi64::<32>(t), _mm512_srli_epi64::<32>(u));
            let quotient = _mm512_add_epi64(_mm512_mul_epu32(x1, m1), carries);
            let remainder = _mm512_sub_epi64(*position, _mm512_mullo_epi64(quotient, divisor));
            *position = below(remainder, divisor);
        }
        add(&mut positions, first);
        positions
    }
}

/// [`Rule::Progression`]; the draws are below the range.
#[derive(Clone, Copy)]
struct Progression(Draws);

struct Terms<const N: usize> {
    lines: [__m512i; N],
    steps: [__m512i; N],
    index: u64,
}

impl Progression {
    /// `terms + added` modulo the range, for summands below it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sums<const N: usize>(self, mut terms: [__m512i; N], added: [__m512i; N]) -> [__m512i; N] {
        for (term, added) in terms.iter_mut().zip(added) {
            *term = below(_mm512_add_epi64(*term, added), set(self.0.range));
        }
        terms
    }
}

impl Positions for Progression {
    type State<const N: usize> = Terms<N>;

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    // SAFETY: the caller has checked the processor.
    unsafe fn begin<const N: usize>(self, starts: [__m512i; N], from: u32) -> Terms<N> {
        // SAFETY: as here.
        unsafe {
            let mut drawn = self.0.begin(starts, 0);
            let (mut lines, steps) = (self.0.next(&mut drawn), self.0.next(&mut drawn));
            for _ in 0..from {
                lines = self.sums(lines, steps);
            }
            Terms { lines, steps, index: from.into() }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    // SAFETY: the caller has checked the processor.
    unsafe fn next<const N: usize>(self, terms: &mut Terms<N>) -> [__m512i; N] {
        let cube = terms.index * terms.index * terms.index;
        let cube = if cube < self.0.range { cube } else { cube % self.0.range };
        let positions = self.sums(terms.lines, [set(cube); N]);
        terms.lines = self.sums(terms.lines, terms.steps);
        terms.index += 1;
        positions
    }
}

/// Adds a word in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn add<const N: usize>(vectors: &mut [__m512i; N], word: u64) {
    vectors.iter_mut().for_each(|vector| *vector = _mm512_add_epi64(*vector, set(word)));
}

/// Maps uniform words to `0..bound`, for bounds of at most 32 bits; also returns the uniform words that remain.
#[inline]
#[target_feature(enable = "avx512f")]
fn reduce(words: __m512i, bound: __m512i) -> (__m512i, __m512i) {
    // A product reads the lower halves.
    let (high, low) = (_mm512_mul_epu32(_mm512_srli_epi64::<32>(words), bound), _mm512_mul_epu32(words, bound));
    let position = _mm512_srli_epi64::<32>(_mm512_add_epi64(high, _mm512_srli_epi64::<32>(low)));
    (position, _mm512_add_epi64(_mm512_slli_epi64::<32>(high), low))
}

/// As [`below`](super::modulus::below).
#[inline]
#[target_feature(enable = "avx512f")]
fn below(words: __m512i, bound: __m512i) -> __m512i {
    _mm512_min_epu64(words, _mm512_sub_epi64(words, bound))
}

/// The vectors of a burst.
#[inline]
#[target_feature(enable = "avx512f")]
fn all_vectors(words: &[u64; BURST]) -> [__m512i; ALL] {
    let mut vectors = [set(0); ALL];
    for (vector, words) in vectors.iter_mut().zip(words.as_chunks().0) {
        *vector = load(words);
    }
    vectors
}

/// Stores eight words at the beginning of `to`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn store(to: &mut [u64], words: __m512i) {
    let to: &mut [u64; LANES] = to.first_chunk_mut().expect("there is room for a vector");
    // SAFETY: there is room for eight words.
    unsafe { store_words(to.as_mut_ptr(), words) };
}
