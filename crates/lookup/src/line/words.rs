//! Systems whose rows are words: buckets of at most 64 slots, as those for values of 8 bits.
//!
//! One elimination waits for one row after the other, and at the default load more than half of all tweaks fail. So without AVX-512, whose
//! registers hold a whole system, the rank is taken under four tweaks at a time, a lane each: in about the time of one.
//!
//! Cost at 50 names of 62 cells (AMD EPYC, Zen 3, AVX2): 1.4 us for four ranks, 1.7 us for a solution.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls vector forms after detecting them"))]

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::layout::Layout;
#[cfg(target_arch = "x86_64")]
use super::processor::Processor;
use super::processor::by_processor;
use super::solve::Solution;

/// Rows that are words, at most; those that a system has fewer are zero.
pub(super) const ROWS: usize = 64;

/// All ones where a word has any.
#[inline(always)]
fn is_some(word: u64) -> u64 {
    0u64.wrapping_sub((word != 0).into())
}

/// Whether the rows of so many names are words, and so few that these forms can have them.
pub(super) fn fit(layout: Layout, n_names: usize) -> bool {
    layout.row_words() == 1 && n_names <= ROWS
}

/// As [`find_tweak`](super::solve::find_tweak), for names that [`fit`].
pub(super) fn find_tweak(layout: Layout, digests: &[u64], tweak: u8, n: u8) -> Option<u8> {
    #[cfg(target_arch = "x86_64")]
    if let Processor::Avx512 = Processor::get() {
        let mut rows = [0; ROWS];
        return (0..n).map(|step| tweak.wrapping_add(step)).find(|&tweak| {
            place(layout, digests, tweak, &mut rows);
            // SAFETY: the processor has AVX-512.
            unsafe { avx512::rank(&rows, digests.len()) as usize == digests.len() }
        });
    }
    find_tweak_in_memory(layout, digests, tweak, n)
}

/// As [`find_tweak`], without a form for AVX-512.
pub(super) fn find_tweak_in_memory(layout: Layout, digests: &[u64], tweak: u8, n: u8) -> Option<u8> {
    (0..n).step_by(TWEAKS).find_map(|step| {
        let independent = independent_of_several(layout, digests, tweak.wrapping_add(step));
        let tries = u32::from(step) + independent.trailing_zeros();
        (independent != 0 && tries < n.into()).then_some(tweak.wrapping_add(tries as u8))
    })
}

/// As [`solve`](super::solve::solve), for names that [`fit`].
pub(super) fn solve(layout: Layout, digests: &[u64], tweak: u8) -> Option<Solution> {
    #[cfg(target_arch = "x86_64")]
    if let Processor::Avx512 = Processor::get() {
        let (mut rows, mut pivots, mut combinations) = ([0; ROWS], [0; ROWS], [0; ROWS]);
        place(layout, digests, tweak, &mut rows);
        // SAFETY: the processor has AVX-512.
        unsafe { avx512::eliminate(&rows, &mut pivots, &mut combinations) };
        return solution_of(&pivots[..digests.len()], &combinations);
    }
    solve_in_memory(layout, digests, tweak)
}

/// As [`solve`], without a form for AVX-512.
pub(super) fn solve_in_memory(layout: Layout, digests: &[u64], tweak: u8) -> Option<Solution> {
    let (mut rows, mut pivots, mut combinations) = ([0; ROWS], [0; ROWS], [0; ROWS]);
    place(layout, digests, tweak, &mut rows);
    eliminate_in_memory(&mut rows, digests.len(), &mut pivots, &mut combinations);
    solution_of(&pivots[..digests.len()], &combinations)
}

by_processor! {
    /// The rows of names under a tweak.
    fn place(layout: Layout, digests: &[u64], tweak: u8, rows: &mut [u64; ROWS]) {
        rows.iter_mut().zip(digests).for_each(|(row, &digest)| *row = layout.row(digest, tweak));
    }
}

/// Tweaks that are tried at once: a vector of AVX2.
const TWEAKS: usize = 4;

by_processor! {
    /// Of [`TWEAKS`] tweaks from `tweak` on those under which the rows of names are independent, as bits; rows are words.
    fn independent_of_several(layout: Layout, digests: &[u64], tweak: u8) -> u8 {
        // Loops over lanes, for what makes an array of a closure is now and then compiled on its own, without vectors.
        let mut rows = [[0u64; TWEAKS]; ROWS];
        for (row, &digest) in rows.iter_mut().zip(digests) {
            for (lane, row) in row.iter_mut().enumerate() {
                *row = layout.row(digest, tweak.wrapping_add(lane as u8));
            }
        }
        let mut independent = [u64::MAX; TWEAKS];
        let n_rows = digests.len().min(ROWS);
        for at in 0..n_rows {
            let row = rows[at];
            let mut pivot = [0; TWEAKS];
            for lane in 0..TWEAKS {
                pivot[lane] = row[lane] & row[lane].wrapping_neg();
                independent[lane] &= is_some(row[lane]);
            }
            if independent == [0; TWEAKS] {
                break;
            }
            for other in &mut rows[at + 1..n_rows] {
                let mut reduced = *other;
                for lane in 0..TWEAKS {
                    reduced[lane] ^= row[lane] & is_some(reduced[lane] & pivot[lane]);
                }
                *other = reduced;
            }
        }
        (0..TWEAKS).fold(0, |bits, lane| bits | (independent[lane] as u8 & 1) << lane)
    }
}

by_processor! {
    /// Brings the first `n_rows` rows to reduced echelon form: the pivot column of each as a bit, zero where it depends on
    /// those before it, and the set of rows that were added up to it.
    fn eliminate_in_memory(rows: &mut [u64; ROWS], n_rows: usize, pivots: &mut [u64; ROWS], combinations: &mut [u64; ROWS]) {
        combinations.iter_mut().enumerate().for_each(|(at, combination)| *combination = 1 << at);
        // Rows behind the last are zero, and spare a vector loop the rest that fills no vector.
        let n_filled = n_rows.next_multiple_of(4).min(ROWS);
        for at in 0..n_rows.min(ROWS) {
            let (row, combination) = (rows[at], combinations[at]);
            let pivot = row & row.wrapping_neg();
            pivots[at] = pivot;
            for other in 0..n_filled {
                // All but itself; as a mask, for a store of one word would hold up the loads of vectors that come next.
                let has = is_some(rows[other] & pivot) & is_some((other ^ at) as u64);
                rows[other] ^= row & has;
                combinations[other] ^= combination & has;
            }
        }
    }
}

/// The solution of rows that are words, from the pivot of each and what was combined to it.
fn solution_of(pivots: &[u64], combinations: &[u64; ROWS]) -> Option<Solution> {
    let columns = pivots.iter().fold(0, |columns, pivot| columns | pivot);
    if columns.count_ones() as usize != pivots.len() {
        return None;
    }
    let mut by_column = [0; 64];
    for (pivot, &combination) in pivots.iter().zip(combinations) {
        by_column[pivot.trailing_zeros() as usize % 64] = combination;
    }
    // Room for one name more, so that an insert need not allocate.
    let mut solution = Vec::with_capacity(pivots.len() + 2);
    solution.push(columns);
    let mut left = columns;
    while left != 0 {
        solution.push(by_column[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    Some(solution)
}
